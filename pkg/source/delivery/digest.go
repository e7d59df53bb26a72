package delivery

import (
	"context"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// Content hashes of works that this Engine did not publish are computed at this rate a second, once
// a digest asks for them. Until then the contents of their buckets are not compared.
const (
	contentHashRate  = 2000
	contentHashBurst = 5000
)

// workDigest returns the digest of a work. known is false if its content hash is not known yet.
func (e *Engine) workDigest(work *workv1.ManifestWork) (sum wire.BucketDigest, known bool) {
	if _, err := e.statusHash(work); err != nil {
		e.log.Error("status cannot be hashed", "work", work.Name, "uid", work.UID, "cluster", work.Namespace, "error", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.core.peek(keyOf(work)).digestOf(work, e.identity != "")
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
		e.mu.Lock()
		version, listed := e.core.peek(keyOf(work)).versionOf(work, hash)
		e.mu.Unlock()
		if listed {
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
