package source_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/source/store"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// sharedStore is a store that another replica publishes from, unless it has a lease. With a fault, it can neither be read nor, after a
// second, be written.
type sharedStore struct {
	mu      sync.Mutex
	header  store.Header
	records []store.Record
	fault   error
	lease   store.Lease // nil: another replica has it
	changed func(version int64)
}

func (s *sharedStore) Open(_ context.Context, _ wire.SourceID, initial store.Header, _ func(store.Record) error) (store.Header, error) {
	s.header = initial
	return initial, nil
}

func (s *sharedStore) Update(ctx context.Context, after int64, change store.ChangeFunc) error {
	if err := s.faulty(); err != nil {
		time.Sleep(time.Second)
		return err
	}
	h, newer, _ := s.Changes(ctx, after)
	h, records, err := change(h, newer)
	if err == nil && len(records) > 0 {
		s.add(h.Version, records...)
	}
	return err
}

func (s *sharedStore) Changes(_ context.Context, after int64) (store.Header, []store.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != nil {
		return store.Header{}, nil, s.fault
	}
	var newer []store.Record
	for _, r := range s.records {
		if r.Version > after {
			newer = append(newer, r)
		}
	}
	return s.header, newer, nil
}

func (s *sharedStore) Follow(ctx context.Context, changed func(version int64)) error {
	s.changed = changed
	<-ctx.Done()
	return nil
}

func (s *sharedStore) Removed(context.Context) ([]store.Record, error) { return nil, nil }

func (s *sharedStore) Acquire(ctx context.Context) (store.Lease, error) {
	if s.lease != nil {
		return s.lease, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// validLease is a lease that lasts, and counts who asks for that.
type validLease struct{ asked atomic.Int64 }

func (*validLease) Hold(ctx context.Context) error { <-ctx.Done(); return nil }

func (l *validLease) Wait(context.Context) error { l.asked.Add(1); return nil }

func (s *sharedStore) Close() error { return nil }

func (s *sharedStore) add(version int64, records ...store.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.header.Version, s.records = version, append(s.records, records...)
}

func (s *sharedStore) faulty() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault
}

func (s *sharedStore) setFault(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = err
}

// otherStores has another replica store a work.
func (s *sharedStore) otherStores(name string) {
	uid, version := wire.UIDFor("ops", "cluster1", name), s.header.Version+1
	s.add(version, store.Record{
		UID: uid, Namespace: "cluster1", Name: name, Version: version,
		Data: fmt.Appendf(nil, `{"since":1,"work":{"metadata":{"name":%q,"namespace":"cluster1","uid":%q,"generation":1,"resourceVersion":"%d"}}}`, name, uid, version),
	})
}

// TestBehindAfterFailedWrites: a replica that could not read what others have stored reads it once it can, whatever
// becomes of its own writes meanwhile, and says once that it could not.
func TestBehindAfterFailedWrites(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s, log := &sharedStore{}, &kit.Log{}
		c := w.client(func(c *source.Config) { c.Store, c.Logger = s, log.Logger() })
		w.run(c)
		works := c.ManifestWorks("cluster1")
		s.setFault(store.ErrUnavailable)
		s.otherStores("theirs")
		s.changed(0)
		time.Sleep(500 * time.Millisecond)
		write := func(name string) {
			w.running.Go(func() {
				if _, err := works.Create(t.Context(), configMap(name, "one"), metav1.CreateOptions{}); !apierrors.IsServiceUnavailable(err) {
					t.Errorf("while the store is down: %v", err)
				}
			})
		}
		write("first") // until 1.5 s; at 1 s, the store is to be read again
		time.Sleep(700 * time.Millisecond)
		write("second")
		time.Sleep(1800 * time.Millisecond)
		s.setFault(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		must(t)(works.Get(t.Context(), "theirs", metav1.GetOptions{}))
		if lines := log.Lines("other replicas have stored cannot be read", store.ErrUnavailable.Error()); len(lines) != 1 {
			t.Errorf("the log says of the store that is down: %q", lines)
		}
	})
}

// TestReplicaEnds: Run with a shared store returns nil when its context ends, whatever the cause, and the store's error
// if it cannot be followed.
func TestReplicaEnds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		run := func(ctx context.Context, s *sharedStore) (ended func() error) {
			c := w.client(func(c *source.Config) { c.Store = s })
			result := make(chan error, 1)
			w.running.Go(func() { result <- c.Run(ctx) })
			synctest.Wait()
			return func() error { return <-result }
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := run(ctx, &sharedStore{})
		cancel(errors.New("reload"))
		if err := ended(); err != nil {
			t.Errorf("the context has ended, Run returns %v", err)
		}
		s := &sharedStore{}
		ended = run(t.Context(), s)
		s.setFault(store.ErrWentBack)
		s.changed(0)
		if err := ended(); !errors.Is(err, store.ErrWentBack) {
			t.Errorf("Run returns %v, want %v", err, store.ErrWentBack)
		}
	})
}
