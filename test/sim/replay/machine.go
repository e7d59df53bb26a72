package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"
)

// machine runs the tests, each seed from the start. It is safe for concurrent use.
type machine struct {
	machines wazero.Runtime
	module   wazero.CompiledModule
}

func newMachine(ctx context.Context, file string) (*machine, error) {
	code, err := os.ReadFile(file) //nolint:gosec // the user names it
	if err != nil {
		return nil, err
	}
	cache, err := wazero.NewCompilationCacheWithDir(filepath.Join(filepath.Dir(file), "compiled"))
	if err != nil {
		return nil, err
	}
	machines := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCompilationCache(cache))
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, machines); err != nil {
		return nil, err
	}
	module, err := machines.CompileModule(experimental.WithCompilationWorkers(ctx, runtime.GOMAXPROCS(0)), code)
	return &machine{machines, module}, err
}

// trial is a seed, some of whose decisions do not happen.
type trial struct {
	seed     uint64
	leaveOut string // their numbers, as in 3,7-12
}

func (t trial) String() string {
	if t.leaveOut == "" {
		return fmt.Sprintf("SEED=%d", t.seed)
	}
	return fmt.Sprintf("SEED=%d LEAVE_OUT=%s", t.seed, t.leaveOut)
}

// result is what came of a trial.
type result struct {
	output    string
	failed    bool
	Decisions []decision `json:"decisions"`
	Wrong     []wrong    `json:"wrong"`
}

// decision is one thing that the seed has chosen to happen.
type decision struct {
	Number  int       `json:"number"`
	At      time.Time `json:"at"`
	Name    string    `json:"name"`
	Fault   bool      `json:"fault"` // or people change something
	Works   []string  `json:"works"`
	LeftOut bool      `json:"leftOut"`
}

// wrong is something that is not as it must be.
type wrong struct {
	At    time.Time `json:"at"`
	Text  string    `json:"text"`
	Works []string  `json:"works"` // that it is about, as cluster/name
}

// run runs a trial in a directory of its own, which is removed. What it writes about the seed is moved into keep; empty: it
// is not kept. The program is told the same in each run, so that it does the same.
func (m *machine) run(ctx context.Context, t trial, story bool, keep string) (*result, error) {
	dir, err := os.MkdirTemp("", "replay")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Mkdir(filepath.Join(dir, "tmp"), 0o700); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	told := map[bool]string{false: "-story=0", true: "-story=1"}[story]
	args := []string{"sim", "-test.v", "-test.run=^TestSeeds$", "-test.timeout=0", "-seeds=1", fmt.Sprintf("-seed=%d", t.seed), "-leave-out=" + t.leaveOut, "-outcome=/outcome.json", told}
	module, err := m.machines.InstantiateModule(ctx, m.module, surroundings(dir).WithArgs(args...).WithStdout(&out).WithStderr(&out))
	if module != nil {
		_ = module.Close(ctx)
	}
	exit, exited := errors.AsType[*sys.ExitError](err)
	if err != nil && !exited {
		return nil, err
	}
	r := &result{output: plain(out.String()), failed: exited && exit.ExitCode() != 0}
	text, err := os.ReadFile(filepath.Join(dir, "outcome.json")) //nolint:gosec // the run wrote it
	if errors.Is(err, os.ErrNotExist) {                          // it has crashed
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	if err == nil && keep != "" {
		err = moveStories(dir, keep)
	}
	return r, err
}

// noise is what go test says of each test, and where.
var noise = regexp.MustCompile(`(?m)^(=== RUN.*\n|--- .*\n|PASS\n|FAIL\n| *\w+_test\.go:\d+: )`)

// plain returns what a test has said.
func plain(output string) string {
	return strings.ReplaceAll(noise.ReplaceAllString(output, ""), "\n        ", "\n")
}

func moveStories(from, to string) error {
	stories, err := filepath.Glob(filepath.Join(from, "seed-*"))
	for _, story := range stories {
		var text []byte
		if text, err = os.ReadFile(story); err == nil { //nolint:gosec // the run wrote it
			err = os.WriteFile(filepath.Join(to, filepath.Base(story)), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return err
}

// surroundings are those of the program. Its clock moves with each look at it, and with what it sleeps.
func surroundings(dir string) wazero.ModuleConfig {
	const look = int64(time.Microsecond)
	now := int64(0)
	since := func() int64 { now += look; return now }
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	return wazero.NewModuleConfig().WithName("").
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
