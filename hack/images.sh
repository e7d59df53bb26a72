#!/usr/bin/env bash
# Makes the container images workwire/NAME:VERSION, and :dev, from the static binaries in bin/ and
# deploy/images/NAME. Nothing is pulled. Called by make images: images.sh VERSION [NAME...]
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1
shift
if [ $# = 0 ]; then
	set -- work-agent work-hub work-broker workctl controlplane
	if mosquitto=$(PATH=$PATH:/usr/sbin command -v mosquitto) && command -v mosquitto_pub >/dev/null; then
		set -- "$@" mosquitto
	else
		echo "workwire/mosquitto is left out: Mosquitto and its clients are not installed here"
	fi
	if command -v prometheus >/dev/null; then
		set -- "$@" prometheus
	else
		echo "workwire/prometheus is left out: Prometheus is not installed here"
	fi
	if command -v containerd >/dev/null && PATH=$PATH:/usr/sbin command -v runc >/dev/null && [ -x /usr/lib/cni/bridge ]; then
		make --no-print-directory bin/kubelet
		set -- "$@" workload node
	else
		echo "workwire/node is left out: containerd, runc or the CNI plugins are not installed here"
	fi
fi
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)

# A dynamically linked program of this machine, with its libraries, below a folder.
copy_dynamic() {
	local file
	for file in "$1" $(ldd "$1" | grep -o '/[^ ]*'); do
		mkdir -p "$2$(dirname "$file")"
		cp -L "$file" "$2$file"
	done
}

# Makes what the Dockerfile copies: root/ as it is, owned/ for the user that the image runs as.
stage() {
	local name=$1 to=deploy/images/$1/made-by-make-images
	rm -rf "$to"
	mkdir -p "$to/root/bin"
	if [ "$name" = mosquitto ]; then
		copy_dynamic "$mosquitto" "$to/root"
		copy_dynamic "$(command -v mosquitto_pub)" "$to/root"
		mkdir -p -m 700 "$to/owned/data"
		return
	fi
	if [ "$name" = prometheus ]; then
		local program
		for program in prometheus promtool od tr mv; do
			copy_dynamic "$(command -v "$program")" "$to/root"
		done
		copy_dynamic "$(command -v dash)" "$to/root"
		ln -sf "$(command -v dash)" "$to/root/bin/sh"
		mkdir -p -m 700 "$to/owned/data" "$to/owned/token"
		return
	fi
	if [ "$name" = workload ]; then
		go build -trimpath -ldflags "-s -w" -o "$to/root/bin/workload" ./test/workload
		return
	fi
	if [ "$name" = node ]; then
		local program
		for program in containerd containerd-shim-runc-v2 ctr runc mount umount mkdir rm cat sleep; do
			copy_dynamic "$(PATH=$PATH:/usr/sbin command -v "$program")" "$to/root"
		done
		for program in bridge host-local loopback; do
			copy_dynamic "/usr/lib/cni/$program" "$to/root"
		done
		copy_dynamic "$(command -v dash)" "$to/root"
		ln -sf "$(command -v dash)" "$to/root/bin/sh"
		mkdir -p "$to/root/usr/bin" "$to/root/images" "$to/root/tmp" "$to/root/run" "$to/root/var/lib/kubelet" "$to/root/var/log"
		cp bin/kubelet "$to/root/usr/bin/"
		docker save --output "$to/root/images/workload.tar" workwire/workload:dev
		return
	fi
	if [[ $(go version -m "bin/$name") != *CGO_ENABLED=0* ]]; then
		echo "bin/$name is not static: build it with CGO_ENABLED=0 (make images does)" >&2
		exit 1
	fi
	cp "bin/$name" "$to/root/bin/"
	hack/sbom.sh "bin/$name" "$version" >"$to/root/sbom.cdx.json"
	cp "$to/root/sbom.cdx.json" "bin/$name.cdx.json"
	case $name in
	work-agent | work-broker) mkdir -p -m 700 "$to/owned/data" ;;
	controlplane)
		mkdir -p -m 700 "$to/owned/data" "$to/owned/access" "$to/owned/access-node"
		ln -s controlplane "$to/root/bin/kubectl"
		;;
	esac
	chmod -R go+rX "$to/root"
}

for name; do
	stage "$name"
	docker build --quiet --tag "workwire/$name:$version" --tag "workwire/$name:dev" \
		--build-arg "VERSION=$version" --build-arg "REVISION=$revision" "deploy/images/$name" >/dev/null
	echo "workwire/$name:$version, $(($(docker image inspect --format '{{.Size}}' "workwire/$name:$version") / 1000000)) MB"
done
