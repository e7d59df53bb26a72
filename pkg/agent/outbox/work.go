package outbox

import (
	"container/heap"
	"container/list"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/compress"
	"github.com/workwire/workwire/pkg/agent/inbox"
	"github.com/workwire/workwire/pkg/agent/store"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// version identifies a status of one work: two of the same version need not both
// be sent. The zero version is none.
type version struct {
	// Hash is [wire.StatusHash] of the whole status.
	Hash       string          `json:"hash"`
	Generation wire.Generation `json:"generation,omitempty"`
	Final      bool            `json:"final,omitempty"`
}

// state says where a work stands:
//
//	idle   → queued   something is to be sent
//	queued → flying   a publish has begun
//	flying → idle     the broker has taken it, and nothing newer is there
//	flying → queued   something newer is there, or the connection was lost
//	flying → rested   the broker refused it
//	rested → queued   its time has come, or a new connection has
type state int

const (
	idle state = iota
	queued
	flying
	rested
)

// work is what an Outbox knows of one work. Outbox.mu guards it.
type work struct {
	key    inbox.Key
	last   kept    // newest
	want   version // of last
	flight version // under way, while flying
	acked  version // the broker took it last
	sent   string  // hash of the form in which acked was sent
	form   form    // in which want is to be sent

	answer  bool // last is the answer for a work that the agent does not hold
	resync  bool // the source asks for it
	dropped bool // forgotten while flying

	state    state
	element  *list.Element // in queue, while queued
	index    int           // in resting, while rested
	due      time.Time     // while rested
	failures int           // refusals in a row
}

// kept is a status as it is held: packed once the broker has taken it.
type kept struct {
	cluster wire.ClusterName
	meta    *metav1.ObjectMeta
	fresh   *workv1.ManifestWorkStatus // nil once packed
	packed  compress.Data
	trace   string
	final   bool
}

func keep(s Status) kept {
	return kept{cluster: s.Cluster, meta: s.Meta, fresh: &s.Status, trace: s.Trace, final: s.Final}
}

// pack packs what is not to be sent soon; what can not be packed stays as it is.
func (o *Outbox) pack(w *work) {
	if data, err := o.codec.Encode(w.last.fresh); err == nil {
		w.last.fresh, w.last.packed = nil, data
	}
}

func (o *Outbox) unpack(last *kept, generation wire.Generation) Status {
	s := Status{Generation: generation, Cluster: last.cluster, Meta: last.meta, Trace: last.trace, Final: last.final}
	if last.fresh != nil {
		s.Status = *last.fresh
	} else {
		o.codec.Decode(last.packed, &s.Status)
	}
	return s
}

// sentHash is the hash that the source knows when it has what was sent last,
// empty when the newest is yet to be sent.
func (w *work) sentHash() string {
	if w.want != w.acked {
		return ""
	}
	return w.sent
}

// find gives the work or nil. o.mu must be held, as for all below.
func (o *Outbox) find(key inbox.Key) *work {
	return o.works[key.Source][key.UID]
}

func (o *Outbox) add(key inbox.Key) *work {
	shelf := o.works[key.Source]
	if shelf == nil {
		shelf = map[types.UID]*work{}
		o.works[key.Source] = shelf
	}
	w := &work{key: key}
	shelf[key.UID] = w
	o.count++
	return w
}

// remove forgets w; at once, or when it has landed, so that a work of that key
// never flies twice.
func (o *Outbox) remove(w *work) {
	switch w.state {
	case flying:
		*w = work{key: w.key, state: flying, flight: w.flight, dropped: true}
		o.erase(w)
		return
	case queued:
		o.queue.Remove(w.element)
	case rested:
		heap.Remove(&o.resting, w.index)
	}
	delete(o.works[w.key.Source], w.key.UID)
	if len(o.works[w.key.Source]) == 0 {
		delete(o.works, w.key.Source)
	}
	o.count--
	w.state = idle
	o.erase(w)
}

// erase removes w's records.
func (o *Outbox) erase(w *work) {
	o.config.Store.Delete(store.Statuses, w.key.StoreKey())
	o.config.Store.Delete(store.Acked, w.key.StoreKey())
}

// push queues w when it stands idle and something of it is to be sent.
func (o *Outbox) push(w *work) {
	if w.state != idle || (w.want == w.acked && !w.resync) {
		return
	}
	w.state = queued
	w.element = o.queue.PushBack(w)
	o.poke()
}

// rest puts w aside until due.
func (o *Outbox) rest(w *work, due time.Time) {
	w.state, w.due = rested, due
	heap.Push(&o.resting, w)
}

// rouse takes w out of resting.
func (o *Outbox) rouse(w *work) {
	heap.Remove(&o.resting, w.index)
	w.state = idle
}

// wakeFirst takes the work that is due first out of resting.
func (o *Outbox) wakeFirst() *work {
	w := o.resting[0]
	o.rouse(w)
	return w
}

// resting is a heap of works by due time.
type resting []*work

func (r resting) Len() int           { return len(r) }
func (r resting) Less(i, j int) bool { return r[i].due.Before(r[j].due) }
func (r resting) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].index, r[j].index = i, j
}

// Push is for package heap.
func (r *resting) Push(x any) {
	w := x.(*work)
	w.index = len(*r)
	*r = append(*r, w)
}

// Pop is for package heap.
func (r *resting) Pop() any {
	last := len(*r) - 1
	w := (*r)[last]
	(*r)[last] = nil
	*r = (*r)[:last]
	return w
}
