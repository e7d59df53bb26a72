#!/usr/bin/env bash
# Runs every fuzz target of the module for the time given, one after another.
set -euo pipefail
cd "$(dirname "$0")/.."
fuzztime=${1:-30s}
grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u | while read -r package; do
	grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$package"/*_test.go | awk '{print $2}' | while read -r target; do
		echo "fuzzing $package $target for $fuzztime"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$fuzztime" "$package"
	done
done
