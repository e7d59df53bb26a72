package reconcile

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"

	"github.com/workwire/workwire/pkg/agent/internal/executor"
	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/fairqueue"
	"github.com/workwire/workwire/pkg/wire"
)

// Table holds everything the agent knows about a name from one reconcile to the next, and the queue
// of names to reconcile. A name is that of an AppliedManifestWork. More than one work can have a
// name: a work that is being deleted and the one that follows it.
//
// Events come in through the exported methods, which never block; a [Reconciler] handles them. A
// Table is safe for concurrent use.
type Table struct {
	queue workqueue.TypedRateLimitingInterface[string]

	mu         sync.Mutex // guards the maps and the fields of entry that say so
	entries    map[string]*entry
	names      map[inbox.Key]string        // index of entry.keys
	dependents map[string]sets.Set[string] // index of entry.dependsOn
	later      []string                    // put off until none waits, in this order; not those whose entry does not say so any more
	latest     time.Time                   // for those put off now
}

// entry is the state of one name.
type entry struct {
	name string // of the AppliedManifestWork; never changes

	// Guarded by Table.mu.
	keys      []inbox.Key           // works that have the name, oldest first
	awaited   []schema.GroupKind    // kinds that the cluster does not serve yet
	active    bool                  // a worker holds the entry
	putOff    bool                  // it is among Table.later
	overdue   bool                  // it was, for too long: until the next reconcile has ended
	retry     bool                  // refused manifests are tried now
	dependsOn []string              // names that it waits for
	standing  standing              // for those that depend on it
	recheck   bool                  // it may have come to depend on itself, or does no longer
	holding   bool                  // events are held back in pending
	pending   map[object.Ref]string // newest resource version of each changed object

	// Owned by the worker that holds the entry.
	history  history
	interest interest
	flapping int // objects that the metrics count
}

// interest is what the watches report to a name.
type interest struct {
	objects []object.Ref      // by watches that select the agent's label
	named   []object.Ref      // by a watch each
	account *executor.Account // whose permissions matter; nil: none
}

// NewTable returns an empty table.
func NewTable() *Table {
	t := &Table{entries: map[string]*entry{}, names: map[inbox.Key]string{}, dependents: map[string]sets.Set[string]{}}
	const name = "works"
	ready := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: name, Queue: fairqueue.New(t.source)})
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](minRetryDelay, maxRetryDelay)
	t.queue = workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[string]{
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Name: name, Queue: ready}),
	})
	return t
}

// source returns the source of the works that have name, empty if none has. Sources take turns in the queue, which calls
// it while it is locked: t.mu is not held when a name is added.
func (t *Table) source(name string) wire.SourceID {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[name]; e != nil && len(e.keys) > 0 {
		return e.keys[0].Source
	}
	return ""
}

// Enqueue has name reconciled. A name that is backing off after a failure is reconciled now.
func (t *Table) Enqueue(name string) { t.queue.Add(name) }

// ObjectChanged handles the change of an object at version. While name is being reconciled, the
// change is held until the reconcile knows whether it has seen it: most changes are echoes of the
// reconcile's own writes, and often arrive before the response to the write.
func (t *Table) ObjectChanged(name string, ref object.Ref, version string) {
	if !t.hold(name, ref, version) {
		t.queue.Add(name)
	}
}

// AppliedManifestWorkChanged is ObjectChanged for the AppliedManifestWork called name.
func (t *Table) AppliedManifestWorkChanged(name, version string) {
	t.ObjectChanged(name, appliedManifestWorkRef(name), version)
}

// KindChanged retries the works that wait for kind. It costs one pass over all works, for each kind that comes, goes, or is served in other versions.
func (t *Table) KindChanged(kind schema.GroupKind) {
	t.retry(func(e *entry) bool { return slices.Contains(e.awaited, kind) })
}

// PolicyChanged retries all works: what the owner of the cluster allows has changed, for any of them.
func (t *Table) PolicyChanged() { t.retry(func(*entry) bool { return true }) }

// retry retries some works, also their refused manifests.
func (t *Table) retry(which func(*entry) bool) {
	var names []string
	t.mu.Lock()
	for name, e := range t.entries {
		if which(e) {
			e.retry = true
			names = append(names, name)
		}
	}
	t.mu.Unlock()
	for _, name := range names {
		t.retryNow(name)
	}
}

// testAndClear clears a flag of an entry, and reports whether it was set.
func (t *Table) testAndClear(flag *bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := *flag
	*flag = false
	return was
}

// retryNow enqueues name and resets its backoff.
func (t *Table) retryNow(name string) {
	t.queue.Forget(name)
	t.queue.Add(name)
}

// add gives name to key.
func (t *Table) add(name string, key inbox.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, exists := t.names[key]; exists {
		return
	}
	t.names[key] = name
	e := t.entry(name)
	e.keys = append(e.keys, key)
}

// name returns the name that key has.
func (t *Table) name(key inbox.Key) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name, ok := t.names[key]
	return name, ok
}

// remove takes name from key, if key still has it.
func (t *Table) remove(name string, key inbox.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.names[key] != name {
		return
	}
	delete(t.names, key)
	e := t.entries[name]
	e.keys = slices.DeleteFunc(e.keys, func(k inbox.Key) bool { return k == key })
	t.prune(e)
}

// keys returns the works that have name, oldest first.
func (t *Table) keys(name string) []inbox.Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[name]; e != nil {
		return slices.Clone(e.keys)
	}
	return nil
}

// acquire returns the entry of name to the worker that reconciles it. The queue hands a name to one
// worker at a time.
func (t *Table) acquire(name string) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entry(name)
	e.active, e.putOff = true, false
	return e
}

// release ends acquire.
func (t *Table) release(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.active, e.overdue = false, false
	t.prune(e)
}

// await replaces the kinds that e waits for.
func (t *Table) await(e *entry, kinds []schema.GroupKind) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.awaited = kinds
}

// holdEvents holds the events of e's objects from now on.
func (t *Table) holdEvents(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.holding = true
}

// takeEvents ends holdEvents and returns the newest resource version of each changed object.
func (t *Table) takeEvents(e *entry) map[object.Ref]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	pending := e.pending
	e.holding, e.pending = false, nil
	return pending
}

// hold keeps the version at which an object changed, and reports whether events of name are held.
func (t *Table) hold(name string, ref object.Ref, version string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[name]
	if e == nil || !e.holding {
		return false
	}
	if e.pending == nil {
		e.pending = map[object.Ref]string{}
	}
	// No version is later than "", which stands for the time after a restore of the API server.
	if before, ok := e.pending[ref]; !ok || before != "" && object.Newer(version, before) {
		e.pending[ref] = version
	}
	return true
}

// entry returns the entry of name, a new one if there is none. The caller holds mu.
func (t *Table) entry(name string) *entry {
	e := t.entries[name]
	if e == nil {
		e = &entry{name: name}
		t.entries[name] = e
	}
	return e
}

// prune deletes an entry that says nothing. The caller holds mu.
func (t *Table) prune(e *entry) {
	if !e.active && len(e.keys) == 0 && len(e.awaited) == 0 && len(e.dependsOn) == 0 && e.history.isZero() && e.interest.isZero() {
		delete(t.entries, e.name)
	}
}

func (i *interest) isZero() bool {
	return len(i.objects) == 0 && len(i.named) == 0 && i.account == nil
}

// appliedManifestWorkRef returns the AppliedManifestWork called name as an object.
func appliedManifestWorkRef(name string) object.Ref {
	return object.Ref{GroupVersionResource: workv1.GroupVersion.WithResource("appliedmanifestworks"), Name: name}
}
