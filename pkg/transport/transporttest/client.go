package transporttest

import (
	"context"
	"fmt"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/test/kit"
)

// Prompt is the time within which Run must return after its context has ended. It includes a
// reserve for machines that are busy with other tests.
const Prompt = 10 * time.Second

// Client is a running transport together with what it has reported. It must be used from the
// goroutine of the test.
type Client struct {
	transport.Transport

	// Connected, Received and Lost receive the arguments of the calls of the handler.
	Connected chan transport.Connection
	Received  chan transport.Message
	Lost      chan error

	t      testing.TB
	cancel context.CancelFunc
	ended  chan error
}

// Start runs tr with filters until the end of the test.
func Start(t testing.TB, tr transport.Transport, filters ...string) *Client {
	t.Helper()
	return StartWith(t, tr, transport.Handler{Subscriptions: filters})
}

// StartWith runs tr with h, whose callbacks are called after the client's. A Received in h must
// acknowledge messages; without one, the test does.
func StartWith(t testing.TB, tr transport.Transport, h transport.Handler) *Client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &Client{
		Transport: tr, t: t, cancel: cancel, ended: make(chan error, 1),
		Connected: make(chan transport.Connection, 1000),
		Received:  make(chan transport.Message, 100_000),
		Lost:      make(chan error, 1000),
	}
	given := h
	h.Connected = func(ctx context.Context, info transport.Connection) {
		c.Connected <- info
		if given.Connected != nil {
			given.Connected(ctx, info)
		}
	}
	h.Received = func(ctx context.Context, m transport.Message) {
		c.Received <- m
		if given.Received != nil {
			given.Received(ctx, m)
		}
	}
	h.Lost = func(reason error) {
		c.Lost <- reason
		if given.Lost != nil {
			given.Lost(reason)
		}
	}
	go func() { c.ended <- tr.Run(ctx, h) }()
	t.Cleanup(c.Stop)
	return c
}

// Stop ends Run and waits for it. It fails the test if that takes longer than Prompt. Further calls
// do nothing.
func (c *Client) Stop() {
	c.t.Helper()
	c.cancel()
	stopping := time.Now()
	select {
	case err := <-c.ended:
		c.ended <- nil
		if err != nil {
			c.t.Errorf("Run returned %v", err)
		}
		if took := time.Since(stopping); took > Prompt {
			c.t.Errorf("Run took %s to return", took)
		}
	case <-time.After(kit.Patience):
		c.t.Fatalf("Run did not return within %s", kit.Patience)
	}
}

// WaitConnected waits for the next call of Connected.
func (c *Client) WaitConnected() transport.Connection {
	c.t.Helper()
	return kit.Receive(c.t, "Connected", c.Connected)
}

// WaitLost waits for the next call of Lost.
func (c *Client) WaitLost() error {
	c.t.Helper()
	return kit.Receive(c.t, "Lost", c.Lost)
}

// Next waits for the next message.
func (c *Client) Next() transport.Message {
	c.t.Helper()
	return kit.Receive(c.t, "a message", c.Received)
}

// MustPublish publishes events. It fails the test on an error.
func (c *Client) MustPublish(topic string, events ...cloudevents.Event) {
	c.t.Helper()
	for _, e := range events {
		ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
		err := c.Publish(ctx, topic, e)
		cancel()
		if err != nil {
			c.t.Fatalf("publish %s: %v", e.ID(), err)
		}
	}
}

// Expect waits for events with these ids, in this order, and acknowledges them.
func (c *Client) Expect(ids ...string) {
	c.t.Helper()
	for i, id := range ids {
		m := c.Next()
		if m.Err != nil || m.Event.ID() != id {
			c.t.Fatalf("message %d is %s (%v), want %s", i, m.Event.ID(), m.Err, id)
		}
		m.Ack()
	}
}

// Event returns an event with this id, and JSON data of this size.
func Event(id string, bytes int) cloudevents.Event {
	e := cloudevents.New()
	e.SetID(id)
	e.SetSource("hub1")
	e.SetType("io.open-cluster-management.works.v1alpha1.manifestbundles.spec.update_request")
	e.SetTime(time.Unix(1700000000, 123456789).UTC())
	e.SetExtension("resourceid", "689c1309-877c-5dc3-97e1-8115e43fd2cf")
	e.SetExtension("resourceversion", 7)
	e.SetExtension("clustername", "cluster1")
	e.SetExtension("originalsource", "")
	data := make([]byte, max(bytes, 2))
	for i := range data {
		data[i] = 'x'
	}
	data[0], data[len(data)-1] = '"', '"'
	if err := e.SetData(cloudevents.ApplicationJSON, data); err != nil {
		panic(err) // bytes are always accepted
	}
	e.DataBase64 = false // it is text
	return e
}

// events returns n events with ids prefix0, prefix1 and so on.
func events(prefix string, n int) (ids []string, made []cloudevents.Event) {
	for i := range n {
		id := fmt.Sprintf("%s%d", prefix, i)
		ids, made = append(ids, id), append(made, Event(id, 64))
	}
	return ids, made
}
