#!/usr/bin/env bash
# Runs golangci-lint on both modules, built from its Go module.
set -euo pipefail
cd "$(dirname "$0")/.."
lint=github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.6.2
go run "$lint" run ./...
(cd controlplane && go run "$lint" run ./...)
