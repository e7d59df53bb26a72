// Package events is the load: a lean source that publishes specs and awaits statuses, and simulated
// agents that do the reverse. Neither keeps more than it needs to answer resyncs: what the SDK or a
// real agent would cost must not compete with what is measured.
package events

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"golang.org/x/sync/errgroup"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
)

// Parallel is how many publishes of one client may be unconfirmed.
const Parallel = 64

// client is a connection to the broker.
type client struct {
	link  transport.Transport
	up    chan struct{} // closed after the first connect
	stop  context.CancelFunc
	ended chan error
}

// connect connects and returns once the subscriptions are granted.
func connect(ctx context.Context, broker config.Config, id string, subscriptions []string, received func(transport.Message)) (*client, error) {
	link, err := mqtt.New(mqtt.Config{Broker: broker, ClientID: id, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	c := &client{link: link, up: make(chan struct{}), stop: stop, ended: make(chan error, 1)}
	once := sync.OnceFunc(func() { close(c.up) })
	go func() {
		c.ended <- link.Run(running, transport.Handler{
			Subscriptions: subscriptions,
			Connected:     func(context.Context, transport.Connection) { once() },
			Received: func(_ context.Context, m transport.Message) {
				received(m)
				m.Ack()
			},
		})
	}()
	select {
	case <-c.up:
		return c, nil
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), c.close())
	}
}

func (c *client) close() error {
	c.stop()
	return <-c.ended
}

// packet is an event to be published.
type packet struct {
	topic string
	event cloudevents.Event
}

// publish publishes all packets, Parallel at a time.
func publish(ctx context.Context, link transport.Transport, packets []packet) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(Parallel)
	for _, p := range packets {
		group.Go(func() error { return deliver(ctx, link, p) })
	}
	return group.Wait()
}

// deliver publishes p, again and again while there is no connection.
func deliver(ctx context.Context, link transport.Transport, p packet) error {
	for {
		err := link.Publish(ctx, p.topic, p.event)
		if err == nil || ctx.Err() != nil || !errors.Is(err, transport.ErrNotConnected) {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func encode(topic string, message wire.Message) (packet, error) {
	event, err := wire.Encode(message, time.Now())
	spec, whole := message.(*wire.Spec)
	if _, delta := message.(*wire.SpecDelta); err == nil && (delta || whole && spec.Accepts.Zstd) {
		err = wire.Compress(&event) // as a source does whose agent reads that
	}
	return packet{topic: topic, event: event}, err
}
