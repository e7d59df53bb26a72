package session_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/broker/session"
	"github.com/workwire/workwire/pkg/runtime/statestore"
	"github.com/workwire/workwire/test/kit"
)

func isSource(owner string) bool { return strings.HasPrefix(owner, "source:") }

func (b *bench) as(owner, id string, expiry uint32) *session.Conn {
	l, _ := b.Connect(session.Connect{ID: owner + "/" + id, Owner: owner, Expiry: expiry, Credential: "of " + id})
	return l
}

// flood publishes n messages and returns how many were acknowledged with which code.
func flood(t *testing.T, l *session.Conn, n int, qos byte) map[byte]int {
	t.Helper()
	codes := map[byte]int{}
	for range n {
		publish(t, l, "t", "x", func(m *session.Message) { m.QoS = qos })
		for qos > 0 {
			p, ok, _ := l.Next()
			if !ok {
				break
			}
			codes[p.Code]++
		}
	}
	return codes
}

// TestFloodLeavesTheSession: agents that flood the hub's queue, with QoS 1 and with QoS 0, are
// refused, and neither the session nor the statuses of another agent suffer.
func TestFloodLeavesTheSession(t *testing.T) {
	for name, connected := range map[string]bool{"connected": true, "absent": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(c *session.Config) { c.Shares = isSource })
			hub := b.as("source:hub1", "x", 10_000)
			subscribe(t, hub, "t")
			if !connected {
				hub.Disconnect(session.Disconnect{})
			}
			if got := flood(t, b.as("agent:c1", "x", 0), 1000, 1); got[0] != 50 || got[0x97] != 950 {
				t.Errorf("of the flood: %v, want half of the queue", got)
			}
			flood(t, b.as("agent:c2", "x", 0), 1000, 0)
			if got := flood(t, b.as("agent:c3", "x", 0), 10, 1); got[0] != 10 {
				t.Errorf("of another agent: %v", got)
			}
			if got := b.Stats(); got.Refused != 950 || got.Dropped[session.QueueFull] != 0 || connected && got.Dropped[session.QoS0] != 988 {
				t.Errorf("%+v", got)
			}
			if connected {
				return
			}
			// Nobody reads it: it may not keep the publishers from other sessions. Once it has ended, nobody
			// subscribes to the topic.
			b.advance(time.Hour)
			if got := flood(t, b.as("agent:c1", "x", 0), 100, 1); got[0]+got[0x10] != 100 || b.Stats().Dropped[session.QueueFull] == 0 {
				t.Errorf("after an hour: %v", got)
			}
		})
	}
}

// TestQoS0NeverEndsASession: also where publishers have no shares.
func TestQoS0NeverEndsASession(t *testing.T) {
	b := newBench(t, nil)
	l := b.conn("c", 10)
	subscribe(t, l, "t")
	flood(t, b.conn("p", 0), 500, 0)
	if got := b.Stats(); l.EndReason() != "" || got.Queued != 100 || got.Dropped[session.QoS0] != 400 {
		t.Errorf("ended by %q: %+v", l.EndReason(), got)
	}
}

// TestPropertiesCount: user properties need memory also if they are empty.
func TestPropertiesCount(t *testing.T) {
	b := newBench(t, nil)
	l, p := b.conn("c", 10), b.conn("p", 0)
	subscribe(t, l, "t")
	publish(t, p, "t", "", func(m *session.Message) { m.User = make([]session.Property, 1000) })
	if got := b.Stats().TotalBytes; got != 1+1000*32+256 {
		t.Errorf("1000 empty properties count %d bytes", got)
	}
}

// TestMemoryLimits: what is in memory only has limits of its own, for one queue and for all. What is
// on disk does not count, and all is given back.
func TestMemoryLimits(t *testing.T) {
	router, st, commit := open(t, filepath.Join(t.TempDir(), "db"))
	defer func() { _ = st.Close() }()
	router.SetLimits(session.Limits{MaxQueuedMessages: 1000, MaxQueuedBytes: 1 << 20, MaxTotalBytes: 1 << 30, MaxQueuedMemory: 20_000, MaxTotalMemory: 50_000})
	b := &bench{Router: router}
	durable, brief := b.as("agent:c1", "durable", 10), b.as("agent:c1", "brief", 0)
	subscribe(t, durable, "d", "t")
	subscribe(t, brief, "b", "t")
	p := b.conn("p", 0)
	send := func(topic string, n int, qos byte) {
		t.Helper()
		for range n {
			publish(t, p, topic, strings.Repeat("x", 743), func(m *session.Message) { m.QoS = qos })
			drain(t, p)
		}
	}
	send("d", 50, 1)
	commit()
	if got := b.Stats(); got.TotalMemory != 0 || got.Queued != 50 {
		t.Errorf("on disk: %+v", got)
	}
	send("d", 50, 0)
	if got := b.Stats(); got.TotalMemory != 20_000 || got.Queued != 70 || got.Dropped[session.QoS0] != 30 {
		t.Errorf("QoS 0: %+v", got)
	}
	send("b", 10, 1)
	send("t", 5, 1)
	if got := b.Stats(); got.TotalMemory != 35_000 || brief.EndReason() != "" {
		t.Errorf("QoS 1: %+v, the session ended by %q", got, brief.EndReason())
	}
	send("b", 6, 1)
	if got := b.Stats(); got.TotalMemory != 20_000 || brief.EndReason() != session.QueueFull || durable.EndReason() != "" {
		t.Errorf("a queue over its limit: %+v, the sessions ended by %q and %q", got, brief.EndReason(), durable.EndReason())
	}
	var many []*session.Conn
	for i := range 3 {
		many = append(many, b.as("agent:c2", fmt.Sprint(i), 0))
		subscribe(t, many[i], fmt.Sprint(i))
		send(fmt.Sprint(i), 15, 1)
	}
	if got := b.Stats(); got.TotalMemory > 50_000 || got.Dropped[session.MemoryFull] == 0 || durable.EndReason() != "" {
		t.Errorf("all queues over their limit: %+v, the other session ended by %q", got, durable.EndReason())
	}
	durable.Disconnect(session.Disconnect{Expiry: new(uint32)})
	for _, l := range many {
		l.Disconnect(session.Disconnect{})
	}
	if got := b.Stats(); got.TotalMemory != 0 || got.TotalBytes != 0 {
		t.Errorf("at the end: %+v", got)
	}
}

// TestMemoryGivenBack: what has left the last queue in memory counts there no longer, also while an absent client has it on disk.
func TestMemoryGivenBack(t *testing.T) {
	router, st, commit := open(t, filepath.Join(t.TempDir(), "db"))
	defer func() { _ = st.Close() }()
	router.SetLimits(session.Limits{MaxQueuedMessages: 1000, MaxQueuedBytes: 1 << 20, MaxTotalMemory: 10_000})
	b := &bench{Router: router}
	durable, brief, p := b.as("agent:c1", "durable", 10), b.as("agent:c2", "brief", 0), b.conn("p", 0)
	subscribe(t, durable, "t")
	subscribe(t, brief, "t")
	durable.Disconnect(session.Disconnect{})
	payload := strings.Repeat("x", 1<<10)
	for i := range uint16(20) {
		publish(t, p, "t", payload, nil)
		if drain(t, brief) != payload {
			t.Fatalf("message %d does not come, the session ended by %q", i, brief.EndReason())
		}
		brief.Ack(i+1, 0)
		if i%2 == 0 { // in time, or later
			commit()
		}
	}
	if got := b.Stats(); got.TotalMemory != 0 || got.Queued != 20 {
		t.Errorf("%+v", got)
	}
	if got := strings.Fields(drain(t, b.as("agent:c1", "durable", 10))); len(got) != 20 {
		t.Errorf("the absent client gets %d messages", len(got))
	}
}

// TestTotalLimitByOwner: an identity with many small queues goes before one with a larger one.
func TestTotalLimitByOwner(t *testing.T) {
	b := newBench(t, func(c *session.Config) { c.MaxTotalBytes = 50_000 })
	hub := b.as("source:hub1", "x", 10)
	subscribe(t, hub, "hub")
	var agents []*session.Conn
	for i := range 30 {
		agents = append(agents, b.as("agent:c1", fmt.Sprint(i), 10))
		subscribe(t, agents[i], "t")
	}
	p := b.conn("p", 0)
	for range 50 {
		publish(t, p, "hub", "x", nil)
		drain(t, p)
	}
	for range 20 {
		publish(t, p, "t", "x", nil)
		drain(t, p)
	}
	if hub.EndReason() != "" || b.Stats().Dropped[session.StoreFull] == 0 {
		t.Errorf("the hub's session ended by %q: %+v", hub.EndReason(), b.Stats())
	}
}

// TestLiveSessionsCount: sessions of connected clients count against the maximum of an identity.
func TestLiveSessionsCount(t *testing.T) {
	b := newBench(t, nil)
	var all []*session.Conn
	for i := range 150 {
		b.now = b.now.Add(time.Second)
		all = append(all, b.as("agent:c1", fmt.Sprint(i), 0))
	}
	other := b.as("agent:c2", "x", 0)
	for i, l := range all {
		want := session.Reason("")
		if i < 50 {
			want = session.TooManySessions
		}
		if l.EndReason() != want {
			t.Errorf("session %d ended by %q, want %q", i, l.EndReason(), want)
		}
	}
	if got := b.Stats().Connected; got != 101 || other.EndReason() != "" {
		t.Errorf("%d are connected", got)
	}
}

// TestExpiryAndWillDelayAreLimited: what a client asks for, in CONNECT or DISCONNECT.
func TestExpiryAndWillDelayAreLimited(t *testing.T) {
	b := newBench(t, func(c *session.Config) { c.MaxExpiry, c.MaxWillDelay = 100, 10 })
	reader := b.conn("reader", 0)
	subscribe(t, reader, "w")
	will := &session.Will{Delay: session.NeverExpires, Message: session.Message{Topic: "w", Payload: []byte("will"), QoS: 1}}
	c, _ := b.Connect(session.Connect{ID: "c", Expiry: session.NeverExpires, Will: will})
	if got := c.Expiry(); got != 100 {
		t.Errorf("the expiry is %d", got)
	}
	longer := uint32(1000)
	c.Disconnect(session.Disconnect{Expiry: &longer})
	b.advance(9 * time.Second)
	check(t, "after 9 s", drain(t, reader), "")
	b.advance(time.Second)
	check(t, "after 10 s", drain(t, reader), "will")
	b.advance(90 * time.Second)
	if got := b.Stats().Sessions; got != 1 {
		t.Errorf("%d sessions are left", got)
	}
}

// TestRevoke: connection, session and queue of a credential go, and its will is not published.
func TestRevoke(t *testing.T) {
	b := newBench(t, nil)
	reader := b.conn("reader", 0)
	subscribe(t, reader, "w")
	will := &session.Will{Message: session.Message{Topic: "w", Payload: []byte("will"), QoS: 1}}
	connect := func(id, credential string) *session.Conn {
		l, _ := b.Connect(session.Connect{ID: id, Owner: "agent:c1", Expiry: 100, Credential: credential, Will: will})
		subscribe(t, l, "t")
		return l
	}
	stolen, kept := connect("stolen", "old"), connect("kept", "new")
	absent, delayed := connect("absent", "old"), &session.Will{Delay: 50, Message: will.Message}
	absent.Disconnect(session.Disconnect{Normal: true})
	l, _ := b.Connect(session.Connect{ID: "delayed", Owner: "agent:c1", Expiry: 100, Credential: "old", Will: delayed})
	l.Disconnect(session.Disconnect{})
	publish(t, b.conn("p", 0), "t", "x", nil)
	if n := b.Revoke(func(owner, credential string) bool { return owner == "agent:c1" && credential == "old" }); n != 3 {
		t.Errorf("%d sessions revoked, want 3", n)
	}
	b.advance(99 * time.Second)
	check(t, "wills", drain(t, reader), "")
	if stolen.EndReason() != session.Revoked || kept.EndReason() != "" {
		t.Errorf("ended by %q and %q", stolen.EndReason(), kept.EndReason())
	}
	if got := b.Stats(); got.Queued != 1 || got.Dropped[session.Revoked] != 2 {
		t.Errorf("%+v", got)
	}
	b.RevokeSession("kept")
	b.RevokeSession("unknown")
	check(t, "the will of the last one", drain(t, reader), "")
}

// TestEndedConnectionPublishesNothing: whose access was revoked, or whose session another client has, publishes nothing more, also
// before its connection has ended.
func TestEndedConnectionPublishesNothing(t *testing.T) {
	b := newBench(t, nil)
	reader := b.conn("reader", 0)
	subscribe(t, reader, "t")
	revoked, former := b.conn("revoked", 100), b.conn("former", 100)
	b.RevokeSession("revoked")
	b.conn("former", 100)
	for name, l := range map[string]*session.Conn{"revoked": revoked, "former": former} {
		for qos := range byte(2) {
			if err := l.Publish(&session.Message{Topic: "t", QoS: qos}, 1); !errors.Is(err, session.ErrEnded) {
				t.Errorf("%s publishes with QoS %d: %v", name, qos, err)
			}
		}
		if err := l.Refuse(1, 0x87); !errors.Is(err, session.ErrEnded) {
			t.Errorf("%s is refused: %v", name, err)
		}
	}
	if got := b.Stats(); got.Queued != 0 || got.Received != 0 {
		t.Errorf("%+v", got)
	}
}

// TestWillOfAnEndedSession: a session that the broker ends publishes the will of its client.
func TestWillOfAnEndedSession(t *testing.T) {
	b := newBench(t, nil)
	reader := b.conn("reader", 0)
	subscribe(t, reader, "w")
	l, _ := b.Connect(session.Connect{ID: "c", Expiry: 100, Will: &session.Will{Message: session.Message{Topic: "w", Payload: []byte("will"), QoS: 1}}})
	subscribe(t, l, "t")
	flood(t, b.conn("p", 0), 101, 1)
	l.Disconnect(session.Disconnect{})
	check(t, "the reader", drain(t, reader), "will")
}

// TestShareGroupsBelongToAnIdentity: a group with the name of another identity's takes nothing.
func TestShareGroupsBelongToAnIdentity(t *testing.T) {
	b := newBench(t, nil)
	one, two, thief := b.as("agent:c1", "1", 10), b.as("agent:c1", "2", 10), b.as("agent:c2", "1", 10)
	for _, l := range []*session.Conn{one, two, thief} {
		subscribe(t, l, "$share/g/t")
	}
	p := b.conn("p", 0)
	for i := range 4 {
		publish(t, p, "t", fmt.Sprint("m", i), nil)
	}
	check(t, "one", drain(t, one), "m0 m2")
	check(t, "two", drain(t, two), "m1 m3")
	check(t, "the other identity has all of its own", drain(t, thief), "m0 m1 m2 m3")
	thief.Unsubscribe("$share/g/t")
	publish(t, p, "t", "m4", nil)
	check(t, "afterwards", drain(t, thief), "")
}

// TestSessionThatCannotBeStored: an id that is too large for the database ends with its connection,
// and the store goes on and starts again.
func TestSessionThatCannotBeStored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	router, st, commit := open(t, path)
	for _, length := range []int{512, 513, 32_753, 60_000} {
		l, _ := router.Connect(session.Connect{ID: strings.Repeat("x", length), Expiry: 100})
		subscribe(t, l, "t")
		if got, want := l.Expiry() > 0, length <= 512; got != want {
			t.Errorf("%d bytes: outlives its connection: %v, want %v", length, got, want)
		}
	}
	p, _ := router.Connect(session.Connect{ID: "p"})
	publish(t, p, "t", "x", nil)
	commit()
	check(t, "the publisher", drain(t, p), "ack1/0")
	kit.NoError(t, st.Close())
	router, st, _ = open(t, path)
	defer func() { _ = st.Close() }()
	if got := router.Stats(); got.Sessions != 1 || got.Queued != 1 {
		t.Errorf("after the restart: %+v", got)
	}
}

// TestBadRecords: a record that cannot be used costs its session alone.
func TestBadRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	router, st, commit := open(t, path)
	p, _ := router.Connect(session.Connect{ID: "p"})
	for _, id := range []string{"good", "message", "entry", "session"} {
		l, _ := router.Connect(session.Connect{ID: id, Owner: "agent:c1", Expiry: 100, Credential: "c"})
		subscribe(t, l, id)
		publish(t, p, id, "x", nil)
	}
	commit()
	bad := func() ([]byte, error) { return []byte("?"), nil }
	st.Put(session.Sessions, "session", bad)
	st.Put(session.Messages, "\x00\x00\x00\x00\x00\x00\x00\x02", bad)
	st.Put(session.Queue, "entry\x00\x00\x00\x00\x00\x00\x00\x00\x03", bad)
	commit()
	kit.NoError(t, st.Close())

	router, st, commit = open(t, path)
	defer func() { _ = st.Close() }()
	l, present := router.Connect(session.Connect{ID: "good", Owner: "agent:c1", Expiry: 100, Credential: "c"})
	if got := router.Stats().Sessions; got != 1 || !present {
		t.Errorf("%d sessions are left", got)
	}
	check(t, "the queue of the good one", drain(t, l), "x")
	if n := router.Revoke(func(_, credential string) bool { return credential == "c" }); n != 1 {
		t.Error("the credential was not stored")
	}
	commit()
	for _, bucket := range []statestore.Bucket{session.Sessions, session.Queue, session.Messages} {
		kit.NoError(t, st.Each(bucket, func(key string, _ []byte) error { return fmt.Errorf("left in %s: %q", bucket, key) }))
	}
}

// TestBrokenSessionsEndInOrder: two starts on the same database end the sessions that cannot be used in the same order.
func TestBrokenSessionsEndInOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	router, st, commit := open(t, path)
	p, _ := router.Connect(session.Connect{ID: "p"})
	var want []string
	for i := range 10 {
		want = append(want, fmt.Sprint("session=", i))
		l, _ := router.Connect(session.Connect{ID: fmt.Sprint(i), Expiry: 100})
		subscribe(t, l, fmt.Sprint(i))
		publish(t, p, fmt.Sprint(i), "bad", nil)
		publish(t, p, fmt.Sprint(i), "good", nil)
		key := fmt.Sprintf("%d\x00%s", i, binary.BigEndian.AppendUint64(nil, uint64(2*i+1)))
		st.Put(session.Queue, key, func() ([]byte, error) { return []byte("?"), nil })
	}
	commit()
	kit.NoError(t, st.Close())

	st, err := session.OpenStore(path, func(uint64) {}, nil)
	kit.NoError(t, err)
	defer func() { _ = st.Close() }()
	var log bytes.Buffer
	_, err = session.New(session.Config{Store: st, Limits: session.Limits{MaxQueuedMessages: 10, MaxQueuedBytes: 1000}, ReceiveMaximum: 10, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	kit.NoError(t, err)
	if ended := regexp.MustCompile(`session=\d`).FindAllString(log.String(), -1); !slices.Equal(ended, want) {
		t.Errorf("sessions have ended in the order %v, want %v\n%s", ended, want, &log)
	}
}

// TestSetLimits: limits that change apply to the sessions that exist.
func TestSetLimits(t *testing.T) {
	b := newBench(t, nil)
	l := b.conn("c", 100)
	subscribe(t, l, "t")
	flood(t, b.conn("p", 0), 50, 1)
	b.SetLimits(session.Limits{MaxQueuedMessages: 100, MaxQueuedBytes: 1 << 20, MaxTotalBytes: 1000})
	if l.EndReason() != session.StoreFull {
		t.Errorf("ended by %q", l.EndReason())
	}
}
