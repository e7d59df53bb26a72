#!/usr/bin/env bash
# Attests an image of one platform: its SBOM (CycloneDX), and its provenance (SLSA v1), which names the commit and the
# workflow that built it. Needs cosign in PATH.
#
#   hack/attest.sh IMAGE@DIGEST SBOM VERSION                 signs with the identity of the workflow
#   hack/attest.sh IMAGE@DIGEST SBOM VERSION --key=KEY       signs with a key, for a registry without TLS; into no public
#                                                            log. Verifies what it has made with KEY's public half, .pub
set -euo pipefail
image=$1 sbom=$(realpath "$2") version=$3 key=${4:-}
cd "$(dirname "$0")/.."
repository=https://github.com/workwire/workwire
provenance=$(mktemp)
trap 'rm -f "$provenance"' EXIT
cat >"$provenance" <<END
{
  "buildDefinition": {
    "buildType": "$repository/blob/main/hack/release.sh",
    "externalParameters": {"version": "$version"},
    "resolvedDependencies": [{"uri": "git+$repository@$version", "digest": {"gitCommit": "$(git rev-parse HEAD)"}}]
  },
  "runDetails": {
    "builder": {"id": "$repository/.github/workflows/release.yaml"},
    "metadata": {"invocationId": "$repository/actions/runs/${GITHUB_RUN_ID:-none}/attempts/${GITHUB_RUN_ATTEMPT:-0}"}
  }
}
END
signing=(--yes) verifying=()
if [ -n "$key" ]; then
	signing+=("$key" --tlog-upload=false --allow-http-registry)
	verifying=("${key%.key}.pub" --insecure-ignore-tlog --allow-http-registry)
fi
for predicate in "cyclonedx $sbom" "slsaprovenance1 $provenance"; do
	read -r type file <<<"$predicate"
	cosign attest "${signing[@]}" --type="$type" --predicate="$file" "$image"
	if [ -n "$key" ]; then
		cosign verify-attestation "${verifying[@]}" --type="$type" "$image" >/dev/null
	fi
done
