package delivery

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// Content hashes of works that this Engine did not publish are computed at this rate a second, once
// a digest asks for them. Until then the contents of their buckets are not compared.
const (
	contentHashRate  = 2000
	contentHashBurst = 5000
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
		held := *have // not have itself, which keeps its whole list in memory
		w.refused.held = &held
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
	if work.DeletionTimestamp != nil {
		heard := w.said != saidNothing || meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkDeleting) ||
			meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkDeleted)
		return heldRevision{current, true}, !heard
	}
	published := w.published.generation
	if w.published.deleting {
		published = 0
	}
	if w.refused != nil && w.refused.held != nil {
		return heldRevision{w.refused.held.Generation, false}, w.refused.held.Generation != 0
	}
	if w.phase == paused {
		return heldRevision{w.confirmed, false}, w.confirmed != 0
	}
	if published == 0 && w.refused == nil {
		published = current
	}
	return heldRevision{published, false}, published != 0
}

// workDigest returns the digest of a work. known is false if its content hash is not known yet.
func (e *Engine) workDigest(work *workv1.ManifestWork) (sum wire.BucketDigest, known bool) {
	if _, err := e.statusHash(work); err != nil {
		e.log.Error("status cannot be hashed", "work", work.Name, "uid", work.UID, "cluster", work.Namespace, "error", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.core.works[keyOf(work)]
	if w == nil { // WorkChanged is about to be called
		return wire.BucketDigest{Works: wire.SpecDigest(work.UID, wire.Generation(work.Generation), false)}, false
	}
	held, counts := w.expected(work)
	if !counts {
		return sum, true
	}
	sum.Works = w.specDigest(held) + w.statusDigest(work.ResourceVersion)
	sum.Contents, known = w.contentDigest(held, e.identity != "")
	return sum, known
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

// ownDigest returns the digests of the works of a cluster by bucket. complete is false for the
// buckets whose contents are not known yet. deleting are the works that are being deleted. It costs O(n)
// for n works of the cluster, and an encoding for each status that changed since.
func (e *Engine) ownDigest(cluster wire.ClusterName, count int) (own []wire.BucketDigest, complete []bool, deleting []workKey) {
	own, complete = make([]wire.BucketDigest, count), make([]bool, count)
	for i := range complete {
		complete[i] = true
	}
	for work := range e.config.Works.ListCluster(cluster) {
		if work.DeletionTimestamp != nil {
			deleting = append(deleting, keyOf(work))
		}
		sum, known := e.workDigest(work)
		if !known && e.contentHashes.TryAccept() && e.contentHash(work) != "" {
			sum, known = e.workDigest(work)
		}
		bucket := wire.Bucket(work.UID, count)
		own[bucket].Add(sum)
		complete[bucket] = complete[bucket] && known
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.core.clusters[cluster]; c != nil {
		for _, w := range c.removed.list {
			deleting = append(deleting, w.key)
			if held, counts := w.expected(nil); counts {
				own[wire.Bucket(w.key.uid, count)].Add(wire.BucketDigest{Works: w.specDigest(held)})
			}
		}
	}
	return own, complete, deleting
}

// compareDigest compares a digest with the works of its cluster, and requests what differs
// (docs/protocol.md, Digest).
func (e *Engine) compareDigest(ctx context.Context, cluster wire.ClusterName, d *wire.Digest) error {
	if e.stateOf(cluster) != ClusterOpen {
		e.metrics.digests.WithLabelValues("paused").Inc()
		e.step(&digestCompared{cluster: cluster})
		return nil
	}
	own, complete, deleting := e.ownDigest(cluster, len(d.Buckets))
	in := &digestCompared{cluster: cluster, differences: compareBuckets(own, d.Buckets, complete), deleting: deleting}
	e.step(in)
	if len(in.differences) == 0 {
		e.metrics.digests.WithLabelValues("equal").Inc()
		return nil
	}
	e.metrics.digests.WithLabelValues("different").Inc()
	e.log.Debug("digest differs", "cluster", cluster, "agent", d.Agent, "buckets", len(in.differences), "of", len(d.Buckets))
	if len(in.request) == 0 {
		return nil
	}
	return e.requestBuckets(ctx, cluster, &wire.Buckets{Count: len(d.Buckets), Indices: in.request})
}

// digestCompared: the digest of a cluster has these differences from the works of the source. Those of one cluster come
// in order. A digest says nothing of the works that are being deleted.
type digestCompared struct {
	cluster     wire.ClusterName
	differences []bucketDifference
	deleting    []workKey
	request     []int // set by step: the buckets to request
}

func (in *digestCompared) apply(d *core, now time.Time) {
	if !d.serves(in.cluster) {
		return
	}
	c := d.cluster(in.cluster)
	before := c.divergence
	c.divergence, in.request = decideDivergence(before, in.differences, now)
	if !d.hasWorks(in.cluster) {
		c.divergence = nil // nothing is kept: what its agent holds is asked for at each digest
	}
	switch after := c.divergence; {
	case after.isReported() && !before.isReported():
		d.act(DivergenceChanged{in.cluster, after.since})
	case before.isReported() && !after.isReported():
		d.act(DivergenceChanged{Cluster: in.cluster})
	}
	for _, k := range in.deleting {
		if w := d.works[k]; w != nil && w.phase == idle && w.published.deleting && w.said == saidDeleting && now.Sub(w.publishedAt) >= d.pause(w) {
			d.want(w, repeat) // that it is deleted may have been said, and lost: an agent that does not hold the work says it again
		}
	}
	d.release(c)
}

// requestBuckets publishes status resync requests that list all works of some buckets, with the
// specs that the agent should hold.
func (e *Engine) requestBuckets(ctx context.Context, cluster wire.ClusterName, buckets *wire.Buckets) error {
	r := e.statusResync(cluster)
	r.Buckets = buckets
	named := make([]bool, buckets.Count)
	for _, i := range buckets.Indices {
		named[i] = true
	}
	for work := range e.config.Works.ListCluster(cluster) {
		if !named[wire.Bucket(work.UID, buckets.Count)] {
			continue
		}
		hash, err := e.statusHash(work)
		if err != nil {
			return err
		}
		if version, listed := e.listed(work, hash); listed {
			r.Hashes = append(r.Hashes, version)
		}
	}
	e.mu.Lock()
	if c := e.core.clusters[cluster]; c != nil {
		for _, w := range c.removed.list {
			if held, counts := w.expected(nil); counts && named[wire.Bucket(w.key.uid, buckets.Count)] {
				r.Hashes = append(r.Hashes, wire.StatusVersion{UID: w.key.uid, Generation: held.generation, Deleting: true})
			}
		}
	}
	e.mu.Unlock()
	return e.publishStatusResync(ctx, r)
}

// listed returns the entry of a work in a request by bucket. A work that the agent has begun to
// delete is listed too; one whose spec cannot be published is listed if the agent holds another.
func (e *Engine) listed(work *workv1.ManifestWork, hash string) (wire.StatusVersion, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.core.works[keyOf(work)]
	if w == nil {
		w = &workRecord{}
	}
	held, counts := w.expected(work)
	version := wire.StatusVersion{UID: work.UID, Hash: hash, Generation: held.generation, Deleting: held.deleting}
	if c := w.content(); c.generation == held.generation && !held.deleting && w.refused == nil {
		version.ContentHash = c.hash
	}
	return version, counts || held.deleting
}
