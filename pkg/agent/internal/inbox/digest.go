package inbox

import (
	"github.com/workwire/workwire/pkg/wire"
)

// heldSpec returns the version of e to compare with its source: that of the newest spec received,
// also if it was refused. It returns false for a work that is kept although its source does not
// know it.
func heldSpec(e *Entry) (wire.HeldSpec, bool) {
	h := wire.HeldSpec{
		SpecVersion: wire.SpecVersion{UID: e.UID, Generation: e.Generation, ContentHash: e.ContentHash},
		Deleting:    e.Deleting != nil,
	}
	if e.Refusal != nil && e.Refusal.Generation >= e.Generation {
		h.Generation, h.ContentHash = e.Refusal.Generation, e.Refusal.ContentHash
	}
	h.Recorded = h.Generation == 0
	return h, e.Hold == nil
}

// Digests returns the digests of the specs of source (docs/protocol.md, Digest), without those of
// works that are being deleted or whose deletion is held. Its cost is linear in the works of the
// source.
func (b *Inbox) Digests(source wire.SourceID) []wire.WorkDigest {
	b.mu.Lock()
	defer b.mu.Unlock()
	works := b.of(source)
	digests := make([]wire.WorkDigest, 0, len(works))
	for uid, w := range works {
		if w.entry.Hold == nil && w.entry.Deleting == nil {
			digests = append(digests, wire.WorkDigest{UID: uid, BucketDigest: b.digest(w)})
		}
	}
	return digests
}

// digest returns the digest of w, which it computes once for each entry. b.mu must be held.
func (b *Inbox) digest(w *work) wire.BucketDigest {
	if w.digested == w.entry {
		return w.digest
	}
	b.ensureContentHash(w.entry)
	w.digested = w.entry
	h, _ := heldSpec(w.entry)
	w.digest = wire.BucketDigest{
		Works: wire.SpecDigest(h.UID, h.Generation, h.Deleting), Contents: wire.ContentDigest(h.UID, h.ContentHash),
	}
	return w.digest
}

// ensureContentHash computes the content hash of a spec that came without, from a source that sends
// hashes now. b.mu must be held.
func (b *Inbox) ensureContentHash(e *Entry) {
	if e.ContentHash != "" || e.SourceIdentity == "" || e.Sealed || !e.HasSpec() {
		return
	}
	if hash, err := wire.ContentHash(wire.NewBundle(&e.Spec)); err == nil {
		b.identify(e, "", hash)
	}
}

// Differing returns the works to list in the partial spec resync request that answers m, see
// [wire.StatusResync.DifferingSpecs]. Its cost is linear in the works of the source and of m.
func (b *Inbox) Differing(m *wire.StatusResync) []wire.SpecVersion {
	b.mu.Lock()
	defer b.mu.Unlock()
	works := b.of(m.Source)
	return m.DifferingSpecs(func(yield func(wire.HeldSpec) bool) {
		for _, w := range works {
			if h, counts := heldSpec(w.entry); counts && !yield(h) {
				return
			}
		}
	})
}
