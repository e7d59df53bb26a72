#!/usr/bin/env bash
# Checks that this machine has the programs that the tests need, before anything is built.
#
#   hack/needs.sh test              for the tests of make check
#   hack/needs.sh e2e               for make e2e
#   hack/needs.sh --packages WHAT   prints the missing Debian packages, one a line, and exits 0; .devcontainer/Dockerfile installs them
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
only_print=""
if [ "${1:-}" = --packages ]; then
	only_print=1
	shift
fi
missing=()
# need PROGRAM PACKAGE...: PROGRAM comes with PACKAGE.
need() {
	local program=$1
	shift
	command -v "$program" >/dev/null || missing+=("$@")
}
case ${1:-} in
test)
	need mosquitto mosquitto
	# A test of the broker behind a load balancer runs it.
	need haproxy haproxy
	# Tests of alerts and dashboard run prometheus and promtool, of one package.
	need prometheus prometheus
	# Tests of the store of the SDK run a server; Debian does not put it into PATH.
	ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || need postgres postgresql
	# Tests of the hub's dashboard look at it.
	need chromium chromium
	# Tests of an authority whose key a program has.
	need openssl openssl
	# Tests of the man pages of a release read them.
	need man man-db
	# The race detector is linked by a C compiler.
	need "${CC:-gcc}" gcc libc6-dev
	;;
e2e)
	# hack/images.sh puts both programs into the image of Mosquitto.
	need mosquitto mosquitto
	need mosquitto_pub mosquitto-clients
	# hack/images.sh puts it into the image of Prometheus.
	need prometheus prometheus
	# hack/rabbitmq-image.sh makes the image of RabbitMQ with it.
	need debootstrap debootstrap
	need dockerd docker.io
	# Debian 13 packages the client on its own.
	need docker docker-cli
	need docker-compose docker-compose
	# hack/images.sh puts both into the image of the node.
	need containerd containerd
	ls /usr/lib/cni/bridge >/dev/null 2>&1 || need cni-plugins containernetworking-plugins
	need ip iproute2
	need iptables iptables
	;;
*)
	echo "usage: hack/needs.sh [--packages] test|e2e" >&2
	exit 2
	;;
esac
if [ -n "$only_print" ]; then
	[ ${#missing[@]} = 0 ] || printf '%s\n' "${missing[@]}"
elif [ ${#missing[@]} -gt 0 ]; then
	echo "make check needs programs that are not installed; on Debian, INSTALL=1 installs them, as does apt-get install -y --no-install-recommends ${missing[*]}" >&2
	exit 1
fi
