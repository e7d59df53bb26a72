package delivery

import (
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/runtime/schedule"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/wire"
)

// core decides what a source publishes, asks, answers and stores, and when. It owns one record for each cluster and
// one for each work. Its step takes an input, something that has happened, and returns the actions that begin with
// it; the end of each is an input again. What a message leads to is in the fields of its input.
//
//	store    ── work changed, removed, restored, lost ──▶ ┌──────┐ ── attempt ──▶ publish ──── attempt ended ──┐
//	broker   ── connected, disconnected ────────────────▶ │      │ ── asking ───▶ answer, ask ── ask ended ────┤
//	agents   ── heard, signed, status, question, digest ▶ │ core │ ── storing ──▶ write ─────── store ended ───┤
//	fleet    ── state of a cluster, key changed ────────▶ │      │ ◀───────────────────────────────────────────┘
//	clock    ── time passed ────────────────────────────▶ └──────┘ ── events ───▶ metrics, audit, Observe
//
// It does no I/O, reads no clock, starts no goroutine, and does the same for the same inputs. It is not safe
// for concurrent use: an [Engine] guards it with a lock, passes inputs to it, and carries out the actions.
// An input costs at most O(log n), but for those that say otherwise.
type core struct {
	source         wire.SourceID
	limit          int // of attempts that are in flight together
	quotas         *quota.Quotas[wire.ClusterName]
	signatures     signing.Window // when what agents sign may have been signed
	republishAfter time.Duration
	state          ClusterState // of the clusters that nothing is known of

	works      map[workKey]*workRecord
	clusters   map[wire.ClusterName]*clusterRecord
	swept      time.Time                       // when sweep did something
	roundRobin workqueue.Queue[*clusterRecord] // clusters whose queue is not empty
	due        schedule.Schedule[*workRecord]  // works to look at later
	asks       jobs[wire.ClusterName, resyncTask]
	stores     jobs[storeKey, statusUpdate]
	storeLimit int // of stores that run together, see jobs.next
	// connection is the number of the current connection, 0 for none.
	connection, lastConnection uint64
	roundTrip                  roundTrip // from a publish to the first status of it

	inPhase [phases]int // works by phase
	actions []action    // of the last step
}

// action is what the step of a core has begun: an [*attempt] to publish, [*asking] or [*storing], each of which ends
// with an input; or an [Event] that somebody may want to know.
type action any

// input is something that has happened.
type input interface{ apply(d *core, now time.Time) }

func newCore(config *Config) *core {
	d := &core{
		source: config.Source, limit: config.PublishWorkers, storeLimit: config.StatusWorkers, republishAfter: config.RepublishAfter, state: config.Clusters,
		quotas: quota.New[wire.ClusterName](quota.Config{Rates: *config.Quota, Subsystem: "source"}),
		works:  make(map[workKey]*workRecord), clusters: make(map[wire.ClusterName]*clusterRecord),
		roundRobin: workqueue.DefaultQueue[*clusterRecord](),
		asks:       newJobs[wire.ClusterName](mergeResyncTasks),
	}
	d.stores = newJobs[storeKey](d.mergeStatusUpdates)
	return d
}

// step handles an input. It returns the actions that follow, in this order, which are valid until the next call.
func (d *core) step(now time.Time, in input) []action {
	clear(d.actions)
	d.actions = d.actions[:0]
	in.apply(d, now)
	d.requeueDue(now)
	for d.inPhase[inFlight] < d.limit && d.begin() {
	}
	d.beginJobs(now)
	return d.actions
}

func (d *core) act(a action) { d.actions = append(d.actions, a) }

// begin begins an attempt for the next work, by round robin over the clusters. It returns false
// if no work is ready or there is no connection.
func (d *core) begin() bool {
	for d.connection != 0 && d.roundRobin.Len() > 0 {
		c := d.roundRobin.Pop()
		c.inRoundRobin = false
		if c.state != ClusterOpen {
			continue // until it is open
		}
		w := c.queue.Pop()
		if c.queue.Len() > 0 {
			d.enterRoundRobin(c)
		}
		if w.phase != queued {
			continue // forgotten
		}
		c.underWay++
		d.act(&attempt{work: w, before: *w})
		d.move(w, taken)
		w.intent = nothing
		return true
	}
	return false
}

// requeueDue enqueues the works that are due: those whose last attempt failed, and unconfirmed ones
// whose cluster sent a message since. Other unconfirmed works await contact.
func (d *core) requeueDue(now time.Time) {
	for d.connection != 0 {
		w, ok := d.due.Pop(now)
		if !ok {
			return
		}
		next := w.publishedAt.Add(d.pause(w))
		switch {
		case w.phase == awaitingAnswer && next.After(now): // round trips have become longer
			d.due.Set(w, next)
		case w.phase == awaitingAnswer && !w.cluster.heard.After(w.publishedAt):
			d.move(w, silence)
		default:
			d.want(w, repeat)
		}
	}
}

// nextDue returns when time alone has something done; zero: never.
func (d *core) nextDue() time.Time {
	due := firstDue(d.asks.due.Next(), d.stores.due.Next())
	if d.connection != 0 {
		due = firstDue(due, d.due.Next())
	}
	return due
}

// firstDue returns the first one of two times, of which the zero one is never.
func firstDue(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// pending returns the number of works that are queued or in flight.
func (d *core) pending() int { return d.inPhase[queued] + d.inPhase[inFlight] }

// unconfirmed returns the number of works that wait until they are confirmed, or tried again.
func (d *core) unconfirmed() int {
	return d.inPhase[awaitingAnswer] + d.inPhase[awaitingContact] + d.inPhase[backingOff]
}

// ensure returns the record of k, which it creates if necessary.
func (d *core) ensure(k workKey) *workRecord {
	if w, ok := d.works[k]; ok {
		return w
	}
	c := d.cluster(k.cluster)
	w := &workRecord{key: k, cluster: c}
	c.works.add(w)
	d.works[k] = w
	d.inPhase[idle]++
	return w
}

// forget removes w, which must not be in flight.
func (d *core) forget(w *workRecord) {
	delete(d.works, w.key)
	d.enter(w, idle) // if it was queued, dequeue skips it
	d.inPhase[idle]--
	w.cluster.removed.remove(w)
	w.cluster.works.remove(w)
	delete(w.cluster.overtaken, w.key.uid)
	d.release(w.cluster)
}

func (d *core) enterRoundRobin(c *clusterRecord) {
	if !c.inRoundRobin {
		c.inRoundRobin = true
		d.roundRobin.Push(c)
	}
}

// peek returns the record of k, an empty one if there is none.
func (d *core) peek(k workKey) *workRecord {
	if w, ok := d.works[k]; ok {
		return w
	}
	return &workRecord{key: k}
}
