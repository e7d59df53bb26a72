package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/store"
	"github.com/workwire/workwire/pkg/runtime/compress"
	"github.com/workwire/workwire/pkg/runtime/tracing"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// Bounds of the exponential backoff after a refused publish.
const (
	minBackoff = 500 * time.Millisecond
	maxBackoff = 5 * time.Minute
)

// attempt is one publish.
type attempt struct {
	work     *work // guarded by Outbox.mu
	key      inbox.Key
	last     heldStatus
	version  version
	form     form
	action   wire.Action
	sequence wire.SequenceID
	epoch    uint64
	session  string
	resync   bool
	change   *tracing.Change // that the status is part of; nil: none
	sent     string          // hash of the published form
	accepts  wire.Accepts    // of the source
	base     compress.Data   // to send the difference from; "": send the whole
	baseHash string          // of base
	delta    bool            // the difference was sent
	size     int             // of the event
	encoded  compress.Data   // of last.plain, once that is published; "" if it cannot be encoded
}

// Run publishes statuses until ctx ends, and then pending ones for Config.Flush or until the
// connection is lost. It returns nil when no publish is in flight. It must be called once. The
// transport must run until Run returns.
func (o *Outbox) Run(ctx context.Context) error {
	publishCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var attempts sync.WaitGroup
	defer attempts.Wait()
	defer cancel()

	ending := ctx.Done()
	var deadline <-chan time.Time
	for {
		a, idle := o.next()
		if a != nil {
			a.sequence = o.sequence.Next(o.config.Now())
			attempts.Go(func() { o.publish(publishCtx, a) })
			continue
		}
		if deadline != nil && idle {
			return nil
		}
		select {
		case <-o.wake:
		case <-ending:
			ending, deadline = nil, time.After(o.config.Flush)
		case <-deadline:
			o.config.Logger.Warn("agent ends before all statuses are sent", "count", o.Stats().Pending)
			return nil
		}
	}
}

// next returns the next publish to begin. If there is none, it returns whether nothing is in
// flight.
func (o *Outbox) next() (a *attempt, idle bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.connected {
		return nil, o.inFlight == 0
	}
	w := o.front()
	if w == nil {
		return nil, o.inFlight == 0
	}
	if o.inFlight >= o.config.InFlight {
		return nil, false
	}
	o.dequeue(w)
	w.state, w.inFlight = publishing, w.want
	a = &attempt{work: w, key: w.key, last: w.last, version: w.want, form: w.form, action: wire.Update, epoch: o.epoch, session: o.session, resync: w.resync}
	a.change = o.changes.Take(w.key)
	a.accepts = o.accepts[w.key.Source]
	if w.resync {
		a.action, w.resync = wire.ResyncResponse, false
	} else if a.accepts.StatusDeltas {
		a.base, a.baseHash = w.deltaBase(o.config.Now())
	}
	o.inFlight++
	return a, false
}

// front returns the next work to publish, nil if there is none that need not wait.
func (o *Outbox) front() *work {
	if first := o.queue.front(); first != nil {
		return first
	}
	first := o.feedback.front()
	if first == nil {
		return nil
	}
	wait := o.uplink.wait(o.config.Now())
	if wait == 0 {
		return first
	}
	if o.roomTimer == nil {
		o.roomTimer = time.AfterFunc(wait, func() {
			o.mu.Lock()
			o.roomTimer = nil
			o.mu.Unlock()
			o.signal()
		})
	}
	return nil
}

// publish makes the attempt and handles its result.
func (o *Outbox) publish(ctx context.Context, a *attempt) {
	err := o.send(ctx, a)
	if err == nil && a.last.plain != nil {
		a.encoded, _ = o.codec.Encode(a.last.plain) // else it stays as it is
	}
	if o.complete(a, err) {
		o.config.Done(a.key)
		o.removeReported(a)
	}
	o.signal()
}

// removeReported removes a work whose final status was acknowledged, unless it has been set again.
// Until then Last returns the final status, see Config.Done.
func (o *Outbox) removeReported(a *attempt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w := a.work; w.want == a.version && o.find(w.key) == w {
		o.remove(w)
	}
}

// send encodes and publishes the status of a.
func (o *Outbox) send(ctx context.Context, a *attempt) error {
	key := a.key
	topic, err := o.config.Topic(key.Source)
	if err != nil {
		return fmt.Errorf("determine the topic of source %q: %w", key.Source, err)
	}
	last := o.decode(&a.last, a.version.Generation)
	message := wire.Status{
		UID:        key.UID,
		Generation: last.Generation,
		Source:     key.Source,
		Cluster:    last.Cluster,
		Agent:      o.config.Agent,
		Action:     a.action,
		Meta:       *last.Meta,
		Sequence:   a.sequence,
		Session:    a.session,
		Hash:       a.version.Hash,
		Status:     last.Status,
		Trace:      last.Trace,
		Times:      a.last.times,
		Accepts:    wire.AcceptedByAgents,
	}
	if a.form != whole || oversized(&message.Meta) {
		message.Meta = minimalMeta(message.Meta)
	}
	if a.form != whole {
		message.Status = a.form.reduce(last.Status, o.config.Now())
		if message.Hash, err = wire.StatusHash(&message.Status); err != nil {
			return err
		}
	}
	a.sent = message.Hash
	e, err := o.encodeEvent(a, &message)
	if err != nil {
		return err
	}
	if a.accepts.Zstd {
		if err := wire.Compress(&e); err != nil {
			return err
		}
	}
	if err := o.config.Sign(&e); err != nil {
		return err
	}
	span := o.tracePublish(a, topic, &e)
	a.size = eventSize(&e)
	err = o.config.Publisher.Publish(ctx, topic, e)
	span.End(tracing.FailedIf(err))
	return err
}

// tracePublish begins the span of the publish of a, whose event continues it. It does nothing if a is
// not part of a change that is recorded.
func (o *Outbox) tracePublish(a *attempt, topic string, e *cloudevents.Event) tracing.Span {
	if a.change == nil {
		return tracing.Span{}
	}
	span := o.config.Tracer.Publish(a.change.Parent, a.change.Links,
		tracing.Message{Topic: topic, ID: e.ID(), Type: e.Type(), Client: o.config.Agent, Size: len(e.Data())},
		tracing.Work{
			Name: a.last.meta.Name, UID: string(a.key.UID), Source: string(a.key.Source), Cluster: string(a.last.cluster),
			Generation: int64(a.version.Generation),
		})
	traceparent, tracestate := span.Header()
	wire.SetTraceContext(e, traceparent, tracestate)
	return span
}

// complete handles the result of a, and reports whether it was the final status of a work that the
// agent holds.
func (o *Outbox) complete(a *attempt, err error) (done bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inFlight--
	w := a.work
	w.state, w.inFlight = idle, version{}
	if err == nil {
		o.stats.Bytes += uint64(a.size)
		o.uplink.spend(a.size, o.config.Now())
	}
	if w.forgotten {
		o.remove(w)
		return false
	}
	if err == nil {
		return o.acknowledged(a)
	}
	o.changes.Return(w.key, a.change)
	w.resync = w.resync || a.resync
	var tooLarge *transport.TooLargeError
	switch {
	case errors.Is(err, transport.ErrNotConnected):
		if a.epoch == o.epoch {
			o.connected = false
		}
	case errors.Is(err, context.Canceled): // Run ends
	case errors.As(err, &tooLarge) && w.want != a.version:
		o.stats.Coalesced++ // the newer status may fit
	case errors.As(err, &tooLarge) && a.form < conditionsOnly:
		o.stats.Shrunk++
		o.logger(w).Warn("status exceeds the packet size of the broker, reducing it", "size", tooLarge.Size, "limit", tooLarge.Limit)
		w.form = a.form + 1
	default:
		o.refused(w, err)
		return false
	}
	o.enqueue(w)
	return false
}

// refused retries w after a backoff. The first refusal of a source is logged as an error, later
// ones at debug level.
func (o *Outbox) refused(w *work, err error) {
	o.stats.Refused++
	backoff := o.backoff.When(w)
	level := slog.LevelDebug
	if _, logged := o.refusing[w.key.Source]; !logged {
		level = slog.LevelError
		o.refusing[w.key.Source] = struct{}{}
	}
	o.logger(w).Log(context.Background(), level, "publish status failed, retrying", "retryAfter", backoff, "error", err)
	o.startBackoff(w, backoff)
}

func (o *Outbox) logger(w *work) *slog.Logger {
	return o.config.Logger.With("work", w.last.meta.Name, "uid", w.key.UID, "source", w.key.Source)
}

// acknowledged handles the acknowledgement of a, and returns the result of complete.
func (o *Outbox) acknowledged(a *attempt) (done bool) {
	w := a.work
	o.stats.Published++
	if a.resync {
		o.stats.Answered++
	}
	o.backoff.Forget(w)
	delete(o.refusing, w.key.Source)
	if a.delta {
		o.stats.Deltas++
	}
	w.acked, w.sent, w.delta = a.version, a.sent, a.delta
	if w.want == w.acked {
		w.urgent = false
	}
	w.hold(a)
	if a.version.Final && w.want == a.version {
		held := !w.notHeld
		if !held {
			o.remove(w)
		}
		return held
	}
	o.config.Store.Put(store.Acked, w.key.StoreKey(), encoder(&storedAck{version: a.version, Sent: a.sent, Sequence: a.sequence}))
	o.enqueue(w)
	return false
}
