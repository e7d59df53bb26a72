package delivery

import (
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// workDigest caches the digests of a work's state.
type workDigest struct {
	spec   uint64 // of specOf
	specOf heldRevision
	status uint64 // of workRecord.hash

	// reported is the digest of the last status that the agent reported and the source accepted. It
	// counts as stored as long as the work has the resourceVersion of that time: the status is being
	// written, or the store keeps another one in its place.
	reported   uint64
	reportedAt string
}

// statusReported records the hash of an accepted status of w, whose work has this resourceVersion.
func (w *workRecord) statusReported(hash, version string) {
	if version != "" && hash != "" {
		w.digest.reported, w.digest.reportedAt = wire.StatusDigest(w.key.uid, hash), version
	}
}

// agentHoldsInstead records what the agent holds of a work if its newest spec cannot be published.
func (w *workRecord) agentHoldsInstead(have *wire.SpecVersion) {
	if w.refused != nil {
		refused, held := *w.refused, *have // not have itself, which keeps its whole list in memory
		refused.held = &held
		w.refused = &refused
	}
}

// heldRevision is what an agent holds of a work.
type heldRevision struct {
	generation wire.Generation
	deleting   bool
}

// expected returns what the agent of a work should hold; work is nil if the source does not have it.
// It returns false for a work that counts on neither side: one that the agent has begun to delete,
// and one that the agent does not hold because its spec cannot be published.
func (w *workRecord) expected(work *workv1.ManifestWork) (heldRevision, bool) {
	if work == nil {
		return heldRevision{w.removed.generation, true}, w.said == saidNothing
	}
	current := wire.Generation(work.Generation)
	if held := w.refused != nil && w.refused.holds; work.DeletionTimestamp != nil && !held {
		return heldRevision{current, true}, !w.startsDeletion(work)
	}
	published := w.published.generation
	if w.published.deleting {
		published = 0
	}
	if w.refused != nil && w.refused.held != nil {
		return heldRevision{w.refused.held.Generation, false}, !w.refused.nothingHeld()
	}
	if w.phase == paused {
		return heldRevision{w.confirmed, false}, w.confirmed != 0
	}
	if published == 0 && (w.refused == nil || w.refused.holds) {
		published = current // of a deletion that is held no agent has it: it is asked what it has
	}
	return heldRevision{published, false}, published != 0
}

// digestOf returns the digest of work, which is that of w, as its agent should hold it. known is false if the hash of its
// content is not known; hashed reports whether specs have one.
func (w *workRecord) digestOf(work *workv1.ManifestWork, hashed bool) (sum wire.BucketDigest, known bool) {
	held, counts := w.expected(work)
	if !counts {
		return sum, true
	}
	sum.Works = w.specDigest(held) + w.statusDigest(work.ResourceVersion)
	sum.Contents, known = w.contentDigest(held, hashed)
	return sum, known
}

// versionOf returns the entry of work, whose status has this hash, in a request by bucket. A work that the agent has begun to
// delete is listed too; one whose spec cannot be published is listed if the agent holds another.
func (w *workRecord) versionOf(work *workv1.ManifestWork, hash string) (version wire.StatusVersion, listed bool) {
	held, counts := w.expected(work)
	version = wire.StatusVersion{UID: work.UID, Hash: hash, Generation: held.generation, Deleting: held.deleting}
	if c := w.content(); c.generation == held.generation && !held.deleting && w.refused == nil {
		version.ContentHash = c.hash
	}
	return version, counts || held.deleting
}

func (w *workRecord) specDigest(held heldRevision) uint64 {
	if w.digest.spec == 0 || w.digest.specOf != held {
		w.digest.spec, w.digest.specOf = wire.SpecDigest(w.key.uid, held.generation, held.deleting), held
	}
	return w.digest.spec
}

// statusDigest returns the digest of the status of the work with this resourceVersion, for which
// [Engine.statusHash] was called.
func (w *workRecord) statusDigest(version string) uint64 {
	if version != "" && w.digest.reportedAt == version {
		return w.digest.reported
	}
	return w.digest.status
}

// contentDigest returns the digest of the content that the agent should hold, and false if its hash
// is not known. hashed reports whether specs have a content hash.
func (w *workRecord) contentDigest(held heldRevision, hashed bool) (uint64, bool) {
	switch {
	case held.deleting || !hashed:
		return 0, true
	case w.refused != nil && w.refused.held != nil:
		return wire.ContentDigest(w.key.uid, w.refused.held.ContentHash), true
	default:
		c := w.content()
		return c.digest, c.hash != "" && c.generation == held.generation
	}
}
