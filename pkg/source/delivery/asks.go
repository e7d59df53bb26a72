package delivery

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/wire"
)

// asking is what is under way about the questions of a cluster, and the questions to it.
type asking struct {
	job  *job[wire.ClusterName, resyncTask]
	task resyncTask
}

// storeKey says what the WorkStore is told about: a work, or that its agent is ahead of the source, which may wait for long.
type storeKey struct {
	workKey
	ahead bool
}

// storing is what the WorkStore is being told about one work.
type storing struct {
	job    *job[storeKey, statusUpdate]
	update statusUpdate
	// refused is why the newest spec of the work cannot be published, and authoritative whether it is published as such.
	refused       *refusal
	authoritative bool
}

// statusUpdate is what the WorkStore is to be told about one work.
type statusUpdate struct {
	name            string
	status          *wire.Status
	size            int  // of status, see waiting.go
	admitted        bool // see core.admitStoring
	refused         *metav1.Condition
	agentGeneration wire.Generation // that the agent holds, if it is higher than the source's
	delivery        bool            // see Engine.ReportDelivery
}

// mergeStatusUpdates returns the newer one of each field.
func (d *core) mergeStatusUpdates(older, newer statusUpdate) statusUpdate {
	if newer.status == nil {
		newer.status, newer.size = older.status, older.size
	} else if older.status != nil {
		d.waitsInPlaceOf(older.status.Cluster, older.size)
	}
	if newer.refused == nil {
		newer.refused = older.refused
	}
	newer.delivery = newer.delivery || older.delivery
	newer.admitted = newer.admitted || older.admitted
	newer.agentGeneration = max(newer.agentGeneration, older.agentGeneration)
	return newer
}

// asked: something is to be answered to a cluster, or asked of it.
type asked struct {
	cluster wire.ClusterName
	task    resyncTask
}

func (in asked) apply(d *core, _ time.Time) {
	if d.serves(in.cluster) {
		d.asks.add(in.cluster, "", in.cluster, in.task)
	}
}

// askEnded: what was under way about questions has ended.
type askEnded struct {
	*asking
	retry bool
}

func (in askEnded) apply(d *core, now time.Time) {
	d.ended(in.job.cluster)
	if in.retry && d.serves(in.job.cluster) {
		d.asks.retry(in.job, in.task, now)
	} else {
		d.asks.end(in.job)
	}
}

// storeWanted: the WorkStore is to be told something about a work.
type storeWanted struct {
	key    workKey
	owner  string // the replica set of the work; empty: none
	update statusUpdate
}

func (in storeWanted) apply(d *core, _ time.Time) {
	if d.serves(in.key.cluster) {
		d.stores.add(storeKey{in.key, in.update.agentGeneration > 0}, in.owner, in.key.cluster, in.update)
	}
}

// storeEnded: the WorkStore was told something about a work.
type storeEnded struct {
	*storing
	failed bool
}

func (in storeEnded) apply(d *core, now time.Time) {
	name, u := in.job.cluster, in.update
	if u.size >= large {
		d.cluster(name).storingLarge[isOwned(in.job.owner)] = false
	}
	d.ended(name)
	if in.failed && d.serves(name) {
		d.stores.retry(in.job, u, now)
		return
	}
	d.stores.end(in.job)
	if d.waitsNoMore(name, u.size) {
		d.asks.add(name, "", name, resyncTask{requestStatuses: true})
	}
}

// ended ends something about a cluster that was under way.
func (d *core) ended(cluster wire.ClusterName) {
	c := d.cluster(cluster)
	c.underWay--
	d.release(c)
}

// beginJobs begins what is to be asked, answered and stored.
func (d *core) beginJobs(now time.Time) {
	for {
		j, task := d.asks.next(now, resyncWorkers)
		if j == nil {
			break
		}
		if !d.serves(j.cluster) {
			d.asks.end(j)
			continue
		}
		if wait := d.admitAsking(j.cluster, &task, now); wait > 0 {
			d.asks.putOff(j, task, now.Add(wait))
			continue
		}
		d.cluster(j.cluster).underWay++
		d.act(&asking{j, task})
	}
	for {
		j, u := d.stores.next(now, d.storeLimit)
		if j == nil {
			break
		}
		if !d.serves(j.cluster) { // who serves it asks for the status again
			d.stores.end(j)
			continue
		}
		if wait := d.admitStoring(j, &u, now); wait > 0 {
			d.stores.putOff(j, u, now.Add(wait))
			continue
		}
		d.cluster(j.cluster).underWay++
		w := d.peek(j.key.workKey)
		d.act(&storing{job: j, update: u, refused: w.refused, authoritative: w.authoritative})
	}
}

// admitAsking admits the questions of a cluster, and counts those that are not free, or returns how long they have to wait: while it has used up
// its quota, and so that it is answered at a bounded rate.
func (d *core) admitAsking(name wire.ClusterName, task *resyncTask, now time.Time) (wait time.Duration) {
	if task.owed {
		if wait = d.quotas.Wait(name, message, now); wait > 0 {
			return wait
		}
	}
	listed := task.question.works()
	if listed < 0 && task.digest == nil && !task.owed || listed <= freeQuestion && !d.hasWorks(name) {
		return 0
	}
	if wait = d.admitQuestion(name, now); wait > 0 {
		d.act(questionPaced{})
	}
	return wait
}

const (
	// large is the size of a status that keeps the store busy for a while. One of a cluster at a time is stored, of its works of replica sets
	// and of its others, so that the statuses of other clusters find the store free.
	large = 64 << 10
	// largeWait is how long a large status waits until another write of its cluster may have ended.
	largeWait = 20 * time.Millisecond
)

// admitStoring charges the cluster of a status for its write, once, as newer ones take its turn, and returns how long it has to wait.
// A large one also waits until no other large one of its cluster is being stored, and then is the one; [storeEnded] ends that.
func (d *core) admitStoring(j *job[storeKey, statusUpdate], u *statusUpdate, now time.Time) (wait time.Duration) {
	if j.key.ahead {
		return d.admitOvertaking(j.key.workKey, now)
	}
	if u.status == nil {
		return 0
	}
	name, owned := j.cluster, isOwned(j.owner)
	if !u.admitted {
		u.admitted = true
		if wait = d.quotas.Reserve(name, quota.Cost{quota.Writes: 1, quota.WrittenBytes: float64(u.size)}, now); wait > 0 {
			d.noteNoise(name, now)
			return wait
		}
	}
	if u.size < large {
		return 0
	}
	c := d.cluster(name)
	if c.storingLarge[owned] {
		return largeWait
	}
	c.storingLarge[owned] = true
	return 0
}

// noteNoise reports a cluster that has become noisy, or is no longer.
func (d *core) noteNoise(cluster wire.ClusterName, now time.Time) {
	noise, c := d.quotas.Noise(cluster, now), d.cluster(cluster)
	if c.noise != noise {
		c.noise = noise
		d.act(NoiseChanged{cluster, noise})
	}
	d.release(c)
}

// hasWorks reports whether the source has a work of a cluster, or has removed one that its agent has not deleted.
func (d *core) hasWorks(cluster wire.ClusterName) bool {
	c, ok := d.clusters[cluster]
	if !ok {
		return false
	}
	if c.works.len() > c.removed.len() {
		return true
	}
	for _, w := range c.removed.list {
		if !w.removed.unknown {
			return true
		}
	}
	return false
}

// The pace of the questions of one cluster: its resync requests and digests. An agent asks a few times when it
// connects, and sends a digest a minute. Further questions are merged and wait.
const (
	questionBurst    = 10
	questionInterval = 2 * time.Second
)

// admitQuestion admits a question of a cluster, and counts it, or returns how long it has to wait.
func (d *core) admitQuestion(name wire.ClusterName, now time.Time) time.Duration {
	d.sweep(now)
	c := d.cluster(name)
	full := c.askAgain
	if full.Before(now) {
		full = now
	}
	if wait := full.Add(questionInterval).Sub(now) - questionBurst*questionInterval; wait > 0 {
		return wait
	}
	c.askAgain = full.Add(questionInterval)
	return 0
}
