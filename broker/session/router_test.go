package session_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/broker/session"
	"github.com/workwire/workwire/test/kit"
)

// bench is a router without a store, with a clock that the test sets.
type bench struct {
	*session.Router
	now time.Time
}

func newBench(t *testing.T, change func(*session.Config)) *bench {
	t.Helper()
	b := &bench{now: time.Unix(1_000_000, 0)}
	cfg := session.Config{Limits: session.Limits{MaxQueuedMessages: 100, MaxQueuedBytes: 100_000}, ReceiveMaximum: 10, Logger: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return b.now }}
	if change != nil {
		change(&cfg)
	}
	var err error
	b.Router, err = session.New(cfg)
	kit.NoError(t, err)
	return b
}

func (b *bench) advance(d time.Duration) {
	b.now = b.now.Add(d)
	b.Tick()
}

func (b *bench) conn(id string, expiry uint32) *session.Conn {
	l, _ := b.Connect(session.Connect{ID: id, Owner: "owner", Expiry: expiry})
	return l
}

func subscribe(t *testing.T, l *session.Conn, filters ...string) {
	t.Helper()
	for _, f := range filters {
		if err := l.Subscribe(session.Subscription{Filter: f, QoS: 1}); err != nil {
			t.Fatalf("subscribe to %s: %v", f, err)
		}
	}
}

func publish(t *testing.T, l *session.Conn, topic, payload string, change func(*session.Message)) {
	t.Helper()
	m := &session.Message{Topic: topic, Payload: []byte(payload), QoS: 1}
	if change != nil {
		change(m)
	}
	if err := l.Publish(m, 1); err != nil {
		t.Fatalf("publish to %s: %v", topic, err)
	}
}

// drain returns all packets of the connection as text, one word per packet.
func drain(t *testing.T, l *session.Conn) string {
	t.Helper()
	var out []string
	for {
		o, ok, err := l.Next()
		kit.NoError(t, err)
		if !ok {
			return strings.Join(out, " ")
		}
		if o.Message == nil {
			out = append(out, fmt.Sprintf("ack%d/%x", o.PacketID, o.Code))
			continue
		}
		word := string(o.Message.Payload)
		if o.Dup {
			word += "+dup"
		}
		out = append(out, word)
	}
}

func check(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestWindowAndAcknowledgement(t *testing.T) {
	b := newBench(t, nil)
	l, _ := b.Connect(session.Connect{ID: "c", ReceiveMaximum: 2, Expiry: 10})
	subscribe(t, l, "t")
	p := b.conn("p", 0)
	for i := range 5 {
		publish(t, p, "t", fmt.Sprint("m", i), nil)
	}
	check(t, "publisher", drain(t, p), "ack1/0 ack1/0 ack1/0 ack1/0 ack1/0")
	check(t, "window of two", drain(t, l), "m0 m1")
	l.Ack(2, 0)
	check(t, "after the second is acknowledged", drain(t, l), "m2")
	l.Ack(2, 0) // unknown by now
	l.Ack(99, 0)
	check(t, "after acknowledging what is not there", drain(t, l), "")
	again, present := b.Connect(session.Connect{ID: "c", ReceiveMaximum: 1, Expiry: 10})
	if !present {
		t.Fatal("no session")
	}
	if got := l.EndReason(); got != session.Disconnected {
		t.Errorf("the former conn has ended because of %q", got)
	}
	check(t, "former conn", drain(t, l), "")
	check(t, "again", drain(t, again), "m0+dup")
	again.Ack(3, 0x80) // refused, before it was repeated: settled all the same
	again.Ack(1, 0)
	check(t, "the rest", drain(t, again), "m3")
	if got := b.Stats(); got.Dropped[session.RefusedByClient] != 1 || got.Queued != 2 {
		t.Errorf("stats: %+v", got)
	}
}

func TestQoS0(t *testing.T) {
	b := newBench(t, nil)
	l := b.conn("c", 10)
	subscribe(t, l, "t")
	p := b.conn("p", 0)
	zero := func(m *session.Message) { m.QoS = 0 }
	publish(t, p, "t", "a", nil)
	publish(t, p, "t", "b", zero)
	publish(t, p, "t", "c", nil)
	check(t, "connected", drain(t, l), "a b c")
	publish(t, p, "t", "lost", zero)
	l.Disconnect(session.Disconnect{Normal: true})
	publish(t, p, "t", "never queued", zero)
	check(t, "back", drain(t, b.conn("c", 10)), "a+dup c+dup")
}

func TestOverlappingSubscriptions(t *testing.T) {
	b := newBench(t, nil)
	l := b.conn("c", 10)
	for _, s := range []session.Subscription{{Filter: "a/+", QoS: 0}, {Filter: "+/b", QoS: 1}, {Filter: "a/b", NoLocal: true}} {
		kit.NoError(t, l.Subscribe(s))
	}
	publish(t, l, "a/b", "once", nil)
	var got session.Packet
	for {
		o, ok, _ := l.Next()
		if !ok {
			break
		}
		if o.Message != nil {
			if got.Message != nil {
				t.Fatal("delivered twice")
			}
			got = o
		}
	}
	if got.Message == nil || got.QoS != 1 {
		t.Errorf("delivered as %+v", got)
	}
	l.Unsubscribe("a/+")
	l.Unsubscribe("+/b")
	publish(t, l, "a/b", "own", nil)
	check(t, "its own, not wanted", drain(t, l), "ack1/10")
	l.Unsubscribe("a/b")
	if n := b.Stats().Subscriptions; n != 0 {
		t.Errorf("%d subscriptions left", n)
	}
}

func TestSharedSubscriptionPrefersTheIdle(t *testing.T) {
	b := newBench(t, nil)
	away, one, two := b.conn("away", 10), b.conn("one", 10), b.conn("two", 10)
	for _, l := range []*session.Conn{away, one, two} {
		subscribe(t, l, "$share/g/t")
	}
	away.Disconnect(session.Disconnect{})
	p := b.conn("p", 0)
	for i := range 4 {
		publish(t, p, "t", fmt.Sprint("m", i), nil)
	}
	check(t, "one", drain(t, one), "m0 m2")
	check(t, "two", drain(t, two), "m1 m3")
	one.Disconnect(session.Disconnect{})
	two.Disconnect(session.Disconnect{})
	publish(t, p, "t", "m4", nil)
	check(t, "nobody there: the one with least waiting", drain(t, b.conn("away", 10)), "m4")
}

func TestLimitsEndTheSession(t *testing.T) {
	b := newBench(t, nil)
	messages, bytes := b.conn("messages", 10), b.conn("bytes", 10)
	subscribe(t, messages, "m")
	subscribe(t, bytes, "b")
	p := b.conn("p", 0)
	for range 100 {
		publish(t, p, "m", "x", nil)
		drain(t, p)
	}
	publish(t, p, "b", strings.Repeat("x", 100_000-256-1), nil)
	if got := b.Stats(); got.Sessions != 3 || got.Queued != 101 {
		t.Fatalf("within the limits: %+v", got)
	}
	publish(t, p, "m", "x", nil)
	publish(t, p, "b", "x", nil)
	for name, l := range map[string]*session.Conn{"messages": messages, "bytes": bytes} {
		if l.EndReason() != session.QueueFull {
			t.Errorf("%s: ended by %q", name, l.EndReason())
		}
		if err := l.Subscribe(session.Subscription{Filter: "x"}); err != nil {
			t.Errorf("%s: a connection that has ended answers %v", name, err)
		}
		l.Ack(1, 0)
		l.Disconnect(session.Disconnect{})
	}
	if got := b.Stats(); got.Sessions != 1 || got.Queued != 0 || got.QueuedBytes != 0 || got.Dropped[session.QueueFull] != 103 {
		t.Errorf("beyond: %+v", got)
	}
}

func TestReceiveMaximum(t *testing.T) {
	b := newBench(t, nil)
	p := b.conn("p", 0)
	for range 10 {
		publish(t, p, "t", "x", nil)
	}
	if err := p.Publish(&session.Message{Topic: "t", QoS: 1}, 11); !errors.Is(err, session.ErrReceiveMaximum) {
		t.Errorf("the eleventh: %v", err)
	}
	if err := p.Publish(&session.Message{Topic: "t"}, 0); err != nil {
		t.Errorf("QoS 0 does not count: %v", err)
	}
}

func TestTooManySubscriptionsAndSessions(t *testing.T) {
	b := newBench(t, nil)
	l := b.conn("c", 10)
	for i := range 1000 {
		subscribe(t, l, fmt.Sprint("t", i))
	}
	if err := l.Subscribe(session.Subscription{Filter: "one more"}); !errors.Is(err, session.ErrQuota) {
		t.Errorf("subscription 1001: %v", err)
	}
	subscribe(t, l, "t1") // replacing is no more
	if err := b.conn("another session of it", 10).Subscribe(session.Subscription{Filter: "one more"}); !errors.Is(err, session.ErrQuota) {
		t.Errorf("subscription 1001, of another session: %v", err)
	}
	other := b.as("agent:other", "x", 0)
	subscribe(t, other, "one more")
	other.Disconnect(session.Disconnect{})
	for i := range 200 {
		b.now = b.now.Add(time.Second)
		b.conn(fmt.Sprint("s", i), 1000).Disconnect(session.Disconnect{})
	}
	if got := b.Stats().Sessions; got != 100 {
		t.Errorf("%d sessions of one owner, want 100", got)
	}
	if _, present := b.Connect(session.Connect{ID: "s199", Owner: "owner", Expiry: 1}); !present {
		t.Error("the youngest session was ended")
	}
	if l.EndReason() != "" {
		t.Error("a connected session was ended")
	}
}
