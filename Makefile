# Workwire. `make help` lists what there is to do.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION    ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
KUBERNETES := v1.36.3
LDFLAGS    := -s -w -X github.com/workwire/workwire/pkg/runtime/version.Version=$(VERSION)
CONTROLPLANE_LDFLAGS := -s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES)

export CGO_ENABLED ?= 0
# For everything alike, so that building, vetting and testing share their cache. Without gRPC's traces, which use
# html/template, the linker leaves out the methods that nothing calls: an agent is 22 % smaller. What is left out of the binaries for debuggers
# is not made either, which is a tenth of the time.
export GOFLAGS := $(shell go env GOFLAGS) -trimpath -tags=grpcnotrace -gcflags=all=-dwarf=false

##@ Run it

.PHONY: demo
demo: build ## Start hub, broker, spoke and agent, apply the examples, show their status, walk through a rollout. ONCE=1 ends when they are available.
	@bin/demo $(if $(ONCE),--once)

##@ Build it

.PHONY: build
build: binaries bin/controlplane ## Build every binary into bin/.

.PHONY: binaries
binaries:
	@mkdir -p bin
	@echo "building work-agent, work-hub, work-broker, workctl, demo"
	@hack/with-progress.sh go build -ldflags "$(LDFLAGS)" -o bin/ ./cmd/...

CONTROLPLANE_SOURCES := $(shell find controlplane -name '*.go' -not -name '*_test.go') controlplane/go.mod controlplane/go.sum \
	$(wildcard pkg/apis/work/v1/*.go pkg/runtime/files/*.go deploy/crds/*.yaml) deploy/crds/crds.go

bin/controlplane: $(CONTROLPLANE_SOURCES)
	@mkdir -p bin
	@echo "building controlplane: Kubernetes $(KUBERNETES) in one binary; the first time takes up to 20 minutes on 2 cores"
	@hack/with-progress.sh go build -C controlplane -ldflags "$(CONTROLPLANE_LDFLAGS)" -o ../bin/controlplane.new .
	@mv bin/controlplane.new bin/controlplane
	@ln -sf controlplane bin/kubectl

# The node of deploy/compose/node.yaml. Its source is a module.
bin/kubelet: controlplane/go.mod
	@mkdir -p bin
	@echo "building kubelet $(KUBERNETES)"
	@hack/with-progress.sh go build -C controlplane -ldflags "$(CONTROLPLANE_LDFLAGS)" -o ../bin/kubelet.new k8s.io/kubernetes/cmd/kubelet
	@mv bin/kubelet.new bin/kubelet

.PHONY: images
images: export CGO_ENABLED := 0
images: build ## Build the container images workwire/NAME:VERSION with docker, from scratch, with their SBOMs. For docker-compose.yaml.
	@hack/images.sh "$(VERSION)"

.PHONY: release-dry-run
release-dry-run: ## Build, sign and verify a release against a registry on loopback, and install from it. Publishes nothing.
	@hack/release.sh --dry-run

.PHONY: clean
clean: ## Remove what was built and what the demo left.
	rm -rf bin .demo deploy/images/*/made-by-make-images

##@ Change it

.PHONY: generate
generate: ## Regenerate deepcopy, clientset, informers, listers, CRDs and docs/api.md.
	hack/generate.sh

.PHONY: lint
lint: ## Run golangci-lint.
	@hack/lint.sh

.PHONY: vulnerabilities
vulnerabilities: ## Look for known vulnerabilities with govulncheck. Says so where its database cannot be reached. GOVULNDB=URL or PATH.
	@hack/vulnerabilities.sh

.PHONY: unit
unit: ## Run the tests of the packages whose tests start nothing of bin/, and no PostgreSQL, 2 minutes.
	@hack/test.sh --unit

.PHONY: test
test: build ## Run the tests, 16 minutes on 2 cores. Needs Go, git and make; tests of programs that are not installed are left out, and the last line names them.
	@hack/test.sh

.PHONY: check
check: ## Run everything: linters, generated code, all tests with the race detector on every broker, fuzzing, containers. INSTALL=1 LANES="lint unit e2e integration".
	@$(if $(INSTALL),INSTALL=1) hack/check.sh $(LANES)

.PHONY: e2e
e2e: ## Run docker-compose.yaml for real: the tutorial, kills, a cut network, new certificates. Needs docker; E2E_REQUIRED=1 E2E_RUN=REGEXP.
	@hack/e2e.sh

.PHONY: soak
soak: bin/controlplane ## Break hub, broker and agent in a random order for MINUTES=30, see docs/reliability.md. SEED=N repeats an order.
	go test ./test/faults -run '^TestSoak$$' -v -count=1 -timeout $$(($(or $(MINUTES),30) + 10))m \
		-soak $(or $(MINUTES),30)m -seed $(or $(SEED),0)

.PHONY: simulate
simulate: ## Run hubs and agents in simulated time, where everything fails: SEEDS=20 of 15 minutes each from SEED=1, or MINUTES=60 long; a seed does the same in each run. STORY=1 TWICE=1 SHRINK=1 LEAVE_OUT=NUMBERS MUTANTS=REGEXP; see docs/simulation.md.
	@$(if $(MUTANTS),go test ./test/sim -run '^TestMutants$$' -v -count=1 -timeout 24h -mutants '$(MUTANTS)' -seed $(or $(SEED),1) -seeds $(or $(SEEDS),20), \
		hack/simulate.sh -seed=$(or $(SEED),1) -seeds=$(or $(SEEDS),$(if $(LEAVE_OUT),1,20)) $(if $(MINUTES),-minutes=$(MINUTES)) $(if $(TWICE),-twice) \
		$(if $(SEED),,-corpus=test/sim/testdata/corpus) $(if $(STORY),-story) $(if $(SHRINK),-shrink) $(if $(LEAVE_OUT),-leave-out=$(LEAVE_OUT)))

.PHONY: bench
bench: build ## Measure agent, hub and broker against their surroundings, 45 minutes. AGENT=PATH ONLY=REGEXP RUNS=3 BROKER=mosquitto|rabbitmq PROFILE=1; see docs/performance.md.
	@go build -C test/bench -o ../../bin/bench .
	@bin/bench --json=bin/bench.json $(if $(AGENT),--agent="$(AGENT)") $(if $(ONLY),--only="$(ONLY)") \
		$(if $(RUNS),--runs=$(RUNS)) $(if $(BROKER),--broker=$(BROKER)) $(if $(PROFILE),--profile=bin/profiles) $(BENCHFLAGS)

.PHONY: fuzz
fuzz: ## Fuzz the broker over the network for MINUTES=10 (SEED=N repeats), and every decoder for FUZZTIME=30s, of all PACKAGES or some.
	go test ./broker/fuzz -run '^TestNetwork$$' -v -count=1 -timeout $$(($(or $(MINUTES),10) + 10))m -for $(or $(MINUTES),10)m -seed $(or $(SEED),0)
	@hack/fuzz.sh $(or $(FUZZTIME),30s) $(PACKAGES)

##@ Find out

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN {FS = ":.*## "; printf "Usage: make <target>\n"} \
		/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-zA-Z_\/-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
