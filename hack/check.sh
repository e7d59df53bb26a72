#!/usr/bin/env bash
# Runs everything that a change must pass: make check. Without arguments all lanes, otherwise those that are named:
#
#   lint         golangci-lint, govulncheck, generated code
#   unit         make unit
#   e2e          the demo, and docker-compose.yaml in containers, with a RabbitMQ; the containers run beside the lane that follows
#   integration  all tests, with the race detector and no program left out; random faults and packets; one benchmark run
#
# INSTALL=1 installs the Debian packages that are missing.
set -euo pipefail
export MAKEFLAGS=--no-print-directory
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- lint unit e2e integration
lanes=$#
begin=$SECONDS
declare -A beside # process ids and files with the output, by command

install() {
	local missing sudo=""
	missing=$(hack/needs.sh --packages "$1")
	[ -n "$missing" ] && [ -n "${INSTALL:-}" ] || return 0
	[ "$(id -u)" = 0 ] || sudo=sudo
	echo "installing" $missing
	$sudo apt-get update -qq
	# A package that this Debian does not have is named by needs.sh afterwards.
	for package in $missing; do
		! apt-cache show "$package" >/dev/null 2>&1 ||
			$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null
	done
}

# step COMMAND...: runs one step and prints how long it took.
step() {
	local begin=$SECONDS
	echo "check: $*"
	"$@" || { echo "check: FAILED after $((SECONDS - begin)) s: $*" >&2; return 1; }
	echo "check: $* took $((SECONDS - begin)) s"
}

# later COMMAND...: runs a step beside those that follow, in the time that their tests wait. Its output comes at the end.
later() {
	if [ "$lanes" = 1 ]; then
		step "$@"
		return
	fi
	local output
	output=$(mktemp)
	setsid nice "$@" >"$output" 2>&1 &
	beside["$*"]="$! $output $SECONDS"
	echo "check: $*: begun"
}

# ended: waits for the steps that later has begun. Of what passed it prints what was left out.
ended() {
	local command id output begun
	for command in "${!beside[@]}"; do
		read -r id output begun <<<"${beside[$command]}"
		wait "$id" || { cat "$output"; echo "check: FAILED: $command" >&2; return 1; }
		grep -E '^##|^e2e: ' "$output" || true
		echo "check: $command: passed, $((SECONDS - begun)) s after it was begun"
	done
	beside=()
}

# stopped: ends the steps of later that still run, with what they have started.
stopped() {
	local each id output
	for each in "${beside[@]}"; do
		read -r id output _ <<<"$each"
		kill -- "-$id" 2>/dev/null || true
		rm -f "$output"
	done
}
trap stopped EXIT

lane_lint() {
	step make help
	step hack/verify-generated.sh
	step make vulnerabilities
	later make lint
}

lane_unit() { step make unit; }

lane_e2e() {
	install e2e || echo "the packages for make e2e cannot be installed; it reports what it leaves out"
	step make demo ONCE=1
	later make e2e
}

lane_integration() {
	install test
	hack/needs.sh test
	step make build
	step hack/test.sh --all
	ended
	step hack/test.sh --alone
	later make bench BENCHFLAGS=--quick ONLY='one work'
	later make simulate SEEDS=2 TWICE=1
	later make fuzz MINUTES=1 FUZZTIME=1s PACKAGES="./broker/packet ./pkg/wire"
}

for lane in "$@"; do
	declare -F "lane_$lane" >/dev/null || { echo "check: there is no lane $lane: want lint, unit, integration or e2e" >&2; exit 2; }
done
for lane in "$@"; do
	"lane_$lane"
done
ended
echo "check: $* took $((SECONDS - begin)) s"
