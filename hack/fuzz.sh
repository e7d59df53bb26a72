#!/usr/bin/env bash
# Runs every fuzz target of the module, or of some packages, for the time given, one after another: fuzz.sh TIME [PACKAGE...]
set -euo pipefail
cd "$(dirname "$0")/.."
fuzztime=${1:-30s}
[ $# -gt 1 ] || set -- "$fuzztime" $(grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u)
shift
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# fuzz PACKAGE TARGET: a run that fails at its deadline, without an input that fails, says nothing, and is repeated:
# https://go.dev/issue/75804, mended in Go 1.27.
fuzz() {
	local attempt
	for attempt in 1 2 3; do
		echo "fuzzing $1 $2 for $fuzztime"
		go test -run '^$' -fuzz "^$2\$" -fuzztime "$fuzztime" "$1" 2>&1 | tee "$output" && return
		grep -q 'context deadline exceeded' "$output" && ! grep -q 'Failing input written' "$output" || return
	done
	return 1
}

for package in "$@"; do
	targets=$(grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$package"/*_test.go | awk '{print $2}') || { echo "$package has no fuzz target" >&2; exit 1; }
	for target in $targets; do
		fuzz "$package" "$target"
	done
done
