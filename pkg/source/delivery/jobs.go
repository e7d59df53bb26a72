package delivery

import (
	"time"

	"github.com/workwire/workwire/pkg/runtime/fairqueue"
	"github.com/workwire/workwire/pkg/runtime/schedule"
	"github.com/workwire/workwire/pkg/wire"
)

// Limits of the exponential backoff between retries of a job.
const (
	minRetryDelay = 100 * time.Millisecond
	maxRetryDelay = 30 * time.Second
)

// jobs has the newest value of each key carried out: one at a time of a key. Values
// that are added meanwhile are merged. What has no owner comes first; then owners take turns, and of one owner its clusters. A job is in one phase:
//
//	── add ──▶ ready ── next ──▶ running ── end ──▶ ready if a value was added since, else forgotten
//	             ▲                  │
//	             └── it is due ── waiting ◀── putOff
//
// Values that are added to a job that waits do not shorten its wait. An operation costs at most O(log n).
type jobs[K comparable, V any] struct {
	merge   func(older, newer V) V // may change the older one
	byKey   map[K]*job[K, V]
	own     *fairqueue.Queue[*job[K, V], wire.ClusterName] // the ready ones without an owner
	owned   *fairqueue.Nested[*job[K, V], string, wire.ClusterName]
	due     schedule.Schedule[*job[K, V]]
	running [2]int // by isOwned
}

// job is what is to be done about a key.
type job[K comparable, V any] struct {
	schedule.Timer
	key      K
	owner    string // the replica set of the work; empty: none
	cluster  wire.ClusterName
	value    V
	hasValue bool // value has not been carried out
	cleared  bool // since it began: it is not tried again
	failures int  // consecutive
}

func newJobs[K comparable, V any](merge func(older, newer V) V) jobs[K, V] {
	cluster := func(j *job[K, V]) wire.ClusterName { return j.cluster }
	return jobs[K, V]{
		merge: merge, byKey: make(map[K]*job[K, V]),
		own: fairqueue.New(cluster), owned: fairqueue.NewNested(func(j *job[K, V]) string { return j.owner }, cluster),
	}
}

// add has value carried out.
func (q *jobs[K, V]) add(key K, owner string, cluster wire.ClusterName, value V) {
	j, ok := q.byKey[key]
	if !ok {
		j = &job[K, V]{key: key, owner: owner, cluster: cluster}
		q.byKey[key] = j
		q.push(j)
	}
	if j.hasValue {
		value = q.merge(j.value, value)
	}
	j.value, j.hasValue = value, true
}

// isOwned returns 1 for what has an owner, and 0 for what somebody has changed by hand: the index of what is counted apart.
func isOwned(owner string) int {
	if owner == "" {
		return 0
	}
	return 1
}

// push makes a job ready.
func (q *jobs[K, V]) push(j *job[K, V]) {
	if j.owner == "" {
		q.own.Push(j)
	} else {
		q.owned.Push(j)
	}
}

// next begins the next job, which ends with end or putOff, and returns it with its value; nil if none is ready. At most limit jobs without
// an owner run together, and as many with one: no change by hand waits behind works of a rollout.
func (q *jobs[K, V]) next(now time.Time, limit int) (j *job[K, V], value V) {
	for j, ok := q.due.Pop(now); ok; j, ok = q.due.Pop(now) {
		q.push(j)
	}
	switch {
	case q.running[0] < limit && q.own.Len() > 0:
		j = q.own.Pop()
	case q.running[1] < limit && q.owned.Len() > 0:
		j = q.owned.Pop()
	default:
		return nil, value
	}
	q.running[isOwned(j.owner)]++
	value, j.value = j.value, value
	j.hasValue, j.cleared = false, false
	return j, value
}

// end ends a job.
func (q *jobs[K, V]) end(j *job[K, V]) {
	q.running[isOwned(j.owner)]--
	if j.failures = 0; j.hasValue {
		q.push(j)
	} else {
		delete(q.byKey, j.key)
	}
}

// putOff ends a job that did not do what its value says: it is carried out at this time, with what is added until then.
func (q *jobs[K, V]) putOff(j *job[K, V], value V, at time.Time) {
	q.running[isOwned(j.owner)]--
	if j.hasValue {
		value = q.merge(value, j.value)
	}
	j.value, j.hasValue = value, true
	q.due.Set(j, at)
}

// retry is putOff after a failure: the pause doubles with each.
func (q *jobs[K, V]) retry(j *job[K, V], value V, now time.Time) {
	if j.cleared {
		q.end(j)
		return
	}
	pause := backoff(minRetryDelay, j.failures, maxRetryDelay)
	j.failures++
	q.putOff(j, value, now.Add(pause))
}

// atOnce returns how many jobs are ready or running.
func (q *jobs[K, V]) atOnce() int { return q.running[0] + q.running[1] + q.own.Len() + q.owned.Len() }

// clear drops the values of a cluster that wait or are being carried out. It costs one pass over the keys.
func (q *jobs[K, V]) clear(cluster wire.ClusterName) {
	for _, j := range q.byKey {
		if j.cluster == cluster {
			var none V
			j.value, j.cleared = none, true
		}
	}
}
