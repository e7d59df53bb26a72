#!/usr/bin/env bash
# Runs the tests of every module, and says at the end how many passed and what was left out for want of
# which program. make test runs it. make check runs it with --all: with the race detector where the tests run our
# code, and no program left out; with TESTED=1, which says that make test has passed here without those programs, what
# would run once more in the same way is left out. Then it runs it with --alone: hostile clients, which measures time, and a minute
# of random faults. make unit runs it with --unit: the packages whose tests start no other program.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-}

flags="-json -timeout 30m -vet=off" # make lint vets

# tested [PACKAGE...]: the packages that have tests, with what their tests import.
tested() {
	go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}{{end}}' "$@"
}

go build -o bin/testrun ./hack/testrun
if [ "$mode" = --unit ]; then
	mapfile -t unit < <(tested ./pkg/... ./hack/... ./broker/{acl,limits,packet,session,store} | grep -vE 'test/kit/(controlplane|process|brokerkit|postgreskit)' | cut -d ' ' -f 1)
	exec bin/testrun "go test $flags ${unit[*]}"
fi

# Those that take longest come first; one more at a time than there are cores, because they wait for much of their time. Beside them, one at
# a time, those that wait for most of it.
programs=(./test/faults ./cmd/demo/internal/demo ./test/preview)
atOnce=$(($(nproc) + 1))
deploy=./test/deploy
slow=(./pkg/agent ./test/integration ./test/fleet ./broker ./broker/conformance ./test/symptoms)
hostile=./test/hostile
mapfile -t rest < <(tested ./... | cut -d ' ' -f 1 | sed 's#^github.com/workwire/workwire#.#' | grep -vxF "$(printf '%s\n' "${programs[@]}" "${slow[@]}" $deploy $hostile)")
# The packages of controlplane/ that have tests. Its others are Kubernetes: naming them would compile all of it again.
controlplane="./internal/cli ./internal/credentials ./internal/kine ./internal/plane ./internal/process ./internal/wholerows ./test"
beside=(
	"go test $flags -p 1 ${programs[*]}"
	"go test -C controlplane $flags -count=1 $controlplane"
	"go test -C test/bench $flags ./..."
)
export CONTROLPLANE_BIN=$PWD/bin/controlplane
if [ "$mode" = --alone ]; then
	export WORKWIRE_TEST_ALL=1
	exec bin/testrun "go test $flags $hostile -for 1m" "go test $flags ./test/faults -run ^TestSoak\$ -soak 1m -seed 521"
fi
if [ "$mode" != --all ]; then
	exec bin/testrun "go test $flags -p $atOnce $deploy ${slow[*]} ${rest[*]}" beside "${beside[@]}"
fi
hack/helm.sh >/dev/null
export WORKWIRE_TEST_ALL=1
if [ -n "${TESTED:-}" ]; then
	beside=("go test $flags ./test/faults -run ^TestHubInPostgreSQL\$" "go test $flags $deploy -run 'Helm|Chart|InstallationGuide|NetworkPolicies|PinnedImages|QuickStart'"
		"go test -C controlplane $flags -count=1 ./test -run 'Hub|Life|Spoke|Database|BrokenResult|Nothing' -skip ./etcd" "go test $flags ./cmd/workctl -run 'Krew|ManPages'")
	deploy=""
	# The race detector finds nothing in these, which read files, run programs and API servers from outside, run in one thread, or are pure; and
	# nothing that it does not find in test/integration in those that run hub and agent for an example.
	outside='cmd|deploy|docs|examples|hack|test/(examples|sim|upgrade|kit/controlplane)'
	pure='pkg/(apis|wire|workstate|overrides|ctl/(cli|preview|render|wrap)|runtime/(expression|logging|memory|redaction|required|yamlfile)|transport/(config|topicfilter)'
	pure+='|hub/(previews|revisions|internal/rollout)|agent/(policy|internal/(feedback|conditionrules|jsonpath|object|order|questions|strategy/(plan|fields|ignore|ownership)))|security/enrolment)'
	mapfile -t rest < <(printf '%s\n' "${rest[@]}" | grep -vE "^\./($outside|$pure)(/|\$)")
fi
# What these tests build is what make build has built, without cgo.
exec bin/testrun "env CGO_ENABLED=1 go test $flags -race -p $atOnce -exec 'env CGO_ENABLED=0' $deploy ${slow[*]} ${rest[*]}" beside "${beside[@]}"
