#!/usr/bin/env bash
# Says at once what this machine lacks for the tests, before anything is built.
set -euo pipefail
PATH=$PATH:/usr/sbin
missing=()
command -v mosquitto >/dev/null || missing+=(mosquitto)
# The race detector is linked in by a C compiler.
command -v "${CC:-gcc}" >/dev/null || missing+=(gcc libc6-dev)
if [ ${#missing[@]} -gt 0 ]; then
	echo "the tests need more than Go, git and make: apt-get install -y --no-install-recommends ${missing[*]}" >&2
	exit 1
fi
