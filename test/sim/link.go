package sim

import (
	"context"
	"fmt"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/pkg/transport"
)

// liar decides what a broker that lies does with messages. It is safe for concurrent use.
type liar struct {
	random *random
	mu     sync.Mutex
	rate   int           // percent of messages
	most   time.Duration // by which one is late
	until  time.Time     // when the last one arrives
}

// fate is what becomes of a message that was acknowledged to its sender.
type fate int

const (
	delivered fate = iota
	lost
	late     // others overtake it
	repeated // delivered at once, and again late
)

// set has a percentage of messages have another fate than to be delivered, and be late by most at most.
func (l *liar) set(rate int, most time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rate, l.most = rate, most
}

// lateUntil returns in what time the last late message arrives; 0: there is none.
func (l *liar) lateUntil() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, time.Until(l.until))
}

// lies reports whether a message may have another fate than to be delivered.
func (l *liar) lies() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rate > 0
}

// fate is chosen by what a message is.
func (l *liar) fate(message string) (fate, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rate == 0 {
		return delivered, 0
	}
	random := l.random.of(message)
	if !random.chance(l.rate) {
		return delivered, 0
	}
	what, after := []fate{lost, late, repeated}[random.intN(3)], random.upTo(l.most)
	if arrives := time.Now().Add(after); what != lost && arrives.After(l.until) {
		l.until = arrives
	}
	return what, after
}

// link is the connection of a program to the broker. Its messages are noted, and those that it receives have a fate.
type link struct {
	transport.Transport
	trace *trace
	liar  *liar
	depot *depot
	id    string
	dead  func() bool // of the program
	// reading returns how long the program takes to read a message.
	reading func(message string) time.Duration
	// delay returns how long a message takes to the broker.
	delay func(message string) time.Duration
	// received is told of each message before the program gets it. Optional.
	received func(cloudevents.Event)
	// published is told of each message that the broker has acknowledged. Optional.
	published func(topic string, e cloudevents.Event)
	// delivered is told of each message, too, and what it returns of its acknowledgement. Optional.
	delivered func(cloudevents.Event) (acknowledged func())
	// online is told whether there is a connection.
	online func(bool)
}

// Publish publishes an event, unless the program is dead.
func (l *link) Publish(ctx context.Context, topic string, e cloudevents.Event) error {
	if l.dead() {
		return transport.ErrNotConnected
	}
	select {
	case <-time.After(l.delay(l.id + identity(e))):
	case <-ctx.Done():
		return ctx.Err()
	}
	if l.dead() {
		return transport.ErrNotConnected
	}
	err := l.Transport.Publish(ctx, topic, e)
	l.trace.message(l.id, "publishes", e, fmt.Sprintf(" to %s: %v", topic, err))
	if err == nil && l.published != nil {
		l.published(topic, e)
	}
	return err
}

// Run receives events.
func (l *link) Run(ctx context.Context, h transport.Handler) error {
	var one sync.Mutex // at a time
	received := h.Received
	receive := func(ctx context.Context, m transport.Message, how string) {
		one.Lock()
		defer one.Unlock()
		if ctx.Err() == nil && !l.dead() {
			l.trace.message(l.id, "receives", m.Event, " on "+m.Topic+how)
			if l.received != nil && how != astray {
				l.received(m.Event)
			}
			if l.delivered != nil {
				acknowledged, ack := l.delivered(m.Event), m.Ack
				m.Ack = func() {
					acknowledged()
					ack()
				}
			}
			received(ctx, m)
		}
	}
	running := ctx
	h.Received = func(ctx context.Context, m transport.Message) {
		if takes := l.reading(l.id + identity(m.Event)); takes > 0 {
			select {
			case <-time.After(takes):
			case <-ctx.Done():
				return
			}
		}
		what, after := l.liar.fate(l.id + identity(m.Event))
		again := m
		again.Event, again.Ack = m.Event.Clone(), func() {}
		switch what {
		case lost:
			l.trace.message("broker", "loses", m.Event, " to "+l.id)
			m.Ack()
			if deliver, found := l.depot.astray(l.id, m); found {
				deliver()
			}
			return
		case late:
			m.Ack()
			time.AfterFunc(after, func() { receive(ctx, again, ", late") })
			return
		case repeated:
			time.AfterFunc(after, func() { receive(ctx, again, ", again") })
		}
		if isWork(m.Event) {
			l.depot.keep(l.id, m)
		}
		receive(ctx, m, "")
	}
	connected := h.Connected
	h.Connected = func(ctx context.Context, c transport.Connection) {
		l.online(true)
		old := l.depot.connected(l.id, func(m transport.Message) { go receive(running, m, astray) })
		for _, m := range old {
			receive(running, m, ", retained")
		}
		if connected != nil {
			connected(ctx, c)
		}
	}
	lost := h.Lost
	h.Lost = func(reason error) {
		l.online(false)
		if lost != nil {
			lost(reason)
		}
	}
	return l.Transport.Run(ctx, h)
}

// astray is how a message was received that is for another program.
const astray = ", astray"

// describe names an event, and what orders it.
func describe(e cloudevents.Event) string {
	x := e.Extensions()
	return fmt.Sprintf("%s of %v version %v sequence %v", e.Type(), x["resourceid"], x["resourceversion"], x["sequenceid"])
}
