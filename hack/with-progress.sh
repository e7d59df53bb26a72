#!/usr/bin/env bash
# Runs a long, silent command and says every 15 seconds that it is still at it.
set -euo pipefail
start=$SECONDS
"$@" &
command=$!
trap 'kill "$command" 2>/dev/null || true' INT TERM
(
	while sleep 15; do
		echo "  ... still at it after $((SECONDS - start)) s" >&2
	done
) &
ticker=$!
status=0
wait "$command" || status=$?
kill "$ticker" 2>/dev/null || true
wait "$ticker" 2>/dev/null || true
exit "$status"
