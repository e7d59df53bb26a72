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
	"github.com/workwire/workwire/pkg/runtime/compress"
	"github.com/workwire/workwire/pkg/runtime/tracing"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// attempt is one publish.
type attempt struct {
	work     *work // of the core
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

// Run publishes statuses until ctx ends, and then pending ones for three seconds or until the
// connection is lost. It returns nil when no publish is in flight. It must be called once. The
// transport must run until Run returns.
func (o *Outbox) Run(ctx context.Context) error {
	publishCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var attempts sync.WaitGroup
	defer attempts.Wait()
	defer cancel()

	ending := ctx.Done()
	var deadline <-chan time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		a, idle, again := o.next()
		if a != nil {
			a.sequence = o.sequence.Next(o.config.Now())
			attempts.Go(func() { o.publish(publishCtx, a) })
			continue
		}
		if deadline != nil && idle {
			return nil
		}
		timer.Stop()
		if !again.IsZero() {
			timer.Reset(again.Sub(o.config.Now()))
		}
		select {
		case <-o.wake:
		case <-timer.C:
		case <-ending:
			ending, deadline = nil, time.After(o.flush)
		case <-deadline:
			o.config.Logger.Warn("agent ends before all statuses are sent", "count", o.Stats().Pending)
			return nil
		}
	}
}

// next is the next of the core.
func (o *Outbox) next() (a *attempt, idle bool, again time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if a, idle, again = o.core.next(o.config.Now()); a != nil {
		a.change = o.changes.Take(a.key)
	}
	return a, idle, again
}

// publish makes the attempt and handles its result.
func (o *Outbox) publish(ctx context.Context, a *attempt) {
	err := o.send(ctx, a)
	if err == nil && a.last.plain != nil {
		a.encoded, _ = o.core.codec.Encode(a.last.plain) // else it stays as it is
	}
	var r result
	o.step(func(c *core) {
		r = c.complete(a, outcomeOf(err), o.config.Now())
		if r.again {
			o.changes.Return(a.key, a.change)
		}
	})
	o.logResult(a, r, err)
	if r.final {
		o.config.Done(a.key)
		o.removeReported(a)
	}
}

// outcomeOf returns how a publish has ended that returned err.
func outcomeOf(err error) outcome {
	var large *transport.TooLargeError
	switch {
	case err == nil:
		return acknowledged
	case errors.Is(err, transport.ErrNotConnected):
		return disconnected
	case errors.Is(err, context.Canceled):
		return canceled
	case errors.As(err, &large):
		return exceedsLimit
	}
	return refused
}

// logResult logs why a publish failed that is repeated. The first refusal of a source is logged as an error, later
// ones at debug level.
func (o *Outbox) logResult(a *attempt, r result, err error) {
	logger := o.config.Logger.With("work", a.last.meta.Name, "uid", a.key.UID, "source", a.key.Source)
	var large *transport.TooLargeError
	switch {
	case r.reduced && errors.As(err, &large):
		logger.Warn("status exceeds the packet size of the broker, reducing it", "size", large.Size, "limit", large.Limit)
	case r.backoff > 0:
		level := slog.LevelDebug
		if r.first {
			level = slog.LevelError
		}
		logger.Log(context.Background(), level, "publish status failed, retrying", "retryAfter", r.backoff, "error", err)
	}
}

// removeReported removes a work whose final status was acknowledged, unless it has been set again.
// Until then Last returns the final status, see Config.Done.
func (o *Outbox) removeReported(a *attempt) {
	o.step(func(c *core) {
		if w := a.work; w.want == a.version && c.find(w.key) == w {
			c.remove(w)
		}
	})
}

// send encodes and publishes the status of a.
func (o *Outbox) send(ctx context.Context, a *attempt) error {
	key := a.key
	topic, err := o.config.Topic(key.Source)
	if err != nil {
		return fmt.Errorf("determine the topic of source %q: %w", key.Source, err)
	}
	last := o.core.decode(&a.last, a.version.Generation)
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
		Accepts:    wire.Accepted,
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
