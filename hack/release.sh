#!/usr/bin/env bash
# Builds, signs and verifies everything that a release consists of, into bin/release/VERSION:
#
#   workwire_VERSION_OS_ARCH.tar.gz   the commands, with their SBOMs (CycloneDX)
#   workwire-VERSION.tgz              the Helm chart
#   crds.yaml                         the CustomResourceDefinitions of the hub
#   checksums.txt, checksums.txt.bundle   SHA-256 of the files above, and the signature of that list
#
# and pushes the images REGISTRY/NAME:VERSION for linux/amd64 and linux/arm64, signed, with their SBOMs and provenance.
#
#   hack/release.sh --dry-run [VERSION]   uses a registry on loopback and a key that are deleted at the end;
#                                         publishes nothing
#   hack/release.sh VERSION               signs with the identity of the workflow (cosign, keyless); needs REGISTRY,
#                                         a registry login, and is run by .github/workflows/release.yaml
set -euo pipefail
cd "$(dirname "$0")/.."

dry_run=""
if [ "${1:-}" = --dry-run ]; then
	dry_run=1
	shift
fi
version=${1:-$(git describe --tags --always --dirty 2>/dev/null || echo v0.0.0-dev)}
if [ -z "$dry_run" ] && ! [[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
	echo "release: version $version is no semantic version such as v1.2.3; tag the commit first" >&2
	exit 1
fi
if [ -z "$dry_run" ] && [ -z "${REGISTRY:-}" ]; then
	echo "release: REGISTRY is not set; set it to the registry and path of the images, such as registry.example.com/workwire" >&2
	exit 1
fi

crane_module=github.com/google/go-containerregistry/cmd/crane@v0.22.1
cosign_module=github.com/sigstore/cosign/v2/cmd/cosign@v2.6.5
images=(work-agent work-hub work-broker workctl)
platforms=(linux/amd64 linux/arm64)
ldflags="-s -w -X github.com/workwire/workwire/pkg/version.Version=$version"
out=$PWD/bin/release/$version
work=$(mktemp -d)
registry_pid=""
clean_up() {
	[ -z "$registry_pid" ] || kill "$registry_pid" 2>/dev/null || true
	rm -rf "$work"
}
trap clean_up EXIT
rm -rf "$out"
mkdir -p "$out"

# tool NAME MODULE: builds a release tool, unless RELEASE_TOOLS names a folder that has it.
tool() {
	if [ -x "${RELEASE_TOOLS:-}/$1" ]; then
		ln -s "$RELEASE_TOOLS/$1" "$work/$1"
		return
	fi
	echo "release: building $1"
	(cd "$work" && GOFLAGS=-trimpath CGO_ENABLED=0 GOBIN="$work" go install "$2")
}

build_commands() {
	local platform os arch folder name
	for platform in "${platforms[@]}"; do
		os=${platform%/*} arch=${platform#*/}
		folder=$work/$os-$arch
		mkdir -p "$folder"
		echo "release: building ${images[*]} for $platform"
		CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -trimpath -ldflags "$ldflags" -o "$folder/" "${images[@]/#/./cmd/}"
		for name in "${images[@]}"; do
			hack/sbom.sh "$folder/$name" "$version" >"$folder/$name.cdx.json"
		done
		cp LICENSE README.md CHANGELOG.md "$folder/"
		# Names, times and order are fixed, so that the same commit gives the same archive.
		tar --sort=name --mtime="@$(git log -1 --format=%ct)" --owner=0 --group=0 --numeric-owner \
			-C "$folder" -cf - . | gzip -n >"$out/workwire_${version}_${os}_$arch.tar.gz"
	done
}

build_chart() {
	local helm
	helm=$(hack/helm.sh)
	"$helm" package deploy/helm/workwire --version "${version#v}" --app-version "$version" --destination "$out" >/dev/null
	cat deploy/crds/*.yaml >"$out/crds.yaml"
}

start_registry() {
	"$work/crane" registry serve --address=127.0.0.1:0 >"$work/registry.log" 2>&1 &
	registry_pid=$!
	local port=""
	for _ in $(seq 100); do
		port=$(sed -nE 's/.*serving on port ([0-9]+).*/\1/p' "$work/registry.log")
		[ -z "$port" ] || break
		sleep 0.1
	done
	[ -n "$port" ] || {
		cat "$work/registry.log" >&2
		echo "release: the registry on loopback does not start; its log is above" >&2
		exit 1
	}
	REGISTRY=127.0.0.1:$port/workwire
}

# label NAME KEY: the value of a label in the image's Dockerfile.
label() { sed -nE "s/.*org\.opencontainers\.image\.$2=\"([^\"]*)\".*/\1/p" "deploy/images/$1/Dockerfile"; }

push_images() {
	local name platform arch root layer reference manifests
	for name in "${images[@]}"; do
		manifests=()
		for platform in "${platforms[@]}"; do
			arch=${platform#*/}
			root=$work/root-$name-$arch
			mkdir -p "$root/bin"
			cp "$work/linux-$arch/$name" "$root/bin/$name"
			cp "$work/linux-$arch/$name.cdx.json" "$root/sbom.cdx.json"
			layer=$work/$name-$arch.tar
			tar --sort=name --mtime="@$(git log -1 --format=%ct)" --owner=0 --group=0 --numeric-owner -C "$root" -cf "$layer" .
			case $name in
			work-agent | work-broker) # new volumes take their owner from this empty folder
				mkdir -p -m 700 "$work/owned/data"
				tar --mtime="@$(git log -1 --format=%ct)" --owner=65532 --group=65532 --numeric-owner -C "$work/owned" -rf "$layer" ./data
				;;
			esac
			reference=$REGISTRY/$name:$version-$arch
			"$work/crane" append --oci-empty-base --platform="$platform" --new_layer="$layer" --new_tag="$reference" >/dev/null
			"$work/crane" mutate "$reference" --tag="$reference" --set-platform="$platform" --user=65532:65532 --entrypoint="/bin/$name" \
				--label="\"org.opencontainers.image.title=$name\"" \
				--label="\"org.opencontainers.image.description=$(label "$name" description)\"" \
				--label="\"org.opencontainers.image.version=$version\"" \
				--label="\"org.opencontainers.image.revision=$(git rev-parse HEAD)\"" \
				--label="\"org.opencontainers.image.source=https://github.com/workwire/workwire\"" \
				--label="org.opencontainers.image.licenses=Apache-2.0" >/dev/null
			manifests+=(--manifest "$reference")
			attest_image "$REGISTRY/$name@$("$work/crane" digest "$reference")" "$root/sbom.cdx.json"
		done
		reference=$REGISTRY/$name:$version
		"$work/crane" index append "${manifests[@]}" --tag "$reference" >/dev/null
		"$work/crane" validate --remote="$reference" >/dev/null
		reference=$REGISTRY/$name@$("$work/crane" digest "$reference")
		sign_image "$reference"
		echo "$reference" >>"$out/images.txt"
		echo "release: pushed and signed $REGISTRY/$name:$version"
	done
}

# Signatures of a dry run are made with a key of its own and go into no public log.
sign_image() {
	if [ -n "$dry_run" ]; then
		"$work/cosign" sign --yes --key="$work/cosign.key" --tlog-upload=false --allow-http-registry "$1" 2>"$work/cosign.log" ||
			{ cat "$work/cosign.log" >&2 && return 1; }
		"$work/cosign" verify --key="$work/cosign.pub" --insecure-ignore-tlog --allow-http-registry "$1" >/dev/null 2>"$work/cosign.log" ||
			{ cat "$work/cosign.log" >&2 && return 1; }
		return
	fi
	"$work/cosign" sign --yes --recursive "$1"
}

# attest_image IMAGE SBOM: what the image of one platform consists of, and how it was built.
attest_image() {
	if [ -n "$dry_run" ]; then
		PATH=$work:$PATH hack/attest.sh "$1" "$2" "$version" --key="$work/cosign.key" >"$work/cosign.log" 2>&1 ||
			{ cat "$work/cosign.log" >&2 && return 1; }
		return
	fi
	PATH=$work:$PATH hack/attest.sh "$1" "$2" "$version"
}

sign_checksums() {
	local file=$out/checksums.txt
	(cd "$out" && sha256sum -- *.tar.gz *.tgz crds.yaml images.txt >checksums.txt)
	if [ -n "$dry_run" ]; then
		"$work/cosign" sign-blob --yes --key="$work/cosign.key" --tlog-upload=false --bundle="$file.bundle" "$file" >/dev/null 2>"$work/cosign.log" ||
			{ cat "$work/cosign.log" >&2 && return 1; }
		"$work/cosign" verify-blob --key="$work/cosign.pub" --insecure-ignore-tlog --bundle="$file.bundle" "$file" 2>"$work/cosign.log" ||
			{ cat "$work/cosign.log" >&2 && return 1; }
		return
	fi
	"$work/cosign" sign-blob --yes --bundle="$file.bundle" "$file" >/dev/null
}

tool crane "$crane_module"
tool cosign "$cosign_module"
build_commands
build_chart
if [ -n "$dry_run" ]; then
	start_registry
	(cd "$work" && COSIGN_PASSWORD="" ./cosign generate-key-pair >/dev/null 2>&1)
	export COSIGN_PASSWORD=""
fi
push_images
sign_checksums
echo "release: $out"
(cd "$out" && ls -l | awk 'NR > 1 {printf "  %10d  %s\n", $5, $9}')
[ -z "$dry_run" ] || echo "release: dry run, nothing was published"
