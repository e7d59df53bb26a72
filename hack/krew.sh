#!/usr/bin/env bash
# Prints the manifest with which krew installs workctl as the plugin "kubectl work", of the archives
# workwire_VERSION_OS_ARCH.tar.gz in FOLDER, for each platform that is there.
#
#   hack/krew.sh VERSION FOLDER >FOLDER/work.yaml
set -euo pipefail
if [ $# != 2 ]; then
	echo "usage: hack/krew.sh VERSION FOLDER" >&2
	exit 2
fi
version=$1 folder=$2 repository=https://github.com/workwire/workwire
cat <<EOF
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: work
spec:
  version: $version
  homepage: $repository
  shortDescription: Show and steer ManifestWorks and clusters
  description: |
    Shows how far the ManifestWorks of a Workwire hub have got and what blocks them, steers works, clusters and
    rollouts, asks agents for dry runs, and finds out why nothing arrives. It is the command workctl.
  caveats: |
    It reads the kubeconfig of the hub. Its page is
    $repository/blob/$version/docs/workctl.md
  platforms:
EOF
shopt -s nullglob
archives=("$folder"/workwire_"$version"_*_*.tar.gz)
if [ ${#archives[@]} = 0 ]; then
	echo "krew: $folder has no archive workwire_${version}_OS_ARCH.tar.gz; build the release first" >&2
	exit 1
fi
for archive in "${archives[@]}"; do
	name=$(basename "$archive") platform=${archive#"$folder/workwire_${version}_"}
	platform=${platform%.tar.gz}
	tar -tzf "$archive" ./workctl ./LICENSE >/dev/null # what the manifest names
	cat <<EOF
  - selector:
      matchLabels:
        os: ${platform%_*}
        arch: ${platform#*_}
    uri: $repository/releases/download/$version/$name
    sha256: $(sha256sum "$archive" | cut -d' ' -f1)
    files:
    - from: workctl
      to: .
    - from: LICENSE
      to: .
    bin: workctl
EOF
done
