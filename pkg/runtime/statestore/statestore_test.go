package statestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/workwire/workwire/pkg/runtime/statestore"
	"github.com/workwire/workwire/test/kit"
)

const (
	one statestore.Bucket = "one"
	two statestore.Bucket = "two"
)

func config(path string) statestore.Config {
	return statestore.Config{
		Name: "state file", Path: path, Buckets: []statestore.Bucket{one, two},
		Meta:     "meta",
		Check:    func(meta *bbolt.Bucket) error { return statestore.RequireValue(meta, "format", "7") },
		Recovery: "it is then empty", LockTimeout: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}
}

// open opens path. modify, if not nil, changes the configuration.
func open(t testing.TB, path string, modify func(*statestore.Config)) *statestore.Store {
	t.Helper()
	c := config(path)
	if modify != nil {
		modify(&c)
	}
	s, err := statestore.Open(c)
	kit.NoError(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func tempFile(t testing.TB) string { return filepath.Join(t.TempDir(), "state.db") }

func run(t testing.TB, s *statestore.Store) (stop func()) {
	t.Helper()
	return kit.Run(t, "the store", s.Run)
}

// wait waits until everything so far is on disk.
func wait(t testing.TB, s *statestore.Store) {
	t.Helper()
	done := make(chan error, 1)
	s.Barrier(func(err error) { done <- err })
	kit.NoError(t, kit.Receive(t, "result", done))
}

func value(text string) statestore.Encoder {
	return func() ([]byte, error) { return []byte(text), nil }
}

func never(t *testing.T) statestore.Encoder {
	return func() ([]byte, error) { t.Error("a change that was replaced is encoded"); return nil, nil }
}

func content(t testing.TB, s *statestore.Store, b statestore.Bucket) map[string]string {
	t.Helper()
	all := map[string]string{}
	kit.NoError(t, s.Each(b, func(k string, v []byte) error { all[k] = string(v); return nil }))
	return all
}

func wantContent(t testing.TB, s *statestore.Store, b statestore.Bucket, want map[string]string) {
	t.Helper()
	if got := content(t, s, b); !maps.Equal(got, want) {
		t.Errorf("bucket %s holds %v, want %v", b, got, want)
	}
}

// commits returns how many transactions have changed the file, which nobody has open.
func commits(t testing.TB, path string) (n int) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	kit.NoError(t, err)
	defer db.Close()
	kit.NoError(t, db.View(func(tx *bbolt.Tx) error { n = tx.ID(); return nil }))
	return n
}

func TestChangesOutliveTheStore(t *testing.T) {
	path := tempFile(t)
	s := open(t, path, nil)
	if s.Batch() != 0 {
		t.Errorf("nothing is pending, but Batch is %d", s.Batch())
	}
	s.Put(one, "a", value("1"))
	s.Put(one, "b", never(t))
	s.Put(one, "b", value("1"))
	s.Put(two, "a", value("x"))
	s.Add(two, "q1", value("1"))
	s.Add(two, "cancelled", never(t))
	s.Remove(two, "cancelled")
	s.Put(two, "deleted at once", never(t))
	s.Delete(two, "deleted at once")
	stop := run(t, s)
	wait(t, s)
	s.Put(one, "a", value("2"))
	s.Delete(one, "b")
	s.Delete(one, "missing")
	s.Remove(two, "q1")
	s.Put(one, "c", value("old"))
	s.Put(one, "c", value("new"))
	stop() // writes what nobody waits for
	if _, ok, err := s.Get(one, "b"); ok || err != nil {
		t.Errorf("the last batch was not written: %v, %v", ok, err)
	}
	kit.NoError(t, s.Close())

	s = open(t, path, nil)
	wantContent(t, s, one, map[string]string{"a": "2", "c": "new"})
	wantContent(t, s, two, map[string]string{"a": "x"})
	if v, ok, err := s.Get(one, "c"); !ok || string(v) != "new" || err != nil {
		t.Errorf("Get: %q, %v, %v", v, ok, err)
	}
	info, err := os.Stat(path)
	kit.NoError(t, err)
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("the file has mode %o, want 600", got)
	}
}

func TestBarrierPassesOnceOnDisk(t *testing.T) {
	s := open(t, tempFile(t), nil)
	encoded := false
	s.Put(one, "a", func() ([]byte, error) { encoded = true; return []byte("1"), nil })
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
	if err := kit.Receive(t, "result", passed); err != nil {
		t.Errorf("the barrier got %v", err)
	}
	wantContent(t, s, one, map[string]string{"a": "1"})
}

// TestBatch: the number that Batch returns is that of a batch after which the change is on disk.
func TestBatch(t *testing.T) {
	batches := make(chan uint64, 1000)
	s := open(t, tempFile(t), func(c *statestore.Config) { c.OnCommit = func(batch uint64) { batches <- batch } })
	run(t, s)
	for i := range 50 {
		key := string(rune('A' + i))
		s.Add(one, key, value("x"))
		for want := s.Batch(); kit.Receive(t, "result", batches) < want; {
			continue
		}
		if _, ok, err := s.Get(one, key); !ok || err != nil {
			t.Fatalf("key %d does not exist after its batch: %v", i, err)
		}
	}
}

// TestCommitsAreShared: a thousand changes, each with a barrier, cost a few commits.
func TestCommitsAreShared(t *testing.T) {
	path := tempFile(t)
	s := open(t, path, nil)
	const changes = 1000
	var held atomic.Int64
	done := make(chan error, 1)
	stop := run(t, s)
	for i := range changes {
		s.Put(one, fmt.Sprint(i), value("spec"))
		s.Barrier(func(error) {
			if held.Add(1) == changes {
				done <- nil
			}
		})
	}
	_ = kit.Receive(t, "result", done)
	stop()
	kit.NoError(t, s.Close())
	if n := commits(t, path); n > changes/4 {
		t.Errorf("%d changes took %d commits", changes, n)
	}
}

// TestDelay: changes that nobody waits for collect for Config.Delay.
func TestDelay(t *testing.T) {
	path := tempFile(t)
	s := open(t, path, func(c *statestore.Config) { c.Delay = time.Hour })
	before := commits(t, tempCopy(t, path))
	stop := run(t, s)
	for i := range 100 {
		s.Put(one, fmt.Sprint(i), value("x"))
	}
	wait(t, s) // does not take an hour
	s.Put(one, "last", value("x"))
	stop()
	if got := len(content(t, s, one)); got != 101 {
		t.Errorf("%d of 101 keys are on disk", got)
	}
	if n := commits(t, tempCopy(t, path)) - before; n != 2 {
		t.Errorf("%d commits, want 2", n)
	}
}

// tempCopy copies a file, which may be open.
func tempCopy(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	kit.NoError(t, err)
	copied := tempFile(t)
	kit.NoError(t, os.WriteFile(copied, data, 0o600))
	return copied
}

// TestLargeBatchIsSplit: more than fits into one transaction is written all the same.
func TestLargeBatchIsSplit(t *testing.T) {
	path := tempFile(t)
	s := open(t, path, nil)
	before := commits(t, tempCopy(t, path))
	block := bytes.Repeat([]byte("x"), 512<<10)
	const count = 40 // 20 MiB, in transactions of 16
	for i := range count {
		s.Put(one, fmt.Sprint(i), func() ([]byte, error) { return block, nil })
	}
	stop := run(t, s)
	wait(t, s)
	if got := len(content(t, s, one)); got != count {
		t.Errorf("%d of %d are on disk", got, count)
	}
	stop()
	if n := commits(t, tempCopy(t, path)) - before; n != 2 {
		t.Errorf("they took %d transactions, want 2", n)
	}
}

// TestOrder: a batch is written in the order of Config.Buckets, then of the keys, and Meta last. With several transactions, what
// a crash leaves is a prefix of that.
func TestOrder(t *testing.T) {
	s := open(t, tempFile(t), func(c *statestore.Config) { c.Buckets = []statestore.Bucket{two, one} })
	var got []string
	for _, b := range []statestore.Bucket{"meta", one, two} {
		for _, key := range []string{"b", "a"} {
			s.Put(b, key, func() ([]byte, error) { got = append(got, string(b)+" "+key); return []byte("x"), nil })
		}
	}
	run(t, s)
	wait(t, s)
	if want := []string{"two a", "two b", "one a", "one b", "meta a", "meta b"}; !slices.Equal(got, want) {
		t.Errorf("written in the order %q, want %q", got, want)
	}
}

func TestValuesThatCannotBeStoredAreSkipped(t *testing.T) {
	s := open(t, tempFile(t), nil)
	s.Put(one, strings.Repeat("k", 40000), value("key too large"))
	s.Put(one, "broken", func() ([]byte, error) { return nil, errors.New("no") })
	s.Put(one, "fine", value("1"))
	run(t, s)
	wait(t, s)
	wantContent(t, s, one, map[string]string{"fine": "1"})
	if err := s.Err(); err != nil {
		t.Errorf("Err = %v", err)
	}
}

// TestFailedCommitIsKept: everything that a failed commit did not write is written by the next Run,
// unless it was changed meanwhile.
func TestFailedCommitIsKept(t *testing.T) {
	s := open(t, tempFile(t), nil)
	full := errors.New("no space")
	s.Put(one, "a", func() ([]byte, error) {
		s.Put(one, "a", value("new")) // while the old one is being written
		panic(full)                   // as bbolt does
	})
	s.Add(one, "cancelled", value("x"))
	s.Put(one, "b", value("1"))
	passed := make(chan error, 1)
	s.Barrier(func(err error) { passed <- err })
	if err := s.Run(t.Context()); !errors.Is(err, full) || !strings.Contains(err.Error(), "write state file") || !strings.Contains(err.Error(), "state.db") {
		t.Errorf("Run: %v, want the operation, the file and the cause", err)
	}
	if err := s.Err(); !errors.Is(err, full) {
		t.Errorf("Err = %v, want the cause", err)
	}
	select {
	case err := <-passed:
		t.Fatalf("the barrier passed (%v) although nothing was written", err)
	default:
	}
	s.Remove(one, "cancelled")
	s.Put(one, "c", value("1"))
	stop := run(t, s)
	if err := kit.Receive(t, "result", passed); err != nil {
		t.Errorf("the barrier got %v", err)
	}
	stop()
	wantContent(t, s, one, map[string]string{"a": "new", "b": "1", "c": "1"})
	if err := s.Err(); err != nil {
		t.Errorf("Err = %v after a commit", err)
	}
}

// TestUpdates: updates that wait share one transaction, in order, and their results come in order.
func TestUpdates(t *testing.T) {
	path := tempFile(t)
	s := open(t, path, nil)
	before := commits(t, tempCopy(t, path))
	var events []string
	update := func(name string, write func(statestore.Writes)) {
		s.Update(func(w statestore.Writes) {
			events = append(events, "write "+name)
			write(w)
		}, func(err error) { events = append(events, fmt.Sprintf("done %s: %v", name, err)) })
	}
	none := func(statestore.Writes) {}
	update("first", func(w statestore.Writes) { w.Put(one, "a", value("1")); w.Put(one, "b", value("1")) })
	update("none", none)
	update("last", func(w statestore.Writes) { w.Put(one, "a", value("2")); w.Delete(one, "b") })
	stop := run(t, s)
	wait(t, s)
	want := []string{"write first", "write none", "write last", "done first: <nil>", "done none: <nil>", "done last: <nil>"}
	if !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
	wantContent(t, s, one, map[string]string{"a": "2"})
	update("none", none)
	wait(t, s)
	stop()
	if n := commits(t, tempCopy(t, path)) - before; n != 1 {
		t.Errorf("%d transactions, want 1", n)
	}
}

// TestFailedUpdate: the failure of an update fails those that share its transaction, is not
// retried, and concerns nothing else.
func TestFailedUpdate(t *testing.T) {
	s := open(t, tempFile(t), nil)
	broken := errors.New("broken")
	results := make(chan error, 10)
	done := func(err error) { results <- err }
	s.Put(one, "put", value("1"))
	s.Update(func(w statestore.Writes) { w.Put(one, "fine", value("1")) }, done)
	s.Update(func(w statestore.Writes) { w.Put(one, "broken", func() ([]byte, error) { return nil, broken }) }, done)
	s.Barrier(done)
	run(t, s)
	for range 2 {
		if err := kit.Receive(t, "result", results); !errors.Is(err, broken) {
			t.Errorf("update: %v", err)
		}
	}
	if err := kit.Receive(t, "result", results); err != nil {
		t.Errorf("barrier: %v", err)
	}
	s.Update(func(w statestore.Writes) { w.Put(one, strings.Repeat("k", 40000), value("key too large")) }, done)
	if err := kit.Receive(t, "result", results); err == nil {
		t.Error("a key that is too large was accepted")
	}
	s.Update(func(w statestore.Writes) { w.Put(one, "next", value("1")) }, done)
	if err := kit.Receive(t, "result", results); err != nil {
		t.Errorf("update: %v", err)
	}
	wantContent(t, s, one, map[string]string{"put": "1", "next": "1"})
}

func TestClosedStore(t *testing.T) {
	committed := false
	s := open(t, tempFile(t), func(c *statestore.Config) { c.OnCommit = func(uint64) { committed = true } })
	got := make(chan error, 4)
	done := func(err error) { got <- err }
	s.Barrier(done)
	s.Update(func(statestore.Writes) { t.Error("an update ran") }, done)
	kit.NoError(t, s.Close())
	s.Put(one, "a", never(t))
	s.Barrier(done)
	s.Update(func(statestore.Writes) { t.Error("an update ran") }, done)
	for range 4 {
		if err := kit.Receive(t, "result", got); !errors.Is(err, statestore.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "write state file") {
		t.Errorf("Run: %v", err)
	}
	if committed {
		t.Error("a batch was reported as committed")
	}
}

func TestNilStoreStoresNothing(t *testing.T) {
	var s *statestore.Store
	s.Put(one, "a", never(t))
	s.Delete(one, "a")
	s.Remove(one, "a")
	wantContent(t, s, one, map[string]string{})
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
	s := open(t, tempFile(t), nil)
	s.Put(one, "a", value("1"))
	s.Put(one, "b", value("1"))
	run(t, s)
	wait(t, s)
	stop := errors.New("stop")
	seen := 0
	if err := s.Each(one, func(string, []byte) error { seen++; return stop }); !errors.Is(err, stop) || seen != 1 {
		t.Errorf("Each = %v after %d, want the reader's error after 1", err, seen)
	}
}
