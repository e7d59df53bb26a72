#!/usr/bin/env bash
# Makes a release, in two steps, so that what builds and tests has no rights, and what has rights builds nothing:
#
#   hack/release.sh build VERSION         builds everything, with no credentials. REGISTRY is where the images will be
#   hack/release.sh publish VERSION       checks what build has made, pushes the images to REGISTRY, and signs with the
#                                         identity of the workflow (cosign, keyless); needs a registry login
#   hack/release.sh tools FOLDER          builds crane and cosign, for RELEASE_TOOLS
#   hack/release.sh --dry-run [VERSION]   both, with a registry on loopback and a key that are deleted at the end; verifies
#                                         the signatures, installs from that registry, publishes nothing
#
# .github/workflows/release.yaml runs each step in a job of its own. In bin/release/VERSION is what is published:
#
#   workwire_VERSION_OS_ARCH.tar.gz      the commands, with their man pages and SBOMs (CycloneDX); for darwin workctl alone
#   work.yaml                            the manifest with which krew installs workctl as kubectl work
#   workwire-VERSION.tgz                 the Helm chart, which names images by digest
#   workwire-kustomize_VERSION.tar.gz    deploy/kustomize with what it refers to, which does so too
#   crds.yaml                            the CustomResourceDefinitions of the hub
#   images.txt                           the images REGISTRY/NAME@DIGEST, for linux/amd64 and linux/arm64
#   checksums.txt                        SHA-256 of the files above; publish signs it: checksums.txt.bundle
#
# and in bin/release/VERSION-images the images (OCI layouts) and their SBOMs, with checksums.txt.
set -euo pipefail
cd "$(dirname "$0")/.."

crane_module=github.com/google/go-containerregistry/cmd/crane@v0.22.1
cosign_module=github.com/sigstore/cosign/v2/cmd/cosign@v2.6.5
dry_run="" steps=${1:-}
case $steps in
build | publish) ;;
tools)
	mkdir -p "$2"
	GOFLAGS=-trimpath CGO_ENABLED=0 GOBIN=$(realpath "$2") go install "$crane_module"
	GOFLAGS=-trimpath CGO_ENABLED=0 GOBIN=$(realpath "$2") go install "$cosign_module"
	exit
	;;
--dry-run) dry_run=1 steps="build publish install" ;;
*)
	echo "usage: hack/release.sh build VERSION | publish VERSION | tools FOLDER | --dry-run [VERSION]" >&2
	exit 2
	;;
esac
version=${2:-$(git describe --tags --always --dirty 2>/dev/null || echo v0.0.0-dev)}
if [ -n "$dry_run" ] && [[ $version != v* ]]; then
	version=v0.0.0-g$version # a commit without a tag before it
fi
if [ -z "$dry_run" ] && ! [[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
	echo "release: version $version is no semantic version such as v1.2.3; tag the commit first" >&2
	exit 1
fi
if [ -z "$dry_run" ] && [ -z "${REGISTRY:-}" ]; then
	echo "release: REGISTRY is not set; set it to the registry and path of the images, such as registry.example.com/workwire" >&2
	exit 1
fi

images=(work-agent work-hub work-broker workctl)
platforms=(linux/amd64 linux/arm64)
desktops=(darwin/amd64 darwin/arm64) # of those who use workctl
ldflags="-s -w -X github.com/workwire/workwire/pkg/runtime/version.Version=$version"
out=$PWD/bin/release/$version
layouts=$out-images
work=$(mktemp -d)
registry_pid=""
clean_up() {
	[ -z "$registry_pid" ] || kill "$registry_pid" 2>/dev/null || true
	rm -rf "$work"
}
trap clean_up EXIT

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
	local platform
	echo "release: making man pages"
	hack/man.sh "$work/man" "$version"
	for platform in "${platforms[@]}"; do
		build_archive "$platform" "${images[@]}"
	done
	for platform in "${desktops[@]}"; do
		build_archive "$platform" workctl
	done
	hack/krew.sh "$version" "$out" >"$out/work.yaml"
}

# build_archive PLATFORM COMMAND...
build_archive() {
	local os=${1%/*} arch=${1#*/} folder=$work/${1/\//-} name
	shift
	mkdir -p "$folder/man/man1"
	echo "release: building $* for $os/$arch"
	CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -trimpath -tags grpcnotrace -ldflags "$ldflags" -o "$folder/" "${@/#/./cmd/}"
	for name; do
		hack/sbom.sh "$folder/$name" "$version" >"$folder/$name.cdx.json"
		cp "$work/man/man1/$name"*.1 "$folder/man/man1/"
	done
	cp LICENSE README.md CHANGELOG.md "$folder/"
	archive "$folder" "$out/workwire_${version}_${os}_$arch.tar.gz"
}

# archive FOLDER FILE: names, times and order are fixed, so that the same commit gives the same archive.
archive() {
	tar --sort=name --mtime="@$(git log -1 --format=%ct)" --owner=0 --group=0 --numeric-owner -C "$1" -cf - . | gzip -n >"$2"
}

build_manifests() {
	local helm
	helm=$(hack/helm.sh)
	mkdir -p "$work/tree"
	cp -a deploy "$work/tree/"
	rm -rf "$work/tree"/deploy/kustomize/example/{authority,*/secrets} # what somebody tried here
	hack/pin.sh "$work/tree/deploy" "$out/images.txt"
	"$helm" package "$work/tree/deploy/helm/workwire" --version "${version#v}" --app-version "$version" --destination "$out" >/dev/null
	(cd "$work/tree/deploy" && find . -name '*.go' -delete && rm -rf -- */testdata compose helm images install monitoring)
	cp LICENSE "$work/tree/"
	archive "$work/tree" "$out/workwire-kustomize_$version.tar.gz"
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
	loopback=127.0.0.1:$port
}

# label NAME KEY: the value of a label in the image's Dockerfile.
label() { sed -nE "s/.*org\.opencontainers\.image\.$2=\"([^\"]*)\".*/\1/p" "deploy/images/$1/Dockerfile"; }

# build_images makes them at a registry on loopback, and keeps them as OCI layouts, whose digests stay when they are pushed.
build_images() {
	local name platform arch root layer reference manifests
	mkdir -p "$layouts"
	for name in "${images[@]}"; do
		manifests=()
		for platform in "${platforms[@]}"; do
			arch=${platform#*/}
			root=$work/root-$name-$arch
			mkdir -p "$root/bin"
			cp "$work/linux-$arch/$name" "$root/bin/$name"
			cp "$work/linux-$arch/$name.cdx.json" "$root/sbom.cdx.json"
			cp "$root/sbom.cdx.json" "$layouts/$name-$arch.cdx.json"
			layer=$work/$name-$arch.tar
			tar --sort=name --mtime="@$(git log -1 --format=%ct)" --owner=0 --group=0 --numeric-owner -C "$root" -cf "$layer" .
			case $name in
			work-agent | work-broker) # new volumes take their owner from this empty folder
				mkdir -p -m 700 "$work/owned/data"
				tar --mtime="@$(git log -1 --format=%ct)" --owner=65532 --group=65532 --numeric-owner -C "$work/owned" -rf "$layer" ./data
				;;
			esac
			reference=$loopback/build/$name:$arch
			"$work/crane" append --oci-empty-base --platform="$platform" --new_layer="$layer" --new_tag="$reference" >/dev/null
			"$work/crane" mutate "$reference" --tag="$reference" --set-platform="$platform" --user=65532:65532 --entrypoint="/bin/$name" \
				--label="\"org.opencontainers.image.title=$name\"" \
				--label="\"org.opencontainers.image.description=$(label "$name" description)\"" \
				--label="\"org.opencontainers.image.version=$version\"" \
				--label="\"org.opencontainers.image.revision=$(git rev-parse HEAD)\"" \
				--label="\"org.opencontainers.image.source=https://github.com/workwire/workwire\"" \
				--label="org.opencontainers.image.licenses=Apache-2.0" >/dev/null
			manifests+=(--manifest "$reference")
		done
		reference=$loopback/build/$name:index
		"$work/crane" index append "${manifests[@]}" --tag "$reference" >/dev/null
		"$work/crane" validate --remote="$reference" >/dev/null
		"$work/crane" pull --format=oci "$reference" "$layouts/$name"
		echo "$REGISTRY/$name@$("$work/crane" digest "$reference")" >>"$out/images.txt"
	done
}

# list FOLDER: its files, without what is made of them.
list() { (cd "$1" && find . -type f ! -name 'checksums.txt*' -printf '%P\n' | sort); }

# write_checksums FOLDER
write_checksums() { (cd "$1" && list . | xargs -d '\n' sha256sum -- >checksums.txt); }

# check FOLDER: it has the files of its list, as they were, and no others.
check() {
	(cd "$1" && sha256sum --check --strict --quiet checksums.txt)
	diff <(list "$1") <(sed 's/^[0-9a-f]*  //' "$1/checksums.txt" | sort)
}

push_images() {
	local name platform arch reference
	for name in "${images[@]}"; do
		reference=$REGISTRY/$name@$(sed -n "s|^$REGISTRY/$name@||p" "$out/images.txt")
		"$work/crane" push "$layouts/$name" "$REGISTRY/$name:$version" >/dev/null
		# What the chart and the kustomize files name.
		"$work/crane" validate --remote="$reference" >/dev/null
		for platform in "${platforms[@]}"; do
			arch=${platform#*/}
			"$work/crane" copy --platform="$platform" "$reference" "$REGISTRY/$name:$version-$arch" >/dev/null
			attest_image "$REGISTRY/$name@$("$work/crane" digest "$REGISTRY/$name:$version-$arch")" "$layouts/$name-$arch.cdx.json"
		done
		sign_image "$reference"
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
	if [ -n "$dry_run" ]; then
		"$work/cosign" sign-blob --yes --key="$work/cosign.key" --tlog-upload=false --bundle="$file.bundle" "$file" >/dev/null 2>"$work/cosign.log" ||
			{ cat "$work/cosign.log" >&2 && return 1; }
		"$work/cosign" verify-blob --key="$work/cosign.pub" --insecure-ignore-tlog --bundle="$file.bundle" "$file" 2>"$work/cosign.log" ||
			{ cat "$work/cosign.log" >&2 && return 1; }
		return
	fi
	"$work/cosign" sign-blob --yes --bundle="$file.bundle" "$file" >/dev/null
}

build() {
	rm -rf "$out" "$layouts"
	mkdir -p "$out"
	build_commands
	build_images
	build_manifests
	write_checksums "$out"
	write_checksums "$layouts"
}

publish() {
	tool cosign "$cosign_module"
	check "$out"
	check "$layouts"
	if [ -n "$dry_run" ]; then
		(cd "$work" && COSIGN_PASSWORD="" ./cosign generate-key-pair >/dev/null 2>&1)
		export COSIGN_PASSWORD=""
	fi
	push_images
	sign_checksums
}

# install puts all three parts onto a cluster from what was published, as a user does. Root runs the programs of the
# images as their users.
install() {
	[ -x bin/controlplane ] || make --no-print-directory bin/controlplane
	local path as=()
	path=$(dirname "$(hack/helm.sh)"):$work:$PATH
	[ "$(id -u)" = 0 ] || as=(-exec "sudo --preserve-env env PATH=$path")
	echo "release: installing from what was published"
	PATH=$path WORKWIRE_RELEASE=$out go test ./test/deploy -run '^TestRelease$' -count=1 -v "${as[@]}" >"$work/install.log" 2>&1 ||
		{ cat "$work/install.log" >&2 && return 1; }
	sed -n 's/^.*\(release: .*\)$/\1/p' "$work/install.log"
}

tool crane "$crane_module"
if [[ $steps = *build* ]]; then
	start_registry
fi
if [ -n "$dry_run" ]; then
	REGISTRY=$loopback/workwire
fi
for step in $steps; do
	"$step"
done
echo "release: $out"
(cd "$out" && ls -l | awk 'NR > 1 {printf "  %10d  %s\n", $5, $9}')
[ -z "$dry_run" ] || echo "release: dry run, nothing was published"
