package delivery

import (
	"time"

	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// message is what every message costs.
var message = quota.Cost{quota.Messages: 1, quota.Bytes: 1}

// affords reports whether the cluster of a message can pay for it. If not, the message is dropped before it
// costs anything, and the cluster is asked for its statuses once it can pay again. A question that is
// dropped is repeated by its agent.
func (e *Engine) affords(m transport.Message, from sender, now time.Time) bool {
	cost := quota.Cost{quota.Messages: 1, quota.Bytes: float64(wire.PlainSize(m.Event))}
	if e.quotas.Spend(from.cluster, cost, now) {
		return true
	}
	e.decided(m, from, "unknown", overQuota, nil)
	e.log.Warn("message dropped: its cluster sends more than its quota, it is asked again", "cluster", from.cluster)
	e.noteNoise(from.cluster, now)
	if e.hasWorks(from.cluster) {
		e.resyncQueue.add(from.cluster, resyncTask{requestStatuses: true, owed: true})
	}
	return false
}

const (
	// large is the size of a status that keeps the store busy for a while. One of a cluster at a time is stored, so
	// that the statuses of others find the store free.
	large = 64 << 10
	// largeWait is how long a large status waits until another write of its cluster may have ended.
	largeWait = 20 * time.Millisecond
)

// admitStatus has a status wait until its cluster may write to the store: once, newer ones take its turn. A large
// one also waits until no other large one of its cluster is being stored; [Engine.stored] ends that.
func (e *Engine) admitStatus(k workKey, u *statusUpdate) (wait time.Duration) {
	if u.status == nil {
		return 0
	}
	if !u.admitted {
		u.admitted = true
		now := time.Now()
		if wait = e.quotas.Reserve(k.cluster, quota.Cost{quota.Writes: 1, quota.WrittenBytes: float64(u.size)}, now); wait > 0 {
			e.noteNoise(k.cluster, now)
			return wait
		}
	}
	if u.size < large {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.core.cluster(k.cluster)
	if c.storingLarge {
		return largeWait
	}
	c.storingLarge = true
	return 0
}

// stored ends what admitStatus began.
func (e *Engine) stored(k workKey, u *statusUpdate) {
	if u.size < large {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.core.cluster(k.cluster)
	c.storingLarge = false
	e.core.release(c)
}

// noteNoise reports a cluster that has become noisy, or is no longer.
func (e *Engine) noteNoise(cluster wire.ClusterName, now time.Time) {
	noise := e.quotas.Noise(cluster, now)
	e.mu.Lock()
	c := e.core.cluster(cluster)
	changed := c.noise != noise
	c.noise = noise
	e.core.release(c)
	e.mu.Unlock()
	if changed {
		e.observe(NoiseChanged{cluster, noise})
	}
}
