package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/workwire/workwire/pkg/agent/store"
)

// patience bounds every wait of these tests; none is expected to take it.
const patience = 20 * time.Second

func open(t testing.TB, dir string) *store.Store {
	t.Helper()
	s, err := store.Open(store.Config{Dir: dir, Lock: 50 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs s until the returned function is called, which waits for its end.
func run(t testing.TB, s *store.Store) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func value(text string) store.Encoder { return func() ([]byte, error) { return []byte(text), nil } }

func content(t testing.TB, b *store.Bucket) map[string]string {
	t.Helper()
	all := map[string]string{}
	if err := b.Each(func(k string, v []byte) error { all[k] = string(v); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

func synced(t testing.TB, s *store.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Sync(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestWritesOutliveTheStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "state")
	s := open(t, dir)
	stop := run(t, s)
	specs, statuses := s.Bucket(store.Specs), s.Bucket(store.Statuses)
	specs.Put("a", value("1"))
	specs.Put("b", value("1"))
	statuses.Put("a", value("x"))
	synced(t, s)
	specs.Put("a", value("2"))
	specs.Delete("b")
	specs.Put("c", value("old"))
	specs.Put("c", value("new"))
	stop() // writes what nobody waits for

	s = open(t, dir)
	defer s.Close()
	if got, want := content(t, s.Bucket(store.Specs)), map[string]string{"a": "2", "c": "new"}; !maps.Equal(got, want) {
		t.Errorf("specs are %v, want %v", got, want)
	}
	if got, want := content(t, s.Bucket(store.Statuses)), map[string]string{"a": "x"}; !maps.Equal(got, want) {
		t.Errorf("statuses are %v, want %v", got, want)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "state.db"): 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", path, got, want)
		}
	}
}

func TestBarrierPassesOnceOnDisk(t *testing.T) {
	s := open(t, t.TempDir())
	encoded := false
	s.Bucket(store.Specs).Put("a", func() ([]byte, error) { encoded = true; return []byte("1"), nil })
	passed := make(chan error, 1)
	s.Barrier(func(err error) {
		if !encoded {
			t.Error("the barrier passed before the write")
		}
		passed <- err
	})
	select {
	case <-passed:
		t.Fatal("the barrier passed before the store ran")
	default:
	}
	run(t, s)
	select {
	case err := <-passed:
		if err != nil {
			t.Errorf("the barrier got %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the barrier did not pass")
	}
	if got := content(t, s.Bucket(store.Specs)); got["a"] != "1" {
		t.Errorf("on disk is %v", got)
	}
}

// TestCommitsAreShared: a thousand events whose every one waits to be on disk
// cost a few flushes, not a thousand.
func TestCommitsAreShared(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	specs := s.Bucket(store.Specs)
	const events = 1000
	var held atomic.Int64
	done := make(chan struct{})
	stop := run(t, s)
	for i := range events {
		specs.Put(fmt.Sprint(i), value("spec"))
		s.Barrier(func(error) {
			if held.Add(1) == events {
				close(done)
			}
		})
	}
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%d of %d are held", held.Load(), events)
	}
	stop()
	// The transaction id of the file counts its commits.
	db, err := bbolt.Open(filepath.Join(dir, "state.db"), 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		if tx.ID() > events/4 {
			t.Errorf("%d events took %d commits", events, tx.ID())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestGreatBatchIsCut: more than fits one transaction is written all the same.
func TestGreatBatchIsCut(t *testing.T) {
	s := open(t, t.TempDir())
	block := bytes.Repeat([]byte("x"), 512<<10)
	const count = 40 // 20 MiB, in transactions of 16
	for i := range count {
		s.Bucket(store.Specs).Put(fmt.Sprint(i), func() ([]byte, error) { return block, nil })
	}
	commits := 0
	store.FailCommits(s, func() error { commits++; return nil })
	stop := run(t, s)
	synced(t, s)
	if got := len(content(t, s.Bucket(store.Specs))); got != count {
		t.Errorf("%d of %d are on disk", got, count)
	}
	if stop(); commits != 2 {
		t.Errorf("they took %d transactions, want 2", commits)
	}
}

func TestRecordsThatCanNotBeKeptHoldNothingUp(t *testing.T) {
	s := open(t, t.TempDir())
	specs := s.Bucket(store.Specs)
	specs.Put(strings.Repeat("k", 40000), value("key too large"))
	specs.Put("broken", func() ([]byte, error) { return nil, errors.New("no") })
	specs.Put("fine", value("1"))
	run(t, s)
	synced(t, s)
	if got, want := content(t, specs), map[string]string{"fine": "1"}; !maps.Equal(got, want) {
		t.Errorf("on disk is %v, want %v", got, want)
	}
	if err := s.Err(); err != nil {
		t.Errorf("Err = %v", err)
	}
}

func TestClosedStoreTellsBarriers(t *testing.T) {
	s := open(t, t.TempDir())
	got := make(chan error, 2)
	s.Barrier(func(err error) { got <- err })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.Bucket(store.Specs).Put("a", value("1"))
	s.Barrier(func(err error) { got <- err })
	for range 2 {
		if err := <-got; !errors.Is(err, store.ErrClosed) {
			t.Errorf("the barrier got %v, want ErrClosed", err)
		}
	}
}

func TestSyncEndsWithItsContext(t *testing.T) {
	s := open(t, t.TempDir())
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Sync(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Sync = %v, want the context's error", err)
	}
}

func TestNilStoreKeepsNothing(t *testing.T) {
	var s *store.Store
	b := s.Bucket(store.Specs)
	b.Put("a", func() ([]byte, error) { t.Error("encoded for nothing"); return nil, nil })
	b.Delete("a")
	if got := content(t, b); len(got) != 0 {
		t.Errorf("it holds %v", got)
	}
	passed := false
	s.Barrier(func(err error) { passed = err == nil })
	if !passed {
		t.Error("the barrier does not pass at once")
	}
	if err := errors.Join(s.Err(), s.Close()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Error(err)
	}
}

func TestEachStopsAtAnError(t *testing.T) {
	s := open(t, t.TempDir())
	s.Bucket(store.Specs).Put("a", value("1"))
	s.Bucket(store.Specs).Put("b", value("1"))
	run(t, s)
	synced(t, s)
	stop := errors.New("stop")
	seen := 0
	if err := s.Bucket(store.Specs).Each(func(string, []byte) error { seen++; return stop }); !errors.Is(err, stop) || seen != 1 {
		t.Errorf("Each = %v after %d, want the reader's error after 1", err, seen)
	}
}
