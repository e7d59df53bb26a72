#!/usr/bin/env bash
# Makes the test image workwire/rabbitmq:dev: RabbitMQ 4 of Debian 13, from the mirror that this machine's apt
# uses, and its Mosquitto, which has WebSockets. Its packages are kept in ~/.cache/workwire, so that the next call only imports them. Exits 2, and says
# why, where the image cannot be made.
#
#   hack/rabbitmq-image.sh [TAG...]   further tags besides dev
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin
image=workwire/rabbitmq
cache=${XDG_CACHE_HOME:-$HOME/.cache}/workwire

cannot() {
	echo "$image cannot be made: $1" >&2
	exit 2
}

# The first Debian mirror of this machine.
mirror() {
	apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -m1 '/debian/*$'
}

pack() {
	local proxy status=0
	[ "$(id -u)" = 0 ] || cannot "debootstrap needs root"
	command -v debootstrap >/dev/null || cannot "debootstrap is not installed (Debian: debootstrap)"
	mirror >/dev/null || cannot "apt of this machine has no Debian mirror"
	root=$(mktemp -d /tmp/workwire-rabbitmq.XXXXXX)
	trap 'rm -rf "$root"' EXIT
	eval "$(apt-config shell proxy Acquire::http::Proxy)"
	[ -z "${proxy:-}" ] || export http_proxy=$proxy https_proxy=$proxy
	# Only the packages that these need, and what bash scripts need.
	debootstrap --variant=minbase --include=rabbitmq-server,mosquitto trixie "$root/root" "$(mirror)" >"$root/log" 2>&1 || status=$?
	if [ "$status" != 0 ]; then
		tail -5 "$root/log" >&2
		cannot "debootstrap failed; the end of its log is above"
	fi
	# Removes what a server in a container does not need.
	rm -rf "$root/root"/{boot,home,media,mnt,opt,srv} "$root/root"/var/{cache,log,lib/apt,lib/rabbitmq,lib/dpkg/info}/* \
		"$root/root"/usr/share/{doc,man,locale,info,zoneinfo,i18n,lintian,common-licenses} "$root/root"/usr/lib/x86_64-linux-gnu/{gconv,perl*} \
		"$root/root"/usr/share/perl* "$root/root"/usr/bin/perl* "$root/root"/var/lib/rabbitmq/.erlang.cookie "$root/root"/dev/*
	echo 'rabbit:x:65532:65532::/data:/usr/sbin/nologin' >>"$root/root/etc/passwd"
	install -d -o 65532 -g 65532 -m 700 "$root/root/data" "$root/root/cookie"
	mkdir -p "$cache"
	tar -C "$root/root" --numeric-owner -c . | gzip -1 >"$packed.new.$$"
	rm -f "$cache"/rabbitmq-*.tar.gz
	mv "$packed.new.$$" "$packed"
}

command -v docker >/dev/null || cannot "docker is not installed"
begin=$SECONDS
# Another version of pack makes another image.
packed=$cache/rabbitmq-$(declare -f pack | sha256sum | cut -c1-16).tar.gz
[ -s "$packed" ] || (pack) # a shell of its own, for its trap
if [ "$(docker image inspect --format '{{.Comment}}' "$image:dev" 2>/dev/null || true)" != "$(basename "$packed")" ]; then
	docker import --message "$(basename "$packed")" \
		--change 'USER 65532:65532' --change 'WORKDIR /data' --change 'ENTRYPOINT ["/usr/lib/rabbitmq/bin/rabbitmq-server"]' \
		--change 'ENV HOME=/data LANG=C.UTF-8 PATH=/usr/lib/rabbitmq/bin:/usr/bin:/bin RABBITMQ_MNESIA_BASE=/data/mnesia RABBITMQ_LOG_BASE=/data/log' \
		--change 'ENV RABBITMQ_CONFIG_FILE=/config/rabbitmq.conf RABBITMQ_ENABLED_PLUGINS_FILE=/config/enabled_plugins' \
		"$packed" "$image:dev" >/dev/null
fi
for tag; do
	docker tag "$image:dev" "$image:$tag"
done
echo "$image:dev, $(($(docker image inspect --format '{{.Size}}' "$image:dev") / 1000000)) MB, after $((SECONDS - begin)) s"
