#!/usr/bin/env bash
# Prints the section of CHANGELOG.md for a version: hack/changelog.sh v1.2.3
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?usage: hack/changelog.sh VERSION}
section=$(awk -v heading="## [${version#v}]" 'index($0, heading) == 1 {found = 1; next} /^## \[/ {found = 0} found' CHANGELOG.md)
if [ -z "${section//[[:space:]]/}" ]; then
	echo "changelog: CHANGELOG.md has no section \"## [${version#v}]\"; add it before the release" >&2
	exit 1
fi
printf '%s\n' "$section"
