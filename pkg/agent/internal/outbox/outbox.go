// Package outbox publishes the statuses of works. It holds the newest status of each work and
// publishes it if it differs from the status that the broker acknowledged last. Bursts coalesce, a
// work never has two publishes in flight, works do not wait for each other, and a status is kept
// until the broker has acknowledged it or a newer one.
//
//	out, err := outbox.New(outbox.Config{
//		Agent: clientID, Publisher: transport, Topic: topics.Events, Done: done, Store: state})
//	err = out.Load(known)
//	go out.Run(ctx)
//	...
//	out.Set(key, outbox.Status{Generation: 2, Cluster: cluster, Meta: &entry.Meta, Status: status})
//
// core.go decides what is published when, and uplink.go says what may wait for the uplink.
//
// The handler of the transport reports the state of the connection with Connected and Lost, and
// passes on the resync requests of the sources with Resync.
package outbox

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/required"
	"github.com/workwire/workwire/pkg/runtime/statestore"
	"github.com/workwire/workwire/pkg/runtime/tracing"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

const (
	// inFlight is the maximum number of concurrent publishes, over all works.
	inFlight = 64
	// flush is how long Run continues to publish pending statuses after its context ended.
	flush = 3 * time.Second
)

// Config configures [New].
type Config struct {
	// Agent is the agent's client id, the `source` of its events. Required.
	Agent string
	// Publisher publishes the events. Required.
	Publisher Publisher
	// Topic returns the topic of events for a source. Required.
	Topic func(wire.SourceID) (string, error)
	// Sign signs each status, as [signing.Signer.SignStatus] does. Default: none is signed.
	Sign func(*cloudevents.Event) error
	// Done is called with the key of a work once the broker has acknowledged its final status. The
	// agent can then forget the work; the Outbox forgets it after Done returned, so a work that the
	// agent holds and that has no final status here was never reported as final. Done is called on
	// a goroutine of Run and must return soon. Required.
	Done func(inbox.Key)
	// Store keeps statuses across restarts; nil keeps them in memory only.
	Store *statestore.Store
	// Tracer makes the spans of publishes; nil makes none.
	Tracer *tracing.Tracer
	// MaxUplink is how many bytes of statuses to send in a minute, on average: while it is exceeded,
	// statuses in which only feedback values have changed wait, and the newest of each work is sent.
	// Others are sent at once, and count. 0: no limit.
	MaxUplink int
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Logger; default slog.Default().
	Logger *slog.Logger
}

// setDefaults applies defaults.
func (c *Config) setDefaults() {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Sign == nil {
		c.Sign = func(*cloudevents.Event) error { return nil }
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
}

// Publisher is the part of [transport.Transport] that an Outbox uses.
type Publisher interface {
	Publish(ctx context.Context, topic string, e cloudevents.Event) error
}

var _ Publisher = transport.Transport(nil)

// Status is the status of a work.
type Status struct {
	// Generation of the spec that the status is about.
	Generation wire.Generation
	// Cluster that reports.
	Cluster wire.ClusterName
	// Meta is the work's metadata as the inbox holds it. It must not change any more. Final
	// statuses are sent without its finalizers.
	Meta *metav1.ObjectMeta
	// Status is shared and must not change any more.
	Status workv1.ManifestWorkStatus
	// Trace is the `logtracing` extension of the work's spec.
	Trace string
	// Received is when the spec arrived; zero if that is not known. It begins the times that are sent
	// with statuses of Generation.
	Received time.Time
	// Cause is the span that set the status; it may be invalid.
	Cause trace.SpanContext
	// Final marks the last status of a work, the one with condition Deleted.
	Final bool
}

// Stats counts what an Outbox has done and describes what it holds now.
type Stats struct {
	// Pending is the number of works whose newest status the broker has not acknowledged, including
	// those in flight.
	Pending int
	// Published counts statuses that the broker acknowledged.
	Published uint64
	// Coalesced counts statuses that were replaced before they were published.
	Coalesced uint64
	// Refused counts publishes that failed for another reason. They are retried.
	Refused uint64
	// Shrunk counts statuses that were reduced to fit the broker's packet size.
	Shrunk uint64
	// Deltas counts those of Published that were sent as the difference from the status before.
	Deltas uint64
	// Bytes is the size of what was published: data and extensions of the events.
	Bytes uint64
	// Dropped counts the deletions of works that the agent does not hold and that were not answered, because
	// too many answers to their source waited.
	Dropped uint64
	// Waiting is the number of works whose feedback values wait because of MaxUplink. They are pending.
	Waiting int
}

// Outbox holds and publishes statuses. All methods are safe for concurrent use, except that Set and
// ReportDeleted for one work must be called by one goroutine at a time. None of them waits for the
// broker or the disk.
type Outbox struct {
	config   Config
	flush    time.Duration
	wake     chan struct{}
	sequence wire.Sequence // used by Load, then by Run

	mu   sync.Mutex // guards core
	core core

	changes *tracing.Changes[inbox.Key] // statuses to publish that continue a trace
}

// New returns an empty Outbox. It reports every fault of c.
func New(c Config) (*Outbox, error) {
	if err := required.Fields(c, "Agent", "Publisher", "Topic", "Done"); err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	c.setDefaults()
	return &Outbox{
		config:  c,
		flush:   flush,
		wake:    make(chan struct{}, 1),
		core:    newCore(c.MaxUplink, inFlight),
		changes: tracing.NewChanges[inbox.Key](c.Tracer),
	}, nil
}

// step calls do with the core, and carries out what it decides.
func (o *Outbox) step(do func(c *core)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	do(&o.core)
	for _, w := range o.core.writes {
		if w.value == nil {
			o.config.Store.Delete(w.bucket, w.key.StoreKey())
		} else {
			o.config.Store.Put(w.bucket, w.key.StoreKey(), encoder(w.value))
		}
	}
	clear(o.core.writes)
	o.core.writes = o.core.writes[:0]
	if !o.core.ready {
		return
	}
	o.core.ready = false
	select {
	case o.wake <- struct{}{}:
	default: // Run has yet to look
	}
}

// Set makes s the newest status of the work. It is published as soon as there is a connection and
// no other status of the work is in flight, unless the broker acknowledged an equal status last.
// After a final status, only another final one has an effect until the broker has acknowledged it.
func (o *Outbox) Set(key inbox.Key, s Status) {
	o.set(key, s, false)
}

// ReportDeleted reports a work that the agent does not hold as deleted. It answers in, the deletion
// of such a work.
func (o *Outbox) ReportDeleted(in *wire.Spec) {
	meta := inbox.Meta(in)
	meta.DeletionTimestamp = in.DeletionTimestamp
	now := metav1.NewTime(o.config.Now())
	o.set(inbox.Key{Source: in.Source, UID: in.UID}, Status{
		Generation: in.Generation,
		Cluster:    in.Cluster,
		Meta:       &meta,
		Status:     condition.WithDeleted(workv1.ManifestWorkStatus{}, string(in.Cluster), now),
		Trace:      in.Trace,
		Final:      true,
	}, true)
}

// set implements Set and ReportDeleted; notHeld distinguishes them.
func (o *Outbox) set(key inbox.Key, s Status, notHeld bool) {
	if s.Final && len(s.Meta.Finalizers) > 0 {
		meta := *s.Meta
		meta.Finalizers = nil
		s.Meta = &meta
	}
	hash, err := wire.StatusHash(&s.Status)
	if err != nil {
		o.config.Logger.Error("encode status failed, not reporting it",
			"work", s.Meta.Name, "uid", key.UID, "source", key.Source, "error", err)
		return
	}
	want := version{Hash: hash, Generation: s.Generation, Final: s.Final}

	o.step(func(c *core) {
		changed, dropped := c.set(key, s, want, notHeld, o.config.Now())
		if changed {
			o.changes.Add(key, int64(s.Generation), s.Cause)
		}
		if dropped && c.stats.Dropped == 1 {
			o.config.Logger.Warn("deletions of works that the agent does not hold are not answered, too many answers wait: their source repeats them",
				"source", key.Source, "limit", maxNotHeld)
		}
	})
}

// Last returns the status that was set last, and whether there is one. It is shared: do not modify
// it.
func (o *Outbox) Last(key inbox.Key) (Status, bool) {
	o.mu.Lock()
	w := o.core.held(key)
	if w == nil {
		o.mu.Unlock()
		return Status{}, false
	}
	last, generation := w.last, w.want.Generation
	o.mu.Unlock()
	return o.core.decode(&last, generation), true
}

// Final reports whether the status that was set last is final.
func (o *Outbox) Final(key inbox.Key) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.core.held(key)
	return w != nil && w.last.final
}

// Forget deletes the status of a work that is no longer reported, because another work has taken
// its name. A publish in flight is the last one.
func (o *Outbox) Forget(key inbox.Key) {
	o.step(func(c *core) {
		if w := c.find(key); w != nil {
			c.remove(w)
		}
	})
}

// Resync publishes the statuses that r asks for (docs/protocol.md, Status resync). Its cost is
// linear in the works that r lists, or in the works of the source if the list is empty.
func (o *Outbox) Resync(r *wire.StatusResync) {
	o.step(func(c *core) { c.resync(r, o.config.Now()) })
}

// Accepts tells what source can read, as its last event on this connection says.
func (o *Outbox) Accepts(source wire.SourceID, accepts wire.Accepts) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.core.accepts[source] = accepts
}

// AddDigests adds the digest of the status that the broker acknowledged last to each of works, which
// are works of source. Its cost is linear in works.
func (o *Outbox) AddDigests(source wire.SourceID, works []wire.WorkDigest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.core.addDigests(source, works)
}

// Connected reports that the transport is connected. All pending statuses are published, in this
// session (docs/protocol.md, Sequence ids).
func (o *Outbox) Connected(session string) { o.step(func(c *core) { c.connect(session) }) }

// Lost reports that the transport lost its connection. Nothing is published until the next
// Connected.
func (o *Outbox) Lost() { o.step(func(c *core) { c.connected = false }) }

// Stats returns the current figures. It costs O(1).
func (o *Outbox) Stats() Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.core.figures()
}
