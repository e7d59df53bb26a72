#!/usr/bin/env bash
# Runs a command with a hub and a spoke control plane that test packages share; see test/kit/controlplane.
#
#   hack/with-planes.sh go test ./...
set -euo pipefail
dir=$(mktemp -d)
pids=()
stop() {
	[ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null || true
	wait
	rm -rf "$dir"
}
trap stop EXIT
for role in hub spoke; do
	bin/controlplane up --role="$role" --dir="$dir/$role" >"$dir/$role.out" 2>"$dir/$role.log" &
	pids+=($!)
done
for role in hub spoke; do
	# It prints the path of its kubeconfig when it is ready.
	until [ -s "$dir/$role.out" ]; do
		if ! kill -0 "${pids[@]}" 2>/dev/null; then
			cat "$dir/$role.log" >&2
			exit 1
		fi
		sleep 0.2
	done
	read -r kubeconfig <"$dir/$role.out"
	export "WORKWIRE_TEST_${role^^}_KUBECONFIG=$kubeconfig"
done
"$@"
