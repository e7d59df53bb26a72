package source

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// batchMax is how many writes share one transaction of the state file.
const batchMax = 256

// store holds the works of a source. Records and the works in them are never
// changed once they are in it, so they may be read without a lock. Whoever writes
// takes a turn: it does all writes that wait, its own among them, in one
// transaction, and makes them visible only when the file has them.
type store struct {
	// published is called after each change, in the order of changes; it must not
	// write. It is set before the first write.
	published func(change)

	turn  chan struct{} // held by the one who writes
	queue writes

	mu      sync.RWMutex // guards what follows; only who holds turn changes it
	state   state
	history history
	changed chan struct{} // closed and replaced at each change
	file    *stateFile    // nil: memory only
	closed  bool
}

// state is what a store holds.
type state struct {
	works    map[types.UID]*storedWork
	clusters map[string]map[types.UID]*storedWork
	// version is the resourceVersion of the last change.
	version int64
	// floor is the highest generation that a work which no longer exists may have
	// had: new ones begin above it.
	floor wire.Generation
}

// record is a work and what the source knows besides.
type storedWork struct {
	work            *workv1.ManifestWork
	firstGeneration wire.Generation // generation at creation
	lastSequence    wire.SequenceID // of the last status
}

// change replaces a record.
type change struct {
	old *storedWork // nil: the work is new
	new *storedWork // its resourceVersion is set by the store
	// gone: the work ceases to exist, and new is its last state.
	gone bool
	// statusOnly: nothing that an agent needs to know has changed.
	statusOnly bool
}

// view is what a write sees: the store with all writes before it.
type view struct {
	base    *state
	staged  map[types.UID]*storedWork // nil: gone
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

// write decides on a change, or none, by what it sees. It is called once.
type write func(*view) (*change, error)

type request struct {
	write   write
	outcome outcome
	done    chan struct{}
}

type outcome struct {
	change *change
	err    error
}

// writes is the queue of requests.
type writes struct {
	mu      sync.Mutex
	waiting []*request
}

func (q *writes) push(r *request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, r)
}

func (q *writes) take(n int) []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	n = min(n, len(q.waiting))
	taken := q.waiting[:n:n]
	if q.waiting = q.waiting[n:]; len(q.waiting) == 0 {
		q.waiting = nil
	}
	return taken
}

func newStore(floor wire.Generation) *store {
	return &store{
		turn: make(chan struct{}, 1),
		state: state{
			works:    make(map[types.UID]*storedWork),
			clusters: make(map[string]map[types.UID]*storedWork),
			floor:    floor,
		},
		changed: make(chan struct{}),
	}
}

// do carries w out and gives the change it made, nil for none. What w gives as
// error is returned as it is.
func (s *store) do(w write) (*change, error) {
	r := &request{write: w, done: make(chan struct{})}
	s.queue.push(r)
	for done := false; !done; {
		s.turn <- struct{}{}
		select {
		case <-r.done: // by who had the turn before
		default:
			s.commit(s.queue.take(batchMax))
		}
		<-s.turn
		select {
		case <-r.done:
			done = true
		default: // more than one batch was waiting
		}
	}
	if r.outcome.err != nil {
		return nil, r.outcome.err
	}
	return r.outcome.change, nil
}

// commit carries out a batch. The turn is held.
func (s *store) commit(batch []*request) {
	defer func() {
		for _, r := range batch {
			close(r.done)
		}
	}()
	fail := func(err error) {
		for _, r := range batch {
			r.outcome = outcome{err: err}
		}
	}
	if s.closed {
		fail(apierrors.NewServiceUnavailable("the source's Run has ended"))
		return
	}
	v := &view{base: &s.state, staged: make(map[types.UID]*storedWork), version: s.state.version, floor: s.state.floor}
	var changes []*change
	for _, r := range batch {
		r.outcome.change, r.outcome.err = r.write(v)
		if r.outcome.err != nil || r.outcome.change == nil {
			continue
		}
		v.stage(r.outcome.change)
		changes = append(changes, r.outcome.change)
	}
	if len(changes) == 0 {
		return
	}
	if s.file != nil {
		if err := s.file.save(v); err != nil {
			fail(apierrors.NewInternalError(fmt.Errorf("write the state file: %w", err)))
			return
		}
	}
	s.show(v, changes)
	for _, ch := range changes {
		s.published(*ch)
	}
}

// stage makes ch visible to the writes that follow.
func (v *view) stage(ch *change) {
	v.version++
	work := ch.new.work
	work.ResourceVersion = strconv.FormatInt(v.version, 10)
	if ch.gone {
		v.staged[work.UID] = nil
		v.floor = max(v.floor, wire.Generation(work.Generation))
		return
	}
	v.staged[work.UID] = ch.new
}

// show makes changes visible to all.
func (s *store) show(v *view, changes []*change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, r := range v.staged {
		s.state.put(uid, r)
	}
	s.state.version, s.state.floor = v.version, v.floor
	for _, ch := range changes {
		s.history.add(*ch)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// put sets the record of uid; nil removes it.
func (s *state) put(uid types.UID, r *storedWork) {
	if old, ok := s.works[uid]; ok && r == nil {
		delete(s.works, uid)
		cluster := s.clusters[old.work.Namespace]
		if delete(cluster, uid); len(cluster) == 0 {
			delete(s.clusters, old.work.Namespace)
		}
		return
	}
	if r == nil {
		return
	}
	s.works[uid] = r
	cluster, ok := s.clusters[r.work.Namespace]
	if !ok {
		cluster = make(map[types.UID]*storedWork)
		s.clusters[r.work.Namespace] = cluster
	}
	cluster[uid] = r
}

// get gives the record of uid.
func (s *store) get(uid types.UID) (*storedWork, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r, ok := s.state.works[uid]
	return r, ok
}

// snapshot gives the works of a namespace, or of all when it is empty, in the
// order of namespace and name, and the resourceVersion that they are of.
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

// clusters gives the namespaces that have works.
func (s *store) clusters() iter.Seq[string] {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Values(slices.Collect(maps.Keys(s.state.clusters)))
}

// restore makes the store hold what file does, and keep it there.
func (s *store) restore(file *stateFile) error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	saved, err := file.load()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range saved.records {
		s.state.put(r.work.UID, r)
	}
	s.state.version = saved.version
	s.state.floor = max(s.state.floor, saved.floor)
	s.history.last = saved.version
	s.file = file
	return nil
}

// close refuses writes from now on and closes the file.
func (s *store) close() error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	s.closed = true
	if s.file == nil {
		return nil
	}
	return s.file.close()
}
