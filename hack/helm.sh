#!/usr/bin/env bash
# Prints the path of Helm, built from its Go module into the user's cache the first time, which takes some minutes.
# WORKWIRE_HELM names another helm to use.
set -euo pipefail
if [ -n "${WORKWIRE_HELM:-}" ]; then
	echo "$WORKWIRE_HELM"
	exit
fi
version=v3.22.0
# A folder a version: a new version is built in a new folder, and a build that is interrupted leaves nothing.
folder=${XDG_CACHE_HOME:-$HOME/.cache}/workwire/helm-$version
if [ ! -x "$folder/helm" ]; then
	mkdir -p "$folder"
	fresh=$(mktemp -d "$folder/build.XXXXXX")
	trap 'rm -rf "$fresh"' EXIT
	echo "building helm $version; the first time takes some minutes" >&2
	# Not a dependency of this module: built outside of it.
	(cd "$fresh" && GOFLAGS=-trimpath GOBIN="$fresh" CGO_ENABLED=0 go install "helm.sh/helm/v3/cmd/helm@$version") >&2
	mv "$fresh/helm" "$folder/helm"
fi
echo "$folder/helm"
