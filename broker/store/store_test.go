package store_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/workwire/workwire/broker/store"
)

// running is a store whose Run is in progress, and the batches it has committed.
type running struct {
	*store.Store
	commits chan uint64
	stop    func()
}

// start opens path. Run begins with the first call of run.
func start(t *testing.T, path string) *running {
	t.Helper()
	commits := make(chan uint64, 1000)
	s, err := store.Open(store.Config{Path: path, OnCommit: func(batch uint64) { commits <- batch }})
	if err != nil {
		t.Fatal(err)
	}
	r := &running{Store: s, commits: commits, stop: func() {}}
	t.Cleanup(func() { r.close(t) })
	return r
}

func (r *running) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		r.stop = func() {}
	}
}

func (r *running) close(t *testing.T) {
	r.stop()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// settle waits until everything so far is committed.
func (r *running) settle() {
	for want := r.Barrier(); want > 0; {
		if <-r.commits >= want {
			return
		}
	}
}

func value(s string) func() []byte { return func() []byte { return []byte(s) } }

func never(t *testing.T) func() []byte {
	return func() []byte { t.Error("a record that was taken back is encoded"); return nil }
}

func contents(t *testing.T, s *store.Store, b store.Bucket) []string {
	t.Helper()
	var out []string
	if err := s.Each(b, func(key string, value []byte) error {
		out = append(out, key+"="+string(value))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestChangesSurviveReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "db")
	s := start(t, path)
	if s.Barrier() != 0 {
		t.Errorf("nothing is to be written, but Barrier is %d", s.Barrier())
	}
	s.Put(store.Sessions, "b", value("old"))
	s.Put(store.Sessions, "b", value("new"))
	s.Put(store.Sessions, "a", value("1"))
	s.Add(store.Queue, "q1", value("1"))
	s.Add(store.Queue, "taken back", never(t))
	s.Remove(store.Queue, "taken back")
	s.Put(store.Retained, "deleted at once", never(t))
	s.Delete(store.Retained, "deleted at once")
	s.run(t)
	s.settle()

	s.Remove(store.Queue, "q1")
	s.Add(store.Queue, "q2", value("2"))
	s.Delete(store.Sessions, "not there")
	s.settle()
	s.Delete(store.Sessions, "a") // left to the last batch
	s.stop()
	if _, ok, err := s.Get(store.Sessions, "a"); ok || err != nil {
		t.Errorf("the last batch was not written: %v, %v", ok, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = start(t, path)
	if got := contents(t, s.Store, store.Sessions); !slices.Equal(got, []string{"b=new"}) {
		t.Errorf("sessions: %v", got)
	}
	if got := contents(t, s.Store, store.Queue); !slices.Equal(got, []string{"q2=2"}) {
		t.Errorf("queue: %v", got)
	}
	if got := contents(t, s.Store, store.Retained); len(got) != 0 {
		t.Errorf("retained: %v", got)
	}
	if v, ok, err := s.Get(store.Sessions, "b"); !ok || string(v) != "new" || err != nil {
		t.Errorf("Get: %q, %v, %v", v, ok, err)
	}
}

// Barrier must name a batch after which the change is really there, whenever it is asked.
func TestBarrier(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "db"))
	s.run(t)
	for i := range 50 {
		key := string(rune('A' + i))
		s.Add(store.Messages, key, value("x"))
		s.settle()
		if _, ok, err := s.Get(store.Messages, key); !ok || err != nil {
			t.Fatalf("record %d is not there after its barrier: %v", i, err)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := start(t, path)
	if _, err := store.Open(store.Config{Path: path}); err == nil || !strings.Contains(err.Error(), "another process has it open") {
		t.Errorf("opened twice: %v", err)
	}
	_ = s
	if _, err := store.Open(store.Config{Path: "/dev/null/db"}); err == nil || !strings.Contains(err.Error(), "open the broker's database") {
		t.Errorf("opened in a file: %v", err)
	}
}

func TestEachStopsAtAnError(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "db"))
	s.Put(store.Sessions, "a", value("1"))
	s.Put(store.Sessions, "b", value("2"))
	s.run(t)
	s.settle()
	boom := errors.New("boom")
	calls := 0
	if err := s.Each(store.Sessions, func(string, []byte) error { calls++; return boom }); !errors.Is(err, boom) || calls != 1 {
		t.Errorf("got %v after %d calls", err, calls)
	}
}

// A batch that cannot be written ends Run, and is not reported as committed.
func TestWriteError(t *testing.T) {
	commits := make(chan uint64, 10)
	s, err := store.Open(store.Config{Path: filepath.Join(t.TempDir(), "db"), OnCommit: func(b uint64) { commits <- b }})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.Put(store.Sessions, "a", func() []byte { return bytes.Repeat([]byte("x"), 10) })
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "write to the broker's database") {
		t.Errorf("Run: %v", err)
	}
	if len(commits) > 0 {
		t.Error("the batch was reported as committed")
	}
}
