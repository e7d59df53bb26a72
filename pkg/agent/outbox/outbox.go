// Package outbox is where statuses leave the agent. It holds the newest status of
// each work and publishes it when it differs from what the broker took last:
// bursts coalesce, a work never has two statuses under way, no work waits for
// another, and nothing is given up that the broker has not taken.
//
//	out, err := outbox.New(outbox.Config{
//		Agent: clientID, Publisher: link, Topic: topics.Events, Done: done, Store: state})
//	err = out.Load(known)
//	go out.Run(ctx)
//	...
//	out.Set(key, outbox.Status{Generation: 2, Cluster: cluster, Meta: &entry.Meta, Status: status})
//
// The transport's handler tells it when there is a connection, and hands it the
// sources' resync requests:
//
//	Connected: func(context.Context, transport.Connection) { out.Connected() },
//	Lost:      func(error) { out.Lost() },
package outbox

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/compress"
	"github.com/workwire/workwire/pkg/agent/condition"
	"github.com/workwire/workwire/pkg/agent/inbox"
	"github.com/workwire/workwire/pkg/agent/store"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/statestore"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// Config is what an Outbox needs.
type Config struct {
	// Agent is the agent's client id, the `source` of its events. Required.
	Agent string
	// Publisher takes the events. Required.
	Publisher Publisher
	// Topic gives the topic for what is told to a source. Required.
	Topic func(wire.SourceID) (string, error)
	// Done is called once the broker has taken the final status of a work, with
	// its key: the agent may forget it. It is called on a goroutine of Run and
	// must return soon. The Outbox forgets the work after that, so that a work
	// which is held and was found to have no final status before has none. Required.
	Done func(inbox.Key)
	// Store keeps statuses over a restart; nil keeps them in memory only.
	Store *statestore.Store
	// InFlight is how many publishes may be under way at once, over all works.
	// Default 64.
	InFlight int
	// Flush is how long Run goes on publishing what is pending after its context
	// ends. Default 3s.
	Flush time.Duration
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Logger receives refused publishes. Default slog.Default().
	Logger *slog.Logger
}

// Publisher is the part of [transport.Transport] that an Outbox uses.
type Publisher interface {
	Publish(ctx context.Context, topic string, e cloudevents.Event) error
}

var _ Publisher = transport.Transport(nil)

// Status is the status of one work as it is to be reported.
type Status struct {
	// Generation of the spec that the status is about.
	Generation wire.Generation
	// Cluster that reports.
	Cluster wire.ClusterName
	// Meta is the work's metadata as the inbox holds it, which must not change any
	// more. Final statuses are sent without its finalizers.
	Meta *metav1.ObjectMeta
	// Status is shared: it must not change any more.
	Status workv1.ManifestWorkStatus
	// Trace is the `logtracing` extension of the work's spec.
	Trace string
	// Final marks the last status of a work, the one with condition Deleted.
	Final bool
}

// Stats counts what an Outbox did since it was made, and what it holds now.
type Stats struct {
	// Works is the number of works with a status.
	Works int
	// Pending is the number of works whose newest status the broker has not
	// taken, those in flight included.
	Pending int
	// InFlight is the number of publishes under way.
	InFlight int
	// Published counts statuses that the broker took, Answered those among them
	// that answer a resync request.
	Published, Answered uint64
	// Unchanged counts statuses that were set again without a difference.
	Unchanged uint64
	// Coalesced counts statuses that a later one replaced before they were sent.
	Coalesced uint64
	// Lost counts publishes that ended with the connection; they are repeated.
	Lost uint64
	// Refused counts publishes that failed for another reason; they are repeated.
	Refused uint64
	// Shrunk counts statuses that were cut down to fit the broker's packet size.
	Shrunk uint64
}

// Outbox holds and publishes statuses. All methods may be called from any
// goroutine; Set and Answer of one work by one goroutine at a time. None waits
// for the broker or the disk.
type Outbox struct {
	config   Config
	wake     chan struct{}
	sequence wire.Sequence // Load's, then Run's

	codec compress.Codec // of statuses

	mu        sync.Mutex
	works     map[wire.SourceID]map[types.UID]*work
	count     int
	queue     list.List // of *work: those to publish, oldest first
	resting   resting   // those to publish again at a later time
	inFlight  int
	connected bool
	epoch     uint64                     // counts connections
	refusing  map[wire.SourceID]struct{} // sources that something was refused for; logged once
	stats     Stats
}

// New makes an empty Outbox. It fails when c lacks something.
func New(c Config) (*Outbox, error) {
	if c.Agent == "" || c.Publisher == nil || c.Topic == nil || c.Done == nil {
		return nil, errors.New("outbox: Agent, Publisher, Topic and Done are required")
	}
	if c.InFlight < 0 || c.Flush < 0 {
		return nil, fmt.Errorf("outbox: InFlight %d and Flush %v must not be negative", c.InFlight, c.Flush)
	}
	if c.InFlight == 0 {
		c.InFlight = 64
	}
	if c.Flush == 0 {
		c.Flush = 3 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Outbox{
		config:   c,
		wake:     make(chan struct{}, 1),
		works:    map[wire.SourceID]map[types.UID]*work{},
		refusing: map[wire.SourceID]struct{}{},
	}, nil
}

// Set makes s the newest status of the work. It is published as soon as there is
// a connection and no other status of the work is under way, unless the broker
// took an equal one last. After a final status only another final one counts,
// until the broker has taken it.
func (o *Outbox) Set(key inbox.Key, s Status) {
	o.set(key, s, false)
}

// Answer reports a work that the agent does not hold as deleted: the answer to a
// deletion of such a work. in is that deletion.
func (o *Outbox) Answer(in *wire.Spec) {
	o.set(inbox.Key{Source: in.Source, UID: in.UID}, gone(in, o.config.Now()), true)
}

// gone is the whole status of a work that is not on the cluster
// (docs/protocol.md, Statuses).
func gone(in *wire.Spec, now time.Time) Status {
	meta := inbox.Meta(in)
	meta.DeletionTimestamp = in.DeletionTimestamp
	return Status{
		Generation: in.Generation,
		Cluster:    in.Cluster,
		Meta:       &meta,
		Status:     condition.WithDeleted(workv1.ManifestWorkStatus{}, string(in.Cluster), metav1.NewTime(now)),
		Trace:      in.Trace,
		Final:      true,
	}
}

func (o *Outbox) set(key inbox.Key, s Status, answer bool) {
	if s.Final && len(s.Meta.Finalizers) > 0 {
		meta := *s.Meta
		meta.Finalizers = nil
		s.Meta = &meta
	}
	hash, err := wire.StatusHash(&s.Status)
	if err != nil {
		o.config.Logger.Error("status can not be encoded and is not reported",
			"work", s.Meta.Name, "uid", key.UID, "source", key.Source, "error", err)
		return
	}
	want := version{Hash: hash, Generation: s.Generation, Final: s.Final}

	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.find(key)
	if w == nil {
		w = o.add(key)
	}
	if w.last.final && !w.answer && !s.Final && w.acked != w.want {
		return // the work is gone; this is from before
	}
	w.answer, w.dropped = answer, false
	if w.want == want {
		w.last.cluster, w.last.meta, w.last.trace = s.Cluster, s.Meta, s.Trace
		o.stats.Unchanged++
		return
	}
	w.last = keep(s)
	if w.state == queued || w.state == rested {
		o.stats.Coalesced++
	}
	if w.state == rested && w.form == conditionsOnly {
		o.rouse(w) // what was too large is gone
	}
	w.want, w.form = want, whole
	o.config.Store.Put(store.Statuses, key.StoreKey(), record(key, want, s, answer).encode)
	o.push(w)
}

// Last gives the status that was set last, or false when there is none. It is
// shared: read only.
func (o *Outbox) Last(key inbox.Key) (Status, bool) {
	o.mu.Lock()
	w := o.find(key)
	if w == nil || w.dropped {
		o.mu.Unlock()
		return Status{}, false
	}
	last, generation := w.last, w.want.Generation
	o.mu.Unlock()
	return o.unpack(&last, generation), true
}

// Final reports whether the status that was set last is the final one.
func (o *Outbox) Final(key inbox.Key) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.find(key)
	return w != nil && !w.dropped && w.last.final
}

// Forget drops the status of a work that is not reported on any more: another
// work has taken its name. Nothing of it is sent after what is under way.
func (o *Outbox) Forget(key inbox.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w := o.find(key); w != nil {
		o.remove(w)
	}
}

// Resync publishes what r asks for (docs/protocol.md, Status resync), as fast as
// everything else. It costs one step a listed work, or a work of the asking
// source when the list is empty.
func (o *Outbox) Resync(r *wire.StatusResync) {
	o.mu.Lock()
	defer o.mu.Unlock()
	shelf := o.works[r.Source]
	hash := func(uid types.UID) (string, bool) {
		w, ok := shelf[uid]
		if !ok || w.dropped {
			return "", false
		}
		return w.sentHash(), true
	}
	all := func(yield func(types.UID) bool) {
		for uid, w := range shelf {
			if !w.dropped && !yield(uid) {
				return
			}
		}
	}
	for _, uid := range r.Answer(hash, all) {
		w := shelf[uid]
		if w.state == flying && w.flight == w.want {
			continue // it is on its way
		}
		w.resync = true
		o.push(w)
	}
}

// Connected tells that there is a connection: all that is pending is published.
func (o *Outbox) Connected() {
	o.mu.Lock()
	o.connected = true
	o.epoch++
	clear(o.refusing)
	for len(o.resting) > 0 {
		o.push(o.wakeFirst())
	}
	o.mu.Unlock()
	o.poke()
}

// Lost tells that the connection is gone: nothing is published until the next
// Connected.
func (o *Outbox) Lost() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.connected = false
}

// Stats gives the figures. It costs O(1).
func (o *Outbox) Stats() Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.stats
	s.InFlight = o.inFlight
	s.Works, s.Pending = o.count, o.queue.Len()+len(o.resting)+o.inFlight
	return s
}

func (o *Outbox) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}
