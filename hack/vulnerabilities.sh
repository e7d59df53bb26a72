#!/usr/bin/env bash
# Looks for known vulnerabilities in what the programs call, with govulncheck, built from its Go module, on every Go
# module of the repository. Fails for one that a newer version mends; says so, and succeeds, where the database
# (https://vuln.go.dev, or GOVULNDB) cannot be reached.
set -euo pipefail
cd "$(dirname "$0")/.."
module=golang.org/x/vuln/cmd/govulncheck@v1.9.0
database=${GOVULNDB:-https://vuln.go.dev}
[[ $database == *://* ]] || database=file://$(realpath "$database")

tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
if ! (cd "$tools" && GOFLAGS=-trimpath CGO_ENABLED=0 GOBIN="$tools" go install "$module") >"$tools/log" 2>&1; then
	tail -n 3 "$tools/log" >&2
	echo "vulnerabilities: govulncheck cannot be built here; nothing was checked" >&2
	exit 0
fi
# The database is asked before: a check that fails is not taken for one that found nothing to ask.
if [[ $database == http* ]] && ! timeout 60 "$tools/govulncheck" -db "$database" -version | grep '^DB updated:' >/dev/null; then
	echo "vulnerabilities: $database cannot be reached; nothing was checked" >&2
	exit 0
fi

failed=""
while read -r folder; do
	echo "vulnerabilities: $folder"
	# Of controlplane, which is for tests and the demo, only the imported packages: its calls are all of Kubernetes.
	scan=symbol
	[ "$folder" != controlplane ] || scan=package
	"$tools/govulncheck" -C "$folder" -db "$database" -scan "$scan" ./... || failed+=" $folder"
done < <(git ls-files 'go.mod' '*/go.mod' | xargs -n 1 dirname)
[ -z "$failed" ] || {
	echo "vulnerabilities: found in$failed; update the modules that the lines above name" >&2
	exit 1
}
