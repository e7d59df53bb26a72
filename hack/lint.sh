#!/usr/bin/env bash
# Runs golangci-lint, built from its Go module, on every Go module of the repository.
set -euo pipefail
cd "$(dirname "$0")/.."
lint=github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.6.2
config=$PWD/.golangci.yaml
# Linters that look at the dependencies too would read all of Kubernetes in controlplane, for ten minutes.
quick=containedctx,copyloopvar,depguard,errcheck,funlen,intrange,nolintlint,revive,sloglint,unconvert,usestdlibvars
git ls-files 'go.mod' '*/go.mod' | while read -r module; do
	folder=$(dirname "$module")
	echo "lint: $folder"
	(cd "$folder" && go run "$lint" run --config="$config" $([ "$folder" != controlplane ] || echo "--enable-only=$quick") ./...)
done
