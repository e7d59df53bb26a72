package source

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
)

// memory holds the works of a source. Works are immutable once it holds them, so they can be read
// without a lock. Writes run one after the other and become visible once the [store.Store] has them.
type memory struct {
	// onChange is called after each change, in the order of the changes. It must not write to the
	// memory. It is set before the first write.
	onChange func(change)

	writer  *writer    // nil: there is no store. Set before the first write.
	writing sync.Mutex // serializes writes if there is no store; otherwise the writer does
	closed  bool       // guarded by writing

	identity string          // of this memory; empty: none. Set before the engine runs.
	since    wire.Generation // the store was made empty when this was the highest generation; 0: unknown

	mu      sync.RWMutex // guards what follows; only the current write changes content, history and changed
	content content
	history history
	changed chan struct{} // closed and replaced at each change
	waiters map[types.UID]map[chan struct{}]struct{}
}

// content is what a memory holds.
type content struct {
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
	relabeled       bool               // labels or annotations have changed since the generation was made
}

// with returns r with another state of its work.
func (r *storedWork) with(work *workv1.ManifestWork) *storedWork {
	same := maps.Equal(work.Labels, r.work.Labels) && maps.Equal(work.Annotations, r.work.Annotations)
	return &storedWork{
		work: work, firstGeneration: r.firstGeneration, sequences: r.sequences,
		relabeled: work.Generation == r.work.Generation && (r.relabeled || !same),
	}
}

// change is a change of one work.
type change struct {
	old *storedWork // nil: the work is new
	new *storedWork // its resourceVersion is set by the memory
	// removed: the work is removed, and new is its last state.
	removed bool
	// statusOnly: nothing that concerns the agent has changed.
	statusOnly bool
	// cause is the span that the change was made within; it may be invalid.
	cause trace.SpanContext
	// version is the resourceVersion of new, and from the version that the memory had before: the one
	// that precedes, or an earlier one if another replica has made several changes.
	version, from int64
}

// view is the content of a memory as seen by an update: with all updates before it.
type view struct {
	base    *content
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

func newMemory(floor wire.Generation) *memory {
	return &memory{
		content: content{
			works:    make(map[types.UID]*storedWork),
			clusters: make(map[string]map[types.UID]*storedWork),
			floor:    floor,
		},
		changed: make(chan struct{}),
		waiters: make(map[types.UID]map[chan struct{}]struct{}),
	}
}

// update runs f and returns the change that it made, nil for none, or the error of f. If ctx ends
// before the change is stored, it returns an error, and the change may be stored later.
func (m *memory) update(ctx context.Context, f updateFunc) (*change, error) {
	if m.writer != nil {
		return m.writer.update(ctx, f)
	}
	m.writing.Lock()
	defer m.writing.Unlock()
	if m.closed {
		return nil, errRunEnded()
	}
	made, err := m.view().run(f)
	if made != nil {
		m.apply(made.version, made)
	}
	return made, err
}

func errRunEnded() error { return apierrors.NewServiceUnavailable("the source's Run has ended") }

// view returns a view without staged changes. Only the current write may call it.
func (m *memory) view() *view {
	return &view{base: &m.content, staged: make(map[types.UID]*storedWork), version: m.content.version, floor: m.content.floor}
}

// run runs f, and makes its change visible to the updates that follow.
func (v *view) run(f updateFunc) (*change, error) {
	ch, err := f(v)
	if err != nil || ch == nil {
		return nil, err
	}
	ch.from = v.version
	v.version++
	ch.version = v.version
	work := ch.new.work
	work.ResourceVersion = strconv.FormatInt(v.version, 10)
	if ch.removed {
		v.staged[work.UID] = nil
		v.floor = max(v.floor, wire.Generation(work.Generation))
		return ch, nil
	}
	v.staged[work.UID] = ch.new
	return ch, nil
}

// apply makes changes visible to readers, after which the memory has this version.
func (m *memory) apply(version int64, changes ...*change) {
	m.mu.Lock()
	for _, ch := range changes {
		if ch.removed {
			m.content.remove(ch.new.work)
		} else {
			m.content.put(ch.new)
		}
		m.history.add(*ch)
		m.wakeWaiters(ch.new.work.UID)
	}
	m.content.version = version
	close(m.changed)
	m.changed = make(chan struct{})
	m.mu.Unlock()
	for _, ch := range changes {
		m.onChange(*ch)
	}
}

// put stores r.
func (s *content) put(r *storedWork) {
	cluster := s.clusters[r.work.Namespace]
	if cluster == nil {
		cluster = make(map[types.UID]*storedWork)
		s.clusters[r.work.Namespace] = cluster
	}
	s.works[r.work.UID], cluster[r.work.UID] = r, r
}

// remove removes a work. It remembers the generation that a later work of its name must exceed.
func (s *content) remove(work *workv1.ManifestWork) {
	s.floor = max(s.floor, wire.Generation(work.Generation))
	delete(s.works, work.UID)
	cluster := s.clusters[work.Namespace]
	if delete(cluster, work.UID); len(cluster) == 0 {
		delete(s.clusters, work.Namespace)
	}
}

// get returns the work with this UID.
func (m *memory) get(uid types.UID) (*storedWork, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	r, ok := m.content.works[uid]
	return r, ok
}

// snapshot returns the works of a namespace, of all if it is empty, sorted by namespace and name,
// the resourceVersion of the memory, and the position of the next change in its history.
func (m *memory) snapshot(namespace string) (works []*workv1.ManifestWork, version, position int64) {
	m.mu.RLock()
	from := m.content.works
	if namespace != "" {
		from = m.content.clusters[namespace]
	}
	works = make([]*workv1.ManifestWork, 0, len(from))
	for _, r := range from {
		works = append(works, r.work)
	}
	version, position = m.content.version, m.history.count
	m.mu.RUnlock()
	sortWorks(works)
	return works, version, position
}

// position returns the position in the history of the first change after version, and false if it
// is not known.
func (m *memory) position(version int64) (int64, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.history.find(version, m.content.version)
}

// changesAfter returns up to n changes from a position of the history, and false if the history does
// not reach back that far. version is that of the memory, and changed is closed at the next change.
func (m *memory) changesAfter(position int64, n int) (changes []change, ok bool, version int64, changed <-chan struct{}) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	changes, ok = m.history.after(position, n)
	return changes, ok, m.content.version, m.changed
}

// clusters returns the namespaces that have works.
func (m *memory) clusters() iter.Seq[string] {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Values(slices.Collect(maps.Keys(m.content.clusters)))
}

// markNew sets since if the memory, which has no store, is empty: what agents hold is of an earlier
// one.
func (m *memory) markNew() {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if len(m.content.works) == 0 {
		m.since = m.content.floor
	}
}

// close refuses writes from now on and closes the store.
func (m *memory) close() error {
	if m.writer != nil {
		return m.writer.close()
	}
	m.writing.Lock()
	defer m.writing.Unlock()
	m.closed = true
	return nil
}
