// Package inbox holds the specs that an agent has received: for each work of
// each source the one that is in force, and works that are being deleted until
// their source may forget them. It is the first step of the agent's flow.
//
// [Decide] says what an event means for what is held; an [Inbox] does it, tells
// the workers, and lets the event be acknowledged once it is on disk:
//
//	in := inbox.New(inbox.Config{Store: state, Changed: workers.Poke})
//	err := in.Load()
//	...
//	change := in.Put(spec, func(err error) {
//		if err == nil {
//			message.Ack()
//		}
//	})
//	if change.Verdict == inbox.Unknown {
//		statuses.Answer(spec)
//	}
//
// What a worker then reads with [Inbox.Get] is a snapshot that never changes.
package inbox

import (
	"iter"
	"log/slog"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/store"
	"github.com/workwire/workwire/pkg/statestore"
	"github.com/workwire/workwire/pkg/wire"
)

// Key names a work on an agent. Works of different sources are apart even when a
// source uses the UID of another's work. A Key is comparable.
type Key struct {
	Source wire.SourceID
	UID    types.UID
}

// String gives source/uid.
func (k Key) String() string { return string(k.Source) + "/" + string(k.UID) }

// StoreKey is the key under which the work is kept in the state store.
func (k Key) StoreKey() string { return string(k.Source) + "\x00" + string(k.UID) }

// Config is what an Inbox needs.
type Config struct {
	// Store keeps the works over a restart; nil keeps them in memory only.
	Store *statestore.Store
	// Changed is called after each change of a work, with its key, never while
	// the Inbox is locked. It must return at once. Calls for one work may
	// coincide or come late: it is a hint to look at Get. Required.
	Changed func(Key)
	// Logger receives what Load could not read. Default slog.Default().
	Logger *slog.Logger
}

// Change is what an event led to.
type Change struct {
	Key     Key
	Verdict Verdict
	// Superseded names the work that held the same name until now, nil when
	// there was none. It is forgotten: what was applied for it belongs to the
	// work that took the name, which keeps, changes or deletes it by its own spec.
	Superseded *Key
}

// Inbox holds works. All methods may be called from any goroutine; each costs
// O(1) unless it says otherwise.
type Inbox struct {
	store   *statestore.Store
	changed func(Key)
	log     *slog.Logger

	mu          sync.Mutex
	works       map[wire.SourceID]*shelf
	count       int
	labels      latest // of entries
	annotations latest
}

// shelf holds the works of one source.
type shelf struct {
	byUID  map[types.UID]*work
	byName map[string]types.UID // who holds the name; a work being deleted may have lost it
}

type work struct {
	entry *Entry
	// late: a spec came after the deletion. It can be a stray from before as
	// well as a new work under the same UID; only the source knows.
	late bool
}

// New makes an empty Inbox.
func New(c Config) *Inbox {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Inbox{
		store:   c.Store,
		changed: c.Changed,
		log:     c.Logger,
		works:   map[wire.SourceID]*shelf{},
	}
}

// Put takes a spec event, a deletion included, as [Decide] says. held is called
// once when the event need not be delivered again: what it changed is on disk,
// or there is no state directory, or it changed nothing that is not on disk yet.
// It gets an error when the store ends first; the event must not be acknowledged
// then. held may be nil, is called on another goroutine or before Put returns,
// and must return at once. Put keeps in.Bundle, which must not change any more.
func (b *Inbox) Put(in *wire.Spec, held func(error)) Change {
	key := Key{in.Source, in.UID}
	change := Change{Key: key}

	b.mu.Lock()
	current := b.find(key)
	change.Verdict = Decide(current.snapshot(), in)
	switch change.Verdict {
	case Added, Replaced:
		entry := accept(current.snapshot(), in)
		change.Superseded = b.hold(entry)
	case Deletion:
		b.hold(bury(current.entry, in))
	case Late:
		current.late = true
	}
	b.mu.Unlock()

	b.settle(change, held)
	return change
}

// Refuse takes a spec event that could not be decoded. When failure names a
// work, the refusal is kept with it: the spec that was in force stays so, and
// the worker reports what is wrong. held is as in [Inbox.Put].
func (b *Inbox) Refuse(failure *wire.DecodeError, held func(error)) Change {
	change := Change{Verdict: Nameless}
	if in := failure.Spec; in != nil {
		change.Key = Key{in.Source, in.UID}
		b.mu.Lock()
		current := b.find(change.Key)
		refusal := refusalOf(failure)
		change.Verdict = DecideRefusal(current.snapshot(), refusal)
		switch change.Verdict {
		case Refused:
			b.hold(refuse(current.snapshot(), in, refusal))
		case Late:
			current.late = true
		}
		b.mu.Unlock()
	}
	b.settle(change, held)
	return change
}

// settle tells the workers and asks the store to tell when the change is held.
func (b *Inbox) settle(change Change, held func(error)) {
	if change.Verdict.Changes() {
		b.changed(change.Key)
	}
	if change.Superseded != nil {
		b.changed(*change.Superseded)
	}
	if held != nil {
		b.store.Barrier(held)
	}
}

// Get gives the work, or false when it is not held. The entry is shared: read
// only.
func (b *Inbox) Get(key Key) (*Entry, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	current := b.find(key)
	return current.snapshot(), current != nil
}

// ByName gives the work of source that holds name, or false.
func (b *Inbox) ByName(source wire.SourceID, name string) (*Entry, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.works[source]
	if s == nil {
		return nil, false
	}
	uid, ok := s.byName[name]
	if !ok {
		return nil, false
	}
	return s.byUID[uid].entry, true
}

// Forget drops a work whose deletion the source was told of. again reports that
// a spec for it came while it was being deleted, which may mean that the source
// has a new work under the same UID: ask that source for its specs.
func (b *Inbox) Forget(key Key) (again bool) {
	b.mu.Lock()
	current := b.find(key)
	if current != nil {
		b.drop(current.entry)
		again = current.late
	}
	b.mu.Unlock()
	if current != nil {
		b.changed(key)
	}
	return again
}

// Versions lists what is held for a spec resync request to source, or to all
// sources when it is empty (docs/protocol.md, Spec resync). A refused spec does
// not count: the source is to send it again. It costs one pass over the works.
func (b *Inbox) Versions(source wire.SourceID) []wire.SpecVersion {
	b.mu.Lock()
	defer b.mu.Unlock()
	var versions []wire.SpecVersion
	for w := range b.each(source) {
		versions = append(versions, wire.SpecVersion{UID: w.entry.UID, Generation: w.entry.Generation})
	}
	return versions
}

// Keys lists the works held. It costs one pass over them.
func (b *Inbox) Keys() []Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := make([]Key, 0, b.count)
	for w := range b.each("") {
		keys = append(keys, w.entry.Key)
	}
	return keys
}

// Sources lists the sources that works are held of, in no order. It costs one
// pass over the sources.
func (b *Inbox) Sources() []wire.SourceID {
	b.mu.Lock()
	defer b.mu.Unlock()
	sources := make([]wire.SourceID, 0, len(b.works))
	for source := range b.works {
		sources = append(sources, source)
	}
	return sources
}

// Len is the number of works held.
func (b *Inbox) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count
}

// find gives the work or nil. b.mu must be held, as for all below.
func (b *Inbox) find(key Key) *work {
	s := b.works[key.Source]
	if s == nil {
		return nil
	}
	return s.byUID[key.UID]
}

// snapshot gives the entry, nil for a nil work.
func (w *work) snapshot() *Entry {
	if w == nil {
		return nil
	}
	return w.entry
}

// each gives the works of source, or of all sources when it is empty.
func (b *Inbox) each(source wire.SourceID) iter.Seq[*work] {
	return func(yield func(*work) bool) {
		for id, s := range b.works {
			if source != "" && source != id {
				continue
			}
			for _, w := range s.byUID {
				if !yield(w) {
					return
				}
			}
		}
	}
}

// hold puts e in the place of what is held and stores it. A work with a spec
// takes its name from whoever holds it: the earlier holder is dropped, or goes
// on without the name when it is being deleted.
func (b *Inbox) hold(e *Entry) (superseded *Key) {
	superseded = b.place(e)
	b.store.Put(store.Specs, e.StoreKey(), e.encode)
	return superseded
}

func (b *Inbox) place(e *Entry) (superseded *Key) {
	e.Meta.Labels, e.Meta.Annotations = b.labels.share(e.Meta.Labels), b.annotations.share(e.Meta.Annotations)
	s := b.works[e.Source]
	if s == nil {
		s = &shelf{byUID: map[types.UID]*work{}, byName: map[string]types.UID{}}
		b.works[e.Source] = s
	}
	holder, taken := s.byName[e.Meta.Name]
	switch {
	case !taken:
		s.byName[e.Meta.Name] = e.UID
	case holder != e.UID && e.Deleting == nil && e.HasSpec():
		if other := s.byUID[holder].entry; other.Deleting == nil {
			superseded = &other.Key
			b.drop(other)
		}
		s.byName[e.Meta.Name] = e.UID
	}
	// drop may have taken an emptied shelf away.
	b.works[e.Source] = s
	if current := s.byUID[e.UID]; current != nil {
		current.entry = e
		return superseded
	}
	s.byUID[e.UID] = &work{entry: e}
	b.count++
	return superseded
}

// latest is the map of the entry that came last. Works of one source mostly have the
// same labels and annotations: then they have them in one map.
type latest struct{ content map[string]string }

func (l *latest) share(content map[string]string) map[string]string {
	if !maps.Equal(l.content, content) {
		l.content = content
	}
	return l.content
}

func (b *Inbox) drop(e *Entry) {
	s := b.works[e.Source]
	delete(s.byUID, e.UID)
	if s.byName[e.Meta.Name] == e.UID {
		delete(s.byName, e.Meta.Name)
	}
	if len(s.byUID) == 0 {
		delete(b.works, e.Source)
	}
	b.count--
	b.store.Delete(store.Specs, e.StoreKey())
}
