package store_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/workwire/workwire/pkg/agent/internal/store"
	"github.com/workwire/workwire/pkg/runtime/statestore"
	"github.com/workwire/workwire/test/kit"
)

var quiet = slog.New(slog.DiscardHandler)

func open(t *testing.T, dir string) *statestore.Store {
	t.Helper()
	s, err := store.Open(store.Config{Dir: dir, Logger: quiet})
	kit.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func wantOpenError(t *testing.T, dir string, want ...string) {
	t.Helper()
	s, err := store.Open(store.Config{Dir: dir})
	if err == nil {
		_ = s.Close()
		t.Fatal("Open succeeds")
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("Open = %v\nwant it to say %q", err, text)
		}
	}
}

func TestOpenWithoutDirectory(t *testing.T) {
	wantOpenError(t, "", "no directory given")
}

func TestOpenWhereNothingCanBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	kit.NoError(t, os.WriteFile(file, nil, 0o600))
	wantOpenError(t, file, file, "configure a directory that this user")
	wantOpenError(t, filepath.Join(file, "below"), file, "configure a directory that this user")
}

func TestOpenSetsModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "state")
	path := filepath.Join(dir, "state.db")
	wantModes := func() {
		t.Helper()
		for path, want := range map[string]os.FileMode{dir: 0o700, path: 0o600} {
			info, err := os.Stat(path)
			kit.NoError(t, err)
			if got := info.Mode().Perm(); got != want {
				t.Errorf("%s has mode %o, want %o", path, got, want)
			}
		}
	}
	kit.NoError(t, open(t, dir).Close())
	wantModes()
	kit.NoError(t, os.Chmod(path, 0o644))
	open(t, dir)
	wantModes()
}

func TestOpenOfALaterFormat(t *testing.T) {
	setFormat := func(text string) string {
		dir := t.TempDir()
		kit.NoError(t, open(t, dir).Close())
		db, err := bbolt.Open(filepath.Join(dir, "state.db"), 0o600, nil)
		kit.NoError(t, err)
		err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte("format"), []byte(text)) })
		kit.NoError(t, errors.Join(err, db.Close()))
		return dir
	}
	dir := setFormat("2")
	wantOpenError(t, dir, filepath.Join(dir, "state.db"), "format 2", "a newer agent wrote it", "move the file away")
	dir = setFormat("later") // damaged
	kit.NoError(t, open(t, dir).Close())
	if saved, _ := filepath.Glob(filepath.Join(dir, "state.db.damaged-*")); len(saved) != 1 {
		t.Errorf("damaged files that are kept: %v, want one", saved)
	}
}

// wait waits for a barrier, which passes at once while the disk takes no writes.
func wait(t *testing.T, s *statestore.Store) {
	t.Helper()
	done := make(chan error, 1)
	s.Barrier(func(err error) { done <- err })
	kit.NoError(t, kit.Receive(t, "the barrier", done))
}

// run runs s until stop is called or the test ends.
func run(t *testing.T, s *statestore.Store) (stop func()) {
	t.Helper()
	return kit.Run(t, "the store", func(ctx context.Context) error { return store.Run(ctx, s) })
}

func wantSpecs(t *testing.T, s *statestore.Store, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	kit.NoError(t, s.Each(store.Specs, func(key string, value []byte) error { got[key] = string(value); return nil }))
	if !maps.Equal(got, want) {
		t.Errorf("the file holds %v, want %v", got, want)
	}
}

func text(s string) statestore.Encoder { return func() ([]byte, error) { return []byte(s), nil } }

// TestCommitIsRetried: barriers pass after a failed commit, and Run retries until one succeeds.
func TestCommitIsRetried(t *testing.T) {
	dir := t.TempDir()
	var log kit.Log
	s, err := store.Open(store.Config{Dir: dir, Logger: log.Logger()})
	kit.NoError(t, err)
	var attempts atomic.Int32
	s.Put(store.Specs, "a", func() ([]byte, error) {
		if attempts.Add(1) < 3 {
			panic("no space") // as bbolt does
		}
		return []byte("1"), nil
	})
	s.Put(store.Statuses, "b", text("1"))
	stop := run(t, s)
	wait(t, s)
	if err := s.Err(); err == nil {
		t.Error("the barrier passed, but no failure is reported")
	}
	log.Await(t, `level=ERROR msg="state cannot be written, retrying" .*no space`)
	kit.True(t, "a commit", func() bool { return s.Err() == nil })
	if n := attempts.Load(); n != 3 {
		t.Errorf("%d attempts, want 3", n)
	}
	stop()
	s = open(t, dir)
	wantSpecs(t, s, map[string]string{"a": "1"})
	if _, ok, err := s.Get(store.Statuses, "b"); !ok || err != nil {
		t.Errorf("the status is not on disk: %v", err)
	}
}

func TestRunReportsTheLastFailure(t *testing.T) {
	s := open(t, t.TempDir())
	s.Put(store.Specs, "a", func() ([]byte, error) { panic("no space") })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := store.Run(ctx, s); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Errorf("Run: %v", err)
	}
}

// TestFullDisk: while the disk is full, barriers pass, Err says so, and the log does once; when
// there is room again, everything is written.
func TestFullDisk(t *testing.T) {
	disk := kit.NewDisk(t, 4<<20)
	var log kit.Log
	s, err := store.Open(store.Config{Dir: disk.Dir, Logger: log.Logger()})
	kit.NoError(t, err)
	stop := run(t, s)
	s.Put(store.Specs, "before", text("1"))
	s.Put(store.Specs, "deleted", text("1"))
	wait(t, s)
	free := disk.Fill()
	large := strings.Repeat("spec ", 50_000)
	s.Delete(store.Specs, "deleted")
	for range 20 {
		s.Put(store.Specs, "large", text(large))
		wait(t, s)
	}
	kit.True(t, "a commit to fail", func() bool { return errors.Is(s.Err(), syscall.ENOSPC) })
	time.Sleep(time.Second) // some attempts
	wait(t, s)
	free()
	kit.True(t, "a commit", func() bool { return s.Err() == nil })
	s.Put(store.Specs, "after", text("1"))
	wait(t, s)
	stop()
	if got := log.String(); strings.Count(got, "state cannot be written") != 1 || strings.Count(got, "state is written again") != 1 {
		t.Errorf("the log is:\n%s", got)
	}
	wantSpecs(t, open(t, disk.Dir), map[string]string{"before": "1", "large": large, "after": "1"})
}

// TestReadOnlyDisk: a store that cannot be opened for writing works in memory, and replaces the
// file, which it has not read, once it can.
func TestReadOnlyDisk(t *testing.T) {
	disk := kit.NewDisk(t, 4<<20)
	s := open(t, disk.Dir)
	stop := run(t, s)
	s.Put(store.Specs, "old", text("1"))
	wait(t, s)
	stop()
	disk.SetReadOnly(true)
	s = open(t, disk.Dir)
	wantSpecs(t, s, map[string]string{})
	stop = run(t, s)
	s.Put(store.Specs, "new", text("1"))
	wait(t, s)
	if err := s.Err(); !errors.Is(err, syscall.EROFS) {
		t.Errorf("Err = %v, want a read-only file system", err)
	}
	disk.SetReadOnly(false)
	kit.True(t, "a commit", func() bool { return s.Err() == nil })
	stop()
	wantSpecs(t, open(t, disk.Dir), map[string]string{"new": "1"})
}
