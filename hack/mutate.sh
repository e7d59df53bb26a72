#!/usr/bin/env bash
# Plants small faults into packages, one at a time (a negated condition, < for <=, && for ||, + for -, ...), and runs
# the tests of the package on each, with gremlins (https://gremlins.dev), built from its Go module. Prints the faults that no test
# notices, and the share of those that one does.
#
#   hack/mutate.sh [PACKAGE...]   by default some that decide, and whose tests are quick
set -euo pipefail
cd "$(dirname "$0")/.."
module=github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0
[ $# -gt 0 ] || set -- pkg/hub/internal/rollout pkg/agent/internal/inbox pkg/agent/internal/strategy/plan pkg/hub/revisions
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
(cd "$tools" && GOFLAGS=-trimpath CGO_ENABLED=0 GOBIN="$tools" go install "$module")
for package in "$@"; do
	echo "$package"
	# A test that never ends is stopped after some times of what it takes without a fault.
	nice "$tools/gremlins" unleash --invert-logical --invert-loopctrl --timeout-coefficient 20 --output-statuses lct "./$package" |
		grep -E '^ *(LIVED|NOT COVERED|TIMED OUT|Killed|Timed|Test efficacy|Mutator coverage)' || true
done
