#!/usr/bin/env bash
# Makes a kind cluster, unless it is there, ready for deploy/compose/kind.yaml: types and rights of the agent, and in
# .kind/agent a kubeconfig for it, whose token is valid for a year. Run it again to renew that.
#
#   hack/kind-spoke.sh [NAME]      the cluster's name for kind; default: workwire
#
# KIND and KUBECTL name the programs; bin/kubectl is made by make images.
set -euo pipefail
cd "$(dirname "$0")/.."
name=${1:-workwire}
kind=${KIND:-kind}
kubectl=${KUBECTL:-bin/kubectl}
account=klusterlet-work-sa
namespace=open-cluster-management-agent

for program in "$kind" "$kubectl"; do
	if ! command -v "$program" >/dev/null; then
		echo "$program is missing: install kind (https://kind.sigs.k8s.io) and run make images, or set KIND and KUBECTL" >&2
		exit 1
	fi
done
# Others of this machine stop at .kind; the user of the agent's container has to read what is below.
umask 077
mkdir -p .kind
work=$(mktemp -d .kind/new.XXXXXX)
trap 'rm -rf "$work"' EXIT

if ! grep -qx "$name" <<<"$("$kind" get clusters 2>/dev/null)"; then
	"$kind" create cluster --name "$name" --kubeconfig "$work/created" --wait 2m
fi
"$kind" get kubeconfig --name "$name" >"$work/admin"
"$kubectl" --kubeconfig "$work/admin" apply --kustomize deploy/compose/spoke
token=$("$kubectl" --kubeconfig "$work/admin" --namespace "$namespace" create token "$account" --duration=8760h)

# The address is the one in kind's network, the user not kind's administrator.
"$kind" get kubeconfig --name "$name" --internal >"$work/internal"
of_cluster() { "$kubectl" --kubeconfig "$work/internal" config view --raw --output "jsonpath={.clusters[0].cluster.$1}"; }
cat >"$work/kubeconfig" <<END
apiVersion: v1
kind: Config
clusters:
- name: kind
  cluster:
    server: $(of_cluster server)
    certificate-authority-data: $(of_cluster certificate-authority-data)
users:
- name: $account
  user:
    token: $token
contexts:
- name: kind
  context: {cluster: kind, user: $account}
current-context: kind
END

mkdir -p .kind/agent
chmod 755 .kind/agent
chmod 644 "$work/kubeconfig"
mv "$work/kubeconfig" .kind/agent/kubeconfig
cat <<END
The kind cluster $name is ready. Go on with
  docker-compose -f docker-compose.yaml -f deploy/compose/kind.yaml up -d
and send it a work:
  sed 's/namespace: cluster1/namespace: kind/' examples/hello-work-demo.yaml |
    docker-compose exec -T hub-api kubectl apply --filename=-
END
