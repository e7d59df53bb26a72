#!/usr/bin/env bash
# Writes the man pages of the commands and their subcommands to FOLDER/man1. Their text is that of --help, and their
# date that of the commit (SOURCE_DATE_EPOCH names another), so that the same commit gives the same pages.
#
#   hack/man.sh FOLDER [VERSION]    look at one: man -M FOLDER workctl
set -euo pipefail
if [ $# = 0 ]; then
	echo "usage: hack/man.sh FOLDER [VERSION]" >&2
	exit 2
fi
pages=$(realpath -m "$1")/man1 version=${2:-}
cd "$(dirname "$0")/.."
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH TZ=UTC
mkdir -p "$pages"
for name in work-agent work-hub work-broker workctl; do
	CGO_ENABLED=0 go run -tags manpages ${version:+-ldflags "-X github.com/workwire/workwire/pkg/runtime/version.Version=$version"} "./cmd/$name" "$pages"
done
