#!/usr/bin/env bash
# Runs golangci-lint, built from its Go module, on every Go module of the repository.
set -euo pipefail
cd "$(dirname "$0")/.."
lint=github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.6.2
config=$PWD/.golangci.yaml
git ls-files 'go.mod' '*/go.mod' | while read -r module; do
	echo "lint: $(dirname "$module")"
	(cd "$(dirname "$module")" && go run "$lint" run --config="$config" ./...)
done
