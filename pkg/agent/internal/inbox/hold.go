package inbox

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

const (
	// MaxDisownedPercent is the share of a source's works, in percent, that the source may disown
	// in one answer. A hub loses a work or two when somebody removes a finalizer; one that disowns
	// more has probably lost its memory.
	MaxDisownedPercent = 20
	// MinDisowned is the number of disowned works from which the share counts: of one or two works,
	// any loss is a large share.
	MinDisowned = 3
	// AnswerQuiet is how long a source must disown no work for its answer to be complete. The
	// messages of an answer follow each other within milliseconds.
	AnswerQuiet = 3 * time.Second
)

// Hold says why a work is kept although its source does not know it.
type Hold struct {
	// Reason of condition DeletionHeld, for instance SourceIdentityChanged.
	Reason string `json:"reason"`
	// Generation of the event that disowned the work, for the status that ends the work.
	Generation wire.Generation `json:"generation,omitempty"`
}

// Answer is what a source has said of its works since it was asked for specs.
type Answer struct {
	// Disowned is the number of works that the source says it does not know.
	Disowned int
	// Works is the number of works of the source, with those.
	Works int
}

// DecideHold returns the reason to hold the deletion of the disowned works of an answer, or "" to
// delete them.
func DecideHold(a Answer) string {
	if a.Disowned >= MinDisowned && a.Disowned*100 > a.Works*MaxDisownedPercent {
		return workv1.ReasonSourceKnowsTooFew
	}
	return ""
}

// identityChanged reports whether in comes from another memory of the source than the spec of held
// did.
func identityChanged(held *Entry, in *wire.Spec) bool {
	return held.SourceIdentity != "" && in.SourceIdentity != "" && held.SourceIdentity != in.SourceIdentity
}

// answer holds the works that a source has disowned since it was asked for specs.
type answer struct {
	disowned map[types.UID]struct{}
	pending  map[types.UID]*wire.Spec // those of disowned that are not decided yet
	held     int                      // those held at once since the last decision
	last     time.Time                // when the source disowned a work last
}

// disown notes that the source of in does not know the work, with the verdict on that. b.mu must be
// held.
func (b *Inbox) disown(in *wire.Spec, verdict Verdict) {
	a := b.answers[in.Source]
	if a == nil {
		a = &answer{disowned: map[types.UID]struct{}{}, pending: map[types.UID]*wire.Spec{}}
		b.answers[in.Source] = a
	}
	a.disowned[in.UID] = struct{}{}
	switch verdict {
	case Disowned:
		a.pending[in.UID] = in
		a.last = time.Now()
	case Held:
		a.held++
		a.last = time.Now()
	}
}

// own notes that the source knows the work. b.mu must be held.
func (b *Inbox) own(key Key) {
	if a := b.answers[key.Source]; a != nil {
		delete(a.disowned, key.UID)
		delete(a.pending, key.UID)
	}
}

// Asked notes that source is asked for specs: what it disowned before counts no more.
func (b *Inbox) Asked(source wire.SourceID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.answers[source]
	if a == nil {
		return
	}
	a.disowned = make(map[types.UID]struct{}, len(a.pending)) // a former one may be large
	for uid := range a.pending {
		a.disowned[uid] = struct{}{}
	}
}

// Decision is the result of [Inbox.DecideDisowned].
type Decision struct {
	// Wait is how long to wait until the answer is complete; 0 if it is.
	Wait time.Duration
	// Answer that was decided on.
	Answer Answer
	// Keys of the works that were pending.
	Keys []Key
	// Reason why these works are held; empty: they are to be deleted.
	Reason string
	// Held is the number of works that are held because the identity of the source changed.
	Held int
}

// DecideDisowned decides on the works with verdict [Disowned] of source, once its answer is
// complete. Its cost is linear in the works of the source, once for an answer.
func (b *Inbox) DecideDisowned(source wire.SourceID, now time.Time) Decision {
	var d Decision
	b.mu.Lock()
	a := b.answers[source]
	if a == nil || len(a.pending)+a.held == 0 {
		b.mu.Unlock()
		return d
	}
	if d.Wait = a.last.Add(AnswerQuiet).Sub(now); d.Wait > 0 {
		b.mu.Unlock()
		return d
	}
	d.Wait, d.Answer, d.Held = 0, b.answerOf(source, a), a.held
	d.Reason = DecideHold(d.Answer)
	for uid, in := range a.pending {
		current := b.find(Key{source, uid})
		if current == nil || current.entry.Deleting != nil {
			continue
		}
		if d.Reason != "" {
			b.save(heldEntry(current.entry, in, d.Reason))
		} else {
			b.save(deletedEntry(current.entry, in))
		}
		d.Keys = append(d.Keys, current.entry.Key)
	}
	clear(a.pending)
	a.held = 0
	b.mu.Unlock()
	for _, key := range d.Keys {
		b.config.Changed(key)
	}
	return d
}

// answerOf counts the works of source. b.mu must be held.
func (b *Inbox) answerOf(source wire.SourceID, a *answer) Answer {
	counts := Answer{Disowned: len(a.disowned), Works: len(a.disowned)}
	for uid, w := range b.of(source) {
		if _, disowned := a.disowned[uid]; !disowned && w.entry.Deleting == nil {
			counts.Works++
		}
	}
	return counts
}

// Release ends the hold of a work, which is then deleted. It reports whether the work was held.
func (b *Inbox) Release(key Key) bool {
	b.mu.Lock()
	current := b.find(key)
	held := current != nil && current.entry.Hold != nil
	if held {
		now := metav1.Now()
		e := current.entry
		b.save(deletedEntry(e, &wire.Spec{Generation: e.Hold.Generation, Trace: e.Trace, DeletionTimestamp: &now}))
	}
	b.mu.Unlock()
	if held {
		b.config.Changed(key)
	}
	return held
}

// Identified notes that source, which has that identity, knows the works. It reports whether works of
// the source remain whose deletion is held, or that another identity sent. Its cost is linear in the
// works of the source.
func (b *Inbox) Identified(source wire.SourceID, identity string, uids []types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, uid := range uids {
		if current := b.find(Key{source, uid}); current != nil {
			b.identify(current.entry, identity, "")
		}
	}
	for _, current := range b.of(source) {
		if e := current.entry; e.Hold != nil || e.SourceIdentity != "" && e.SourceIdentity != identity {
			return true
		}
	}
	return false
}

// identify sets the identity of the source that knows a work, and the hash of the work's content,
// each unless it is empty. b.mu must be held.
func (b *Inbox) identify(e *Entry, identity, hash string) {
	identity, hash = cmp.Or(identity, e.SourceIdentity), cmp.Or(hash, e.ContentHash)
	if e.SourceIdentity == identity && e.ContentHash == hash || e.Deleting != nil {
		return
	}
	identified := *e
	identified.SourceIdentity, identified.ContentHash = identity, hash
	b.save(&identified)
}

// Held returns the number of works whose deletion is held.
func (b *Inbox) Held() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}
