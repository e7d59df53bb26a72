#!/usr/bin/env bash
# Runs test/sim, whole hubs and agents in simulated time, in WebAssembly: the same seed does the same in each run, on
# every machine. What is left of a run is in bin/simulation: seed-N.txt tells what happened in a seed that failed,
# seed-N.html shows it.
#
#   hack/simulate.sh [FLAG...]            flags of test/sim/replay, such as -seed=7 -seeds=1 -story
#
# bbolt, in which agents keep state, has no WebAssembly, which has neither locks of files nor maps of them: in simulations
# it reads its file in place of a map, and locks nothing.
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
	"io"
	"time"
	"unsafe"

	"go.etcd.io/bbolt/internal/common"
)

func flock(*DB, bool, time.Duration) error { return nil }
func funlock(*DB) error                    { return nil }
func mlock(*DB, int) error                 { return nil }
func munlock(*DB, int) error               { return nil }

// mmap reads the file. What is written goes to both.
func mmap(db *DB, size int) error {
	data := make([]byte, size)
	if _, err := db.file.ReadAt(data, 0); err != nil && err != io.EOF {
		return err
	}
	db.dataref, db.data, db.datasz = data, (*[common.MaxMapSize]byte)(unsafe.Pointer(&data[0])), size
	db.ops.writeAt = func(b []byte, at int64) (int, error) {
		n, err := db.file.WriteAt(b, at)
		if at < int64(size) {
			copy(data[at:], b[:n])
		}
		return n, err
	}
	return nil
}

func munmap(db *DB) error {
	db.dataref, db.data, db.datasz = nil, nil, 0
	return nil
}
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
