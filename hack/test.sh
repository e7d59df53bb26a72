#!/usr/bin/env bash
# Runs the tests of every module, and says at the end how many passed and what was left out for want of
# which program. make test runs it. make check runs it with --all: with the race detector where the tests run our
# code, and no program left out; with TESTED=1, which says that make test has passed here without those programs, what
# would run once more in the same way is left out. Then it runs it with --alone: hostile clients, which measures time, and a minute
# of random faults. make unit runs it with --unit: the packages whose tests start nothing of bin/, and no PostgreSQL.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-}

flags="-json -timeout 30m -vet=off -ldflags=-s" # make lint vets, and nobody debugs them

# tested [PACKAGE...]: the packages that have tests, with what their tests import.
tested() {
	go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}{{end}}' "$@"
}

go build -o bin/testrun ./hack/testrun
if [ "$mode" = --unit ]; then
	mapfile -t unit < <(tested ./pkg/... ./hack/... ./broker/{acl,limits,packet,session} | grep -vE 'test/kit/(controlplane|process|brokerkit|postgreskit)' | cut -d ' ' -f 1)
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
controlplane="./internal/cli ./internal/credentials ./internal/kine ./internal/plane ./internal/process ./internal/wholerows ./internal/works ./test"
beside=(
	"go test $flags -p 1 ${programs[*]}"
	"go test -C controlplane $flags -count=1 $controlplane"
	"go test -C test/bench $flags ./..."
	"go test -C test/sim/replay $flags ."
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
	# having PATTERN FILES...: of the packages in rest, those with such files (options of grep) that have the pattern.
	having() { comm -12 <(printf '%s\n' "${rest[@]}" | sort) <(grep -rlE "$@" . | xargs -n 1 dirname | sort -u); }
	# The race detector runs where goroutines of ours meet: in the packages that start some, and where hub and agents run together. make fuzz runs the fuzzer.
	mapfile -t goroutines < <(having '^\s*(defer )?go (func|[a-zA-Z_.]+\()|\.Go\(' --include='*.go' --exclude-dir={kit,sim,fuzz,cmd,deploy,hack,bench,examples})
	mapfile -t needing < <(having 'StartMosquitto|(broker|postgres|mosquitto)kit\.|kit\.[A-Z][A-Za-z]+\.Require\(' --include='*_test.go' | grep -vxF "$(printf '%s\n' "${goroutines[@]}")")
	beside=("go test $flags ./test/faults -run ^TestHubInPostgreSQL\$" "go test $flags $deploy -run 'Helm|Chart|InstallationGuide|NetworkPolicies|PinnedImages|QuickStart'"
		"go test -C controlplane $flags -count=1 ./test -run 'Hub|Life|Spoke|Database|BrokenResult|Nothing' -skip ./etcd" "go test $flags -p 1 ${needing[*]}" "go test -C test/bench $flags -run ^TestQuick\$ .")
	deploy=""
	rest=("${goroutines[@]}" ./test/{clusters,rollout,shards})
fi
# What these tests build is what make build has built, without cgo.
exec bin/testrun "env CGO_ENABLED=1 go test $flags -race -p $atOnce -exec 'env CGO_ENABLED=0' $deploy ${slow[*]} ${rest[*]}" beside "${beside[@]}"
