#!/usr/bin/env bash
# Names the images of a release by their digests, in a copy of deploy/: the Helm chart's values, and the kustomize bases.
# The overlays of the example then need no images of their own.
#
#   hack/pin.sh DEPLOY IMAGES    IMAGES has lines REGISTRY/NAME@sha256:...
set -euo pipefail
deploy=$1
while IFS=@ read -r repository digest; do
	[[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || { echo "pin: $repository has no digest" >&2 && exit 1; }
	name=${repository##*/} values=$deploy/helm/workwire/values.yaml
	case $name in
	work-agent | work-hub | work-broker) ;;
	*) continue ;; # runs in no cluster
	esac
	sed -i -e "s|^  registry: .*|  registry: ${repository%/*}|" -e "s|^    $name: .*|    $name: $digest|" "$values"
	grep -q "^    $name: $digest$" "$values" || { echo "pin: $values has no digest for $name" >&2 && exit 1; }
	part=${name#work-}
	cat >>"$deploy/kustomize/$part/kustomization.yaml" <<-END
		images:
		- name: workwire/$name
		  newName: $repository
		  digest: $digest
	END
	sed -i '/^images:$/,/newTag/d' "$deploy/kustomize/example/$part/kustomization.yaml"
done <"$2"
