#!/usr/bin/env bash
# Runs docker-compose.yaml for real: make e2e. It makes the images and runs e2e/ on the Docker Engine that answers, or
# else on one that it starts, as root, in namespaces of its own, of which nothing is left afterwards.
#
#   E2E_REQUIRED=1   fail where there can be no engine; otherwise it says so, loudly, and leaves the tests out
#   E2E_RUN=REGEXP   run these tests only, as go test -run
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin
work=$(mktemp -d /tmp/workwire-e2e.XXXXXX) # short, for the path of a socket
export E2E_NAME=workwire-e2e-$$
engine="" # processes that are ours
tests=""
inside=() # goes before a command that has to reach published ports

# Removes what we made, whatever has happened. Tells nothing: the last words are of others.
clean_up() {
	local kind filter project
	if [ -n "$tests" ]; then
		kill -KILL -- "-$tests" 2>/dev/null || true # with the docker-compose that it may be running
	fi
	if [ -n "$engine" ]; then
		# Ending the first process of its namespace ends all.
		kill -KILL "$engine" 2>/dev/null || true
		wait "$engine" 2>/dev/null || true
	elif [ -n "${DOCKER:-}" ]; then
		for project in "$E2E_NAME" "$E2E_NAME-fleet" "$E2E_NAME-fleet-kind" "$E2E_NAME-rabbitmq" "$E2E_NAME-monitoring" "$E2E_NAME-node"; do
			filter=label=com.docker.compose.project=$project
			docker container ls -aq --filter "$filter" | xargs -r docker container rm -fv
			for kind in network volume; do
				docker "$kind" ls -q --filter "$filter" | xargs -r docker "$kind" rm
			done
		done
		docker image ls -q --filter "reference=workwire/*:$E2E_NAME" --format '{{.Repository}}:{{.Tag}}' | xargs -r docker image rm
	fi >/dev/null 2>&1 || true
	rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

skip() {
	clean_up
	cat >&2 <<-END

		################################################################################
		##
		##  e2e SKIPPED: $1
		##
		##  docker-compose.yaml was NOT tried. It takes a Docker Engine that answers, or
		##  root on a machine where one can be started (Debian: docker.io,
		##  docker-compose). With E2E_REQUIRED=1 this is a failure.
		##
		################################################################################
	END
	[ "${E2E_REQUIRED:-}" != 1 ] || exit 1
	exit 0
}

# Puts the first docker that gets along with the engine in front: some are too new for it.
find_client() {
	local candidate
	for candidate in $(type -ap docker); do
		if timeout 20 "$candidate" version >/dev/null 2>&1; then
			mkdir -p "$work/bin"
			ln -sf "$candidate" "$work/bin/docker"
			PATH=$work/bin:$PATH
			DOCKER=$candidate
			return 0
		fi
	done
	return 1
}

start_engine() {
	local program begun=$SECONDS
	[ "$(id -u)" = 0 ] || skip "no Docker Engine answers, and only root can start one"
	for program in dockerd containerd runc iptables unshare nsenter ip; do
		command -v "$program" >/dev/null || skip "no Docker Engine answers, and $program is not installed"
	done
	# Networks, mounts, processes and /run of its own: another engine of this machine notices nothing.
	unshare --net --pid --fork --kill-child --mount-proc sh -c '
		mount -t tmpfs tmpfs /run && ip link set lo up && exec dockerd "$@"' sh \
		--data-root="$work/data" --exec-root="$work/exec" --pidfile="$work/pid" --host="unix://$work/docker.sock" >"$work/log" 2>&1 &
	engine=$!
	export DOCKER_HOST=unix://$work/docker.sock
	until find_client; do
		if ! kill -0 "$engine" 2>/dev/null || [ $((SECONDS - begun)) -gt 60 ]; then
			sed 's/^/dockerd: /' "$work/log" >&2
			skip "a Docker Engine of our own does not start; its log is above"
		fi
		sleep 0.2
	done
	inside=(nsenter "--net=/proc/$engine/ns/net")
	echo "started a Docker Engine, $(docker version --format '{{.Server.Version}}')"
}

# Whether the engine can run anything at all, publish its port, and give it a network.
try_engine() {
	local status=0
	docker network create --label "com.docker.compose.project=$E2E_NAME" "$E2E_NAME-try" >/dev/null || skip "this Docker Engine can make no network"
	docker run --rm --network="$E2E_NAME-try" --publish=127.0.0.1::8883 "workwire/work-broker:$E2E_NAME" --help >"$work/try" 2>&1 || status=$?
	docker network rm "$E2E_NAME-try" >/dev/null
	if [ "$status" = 125 ]; then # it is the engine that says so, not the program
		cat "$work/try" >&2
		skip "this Docker Engine can run no container; it says why above"
	fi
}

if command -v docker-compose >/dev/null; then
	export E2E_COMPOSE="docker-compose"
elif docker compose version >/dev/null 2>&1; then
	export E2E_COMPOSE="docker compose"
else
	skip "docker-compose is not installed"
fi
command -v docker >/dev/null || skip "docker is not installed"
case ${DOCKER_HOST:-unix://} in
unix://*) ;;
*) skip "the Docker Engine at DOCKER_HOST is on another machine, which does not have these files" ;;
esac
find_client || start_engine
# Its download goes on while the others are built.
hack/rabbitmq-image.sh "$E2E_NAME" >"$work/rabbitmq" 2>&1 &
rabbitmq=$!
echo "building the images"
make --no-print-directory images
for image in $(docker image ls --filter 'reference=workwire/*:dev' --format '{{.Repository}}'); do
	docker tag "$image:dev" "$image:$E2E_NAME"
done
try_engine
go test -c -o "$work/e2e.test" ./e2e
go test -c -o "$work/broker.test" ./broker
go test -c -o "$work/integration.test" ./test/integration
if wait "$rabbitmq"; then
	cat "$work/rabbitmq"
	export WORKWIRE_RABBITMQ=workwire/rabbitmq:$E2E_NAME WORKWIRE_MOSQUITTO_WEBSOCKETS=1
	mkdir -p "$work/mosquitto"
	for program in sbin/mosquitto bin/mosquitto_passwd; do
		cat >"$work/mosquitto/${program##*/}" <<-END
			#!/bin/sh
			exec docker run --rm --label=com.docker.compose.project=$E2E_NAME --network=host --user=0 --volume=/tmp:/tmp \
				--workdir="\$PWD" --entrypoint=/usr/$program $WORKWIRE_RABBITMQ "\$@"
		END
		chmod +x "$work/mosquitto/${program##*/}"
	done
else
	sed 's/^/rabbitmq-image.sh: /' "$work/rabbitmq" >&2
	[ "${E2E_REQUIRED:-}" != 1 ] || exit 1
	echo "## e2e: deploy/compose/rabbitmq.yaml and the access rules of RabbitMQ and WebSockets of Mosquitto are NOT tried: see above" >&2
fi

# run FOLDER ARGUMENTS...: runs the tests of a package with these arguments, and what they print goes to $work/output, too.
run() {
	local package=$1 status=0 printer
	shift
	cd "$package"
	setsid "${inside[@]}" "$work/${package##*/}.test" "$@" >"$work/output" 2>&1 &
	tests=$!
	tail -n +1 -f --pid="$tests" "$work/output" &
	printer=$!
	wait "$tests" || status=$?
	wait "$printer"
	tests=""
	cd - >/dev/null
	return "$status"
}

status=0
# What needs the image of RabbitMQ: the tests of packages have none.
PATH=$work/mosquitto:$PATH run broker -test.timeout=10m -test.run='TestAccess/rabbitmq|TestRabbitMQ|TestWebSocket$' || status=$?
if [ -x bin/controlplane ]; then
	run test/integration -test.timeout=10m -test.run='TestJoin$/rabbitmq|TestStayJoined/rabbitmq' || status=$?
else
	echo "## e2e: no cluster joins over RabbitMQ: make build makes the control plane for that" >&2
fi
if ! run e2e -test.v -test.timeout=30m -test.parallel=2 -test.run="${E2E_RUN:-.}"; then
	failed=$(sed -n 's/^--- FAIL: \(Test[A-Za-z0-9]*\) .*/\1/p' "$work/output" | paste -sd'|')
	[ -n "$failed" ] && ! grep -q '^panic: ' "$work/output" || exit 1 # others have not ended
	echo "e2e: failed beside others: $failed; once more, each alone"
	run e2e -test.v -test.timeout=30m -test.parallel=1 -test.run="^($failed)\$" || status=$?
	[ "$status" != 0 ] || echo "e2e: failed beside others and passed alone: $failed"
fi
exit "$status"
