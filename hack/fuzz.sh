#!/usr/bin/env bash
# Runs every fuzz target of the module, or of some packages, for the time given, one after another: fuzz.sh TIME [PACKAGE...]
set -euo pipefail
cd "$(dirname "$0")/.."
fuzztime=${1:-30s}
[ $# -gt 1 ] || set -- "$fuzztime" $(grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u)
shift
for package in "$@"; do
	grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$package"/*_test.go | awk '{print $2}' | while read -r target; do
		echo "fuzzing $package $target for $fuzztime"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$fuzztime" "$package"
	done
done
