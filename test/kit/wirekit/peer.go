package wirekit

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// Peer is a connection on which a test sends and receives messages itself, as a source, an agent or
// an observer. [Next] returns what it received. Its methods may be called from any goroutine.
type Peer struct {
	// Stop ends the connection. The end of the test does as well.
	Stop func()

	transport transport.Transport
	received  journal
}

// Connect runs a transport with these subscriptions until the end of the test, and returns when it
// is connected. A message that cannot be decoded fails the test.
func Connect(t testing.TB, tr transport.Transport, subscriptions ...string) *Peer {
	t.Helper()
	p := &Peer{transport: tr}
	connected := make(chan struct{})
	connect := sync.OnceFunc(func() { close(connected) })
	p.Stop = kit.Run(t, "peer", func(ctx context.Context) error {
		return tr.Run(ctx, transport.Handler{
			Subscriptions: subscriptions,
			Connected:     func(context.Context, transport.Connection) { connect() },
			Received: func(_ context.Context, m transport.Message) {
				defer m.Ack()
				message, err := wire.Decode(m.Event)
				if err != nil {
					t.Errorf("received what cannot be decoded: %v", err)
					return
				}
				p.received.add(message)
			},
		})
	})
	kit.Receive(t, "the peer connects", connected)
	return p
}

// Publish encodes a message and publishes it. change, which may be nil, changes the event before.
func (p *Peer) Publish(t testing.TB, topic string, message wire.Message, change func(*cloudevents.Event)) {
	t.Helper()
	event, err := wire.Encode(message, time.Now())
	if err != nil {
		t.Fatalf("encode %T: %v", message, err)
	}
	if change != nil {
		change(&event)
	}
	if err := p.transport.Publish(t.Context(), topic, event); err != nil {
		t.Fatalf("publish %T: %v", message, err)
	}
}

// Received returns all messages, oldest first.
func (p *Peer) Received() []wire.Message { return p.received.all() }

// Next returns the next message of type M for which want returns true. It skips those of this type
// that came before, so the next call begins after it. It fails the test, with the last message of
// the type, when none comes within [kit.Patience].
//
//	status := wirekit.Next(t, source, "applied", func(s *wire.Status) bool { return s.Generation == 3 })
func Next[M wire.Message](t testing.TB, p *Peer, what string, want func(M) bool) M {
	t.Helper()
	return next(t, &p.received, what, want)
}

// journal keeps messages, and a position for each type of message.
type journal struct {
	mu       sync.Mutex
	messages []wire.Message
	position map[string]int
	changed  chan struct{} // closed and replaced by add
}

func (j *journal) add(m wire.Message) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.messages = append(j.messages, m)
	if j.changed != nil {
		close(j.changed)
	}
	j.changed = nil
}

func (j *journal) all() []wire.Message {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]wire.Message(nil), j.messages...)
}

// since returns the messages after the position of a type, and a channel that is closed when there
// are more.
func (j *journal) since(kind string) (messages []wire.Message, position int, changed <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.changed == nil {
		j.changed = make(chan struct{})
	}
	return j.messages[j.position[kind]:], j.position[kind], j.changed
}

func (j *journal) seek(kind string, position int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.position == nil {
		j.position = map[string]int{}
	}
	j.position[kind] = position
}

func next[M wire.Message](t testing.TB, j *journal, what string, want func(M) bool) M {
	t.Helper()
	var last M
	kind := fmt.Sprintf("%T", last)
	for deadline := time.After(kit.Patience); ; {
		messages, position, changed := j.since(kind)
		for i, message := range messages {
			if m, ok := message.(M); ok {
				if last = m; want(m) {
					j.seek(kind, position+i+1)
					return m
				}
			}
		}
		j.seek(kind, position+len(messages))
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("%s: not within %v; the last %s is %+v", what, kit.Patience, kind, last)
		}
	}
}
