#!/usr/bin/env bash
# Fails if a generated file is not what hack/generate.sh makes of the sources beside it. Generates in place, so that
# the result is there to be committed. Works on a tree with uncommitted changes too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The hash and name of every file in the folders that hold generated files.
fingerprint() {
  find pkg/apis pkg/client deploy/crds docs/api.md -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
}

before=$(fingerprint)
make --no-print-directory generate
after=$(fingerprint)

if [[ $before != "$after" ]]; then
  echo "verify-generated: these generated files were stale, and have been written again:" >&2
  diff <(echo "$before") <(echo "$after") | sed -n 's/^[<>] [0-9a-f]*  /  /p' | LC_ALL=C sort -u >&2 || true
  echo "Commit them. After a change of the API types, run 'make generate'." >&2
  exit 1
fi
echo "verify-generated: generated files are up to date"
