package delivery

import (
	"time"

	"github.com/workwire/workwire/pkg/wire"
)

const (
	// divergedAfter is how old a difference is when it is reported. Messages in flight make younger
	// ones.
	divergedAfter = time.Minute
	// quickRequests is how often a difference that stays the same is requested at each digest.
	// After that it is requested at intervals of slowRequests.
	quickRequests = 3
	slowRequests  = 10 * time.Minute
	// divergenceMemory is how long a reported divergence lasts after its last old difference was
	// seen, if younger differences keep digests from ever being equal.
	divergenceMemory = 3 * time.Minute
)

// bucketDifference is a bucket whose digests differ. By is what the agent's is larger by: as digests
// are sums, this depends only on the works that differ, and stays the same as long as they do.
type bucketDifference struct {
	bucket int
	by     wire.BucketDigest
}

// compareBuckets returns the buckets that differ. The contents of a bucket are compared if they are
// complete.
func compareBuckets(own, agents []wire.BucketDigest, complete []bool) (differences []bucketDifference) {
	for i := range own {
		by := wire.BucketDigest{Works: agents[i].Works - own[i].Works}
		if complete[i] {
			by.Contents = agents[i].Contents - own[i].Contents
		}
		if by != (wire.BucketDigest{}) {
			differences = append(differences, bucketDifference{i, by})
		}
	}
	return differences
}

// divergence is what is known of a cluster whose last digest differed. It is immutable.
type divergence struct {
	differences map[bucketDifference]difference
	since       time.Time // of the oldest difference when it was reported; zero: not reported
	old         time.Time // when a difference older than divergedAfter was seen last
}

// difference is a bucketDifference that was seen in consecutive digests.
type difference struct {
	since     time.Time
	requests  int
	requested time.Time
}

// isReported reports whether the divergence is to be reported; d may be nil.
func (d *divergence) isReported() bool { return d != nil && !d.since.IsZero() }

// decideDivergence returns the divergence of a cluster after a digest with these differences, and
// which buckets to request. before is nil if the digest before was equal; so is after.
func decideDivergence(before *divergence, differences []bucketDifference, now time.Time) (after *divergence, request []int) {
	if len(differences) == 0 {
		return nil, nil
	}
	if before == nil {
		before = &divergence{}
	}
	after = &divergence{differences: make(map[bucketDifference]difference, len(differences)), since: before.since, old: before.old}
	oldest := now
	for _, d := range differences {
		seen, known := before.differences[d]
		if !known {
			seen.since = now
		}
		if seen.requests < quickRequests || now.Sub(seen.requested) >= slowRequests {
			request = append(request, d.bucket)
			seen.requests++
			seen.requested = now
		}
		if seen.since.Before(oldest) {
			oldest = seen.since
		}
		after.differences[d] = seen
	}
	switch {
	case now.Sub(oldest) >= divergedAfter:
		after.old = now
		if after.since.IsZero() {
			after.since = oldest
		}
	case now.Sub(after.old) >= divergenceMemory:
		after.since = time.Time{}
	}
	return after, request
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
