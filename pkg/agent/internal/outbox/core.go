package outbox

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/store"
	"github.com/workwire/workwire/pkg/runtime/compress"
	"github.com/workwire/workwire/pkg/runtime/fairqueue"
	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/runtime/schedule"
	"github.com/workwire/workwire/pkg/runtime/statestore"
	"github.com/workwire/workwire/pkg/wire"
)

// Bounds of the exponential backoff after a refused publish.
const (
	minBackoff = 500 * time.Millisecond
	maxBackoff = 5 * time.Minute
)

// maxNotHeld is the maximum number of works of a source that the agent does not hold and that wait to be reported as
// deleted.
const maxNotHeld = 5_000

// core decides which status is published when. It is told what has happened and what time it is, and does nothing itself: what is to be
// written to the state file is in writes. The Outbox carries that out, and is the only caller.
type core struct {
	codec compress.Codec // of statuses
	most  int            // publishes in flight

	works     map[wire.SourceID]map[types.UID]*work
	queue     *turns                   // ready to publish
	feedback  *turns                   // likewise, as soon as uplink has room
	limited   bool                     // uplink is
	uplink    *quota.Quotas[string]    // of the bytes of statuses; they have one identity
	delayed   schedule.Schedule[*work] // in backoff
	notHeld   map[wire.SourceID]int    // works that the agent does not hold
	inFlight  int
	connected bool
	epoch     uint64                         // number of the connection
	session   string                         // of the connection, empty: none
	refusing  map[wire.SourceID]struct{}     // sources with a refused publish; the first one is logged
	accepts   map[wire.SourceID]wire.Accepts // what sources can read, as heard on this connection
	stats     Stats

	writes []write
	ready  bool // there may be something to publish
}

// turns is a queue of works: those of a source in their order, and the sources by turns, so that no source waits
// for all that another one has asked for.
type turns = fairqueue.Queue[*work, wire.SourceID]

// write is a value to write to the state file; nil deletes.
type write struct {
	bucket statestore.Bucket
	key    inbox.Key
	value  any
}

func newCore(maxUplink, inFlight int) core {
	perMinute := float64(maxUplink)
	source := func(w *work) wire.SourceID { return w.key.Source }
	return core{
		most:     inFlight,
		queue:    fairqueue.New(source),
		feedback: fairqueue.New(source),
		works:    map[wire.SourceID]map[types.UID]*work{},
		notHeld:  map[wire.SourceID]int{},
		refusing: map[wire.SourceID]struct{}{},
		accepts:  map[wire.SourceID]wire.Accepts{},
		limited:  maxUplink > 0,
		uplink:   quota.New[string](quota.Config{Rates: quota.Rates{quota.Bytes: {PerSecond: perMinute / 60, Burst: perMinute}}}),
	}
}

// encode encodes the status of w, which is not to be sent soon. A status that cannot be encoded
// stays as it is.
func (c *core) encode(w *work) {
	if data, err := c.codec.Encode(w.last.plain); err == nil {
		w.last.plain, w.last.encoded = nil, data
	}
}

func (c *core) decode(last *heldStatus, generation wire.Generation) Status {
	s := Status{Generation: generation, Cluster: last.cluster, Meta: last.meta, Trace: last.trace, Final: last.final}
	if last.plain != nil {
		s.Status = *last.plain
	} else {
		c.codec.Decode(last.encoded, &s.Status)
	}
	return s
}

// find returns the work, or nil.
func (c *core) find(key inbox.Key) *work { return c.works[key.Source][key.UID] }

// held returns the work whose status is held, or nil.
func (c *core) held(key inbox.Key) *work {
	if w := c.find(key); w != nil && !w.forgotten {
		return w
	}
	return nil
}

func (c *core) add(key inbox.Key) *work {
	works := c.works[key.Source]
	if works == nil {
		works = map[types.UID]*work{}
		c.works[key.Source] = works
	}
	w := &work{key: key}
	works[key.UID] = w
	return w
}

// set makes s, whose version is want, the newest status of a work, and reports whether it is another one than before. dropped
// reports that it answers one deletion too many.
func (c *core) set(key inbox.Key, s Status, want version, notHeld bool, now time.Time) (changed, dropped bool) {
	w := c.find(key)
	if w == nil {
		if notHeld && c.notHeld[key.Source] >= maxNotHeld {
			c.stats.Dropped++
			return false, true
		}
		w = c.add(key)
	}
	if w.last.final && !w.notHeld && !s.Final && w.acked != w.want {
		return false, false // computed before the work was deleted
	}
	c.setNotHeld(w, notHeld)
	w.forgotten = false
	if w.want == want {
		w.last.cluster, w.last.meta, w.last.trace = s.Cluster, s.Meta, s.Trace
		return false, false
	}
	urgent := w.urgent || !c.limited || !c.onlyFeedback(w, &s)
	w.keepBase()
	times := nextTimes(w.last.times, w.want.Generation, &s, now)
	w.last = hold(s)
	w.last.times = times
	if w.state == queued || w.state == backingOff {
		c.stats.Coalesced++
	}
	if w.state == backingOff && w.form == conditionsOnly {
		c.endBackoff(w) // the new status may be smaller
	}
	w.want, w.form = want, whole
	c.setUrgent(w, urgent)
	c.writes = append(c.writes, write{store.Statuses, key, &storedStatus{
		Source: key.Source, UID: key.UID, Version: want, Cluster: s.Cluster, Meta: *s.Meta, Status: s.Status, Trace: s.Trace, NotHeld: notHeld,
	}})
	c.enqueue(w)
	return true, false
}

// setNotHeld sets and counts w.notHeld.
func (c *core) setNotHeld(w *work, notHeld bool) {
	if w.notHeld == notHeld {
		return
	}
	w.notHeld = notHeld
	if notHeld {
		c.notHeld[w.key.Source]++
	} else if c.notHeld[w.key.Source]--; c.notHeld[w.key.Source] == 0 {
		delete(c.notHeld, w.key.Source)
	}
}

// remove forgets w. While w is publishing, it stays until that completes, so that a work never has
// two publishes in flight.
func (c *core) remove(w *work) {
	c.writes = append(c.writes, write{bucket: store.Statuses, key: w.key}, write{bucket: store.Acked, key: w.key})
	c.setNotHeld(w, false)
	switch w.state {
	case publishing:
		*w = work{key: w.key, state: publishing, inFlight: w.inFlight, forgotten: true}
		return
	case queued:
		if !c.queue.Remove(w) {
			c.feedback.Remove(w)
		}
	case backingOff:
		c.endBackoff(w)
	}
	delete(c.works[w.key.Source], w.key.UID)
	if len(c.works[w.key.Source]) == 0 {
		delete(c.works, w.key.Source)
	}
}

// resync is [Outbox.Resync].
func (c *core) resync(r *wire.StatusResync, now time.Time) {
	works := c.works[r.Source]
	hash := func(uid types.UID) (string, bool) {
		w, ok := works[uid]
		if !ok || w.forgotten {
			return "", false
		}
		return w.sentHash(), true
	}
	all := func(yield func(types.UID) bool) {
		for _, uid := range slices.Sorted(maps.Keys(works)) {
			if !works[uid].forgotten && !yield(uid) {
				return
			}
		}
	}
	for _, uid := range r.Answer(hash, all) {
		w := works[uid]
		if w.state == publishing && w.inFlight == w.want && !w.based {
			continue // the status in flight is the answer; a delta is none, as the source may lack its base
		}
		w.missed(now)
		w.resync = true
		c.setUrgent(w, true)
		c.enqueue(w)
	}
}

// addDigests adds the digest of the status that the broker acknowledged last to each of works, which
// are works of source. Its cost is linear in works.
func (c *core) addDigests(source wire.SourceID, works []wire.WorkDigest) {
	held := c.works[source]
	for i := range works {
		w := held[works[i].UID]
		if w == nil || w.forgotten {
			continue
		}
		if w.digested != w.sent {
			w.digest, w.digested = wire.StatusDigest(w.key.UID, w.sent), w.sent
		}
		works[i].Works += w.digest
	}
}

// connect has all pending statuses published, in this session (docs/protocol.md, Sequence ids).
func (c *core) connect(session string) {
	c.connected, c.session, c.ready = true, session, true
	c.epoch++
	clear(c.refusing)
	clear(c.accepts)
	for c.delayed.Len() > 0 {
		c.retry(c.delayed.Next())
	}
}

// next returns the next publish to begin. If there is none, idle reports whether nothing is in
// flight, and again is when to call next again if nothing happens before; zero for never.
func (c *core) next(now time.Time) (a *attempt, idle bool, again time.Time) {
	c.retry(now)
	again = c.delayed.Next()
	if !c.connected {
		return nil, c.inFlight == 0, again
	}
	queue := c.queue
	if queue.Len() == 0 {
		queue = c.feedback
	}
	if queue.Len() == 0 || c.inFlight >= c.most {
		return nil, c.inFlight == 0, again
	}
	if queue == c.feedback {
		if wait := c.uplink.Wait("", quota.Cost{quota.Bytes: 1}, now); wait > 0 {
			if room := now.Add(wait); again.IsZero() || room.Before(again) {
				again = room
			}
			return nil, c.inFlight == 0, again
		}
	}
	w := queue.Pop()
	w.state, w.inFlight = publishing, w.want
	a = &attempt{work: w, key: w.key, last: w.last, version: w.want, form: w.form, action: wire.Update, epoch: c.epoch, session: c.session, resync: w.resync}
	a.accepts = c.accepts[w.key.Source]
	if w.resync {
		a.action, w.resync = wire.ResyncResponse, false
	} else if a.accepts.Deltas {
		a.base, a.baseHash = w.deltaBase(now)
	}
	w.based = a.base != ""
	c.inFlight++
	return a, false, again
}

// outcome is how a publish has ended.
type outcome int

const (
	acknowledged outcome = iota // by the broker
	disconnected                // there is no connection any more
	canceled                    // Run ends
	exceedsLimit                // of the broker, by its size
	refused                     // for another reason
)

// result is what a publish has led to.
type result struct {
	final   bool          // it was the final status of a work that the agent holds
	reduced bool          // the status is sent in a smaller form next
	backoff time.Duration // after which it is repeated, because the broker refused it; else 0
	first   bool          // of the refused ones of its source
	again   bool          // the change that the status is part of is still to be sent
}

// complete handles the end of a.
func (c *core) complete(a *attempt, end outcome, now time.Time) (r result) {
	c.inFlight--
	c.ready = true
	w := a.work
	w.state, w.inFlight, w.based = idle, version{}, false
	if end == acknowledged {
		c.stats.Bytes += uint64(a.size)
		c.uplink.Reserve("", quota.Cost{quota.Bytes: float64(a.size)}, now)
	}
	if w.forgotten {
		c.remove(w)
		return result{}
	}
	if end == acknowledged {
		return result{final: c.acknowledged(a)}
	}
	r.again = true
	w.resync = w.resync || a.resync
	switch {
	case end == disconnected:
		if a.epoch == c.epoch {
			c.connected = false
		}
	case end == canceled:
	case end == exceedsLimit && w.want != a.version:
		c.stats.Coalesced++ // the newer status may fit
	case end == exceedsLimit && a.form < conditionsOnly:
		c.stats.Shrunk++
		r.reduced, w.form = true, a.form+1
	default:
		r.backoff, r.first = c.refused(w, now)
		return r
	}
	c.enqueue(w)
	return r
}

// refused repeats w after a backoff. first reports that none of its source was refused since one was acknowledged.
func (c *core) refused(w *work, now time.Time) (backoff time.Duration, first bool) {
	c.stats.Refused++
	backoff = min(minBackoff<<min(w.failures, 20), maxBackoff)
	w.failures++
	_, before := c.refusing[w.key.Source]
	c.refusing[w.key.Source] = struct{}{}
	w.state = backingOff
	c.delayed.Set(w, now.Add(backoff))
	return backoff, !before
}

// acknowledged handles the acknowledgement of a, and reports whether it was the final status of a work that the agent holds.
func (c *core) acknowledged(a *attempt) (final bool) {
	w := a.work
	c.stats.Published++
	w.failures = 0
	delete(c.refusing, w.key.Source)
	if a.delta {
		c.stats.Deltas++
	}
	w.acked, w.sent, w.delta = a.version, a.sent, a.delta
	if w.want == w.acked {
		w.urgent = false
	}
	w.hold(a)
	if a.version.Final && w.want == a.version {
		held := !w.notHeld
		if !held {
			c.remove(w)
		}
		return held
	}
	c.writes = append(c.writes, write{store.Acked, w.key, &storedAck{version: a.version, Sent: a.sent, Sequence: a.sequence}})
	c.enqueue(w)
	return false
}

// figures returns the current figures.
func (c *core) figures() Stats {
	s := c.stats
	s.Waiting = c.feedback.Len()
	s.Pending = c.queue.Len() + s.Waiting + c.delayed.Len() + c.inFlight
	return s
}

// enqueue queues w if it is idle and has something to publish.
func (c *core) enqueue(w *work) {
	if w.state != idle || (w.want == w.acked && !w.resync) {
		return
	}
	w.state, c.ready = queued, true
	if w.urgent {
		c.queue.Push(w)
	} else {
		c.feedback.Push(w)
	}
}

// setUrgent sets w.urgent, and takes w out of the queue for feedback if it does not belong there any more.
func (c *core) setUrgent(w *work, urgent bool) {
	if w.urgent = urgent; urgent && c.feedback.Remove(w) {
		w.state = idle
	}
}

// endBackoff makes w idle.
func (c *core) endBackoff(w *work) {
	c.delayed.Remove(w)
	w.state = idle
}

// retry queues the works whose backoff has ended by now.
func (c *core) retry(now time.Time) {
	for w, ok := c.delayed.Pop(now); ok; w, ok = c.delayed.Pop(now) {
		w.state = idle
		c.enqueue(w)
	}
}
