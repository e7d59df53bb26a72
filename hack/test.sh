#!/usr/bin/env bash
# Runs the tests of every module, and says at the end how many passed and what was left out for want of
# which program. make test runs it, and make check with --all: with the race detector, hostile clients, a minute of
# random faults, and no program left out.
set -euo pipefail
cd "$(dirname "$0")/.."
all=""
[ "${1:-}" != --all ] || all=1

# The packages that take longest start first; the others fill the gaps. hostile measures time: it runs alone.
hostile=./test/hostile
slow=(./test/faults ./test/deploy ./test/fleet ./test/integration ./pkg/agent ./broker ./demo ./test/symptoms)
mapfile -t rest < <(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | sed 's#^github.com/workwire/workwire#.#' | grep -vxF "$(printf '%s\n' "${slow[@]}" $hostile)")
# Tests wait a third of their time, for programs: one package more than cores. With twice as many, the slow ones time out.
packages=$(($(nproc) + 1))
flags="-json -timeout 30m -vet=off" # make lint vets
# The packages of controlplane/ that have tests. Its others are Kubernetes: naming them would compile all of it again.
controlplane="./internal/cli ./internal/credentials ./internal/kine ./internal/plane ./internal/process ./internal/wholerows ./test"

go build -o bin/testrun ./hack/testrun
export CONTROLPLANE_BIN=$PWD/bin/controlplane
commands=()
if [ -n "$all" ]; then
	hack/helm.sh >/dev/null
	commands+=("env CGO_ENABLED=0 go test $flags $hostile -for 1m")
	export CGO_ENABLED=1 WORKWIRE_TEST_ALL=1
	flags+=" -race -exec 'env CGO_ENABLED=0'" # what tests build is what make build has built
	commands+=("go test $flags ./test/faults -run ^TestSoak\$ -soak 1m -seed 521")
fi
commands=(
	"go test $flags -p $packages ${slow[*]} ${rest[*]}"
	"go test -C test/bench $flags ./..."
	"go test -C controlplane $flags -count=1 $controlplane"
	"${commands[@]}"
)
exec bin/testrun "${commands[@]}"
