// Package inbox holds the works that an agent has received: for each work of each source the spec
// in force, and works that are being deleted until their source has been told.
//
// [Decide] compares an event with the work that is held. An [Inbox] applies the decision, notifies
// the workers, and acknowledges the event once the change is on disk:
//
//	in := inbox.New(inbox.Config{Store: state, Changed: reconciler.SpecChanged})
//	err := in.Load()
//	...
//	change := in.Put(spec, func(err error) {
//		if err == nil {
//			message.Ack()
//		}
//	})
//	if change.Verdict == inbox.Unknown {
//		statuses.ReportDeleted(spec)
//	}
//
// A source that does not know a work any more may have lost its memory: hold.go decides whether
// such a work is deleted or held.
//
// Workers read entries with [Inbox.Get]. Entries are immutable.
package inbox

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/workwire/workwire/pkg/agent/internal/store"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/statestore"
	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/wire"
)

// Key identifies a work on an agent. Works of different sources are distinct even if they have the
// same UID.
type Key struct {
	Source wire.SourceID `json:"source"`
	UID    types.UID     `json:"uid"`
}

// String returns source/uid.
func (k Key) String() string { return string(k.Source) + "/" + string(k.UID) }

// StoreKey returns the key of the work in the state store.
func (k Key) StoreKey() string { return string(k.Source) + "\x00" + string(k.UID) }

// Config configures [New].
type Config struct {
	// Store keeps the works across restarts; nil keeps them in memory only.
	Store *statestore.Store
	// Unseal encrypts the specs in Store that arrived sealed; nil if none can be opened.
	Unseal *sealing.Unsealer
	// MaxSource is how many bytes of specs to hold of one source. A spec beyond that is refused; 0: no limit.
	MaxSource int64
	// Changed is called with the key of a work after each change of it, that of an event once it is on disk, without locks held. It must
	// return at once. Calls for one work can be concurrent and out of order, so Changed should read
	// the work with Get. Required.
	Changed func(Key)
	// Logger; default slog.Default().
	Logger *slog.Logger
}

// Change is the result of an event.
type Change struct {
	Key     Key
	Verdict Verdict
	// Superseded is the work that had the same name until now, nil if there was none. It is
	// forgotten: its objects belong to the work that took the name, which keeps, changes or deletes
	// them according to its own spec.
	Superseded *Key
	// Ask reports that the source is to be asked for the work, whose deletion is [Early].
	Ask bool

	written *work // by it, to disk
}

// Inbox holds works. All methods are safe for concurrent use and cost O(1) unless they say
// otherwise.
type Inbox struct {
	config Config

	mu          sync.Mutex
	works       map[wire.SourceID]*sourceWorks
	answers     map[wire.SourceID]*answer // of sources that have disowned works
	past        *lru.Cache                // of maxPast works that were deleted, as pastWork
	asked       map[wire.SourceID]uint64  // how often a source was asked for all works; "": all sources
	count, held int                       // works, and those of them whose deletion is held
	labels      latest                    // of entries
	annotations latest
}

// sourceWorks holds the works of one source.
type sourceWorks struct {
	byUID  map[types.UID]*work
	byName map[string]types.UID // the work that has the name; a work being deleted may have lost its own
	size   int64                // of the entries, in bytes
	fits   int64                // with a size below it, there is room for a spec that was refused for want of it
}

type work struct {
	entry *Entry
	size  int64 // of entry
	// specAfterDeletion reports that a spec arrived after the deletion. Only the source knows
	// whether it is an old one or that of a new work with the same UID.
	specAfterDeletion bool
	early             early
	writing           int               // events whose changes are not on disk yet
	digest            wire.BucketDigest // of the entry digested
	digested          *Entry
}

// New returns an empty Inbox.
func New(c Config) *Inbox {
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return &Inbox{config: c, works: map[wire.SourceID]*sourceWorks{}, answers: map[wire.SourceID]*answer{}, past: lru.New(maxPast), asked: map[wire.SourceID]uint64{}}
}

// Put applies a spec event, which may be a deletion, as [Decide] says. stored is called once, when
// the event need not be delivered again: its changes and all previous ones are on disk, or there is
// no state directory. If the store ends before, stored receives an error and the event must not be
// acknowledged. stored may be nil; it is called on another goroutine or before Put returns, and
// must return at once. Put keeps in.Bundle, which must not change any more.
func (b *Inbox) Put(in *wire.Spec, stored func(error)) Change {
	key := Key{in.Source, in.UID}
	change, cleared := Change{Key: key}, false

	b.mu.Lock()
	current := b.find(key)
	change.Verdict = Decide(current.snapshot(), in)
	if change.Verdict == Added && b.isPast(in) {
		change.Verdict = Older
	}
	if in.IsDeletion() {
		if change.Verdict == Deletion && current.entry.Deleting == nil && isEarly(current.entry, in) {
			change.Verdict, change.Ask = current.early.putOff(time.Now())
		}
		b.putDeletion(current, in, change.Verdict)
	} else {
		b.own(key)
		switch change.Verdict {
		case Added, Replaced:
			e := newEntry(current.snapshot(), in)
			e.Received = time.Now()
			if b.room(e) > 0 {
				change.Superseded = b.save(e)
				b.find(key).early = early{}
			} else {
				change.Verdict = b.refuse(current, in, b.fullRefusal(in))
				b.lacksRoom(e)
			}
		case Kept:
			b.save(keptEntry(current.entry))
		case Same:
			b.identify(current.entry, in.SourceIdentity, in.ContentHash)
			cleared = b.distrust(current, "")
		case Late:
			current.specAfterDeletion = true
		}
	}
	b.write(&change)
	b.mu.Unlock()

	if cleared {
		b.config.Changed(key)
	}
	b.notify(change, stored)
	return change
}

// Distrust notes that an event of a work was refused because of its signature. Of several reasons,
// the first one stays until an event is accepted.
func (b *Inbox) Distrust(key Key, reason string) {
	b.mu.Lock()
	current := b.find(key)
	changed := current != nil && current.entry.Distrust == "" && b.distrust(current, reason)
	b.mu.Unlock()
	if changed {
		b.config.Changed(key)
	}
}

// distrust sets the reason, and reports whether it was another one. b.mu must be held.
func (b *Inbox) distrust(current *work, reason string) bool {
	if current.entry.Distrust == reason || current.entry.Deleting != nil {
		return false
	}
	e := distrustedEntry(current.entry, reason)
	if e.HasSpec() || e.Refusal != nil || e.Hold != nil {
		b.save(e)
	} else {
		b.set(e) // recovered: an entry without content is not stored
	}
	return true
}

// Resolve returns the whole spec of d. It returns an error if the spec that d changes is not the one that
// is held, or the result is another spec than d stands for: then the source has to send it whole.
func (b *Inbox) Resolve(d *wire.SpecDelta) (*wire.Spec, error) {
	held, ok := b.Get(Key{d.Of.Source, d.Of.UID})
	switch {
	case !ok || !held.HasSpec():
		return nil, errors.New("no spec of the work is held")
	case held.Sealed:
		return nil, errors.New("the spec that is held was sealed")
	case held.ContentHash == d.Base:
		return d.Apply(wire.NewBundle(&held.Spec))
	case held.ContentHash == d.Of.ContentHash: // it was delivered before
		spec := d.Of
		spec.Bundle = wire.NewBundle(&held.Spec)
		return &spec, nil
	default:
		return nil, fmt.Errorf("the content that is held has the hash %.12q, want %.12q", held.ContentHash, d.Base)
	}
}

// Barrier calls stored once all changes before it are on disk, as [Inbox.Put] does.
func (b *Inbox) Barrier(stored func(error)) { b.config.Store.Barrier(stored) }

// putDeletion applies the verdict on a deletion of current. b.mu must be held.
func (b *Inbox) putDeletion(current *work, in *wire.Spec, verdict Verdict) {
	switch {
	case verdict == Deletion:
		b.own(current.entry.Key)
		e := deletedEntry(current.entry, in)
		if current.entry.Deleting == nil {
			e.Received = time.Now()
		}
		b.save(e)
	case verdict == Held:
		b.save(heldEntry(current.entry, in, workv1.ReasonSourceIdentityChanged))
		b.disown(in, verdict)
	case verdict == Disowned, verdict == Same && current.entry.Hold != nil:
		b.disown(in, verdict)
	}
}

// Refuse applies a spec event that could not be decoded. If failure identifies a work, the work
// records the refusal, keeps its spec, and a worker reports the error. stored is as in [Inbox.Put].
func (b *Inbox) Refuse(failure *wire.DecodeError, stored func(error)) Change {
	change := Change{Verdict: Nameless}
	if in := failure.Spec; in != nil {
		change.Key = Key{in.Source, in.UID}
		b.mu.Lock()
		current := b.find(change.Key)
		b.own(change.Key)
		change.Verdict = b.refuse(current, in, refusalOf(failure))
		b.write(&change)
		b.mu.Unlock()
	}
	b.notify(change, stored)
	return change
}

// refuse applies the refusal of in, a spec of current. b.mu must be held.
func (b *Inbox) refuse(current *work, in *wire.Spec, refusal Refusal) Verdict {
	verdict := DecideRefusal(current.snapshot(), refusal, in.Authoritative)
	if current == nil && b.isPast(in) {
		verdict = Older
	}
	switch verdict {
	case Refused:
		e := refusedEntry(current.snapshot(), in, refusal)
		if b.room(e) < -b.config.MaxSource/4 { // refusals have a quarter more
			return Full
		}
		b.save(e)
	case Late:
		current.specAfterDeletion = true
	}
	return verdict
}

// write notes that change is not on disk yet. b.mu must be held.
func (b *Inbox) write(change *Change) {
	if change.Verdict.Changes() {
		change.written = b.find(change.Key)
		change.written.writing++
	}
}

// notify notifies the workers and has stored called, once the change is on disk: what was applied and then lost in a crash would be
// undone after it, by the spec before.
func (b *Inbox) notify(change Change, stored func(error)) {
	b.config.Store.Barrier(func(err error) {
		if change.written != nil {
			b.mu.Lock()
			change.written.writing--
			b.mu.Unlock()
			b.config.Changed(change.Key)
		}
		if change.Superseded != nil {
			b.config.Changed(*change.Superseded)
		}
		if stored != nil {
			stored(err)
		}
	})
}

// Recovered is what an AppliedManifestWork tells of its work besides the name.
type Recovered struct {
	// SourceIdentity is that of the source that sent the work; it may be empty.
	SourceIdentity string
	// HeldReason is the reason why the deletion is held; empty if it is not.
	HeldReason string
}

// Recover adds a work that is known only from its AppliedManifestWork. It has no spec until its
// source sends one. [Inbox.Versions] lists it with generation 0, so that the source sends its spec
// or its deletion. Recover does not change a work that is already held. It reports whether the work
// is held now, which is false if another work has the name.
func (b *Inbox) Recover(key Key, cluster wire.ClusterName, name string, known Recovered) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.find(key) != nil {
		return true
	}
	if s := b.works[key.Source]; s != nil {
		if _, taken := s.byName[name]; taken {
			return false
		}
	}
	e := &Entry{Key: key, Cluster: cluster, SourceIdentity: known.SourceIdentity, Meta: Meta(&wire.Spec{
		UID: key.UID, Source: key.Source, Cluster: cluster,
		Meta: metav1.ObjectMeta{Name: name, Namespace: string(cluster), UID: key.UID},
	})}
	if known.HeldReason != "" {
		e.Hold = &Hold{Reason: known.HeldReason}
	}
	b.set(e)
	return true
}

// Closed returns the sources with a work whose newest spec could not be opened. Its cost is linear in
// the works.
func (b *Inbox) Closed() (sources []wire.SourceID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for source, works := range b.works {
		for _, w := range works.byUID {
			if w.entry.Refusal != nil && w.entry.Refusal.Reason != "" {
				sources = append(sources, source)
				break
			}
		}
	}
	return sources
}

// RoomAgain reports, once, that there is room for specs of source after some were refused for want of it.
func (b *Inbox) RoomAgain(source wire.SourceID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.works[source]
	if s == nil || s.size >= s.fits {
		return false
	}
	s.fits = 0
	return true
}

// Get returns the work, and whether it is held. The entry is shared: do not modify it.
func (b *Inbox) Get(key Key) (*Entry, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	current := b.find(key)
	return current.snapshot(), current != nil
}

// IsNewest reports whether the work is held, and no later generation of it.
func (b *Inbox) IsNewest(key Key, generation wire.Generation) bool {
	held, ok := b.Get(key)
	return ok && generation >= latestGeneration(held)
}

// Writing reports whether an event of the work is not on disk yet. Changed is called with its key once it is. A worker that asks after Get has an entry
// that is on disk if it is not so.
func (b *Inbox) Writing(key Key) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	current := b.find(key)
	return current != nil && current.writing > 0
}

// Size returns about how many bytes of memory the work takes, 0 if it is not held.
func (b *Inbox) Size(key Key) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if current := b.find(key); current != nil {
		return current.size
	}
	return 0
}

// ByName returns the work that has a name, and whether there is one. The entry is shared: do not
// modify it.
func (b *Inbox) ByName(source wire.SourceID, name string) (*Entry, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var current *work
	if s := b.works[source]; s != nil {
		current = s.byUID[s.byName[name]]
	}
	return current.snapshot(), current != nil
}

// Forget removes a work after its source was told that it is deleted. again reports whether a spec
// arrived while it was being deleted: the source may have a new work with the same UID, and should
// be asked for its specs.
func (b *Inbox) Forget(key Key) (again bool) {
	b.mu.Lock()
	current := b.find(key)
	if current != nil {
		b.delete(current.entry)
		if current.entry.Deleting != nil {
			b.past.Add(key, pastWork{deletion: current.entry.Generation, asked: b.questions(key.Source)})
		}
		again = current.specAfterDeletion
	}
	b.mu.Unlock()
	if current != nil {
		b.config.Changed(key)
	}
	return again
}

// Versions returns the works to list in a spec resync request to source (docs/protocol.md, Spec
// resync). It lists specs in force, not refused ones, and held works without a generation, so that
// the source sends those again. Its cost is linear in the works.
func (b *Inbox) Versions(source wire.SourceID) []wire.SpecVersion {
	b.mu.Lock()
	defer b.mu.Unlock()
	var versions []wire.SpecVersion
	for _, w := range b.of(source) {
		version := wire.SpecVersion{UID: w.entry.UID}
		if w.entry.Hold == nil {
			version.Generation, version.ContentHash = w.entry.Generation, w.entry.ContentHash
		}
		versions = append(versions, version)
	}
	return versions
}

// Sources returns the sources that have works here, in no order. Its cost is linear in the sources.
func (b *Inbox) Sources() []wire.SourceID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.works))
}

// Len returns the number of works.
func (b *Inbox) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count
}

// find returns the work, or nil. b.mu must be held, as for all functions below.
func (b *Inbox) find(key Key) *work { return b.of(key.Source)[key.UID] }

// of returns the works of a source, nil if it has none.
func (b *Inbox) of(source wire.SourceID) map[types.UID]*work {
	if s := b.works[source]; s != nil {
		return s.byUID
	}
	return nil
}

// snapshot returns the entry, nil for a nil work.
func (w *work) snapshot() *Entry {
	if w == nil {
		return nil
	}
	return w.entry
}

// save sets the entry of a work in memory and on disk.
func (b *Inbox) save(e *Entry) (superseded *Key) {
	superseded = b.set(e)
	b.config.Store.Put(store.Specs, e.StoreKey(), func() ([]byte, error) { return e.encode(b.config.Unseal) })
	return superseded
}

// set sets the entry of a work in memory. A work with a spec takes its name from the work that has
// it: that work is removed, or stays without the name if it is being deleted.
func (b *Inbox) set(e *Entry) (superseded *Key) {
	e.Meta.Labels, e.Meta.Annotations = b.labels.share(e.Meta.Labels), b.annotations.share(e.Meta.Annotations)
	s := b.works[e.Source]
	if s == nil {
		s = &sourceWorks{byUID: map[types.UID]*work{}, byName: map[string]types.UID{}}
	}
	holder, taken := s.byName[e.Meta.Name]
	switch {
	case !taken:
		s.byName[e.Meta.Name] = e.UID
	case holder != e.UID && e.Deleting == nil && e.HasSpec():
		if other := s.byUID[holder].entry; other.Deleting == nil {
			superseded = &other.Key
			b.delete(other)
		}
		s.byName[e.Meta.Name] = e.UID
	}
	b.works[e.Source] = s
	if e.Hold != nil {
		b.held++
	}
	size := e.size()
	s.size += size
	if current := s.byUID[e.UID]; current != nil {
		if current.entry.Hold != nil {
			b.held--
		}
		s.size -= current.size
		current.entry, current.size = e, size
		return superseded
	}
	s.byUID[e.UID] = &work{entry: e, size: size}
	b.count++
	return superseded
}

// room returns how many bytes of its source are left once e is held, negative if it does not fit. An entry that is no larger
// than what it replaces always fits.
func (b *Inbox) room(e *Entry) int64 {
	if b.config.MaxSource == 0 {
		return math.MaxInt64
	}
	size, left := e.size(), b.config.MaxSource
	if s := b.works[e.Source]; s != nil {
		left -= s.size
	}
	if current := b.find(e.Key); current != nil {
		left += current.size
		if size <= current.size {
			return max(left-size, 1)
		}
	}
	return left - size
}

// lacksRoom notes that there was no room for e. b.mu must be held.
func (b *Inbox) lacksRoom(e *Entry) {
	if s := b.works[e.Source]; s != nil {
		s.fits = max(s.fits, s.size+b.room(e))
	}
}

// latest is the map of the newest entry. Consecutive entries with equal labels or annotations share
// one map, because the works of a source mostly have the same.
type latest struct{ content map[string]string }

func (l *latest) share(content map[string]string) map[string]string {
	if !maps.Equal(l.content, content) {
		l.content = content
	}
	return l.content
}

func (b *Inbox) delete(e *Entry) {
	s := b.works[e.Source]
	s.size -= s.byUID[e.UID].size
	delete(s.byUID, e.UID)
	if s.byName[e.Meta.Name] == e.UID {
		delete(s.byName, e.Meta.Name)
	}
	if len(s.byUID) == 0 {
		delete(b.works, e.Source)
		delete(b.answers, e.Source)
	}
	b.count--
	if e.Hold != nil {
		b.held--
	}
	b.config.Store.Delete(store.Specs, e.StoreKey())
}
