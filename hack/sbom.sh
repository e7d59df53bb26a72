#!/usr/bin/env bash
# Prints the software bill of materials of a Go binary (CycloneDX, JSON): sbom.sh BINARY VERSION
set -euo pipefail
binary=$(realpath "$1")
cd "$(dirname "$0")/.."
exec go run ./hack/sbom "$binary" "$2"
