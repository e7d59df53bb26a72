package outbox

import (
	"container/list"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/store"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/compress"
	"github.com/workwire/workwire/pkg/wire"
)

// version identifies a status of a work. Of two statuses with the same version, only one is
// published. The zero version stands for none.
type version struct {
	// Hash is [wire.StatusHash] of the complete status.
	Hash       string          `json:"hash"`
	Generation wire.Generation `json:"generation,omitempty"`
	Final      bool            `json:"final,omitempty"`
}

// state is the state of a work:
//
//	idle       → queued      there is something to publish
//	queued     → publishing  a publish has begun
//	publishing → idle        the broker has acknowledged it, and there is nothing newer
//	publishing → queued      there is something newer, or the connection was lost
//	publishing → backingOff  the broker refused it
//	backingOff → queued      the backoff has ended, or there is a new connection
type state int

const (
	idle state = iota
	queued
	publishing
	backingOff
)

// work is the state of one work. Outbox.mu guards it.
type work struct {
	key      inbox.Key
	last     heldStatus // newest
	want     version    // of last
	inFlight version    // while publishing
	acked    version    // acknowledged last
	sent     string     // hash of the form in which acked was sent
	digest   uint64     // of digested
	digested string     // the value of sent that has this digest
	form     form       // in which want is to be sent

	base   compress.Data // what was acknowledged last, while last is newer; "": not known
	delta  bool          // acked was sent as a delta
	whole  time.Time     // until when no delta is sent
	urgent bool          // more than feedback values has changed since acked

	notHeld   bool // last answers the deletion of a work that the agent does not hold
	resync    bool // the source asked for the status
	forgotten bool // while publishing: remove it afterwards

	state   state
	queue   *turns // that has element, while queued
	element *list.Element
	retry   *time.Timer // while backingOff
}

// heldStatus is a status in memory. It is encoded once the broker has acknowledged it.
type heldStatus struct {
	cluster wire.ClusterName
	meta    *metav1.ObjectMeta
	plain   *workv1.ManifestWorkStatus // nil if encoded
	encoded compress.Data
	trace   string
	final   bool
	times   wire.Times // in memory only
}

func hold(s Status) heldStatus {
	return heldStatus{cluster: s.Cluster, meta: s.Meta, plain: &s.Status, trace: s.Trace, final: s.Final}
}

// nextTimes returns the times to send with s. Before are those of the status before, which was about
// generation. What happened before the agent started is not known, and its source remembers it.
func nextTimes(before wire.Times, generation wire.Generation, s *Status, now time.Time) wire.Times {
	if s.Received.IsZero() || s.Final {
		return wire.Times{}
	}
	times := wire.Times{Received: metav1.NewMicroTime(s.Received)}
	if generation == s.Generation && before.Received.Equal(&times.Received) {
		times = before
	}
	at := metav1.NewMicroTime(now)
	conditions := s.Status.Conditions
	applied := meta.FindStatusCondition(conditions, workv1.WorkApplied)
	if times.Applied.IsZero() && applied != nil && applied.Status == metav1.ConditionTrue && applied.ObservedGeneration == int64(s.Generation) {
		times.Applied = at
	}
	ready := !times.Applied.IsZero() && meta.IsStatusConditionFalse(conditions, workv1.WorkProgressing) &&
		!meta.IsStatusConditionTrue(conditions, workv1.WorkDegraded)
	switch {
	case !ready:
		times.Ready = metav1.MicroTime{}
	case times.Ready.IsZero():
		times.Ready = at
	}
	return times
}

// encode encodes the status of w, which is not to be sent soon. A status that cannot be encoded
// stays as it is.
func (o *Outbox) encode(w *work) {
	if data, err := o.codec.Encode(w.last.plain); err == nil {
		w.last.plain, w.last.encoded = nil, data
	}
}

func (o *Outbox) decode(last *heldStatus, generation wire.Generation) Status {
	s := Status{Generation: generation, Cluster: last.cluster, Meta: last.meta, Trace: last.trace, Final: last.final}
	if last.plain != nil {
		s.Status = *last.plain
	} else {
		o.codec.Decode(last.encoded, &s.Status)
	}
	return s
}

// sentHash returns the hash that the source knows if it has received the newest status, or "" if
// that is not sent yet.
func (w *work) sentHash() string {
	if w.want != w.acked {
		return ""
	}
	return w.sent
}

// find returns the work, or nil. o.mu must be held, as for all functions below.
func (o *Outbox) find(key inbox.Key) *work {
	return o.works[key.Source][key.UID]
}

func (o *Outbox) add(key inbox.Key) *work {
	works := o.works[key.Source]
	if works == nil {
		works = map[types.UID]*work{}
		o.works[key.Source] = works
	}
	w := &work{key: key}
	works[key.UID] = w
	o.count++
	return w
}

// maxNotHeld is the maximum number of works of a source that the agent does not hold and that wait to be reported as
// deleted.
const maxNotHeld = 5_000

// setNotHeld sets and counts w.notHeld.
func (o *Outbox) setNotHeld(w *work, notHeld bool) {
	if w.notHeld == notHeld {
		return
	}
	w.notHeld = notHeld
	if notHeld {
		o.notHeld[w.key.Source]++
	} else if o.notHeld[w.key.Source]--; o.notHeld[w.key.Source] == 0 {
		delete(o.notHeld, w.key.Source)
	}
}

// remove forgets w. While w is publishing, it stays until that completes, so that a work never has
// two publishes in flight.
func (o *Outbox) remove(w *work) {
	o.deleteStored(w)
	o.setNotHeld(w, false)
	o.backoff.Forget(w)
	switch w.state {
	case publishing:
		*w = work{key: w.key, state: publishing, inFlight: w.inFlight, forgotten: true}
		return
	case queued:
		o.dequeue(w)
	case backingOff:
		o.endBackoff(w)
	}
	w.state = idle
	delete(o.works[w.key.Source], w.key.UID)
	if len(o.works[w.key.Source]) == 0 {
		delete(o.works, w.key.Source)
	}
	o.count--
}

func (o *Outbox) deleteStored(w *work) {
	o.config.Store.Delete(store.Statuses, w.key.StoreKey())
	o.config.Store.Delete(store.Acked, w.key.StoreKey())
}

// enqueue queues w if it is idle and has something to publish.
func (o *Outbox) enqueue(w *work) {
	if w.state != idle || (w.want == w.acked && !w.resync) {
		return
	}
	w.state, w.queue = queued, &o.queue
	if !w.urgent {
		w.queue = &o.feedback
	}
	w.queue.push(w)
	o.signal()
}

// hurry takes w out of the queue for feedback if it does not belong there any more.
func (o *Outbox) hurry(w *work) {
	if w.state == queued && w.urgent && w.queue == &o.feedback {
		o.dequeue(w)
	}
}

// dequeue makes a queued work idle.
func (o *Outbox) dequeue(w *work) {
	w.queue.remove(w)
	w.state, w.queue = idle, nil
}

// startBackoff queues w after d.
func (o *Outbox) startBackoff(w *work, d time.Duration) {
	w.state = backingOff
	o.delayed.Insert(w)
	w.retry = time.AfterFunc(d, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if w.state == backingOff {
			o.endBackoff(w)
			o.enqueue(w)
		}
	})
}

// endBackoff makes w idle.
func (o *Outbox) endBackoff(w *work) {
	w.retry.Stop()
	o.delayed.Delete(w)
	w.state = idle
}
