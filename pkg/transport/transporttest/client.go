package transporttest

import (
	"context"
	"fmt"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/pkg/transport"
)

// patience bounds every wait; it only passes when something is broken.
const patience = 30 * time.Second

// Prompt is within what Run must return when its context ends: a second, and as
// much again for a machine that is busy with other tests.
const Prompt = 2 * time.Second

// Client is a transport that runs, and what it reported. Use it from the test's
// own goroutine.
type Client struct {
	transport.Transport

	// Connected, Received and Lost get what the handler was called with.
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

// StartWith runs tr with h, whose functions are called after the client has
// taken note. A Received in h must acknowledge; without one, the test does.
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

// Stop ends Run, waits for it, and fails the test when that is not prompt.
// Stopping it again does nothing.
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
	case <-time.After(patience):
		c.t.Fatalf("Run did not return within %s", patience)
	}
}

// WaitConnected waits for the next call of Connected.
func (c *Client) WaitConnected() transport.Connection {
	c.t.Helper()
	return Wait(c.t, c.Connected, "Connected")
}

// WaitLost waits for the next call of Lost.
func (c *Client) WaitLost() error {
	c.t.Helper()
	return Wait(c.t, c.Lost, "Lost")
}

// Next waits for the next message.
func (c *Client) Next() transport.Message {
	c.t.Helper()
	return Wait(c.t, c.Received, "a message")
}

// MustPublish publishes and fails the test when that fails.
func (c *Client) MustPublish(topic string, events ...cloudevents.Event) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, e := range events {
		if err := c.Publish(ctx, topic, e); err != nil {
			c.t.Fatalf("publish %s: %v", e.ID(), err)
		}
	}
}

// Expect waits for the events of these ids, in this order, and acknowledges
// them.
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

// Wait receives from ch and fails the test when nothing comes.
func Wait[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case value := <-ch:
		return value
	case <-time.After(patience):
		t.Fatalf("%s did not come within %s", what, patience)
		panic("unreachable")
	}
}

// Event makes an event with id and data of so many bytes, JSON all the same.
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
		panic(err) // bytes are always taken
	}
	e.DataBase64 = false // it is text
	return e
}

// events makes n events with ids prefix0, prefix1 and so on.
func events(prefix string, n int) (ids []string, made []cloudevents.Event) {
	for i := range n {
		id := fmt.Sprintf("%s%d", prefix, i)
		ids, made = append(ids, id), append(made, Event(id, 64))
	}
	return ids, made
}
