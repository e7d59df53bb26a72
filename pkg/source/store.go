package source

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/statestore"
	"github.com/workwire/workwire/pkg/wire"
)

// store holds the works of a source. Works are immutable once the store holds them, so they can be
// read without a lock. Writes run one after the other and become visible once they are on disk.
type store struct {
	// onChange is called after each change, in the order of the changes. It must not write to the
	// store. It is set before the first write.
	onChange func(change)

	file    *stateFile // nil: memory only. Set before the first write.
	writing sync.Mutex // serializes writes if there is no file; otherwise file.Run does
	closed  bool       // guarded by writing
	view    *view      // the writes of the current transaction; nil: none

	identity string          // of this memory; empty: none. Set before the engine runs.
	since    wire.Generation // the store was made empty when this was the highest generation; 0: unknown
	// confirmed: an agent has reported a status of a work that is, or was, in this store.
	confirmed atomic.Bool

	mu      sync.RWMutex // guards state, history and changed; only the current write changes them
	state   state
	history history
	changed chan struct{} // closed and replaced at each change
}

// state is the content of a store.
type state struct {
	works    map[types.UID]*storedWork
	clusters map[string]map[types.UID]*storedWork
	// version is the resourceVersion of the last change.
	version int64
	// floor is the highest generation that a removed work can have had. The generations of new
	// works begin above it.
	floor wire.Generation
}

// storedWork is a work together with what the source remembers about it.
type storedWork struct {
	work            *workv1.ManifestWork
	firstGeneration wire.Generation    // generation at creation
	sequences       delivery.Sequences // of the stored statuses
}

// with returns r with another state of its work.
func (r *storedWork) with(work *workv1.ManifestWork) *storedWork {
	return &storedWork{work: work, firstGeneration: r.firstGeneration, sequences: r.sequences}
}

// change is a change of one work.
type change struct {
	old *storedWork // nil: the work is new
	new *storedWork // its resourceVersion is set by the store
	// removed: the work is removed, and new is its last state.
	removed bool
	// statusOnly: nothing that concerns the agent has changed.
	statusOnly bool
}

// view is the state of the store as seen by an update: with all updates before it.
type view struct {
	base    *state
	staged  map[types.UID]*storedWork // nil: removed
	version int64
	floor   wire.Generation
}

func (v *view) get(uid types.UID) (*storedWork, bool) {
	if r, ok := v.staged[uid]; ok {
		return r, r != nil
	}
	r, ok := v.base.works[uid]
	return r, ok
}

// updateFunc returns the change to make, nil for none. It is called once.
type updateFunc func(*view) (*change, error)

func newStore(floor wire.Generation) *store {
	return &store{
		state: state{
			works:    make(map[types.UID]*storedWork),
			clusters: make(map[string]map[types.UID]*storedWork),
			floor:    floor,
		},
		changed: make(chan struct{}),
	}
}

// update runs f and returns the change that it made, nil for none, or the error of f.
func (s *store) update(f updateFunc) (made *change, err error) {
	if s.file == nil {
		s.writing.Lock()
		defer s.writing.Unlock()
		if s.closed {
			return nil, errRunEnded()
		}
		made, err = s.prepare(f)
		s.finish(made)
		return made, err
	}
	done := make(chan struct{})
	s.file.Update(func(writes statestore.Writes) {
		if made, err = s.prepare(f); made != nil {
			save(writes, made, s.view.version, s.view.floor)
		}
	}, func(failed error) {
		defer close(done)
		switch {
		case errors.Is(failed, statestore.ErrClosed):
			made, err = nil, errRunEnded()
		case failed != nil:
			s.view = nil
			made, err = nil, errNotStored(failed)
		default:
			s.finish(made)
		}
	})
	<-done
	return made, err
}

// errNotStored is the error of a write that the state file did not take.
func errNotStored(cause error) error {
	return apierrors.NewInternalError(fmt.Errorf("%w; nothing was changed: make room on its disk, or make it writable, and try again", cause))
}

func errRunEnded() error { return apierrors.NewServiceUnavailable("the source's Run has ended") }

// prepare runs f on the store with all updates before it.
func (s *store) prepare(f updateFunc) (*change, error) {
	if s.view == nil {
		s.view = &view{base: &s.state, staged: make(map[types.UID]*storedWork), version: s.state.version, floor: s.state.floor}
	}
	ch, err := f(s.view)
	if err != nil || ch == nil {
		return nil, err
	}
	s.view.stage(ch)
	return ch, nil
}

// finish makes ch visible to readers; ch may be nil.
func (s *store) finish(ch *change) {
	s.view = nil
	if ch != nil {
		s.apply(ch)
		s.onChange(*ch)
	}
}

// stage makes ch visible to the updates that follow.
func (v *view) stage(ch *change) {
	v.version++
	work := ch.new.work
	work.ResourceVersion = strconv.FormatInt(v.version, 10)
	if ch.removed {
		v.staged[work.UID] = nil
		v.floor = max(v.floor, wire.Generation(work.Generation))
		return
	}
	v.staged[work.UID] = ch.new
}

// apply makes ch visible to readers.
func (s *store) apply(ch *change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch.removed {
		s.state.remove(ch.new.work)
	} else {
		s.state.put(ch.new)
	}
	s.state.version++
	s.history.add(*ch)
	close(s.changed)
	s.changed = make(chan struct{})
}

// put stores r.
func (s *state) put(r *storedWork) {
	cluster := s.clusters[r.work.Namespace]
	if cluster == nil {
		cluster = make(map[types.UID]*storedWork)
		s.clusters[r.work.Namespace] = cluster
	}
	s.works[r.work.UID], cluster[r.work.UID] = r, r
}

// remove removes a work. It remembers the generation that a later work of its name must exceed.
func (s *state) remove(work *workv1.ManifestWork) {
	s.floor = max(s.floor, wire.Generation(work.Generation))
	delete(s.works, work.UID)
	cluster := s.clusters[work.Namespace]
	if delete(cluster, work.UID); len(cluster) == 0 {
		delete(s.clusters, work.Namespace)
	}
}

// get returns the work with this UID.
func (s *store) get(uid types.UID) (*storedWork, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r, ok := s.state.works[uid]
	return r, ok
}

// snapshot returns the works of a namespace, of all if it is empty, sorted by namespace and name,
// and the resourceVersion of the store.
func (s *store) snapshot(namespace string) ([]*workv1.ManifestWork, int64) {
	s.mu.RLock()
	from := s.state.works
	if namespace != "" {
		from = s.state.clusters[namespace]
	}
	works := make([]*workv1.ManifestWork, 0, len(from))
	for _, r := range from {
		works = append(works, r.work)
	}
	version := s.state.version
	s.mu.RUnlock()
	slices.SortFunc(works, func(a, b *workv1.ManifestWork) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return works, version
}

// changesAfter returns up to n changes that follow version, and false if the history does not reach
// back that far. The channel is closed at the next change.
func (s *store) changesAfter(version int64, n int) ([]change, bool, <-chan struct{}) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	changes, ok := s.history.after(version, n)
	return changes, ok, s.changed
}

// clusters returns the namespaces that have works.
func (s *store) clusters() iter.Seq[string] {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Values(slices.Collect(maps.Keys(s.state.clusters)))
}

// restore fills the store from file, and keeps it there from now on. No write may be in progress.
func (s *store) restore(file *stateFile) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := file.load(&s.state); err != nil {
		return err
	}
	s.history.last = s.state.version
	s.file = file
	s.identity, s.since = file.identity, file.since
	removed := file.since > 0 && s.state.floor > file.since
	for _, r := range s.state.works {
		removed = removed || r.sequences.Newest.ID > 0
	}
	s.confirmed.Store(removed)
	return nil
}

// markNew sets since if the store, which has no file, is empty: what agents hold is of an earlier
// one.
func (s *store) markNew() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(s.state.works) == 0 {
		s.since = s.state.floor
	}
}

// close refuses writes from now on and closes the file.
func (s *store) close() error {
	if s.file != nil {
		return s.file.close()
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	s.closed = true
	return nil
}
