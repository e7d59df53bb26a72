#!/usr/bin/env bash
# Writes all generated code and manifests from the API types in pkg/apis:
#   pkg/apis/*/*/zz_generated.deepcopy.go   deep copies
#   pkg/client/                             clientset
#   deploy/crds/*.yaml                      CustomResourceDefinitions
#   docs/api.md                             the reference of the types
# Run it after a change of the types (make generate). The result depends on nothing but the sources and the tool
# versions below; hack/verify-generated.sh checks that it is up to date.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Generators of the Kubernetes libraries come in the version of the libraries themselves.
kube_version=$(go list -m -f '{{.Version}}' k8s.io/apimachinery)
controller_gen_version=v0.23.0

module=$(go list -m)
header=hack/boilerplate.go.txt
# group/version below pkg/apis.
objects=(cluster/v1 cluster/v1alpha1 cluster/v1beta1 cluster/v1beta2 work/v1 work/v1alpha1 workwire/v1alpha1)

api_packages=("${objects[@]/#/./pkg/apis/}")

# Fresh output beside the old, moved in place at the end: a failed run leaves the tree as it was.
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

kube() {
  local tool=$1
  shift
  go run "k8s.io/code-generator/cmd/$tool@$kube_version" --go-header-file "$header" "$@"
}

echo "generate: deep copies"
kube deepcopy-gen --output-file zz_generated.deepcopy.go "${api_packages[@]}"

echo "generate: clientset"
kube client-gen --clientset-name versioned --fake-clientset=false \
  --input-base "$module/pkg/apis" --input "$(IFS=,; echo "${objects[*]}")" \
  --output-dir "$out/client/clientset" --output-pkg "$module/pkg/client/clientset"

echo "generate: CustomResourceDefinitions"
paths=$(IFS=';'; echo "${api_packages[*]}")
go run "sigs.k8s.io/controller-tools/cmd/controller-gen@$controller_gen_version" \
  crd "paths=$paths" "output:crd:dir=$out/crds"

mkdir -p pkg/client deploy/crds
rm -rf pkg/client/clientset
mv "$out/client/clientset" pkg/client/clientset
rm -f deploy/crds/*.yaml
mv "$out"/crds/*.yaml deploy/crds/

echo "generate: API reference"
go run ./hack/apidocs > "$out/api.md"
mv "$out/api.md" docs/api.md
