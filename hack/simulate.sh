#!/usr/bin/env bash
# Runs test/sim, whole hubs and agents in simulated time, in WebAssembly: the same seed does the same in each run, on
# every machine. What is left of a run is in bin/simulation: seed-N.txt tells what happened in a seed that failed,
# seed-N.html shows it.
#
#   hack/simulate.sh [FLAG...]            flags of test/sim/replay, such as -seed=7 -seeds=1 -story
#
# bbolt, in which agents keep state, has no WebAssembly: in simulations it opens no file.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/bin/simulation
mkdir -p "$out"
cp go.sum "$out/build.sum"
cp go.mod "$out/build.mod"
module=go.etcd.io/bbolt
rm -rf "$out/bbolt"
cp -r "$(go list -m -f '{{.Dir}}' $module)" "$out/bbolt"
chmod -R u+w "$out/bbolt"
rm -f "$out"/bbolt/{bolt_unix,mlock_unix}.go
cat >"$out/bbolt/bolt_wasip1.go" <<'EOF'
package bbolt

import (
	"errors"
	"time"
)

func flock(*DB, bool, time.Duration) error { return errors.ErrUnsupported }
func funlock(*DB) error                    { return errors.ErrUnsupported }
func mmap(*DB, int) error                  { return errors.ErrUnsupported }
func munmap(*DB) error                     { return errors.ErrUnsupported }
func mlock(*DB, int) error                 { return errors.ErrUnsupported }
func munlock(*DB, int) error               { return errors.ErrUnsupported }
EOF
cat >"$out/bbolt/internal/common/bolt_wasm.go" <<'EOF'
package common

// Sizes of a machine of 32 bits.
const (
	MaxMapSize   = 0x7FFFFFFF
	MaxAllocSize = 0xFFFFFFF
)
EOF
go mod edit -replace "$module=$out/bbolt" "$out/build.mod"
hack/with-progress.sh env GOOS=wasip1 GOARCH=wasm CGO_ENABLED=0 go test -modfile "$out/build.mod" -ldflags "-s -w" -vet=off -c -o "$out/sim.wasm" ./test/sim
go build -C test/sim/replay -o "$out/replay" .
exec "$out/replay" "$@" "$out/sim.wasm" "$out"
