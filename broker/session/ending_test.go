package session_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/workwire/workwire/broker/session"
)

func TestExpiry(t *testing.T) {
	b := newBench(t, nil)
	b.conn("ten", 10).Disconnect(session.Disconnect{})
	b.conn("forever", session.NeverExpires).Disconnect(session.Disconnect{})
	zero := uint32(0)
	b.conn("changed", 10).Disconnect(session.Disconnect{Expiry: &zero})
	connected := b.conn("connected", 10)
	b.advance(9 * time.Second)
	if got := b.Stats().Sessions; got != 3 {
		t.Errorf("after 9 s %d sessions", got)
	}
	b.advance(time.Second)
	if got := b.Stats().Sessions; got != 2 {
		t.Errorf("after 10 s %d sessions", got)
	}
	b.advance(100 * 365 * 24 * time.Hour)
	if got := b.Stats(); got.Sessions != 2 || got.Connected != 1 || connected.EndReason() != "" {
		t.Errorf("after 100 years: %+v", got)
	}
}

// TestExpiryBeforeTick: a session ends when its time has come, also if its client connects before Tick has ended it, and a
// delayed will is published then.
func TestExpiryBeforeTick(t *testing.T) {
	for seconds, want := range map[int]bool{9: true, 10: false} {
		b := newBench(t, nil)
		b.conn("c", 10).Disconnect(session.Disconnect{})
		b.now = b.now.Add(time.Duration(seconds) * time.Second)
		if _, present := b.Connect(session.Connect{ID: "c", Expiry: 10}); present != want {
			t.Errorf("after %d s of 10 the session is there: %v", seconds, present)
		}
	}
	for seconds, want := range map[int]string{4: "", 5: "will"} {
		b := newBench(t, nil)
		reader := b.conn("reader", 0)
		subscribe(t, reader, "w")
		connect := session.Connect{ID: "c", Expiry: 100, Will: &session.Will{Delay: 5, Message: session.Message{Topic: "w", Payload: []byte("will"), QoS: 1}}}
		l, _ := b.Connect(connect)
		l.Disconnect(session.Disconnect{})
		b.now = b.now.Add(time.Duration(seconds) * time.Second)
		if _, present := b.Connect(connect); !present {
			t.Errorf("after %d s of 100 the session has ended", seconds)
		}
		check(t, fmt.Sprintf("a will after 5 s, at %d s", seconds), drain(t, reader), want)
	}
}

func TestMessageExpiry(t *testing.T) {
	b := newBench(t, nil)
	l := b.conn("c", 1000)
	subscribe(t, l, "t")
	l.Disconnect(session.Disconnect{})
	p := b.conn("p", 0)
	publish(t, p, "t", "short", func(m *session.Message) { m.Expires = b.now.Unix() + 5 })
	publish(t, p, "t", "long", func(m *session.Message) { m.Expires = b.now.Unix() + 50 })
	b.advance(5 * time.Second)
	check(t, "after 5 s", drain(t, b.conn("c", 1000)), "long")
	if got := b.Stats().Dropped[session.MessageExpired]; got != 1 {
		t.Errorf("%d expired", got)
	}
}

// TestMessageExpiryOfZero: such a message is for whoever can receive it when it comes (MQTT 5, 3.3.2.3.3):
// nobody who is away, whose queue is not empty, or who may not have one more unacknowledged message.
func TestMessageExpiryOfZero(t *testing.T) {
	b := newBench(t, nil)
	present, absent, p := b.conn("present", 1000), b.conn("absent", 1000), b.conn("p", 0)
	subscribe(t, present, "t")
	subscribe(t, absent, "t")
	absent.Disconnect(session.Disconnect{})
	now := func(m *session.Message) { m.Expires = b.now.Unix() }
	publish(t, p, "t", "now", now)
	b.advance(time.Second) // the sender may be late
	check(t, "connected", drain(t, present), "now")
	publish(t, p, "t", "waits", nil)
	publish(t, p, "t", "behind", now)
	check(t, "not ready", drain(t, present), "waits")
	check(t, "away", drain(t, b.conn("absent", 1000)), "waits")

	limited, _ := b.Connect(session.Connect{ID: "limited", Expiry: 1000, ReceiveMaximum: 1})
	subscribe(t, limited, "u")
	publish(t, p, "u", "first", nil)
	check(t, "limited", drain(t, limited), "first")
	publish(t, p, "u", "over the window", now)
	limited.Ack(1, 0)
	check(t, "limited, later", drain(t, limited), "")
	publish(t, p, "u", "not sent", now)
	limited.Disconnect(session.Disconnect{})
	check(t, "limited, back", drain(t, b.conn("limited", 1000)), "")
	if got := b.Stats().Dropped[session.MessageExpired]; got != 5 { // "now" and "behind" of absent, and three of those who were connected
		t.Errorf("%d expired", got)
	}
}

// TestExpiredMessagesMakeRoom: expired messages leave the queue of an absent client, which they
// would fill otherwise. What a client has received and not acknowledged stays.
func TestExpiredMessagesMakeRoom(t *testing.T) {
	b := newBench(t, nil)
	absent := b.conn("absent", 1000)
	subscribe(t, absent, "t")
	absent.Disconnect(session.Disconnect{})
	p := b.conn("p", 0)
	publish(t, p, "t", "first", nil)
	for i := range 50 {
		publish(t, p, "t", "short", func(m *session.Message) { m.Expires = b.now.Unix() + 5 })
		publish(t, p, "t", "other", func(m *session.Message) { m.Expires = b.now.Unix() + 3 + int64(i%3) })
		drain(t, p)
		b.advance(time.Second)
	}
	if got := b.Stats(); got.Queued > 15 {
		t.Errorf("%d messages are queued", got.Queued)
	}
	publish(t, p, "t", "last", nil)
	b.advance(10 * time.Second)
	present := b.conn("absent", 1000)
	check(t, "the client is back", drain(t, present), "first last")
	publish(t, p, "t", "received", func(m *session.Message) { m.Expires = b.now.Unix() + 5 })
	check(t, "before it expires", drain(t, present), "received")
	b.advance(10 * time.Second)
	if got := b.Stats().Queued; got != 3 {
		t.Error("a message that the client has received was dropped before it was acknowledged")
	}
}

func TestWills(t *testing.T) {
	will := func(delay uint32) *session.Will {
		return &session.Will{Delay: delay, Message: session.Message{Topic: "w", Payload: []byte("will"), QoS: 1}}
	}
	for name, test := range map[string]struct {
		connect session.Connect
		then    func(*bench, *session.Conn)
		want    string
	}{
		"lost":          {session.Connect{Will: will(0)}, func(_ *bench, l *session.Conn) { l.Disconnect(session.Disconnect{}) }, "will"},
		"in good order": {session.Connect{Will: will(0)}, func(_ *bench, l *session.Conn) { l.Disconnect(session.Disconnect{Normal: true}) }, ""},
		"twice": {session.Connect{Will: will(0), Expiry: 9}, func(_ *bench, l *session.Conn) {
			l.Disconnect(session.Disconnect{})
			l.Disconnect(session.Disconnect{})
		}, "will"},
		"session ends at once": {session.Connect{Will: will(9)}, func(_ *bench, l *session.Conn) { l.Disconnect(session.Disconnect{}) }, "will"},
		"delayed, too early":   {session.Connect{Will: will(9), Expiry: 100}, func(b *bench, l *session.Conn) { l.Disconnect(session.Disconnect{}); b.advance(8 * time.Second) }, ""},
		"delayed": {session.Connect{Will: will(9), Expiry: 100}, func(b *bench, l *session.Conn) {
			l.Disconnect(session.Disconnect{})
			b.advance(9 * time.Second)
			b.advance(time.Second)
		}, "will"},
		"session expires first": {session.Connect{Will: will(99), Expiry: 9}, func(b *bench, l *session.Conn) { l.Disconnect(session.Disconnect{}); b.advance(9 * time.Second) }, "will"},
		"back in time": {session.Connect{Will: will(9), Expiry: 100}, func(b *bench, l *session.Conn) {
			l.Disconnect(session.Disconnect{})
			b.conn("c", 100)
			b.advance(time.Minute)
		}, ""},
		"taken over":                {session.Connect{Will: will(0), Expiry: 100}, func(b *bench, _ *session.Conn) { b.conn("c", 100) }, "will"},
		"taken over, delayed":       {session.Connect{Will: will(9), Expiry: 100}, func(b *bench, _ *session.Conn) { b.conn("c", 100); b.advance(time.Minute) }, ""},
		"taken over by clean start": {session.Connect{Will: will(9), Expiry: 100}, func(b *bench, _ *session.Conn) { b.Connect(session.Connect{ID: "c", CleanStart: true}) }, "will"},
		"broker stops":              {session.Connect{Will: will(0)}, func(b *bench, l *session.Conn) { b.Stop(); l.Disconnect(session.Disconnect{}) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			reader := b.conn("reader", 0)
			subscribe(t, reader, "w")
			test.connect.ID = "c"
			l, _ := b.Connect(test.connect)
			test.then(b, l)
			check(t, "the reader", drain(t, reader), test.want)
		})
	}
}

// TestWillThatFillsItsOwnSession publishes a will that ends its own session.
func TestWillThatFillsItsOwnSession(t *testing.T) {
	b := newBench(t, func(c *session.Config) { c.MaxQueuedMessages = 1 })
	connect := session.Connect{ID: "c", Expiry: 100, Will: &session.Will{Message: session.Message{Topic: "t", Payload: []byte("w"), QoS: 1}}}
	l, _ := b.Connect(connect)
	subscribe(t, l, "t")
	publish(t, b.conn("p", 0), "t", "m", nil)
	if _, present := b.Connect(connect); present {
		t.Error("the session was too full for the will and should be gone")
	}
	if got := b.Stats(); got.Sessions != 2 || got.Queued != 0 {
		t.Errorf("%+v", got)
	}
}
