// Command replay runs the test binary of test/sim, built for WebAssembly, in a machine whose clock and whose randomness
// are given: one thread, so that the scheduler of Go, the order of maps and of select, identifiers and keys are the same
// in each run. Its output, and what it writes, depend on its arguments alone. hack/simulate.sh builds both.
//
//	replay sim.wasm DIR -test.run=^TestSeeds$ -seed=7 -seeds=1
//
// DIR is all that the program sees of the file system.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: replay WASM DIR [ARGUMENT...]")
		os.Exit(2)
	}
	err := run(context.Background(), os.Args[1], os.Args[2], os.Args[3:])
	if exit, ok := errors.AsType[*sys.ExitError](err); ok {
		os.Exit(int(exit.ExitCode()))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "replay:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file, dir string, args []string) error {
	code, err := os.ReadFile(file) //nolint:gosec // the user names it
	if err != nil {
		return err
	}
	cache, err := wazero.NewCompilationCacheWithDir(filepath.Join(filepath.Dir(file), "compiled"))
	if err != nil {
		return err
	}
	machine := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCompilationCache(cache))
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, machine); err != nil {
		return err
	}
	module, err := machine.CompileModule(ctx, code)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "tmp"), 0o700); err != nil {
		return err
	}
	_, err = machine.InstantiateModule(ctx, module, configured(dir, args))
	return err
}

// configured returns the surroundings of the program. Its clock moves with each look at it, and with what it sleeps.
func configured(dir string, args []string) wazero.ModuleConfig {
	const look = int64(time.Microsecond)
	now := int64(0)
	since := func() int64 { now += look; return now }
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	return wazero.NewModuleConfig().WithArgs(append([]string{"sim"}, args...)...).WithStdout(os.Stdout).WithStderr(os.Stderr).
		WithRandSource(seeded{rand.NewChaCha8([32]byte{})}).
		WithWalltime(func() (int64, int32) {
			t := time.Unix(0, began+since())
			return t.Unix(), int32(t.Nanosecond()) //nolint:gosec // below a second
		}, sys.ClockResolution(look)).
		WithNanotime(since, sys.ClockResolution(look)).
		WithNanosleep(func(d int64) { now += d }).
		WithFSConfig(wazero.NewFSConfig().WithDirMount(dir, "/")).WithEnv("TMPDIR", "/tmp").WithEnv("PWD", "/")
}

// seeded is all the randomness that there is.
type seeded struct{ io.Reader }
