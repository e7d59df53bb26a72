package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/pkg/transport"
)

// Transport is a client of a [Broker], see [Broker.Client].
type Transport struct {
	broker *Broker
	id     string

	started atomic.Bool
	current atomic.Pointer[connection] // between Connected and Lost, else nil
	limit   atomic.Int64
}

var _ transport.Transport = (*Transport)(nil)

var errStopping = errors.New("the transport is stopping")

// Limit returns the broker's limit; see [transport.Transport].
func (t *Transport) Limit() int { return int(t.limit.Load()) }

// Publish publishes e; see [transport.Transport].
func (t *Transport) Publish(ctx context.Context, topic string, e cloudevents.Event) error {
	_, err := t.PublishReporting(ctx, topic, e)
	return err
}

// PublishReporting is Publish, and reports whether no client subscribes to topic; see
// [transport.SubscriberReporter].
func (t *Transport) PublishReporting(ctx context.Context, topic string, e cloudevents.Event) (nobody bool, err error) {
	if nobody, err = t.publish(ctx, topic, e); err != nil {
		return false, fmt.Errorf("publish to %s: %w", topic, err)
	}
	return nobody, nil
}

func (t *Transport) publish(ctx context.Context, topic string, e cloudevents.Event) (nobody bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if err := e.Validate(); err != nil {
		return false, fmt.Errorf("invalid CloudEvent: %w", err)
	}
	c := t.current.Load()
	if c == nil {
		return false, transport.ErrNotConnected
	}
	if n := eventSize(topic, e); c.limit > 0 && n > c.limit {
		return false, &transport.TooLargeError{Size: n, Limit: c.limit}
	}
	nobody, err = t.broker.publish(t.id, c, topic, e)
	if !errors.Is(err, errUnanswered) {
		return nobody, err
	}
	select {
	case <-c.lost:
		return false, transport.ErrNotConnected
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// Run connects whenever the broker allows it, until ctx ends; see [transport.Transport].
func (t *Transport) Run(ctx context.Context, h transport.Handler) error {
	if h.Received == nil {
		return errors.New("memory transport: Handler.Received is required")
	}
	if !t.started.CompareAndSwap(false, true) {
		return errors.New("memory transport: Run must be called once: create another transport with Client")
	}
	yield := false // after a takeover, so that two clients do not take over each other's session forever
	for ctx.Err() == nil {
		var will *message
		if h.Will != nil {
			will = &message{}
			will.topic, will.event = h.Will()
		}
		c, resumed, changed := t.broker.connect(t.id, h.Subscriptions, will, yield)
		if c == nil {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		t.serve(ctx, h, c, resumed)
		yield = errors.Is(c.reason, errTakenOver)
	}
	return nil
}

// serve delivers messages until c is lost or ctx ends.
func (t *Transport) serve(ctx context.Context, h transport.Handler, c *connection, resumed bool) {
	connCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group, connected sync.WaitGroup
	t.limit.Store(int64(c.limit))
	t.current.Store(c)
	if h.Connected != nil {
		connected.Go(func() { h.Connected(connCtx, transport.Connection{Resumed: resumed, Limit: c.limit}) })
	}
	group.Go(func() { t.deliver(ctx, h, c) })
	select {
	case <-c.lost:
	case <-ctx.Done():
		t.broker.disconnect(t.id, c)
		<-c.lost
	}
	t.current.Store(nil)
	cancel()
	connected.Wait() // it may not even have begun
	if h.Lost != nil {
		h.Lost(c.reason)
	}
	group.Wait()
}

func (t *Transport) deliver(ctx context.Context, h transport.Handler, c *connection) {
	acked := make(map[*message]bool) // acknowledged out of order; guarded by broker.mu
	for {
		m, changed := t.broker.next(t.id, c)
		if m == nil {
			select {
			case <-changed:
				continue
			case <-c.lost:
				return
			}
		}
		h.Received(ctx, transport.Message{Topic: m.topic, Event: m.event.Clone(), Ack: func() { t.broker.ack(t.id, c, m, acked) }})
	}
}
