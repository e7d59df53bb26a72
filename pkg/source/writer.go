package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/source/store"
	"github.com/workwire/workwire/pkg/wire"
)

const (
	// maxBatch is how many updates share one transaction.
	maxBatch = 256
	// storeTimeout bounds one transaction.
	storeTimeout = 15 * time.Second
)

// writer writes the changes of a memory to its store: one transaction at a time, shared by all
// updates that wait for it. It alone changes the memory.
type writer struct {
	memory *memory
	store  store.Store
	log    *slog.Logger
	wake   chan struct{} // buffered: queue or behind has changed
	ended  chan struct{} // closed when run has returned
	stop   context.CancelFunc

	mu     sync.Mutex
	queue  []*request
	closed bool
	// behind: the store may be newer than the memory. newest is the newest version known.
	behind bool
	newest int64
	failed error // ends Run: the store cannot be followed any longer
	fail   context.CancelCauseFunc

	failing bool // the last catchUp has failed; of run alone
}

// request is an update.
type request struct {
	f    updateFunc
	done chan struct{} // closed when made and err are set
	made *change
	err  error
}

// openWriter opens the store, loads it into m, and keeps m there from now on. No write may be in
// progress.
func openWriter(ctx context.Context, m *memory, s store.Store, source wire.SourceID, initial store.Header, log *slog.Logger) error {
	h, err := s.Open(ctx, source, initial, func(r store.Record) error {
		work, err := decodeRecord(string(r.UID), r.Data)
		if err == nil {
			m.content.put(work)
		}
		return err
	})
	if err != nil {
		return err
	}
	m.content.version, m.content.floor = h.Version, max(m.content.floor, h.Floor)
	m.identity, m.since = h.Identity, h.Since
	running, stop := context.WithCancel(context.Background())
	w := &writer{memory: m, store: s, log: log.With("source", source), wake: make(chan struct{}, 1), ended: make(chan struct{}), stop: stop}
	m.writer = w
	go func() {
		defer close(w.ended)
		w.run(running)
	}()
	return nil
}

// update runs f in a transaction.
func (w *writer) update(ctx context.Context, f updateFunc) (*change, error) {
	r := &request{f: f, done: make(chan struct{})}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil, errRunEnded()
	}
	w.queue = append(w.queue, r)
	w.mu.Unlock()
	w.signal()
	select {
	case <-r.done:
		return r.made, r.err
	case <-ctx.Done():
	}
	if w.withdraw(r) {
		return nil, apierrors.NewTimeoutError(fmt.Sprintf("the store is busy, nothing was changed: %v", context.Cause(ctx)), 1)
	}
	select {
	case <-r.done:
		return r.made, r.err
	default:
		return nil, apierrors.NewTimeoutError(fmt.Sprintf("the change is being stored, and may be: %v", context.Cause(ctx)), 1)
	}
}

// withdraw reports whether r was still waiting, and will not run.
func (w *writer) withdraw(r *request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.queue, r)
	if i >= 0 {
		w.queue = slices.Delete(w.queue, i, i+1)
	}
	return i >= 0
}

func (w *writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// changed is called when another replica may have stored a version, 0 for an unknown one.
func (w *writer) changed(version int64) {
	w.mu.Lock()
	w.behind = w.behind || version == 0
	w.newest = max(w.newest, version)
	w.mu.Unlock()
	w.signal()
}

// run writes until ctx ends, and then what is left.
func (w *writer) run(ctx context.Context) {
	for ctx.Err() == nil {
		for w.next() {
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
		}
	}
	for w.next() {
	}
}

// next writes the next batch, or reads what others have written, and reports whether there was
// something to do.
func (w *writer) next() bool {
	w.mu.Lock()
	batch := w.queue[:min(len(w.queue), maxBatch):min(len(w.queue), maxBatch)]
	w.queue = w.queue[len(batch):]
	behind := (w.behind || w.newest > w.memory.content.version) && !w.closed
	w.behind = false
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	switch {
	case len(batch) > 0:
		if !w.commit(ctx, batch) && behind {
			w.changed(0)
		}
	case behind:
		w.catchUp(ctx)
	default:
		return false
	}
	return true
}

// commit runs the updates of batch in one transaction. It reports whether it has read what others have written.
func (w *writer) commit(ctx context.Context, batch []*request) (read bool) {
	m := w.memory
	var v *view
	err := w.store.Update(ctx, m.content.version, func(h store.Header, newer []store.Record) (store.Header, []store.Record, error) {
		if err := w.applyNewer(h, newer); err != nil {
			return h, nil, err
		}
		v = m.view()
		changed := make(map[types.UID]*change)
		for _, r := range batch {
			if r.made, r.err = v.run(r.f); r.made != nil {
				changed[r.made.new.work.UID] = r.made
			}
		}
		records := make([]store.Record, 0, len(changed))
		for _, ch := range changed {
			record, err := newRecord(ch)
			if err != nil {
				return h, nil, err
			}
			records = append(records, record)
		}
		h.Version, h.Floor = v.version, v.floor
		return h, records, nil
	})
	if err != nil {
		w.refuse(batch, v != nil, err)
		return v != nil
	}
	var made []*change
	for _, r := range batch {
		if r.made != nil {
			made = append(made, r.made)
		}
	}
	if len(made) > 0 {
		m.apply(v.version, made...)
	}
	for _, r := range batch {
		close(r.done)
	}
	return true
}

// refuse fails the updates of batch that were not stored: those that change something, or all if
// none has run.
func (w *writer) refuse(batch []*request, ran bool, err error) {
	unknown := errors.Is(err, store.ErrOutcomeUnknown)
	if unknown {
		w.changed(0)
	}
	w.failOn(err)
	for _, r := range batch {
		if r.made != nil || !ran {
			r.made, r.err = nil, errNotStored(err, unknown)
		}
		close(r.done)
	}
}

// errNotStored is the error of a write that the store did not take.
func errNotStored(cause error, unknown bool) error {
	switch {
	case unknown:
		return apierrors.NewTimeoutError(fmt.Sprintf("%v: read the work before you write it again", cause), 1)
	case errors.Is(cause, store.ErrUnavailable), errors.Is(cause, store.ErrLeaseLost):
		return apierrors.NewServiceUnavailable(fmt.Sprintf("%v; nothing was changed: try again", cause))
	case errors.Is(cause, context.DeadlineExceeded):
		return apierrors.NewTimeoutError(fmt.Sprintf("%v; nothing was changed: try again", cause), 1)
	default:
		return apierrors.NewInternalError(fmt.Errorf("%w; nothing was changed: make room on its disk, or make it writable, and try again", cause))
	}
}

// applyNewer applies what other replicas have stored.
func (w *writer) applyNewer(h store.Header, newer []store.Record) error {
	m := w.memory
	if h.Version <= m.content.version && len(newer) == 0 {
		return nil
	}
	changes, err := decodeChanges(&m.content, m.content.version, newer)
	if err != nil {
		return err
	}
	m.apply(h.Version, changes...)
	m.mu.Lock()
	m.content.floor = max(m.content.floor, h.Floor)
	m.mu.Unlock()
	return nil
}

// catchUp applies what other replicas have stored, and tries again later if the store fails.
func (w *writer) catchUp(ctx context.Context) {
	shared, ok := w.store.(store.Shared)
	if !ok {
		return
	}
	h, newer, err := shared.Changes(ctx, w.memory.content.version)
	if err == nil {
		err = w.applyNewer(h, newer)
	}
	if err != nil {
		if !w.failOn(err) && !w.failing {
			w.log.Warn("what other replicas have stored cannot be read, retrying", "error", err)
		}
		w.mu.Lock()
		w.newest = 0
		w.mu.Unlock()
		time.AfterFunc(time.Second, func() { w.changed(0) })
	}
	w.failing = err != nil
}

// failOn ends Run if err means that the client cannot go on, and reports that.
func (w *writer) failOn(err error) bool {
	if !errors.Is(err, store.ErrWentBack) && !errors.Is(err, store.ErrTooOld) && !errors.Is(err, store.ErrLeaseLost) {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed == nil {
		w.failed = err
	}
	if w.fail != nil {
		w.fail(err)
	}
	return true
}

// onFailure has fail called when the client cannot go on.
func (w *writer) onFailure(fail context.CancelCauseFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail = fail; w.failed != nil {
		fail(w.failed)
	}
}

// close waits for the updates that have begun and closes the store.
func (w *writer) close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.stop()
	<-w.ended
	return w.store.Close()
}
