package session_test

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/broker/session"
	"github.com/workwire/workwire/pkg/runtime/statestore"
	"github.com/workwire/workwire/test/kit"
)

// open returns a router on the store at path, which commits only when commit is called.
func open(t *testing.T, path string) (*session.Router, *statestore.Store, func()) {
	t.Helper()
	return openAt(t, path, time.Now())
}

// openAt is open with a clock that stands still.
func openAt(t *testing.T, path string, now time.Time) (*session.Router, *statestore.Store, func()) {
	t.Helper()
	var router *session.Router
	st, err := session.OpenStore(path, func(b uint64) { router.Committed(b) }, nil)
	kit.NoError(t, err)
	router, err = session.New(session.Config{Store: st, Limits: session.Limits{MaxQueuedMessages: 1000, MaxQueuedBytes: 1 << 20}, ReceiveMaximum: 1000, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }})
	kit.NoError(t, err)
	commit := func() {
		t.Helper()
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if err := st.Run(ended); err != nil { // one last batch, which is all there is
			t.Fatal(err)
		}
	}
	return router, st, commit
}

func TestDurable(t *testing.T) {
	router, st, commit := open(t, filepath.Join(t.TempDir(), "db"))
	defer func() { _ = st.Close() }()
	l, _ := router.Connect(session.Connect{ID: "c", Expiry: 10})
	subscribe(t, l, "t")
	done := l.Durable()
	select {
	case <-done:
		t.Fatal("durable before anything was written")
	default:
	}
	commit()
	<-done
	<-l.Durable() // nothing to wait for

	p, _ := router.Connect(session.Connect{ID: "p"})
	publish(t, p, "t", "x", nil)
	check(t, "before the commit", drain(t, p), "")
	commit()
	check(t, "after the commit", drain(t, p), "ack1/0")
	publish(t, p, "t", "waits", nil)
	<-p.Durable() // nothing of p's is to be written
	other, _ := router.Connect(session.Connect{ID: "other"})
	publish(t, other, "nobody's", "x", nil)
	check(t, "nothing to write for it", drain(t, other), "ack1/10")
	check(t, "still waiting", drain(t, p), "")
	commit()
	check(t, "written", drain(t, p), "ack1/0")
	barrier := st.Batch()
	publish(t, p, "t", "x", func(m *session.Message) { m.QoS = 0 })
	if st.Batch() != barrier {
		t.Error("a QoS 0 message goes to disk")
	}
}

// TestEndIsDurable: what a session that has ended does not get is acknowledged once the session is gone from disk. Otherwise
// it could be back after a crash, without the message.
func TestEndIsDurable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	router, st, commit := open(t, path)
	router.SetLimits(session.Limits{MaxQueuedMessages: 2, MaxQueuedBytes: 1 << 20})
	l, _ := router.Connect(session.Connect{ID: "c", Expiry: 1000})
	subscribe(t, l, "t")
	l.Disconnect(session.Disconnect{})
	p, _ := router.Connect(session.Connect{ID: "p"})
	publish(t, p, "t", "m1", nil)
	publish(t, p, "t", "m2", nil)
	commit()
	check(t, "on disk", drain(t, p), "ack1/0 ack1/0")
	publish(t, p, "t", "ends the session", nil)
	check(t, "the session has ended", drain(t, p), "")
	publish(t, p, "t", "matches nothing", nil)
	check(t, "nobody subscribes any more", drain(t, p), "")
	commit()
	check(t, "the end is on disk", drain(t, p), "ack1/0 ack1/10")
	kit.NoError(t, st.Close())

	router, st, _ = open(t, path)
	defer func() { _ = st.Close() }()
	if got := router.Stats(); got.Sessions != 0 || got.Queued != 0 {
		t.Errorf("after a restart: %+v", got)
	}
}

// TestTornEnd: a session whose end is written in several transactions, with a crash in between, is whole or gone. It must not
// be back without its messages, which were acknowledged long ago.
func TestTornEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	router, st, commit := open(t, path)
	l, _ := router.Connect(session.Connect{ID: "c", Expiry: 1000})
	subscribe(t, l, "t")
	l.Disconnect(session.Disconnect{})
	p, _ := router.Connect(session.Connect{ID: "p"})
	for range 3 {
		publish(t, p, "t", "x", nil)
	}
	commit()
	router.RevokeSession("c")
	block := make([]byte, 512<<10)
	for i := range 40 { // 20 MiB, in transactions of 16
		st.Add(session.Messages, string(binary.BigEndian.AppendUint64(nil, uint64(1000+i))), func() ([]byte, error) { return block, nil })
	}
	full := errors.New("no space")
	st.Put(session.Retained, "last", func() ([]byte, error) { panic(full) }) // as bbolt does
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := st.Run(ended); !errors.Is(err, full) {
		t.Fatalf("Run: %v", err)
	}
	kit.NoError(t, st.Close())

	router, st, _ = open(t, path)
	defer func() { _ = st.Close() }()
	if got := router.Stats(); got.Sessions != 0 && got.Queued != 3 {
		t.Errorf("%d sessions with %d messages, want none, or all three messages", got.Sessions, got.Queued)
	}
}

// TestOrphanKeepsItsNumber: a queue entry that a crash left without its message is not taken for the entry of a later message.
func TestOrphanKeepsItsNumber(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	router, st, commit := open(t, path)
	for _, id := range []string{"a", "b"} {
		l, _ := router.Connect(session.Connect{ID: id, Expiry: 1000})
		subscribe(t, l, id)
		l.Disconnect(session.Disconnect{})
	}
	st.Put(session.Queue, "b\x00"+string(binary.BigEndian.AppendUint64(nil, 7)), func() ([]byte, error) { return []byte("{}"), nil })
	commit()
	kit.NoError(t, st.Close())

	router, st, commit = open(t, path)
	defer func() { _ = st.Close() }()
	p, _ := router.Connect(session.Connect{ID: "p"})
	publish(t, p, "a", "x", nil)
	commit()
	var numbers []uint64
	kit.NoError(t, st.Each(session.Messages, func(key string, _ []byte) error {
		numbers = append(numbers, binary.BigEndian.Uint64([]byte(key)))
		return nil
	}))
	if !slices.Equal(numbers, []uint64{8}) {
		t.Errorf("messages on disk: %v, want the next one as number 8", numbers)
	}
}

// TestExpiryOnDisk: a session expires after its time also if the broker was stopped meanwhile, and not earlier, although times
// on disk are whole seconds.
func TestExpiryOnDisk(t *testing.T) {
	start := time.Unix(1_000_000, 900_000_000)
	for after, want := range map[time.Duration]bool{300 * time.Millisecond: true, 999 * time.Second: true, 1001 * time.Second: false} {
		path, expiry := filepath.Join(t.TempDir(), "db"), uint32(1000)
		if after < time.Second {
			expiry = 1
		}
		router, st, commit := openAt(t, path, start)
		l, _ := router.Connect(session.Connect{ID: "c", Expiry: expiry})
		subscribe(t, l, "t")
		l.Disconnect(session.Disconnect{})
		p, _ := router.Connect(session.Connect{ID: "p"})
		publish(t, p, "t", "m", nil)
		commit()
		kit.NoError(t, st.Close())

		router, st, _ = openAt(t, path, start.Add(after))
		l, present := router.Connect(session.Connect{ID: "c", Expiry: expiry})
		if got := drain(t, l); present != want || want != (got == "m") {
			t.Errorf("after %v of %d s: present %v with messages %q", after, expiry, present, got)
		}
		kit.NoError(t, st.Close())
	}
}

// TestExpiryAfterCrashes: a session whose client was connected when the broker was killed expires its time after the next
// start, however often the broker starts.
func TestExpiryAfterCrashes(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "db"), time.Unix(1_000_000, 0)
	router, st, commit := openAt(t, path, now)
	l, _ := router.Connect(session.Connect{ID: "c", Expiry: 100})
	subscribe(t, l, "t")
	commit()
	kit.NoError(t, st.Close())

	start := now.Add(time.Hour)
	for _, c := range []struct{ after, sessions int }{{0, 1}, {50, 1}, {99, 1}, {101, 0}} {
		router, st, commit = openAt(t, path, start.Add(time.Duration(c.after)*time.Second))
		router.Tick()
		if got := router.Stats(); got.Sessions != c.sessions || got.Subscriptions != c.sessions {
			t.Errorf("%d s after the first start: %d sessions with %d subscriptions, want %d", c.after, got.Sessions, got.Subscriptions, c.sessions)
		}
		commit()
		kit.NoError(t, st.Close())
	}
}

// TestUnwrittenIsLimited: while the disk takes nothing, what waits for it does not fill the memory. It is refused without being
// delivered to anybody, and what is on disk, or whose session has ended, makes room.
func TestUnwrittenIsLimited(t *testing.T) {
	router, st, commit := open(t, filepath.Join(t.TempDir(), "db"))
	defer func() { _ = st.Close() }()
	router.SetLimits(session.Limits{MaxQueuedMessages: 1000, MaxQueuedBytes: 1 << 20, MaxTotalMemory: 10_000})
	l, _ := router.Connect(session.Connect{ID: "c", Expiry: 1000})
	subscribe(t, l, "t")
	l.Disconnect(session.Disconnect{})
	commit()
	p, _ := router.Connect(session.Connect{ID: "p"})
	other, _ := router.Connect(session.Connect{ID: "other"})
	fill := func(size, want int) {
		t.Helper()
		before := router.Stats()
		for range 100 {
			publish(t, p, "t", strings.Repeat("x", size), nil)
		}
		if got := router.Stats(); got.Queued-before.Queued != want || got.Refused-before.Refused != uint64(100-want) {
			t.Errorf("of 100 times %d bytes %d messages were queued and %d refused, want %d queued", size, got.Queued-before.Queued, got.Refused-before.Refused, want)
		}
	}
	fill(1023, 8)
	check(t, "what is queued is not on disk", drain(t, p), "")
	publish(t, other, "t", "x", nil)
	check(t, "there is no room", drain(t, other), "ack1/97")
	commit()
	if got, want := drain(t, p), strings.Repeat("ack1/0 ", 8)+strings.Repeat("ack1/97 ", 92); got+" " != want {
		t.Errorf("once there is room: %s", got)
	}
	fill(1, 39) // each needs a place of 256 bytes, too
	router.RevokeSession("c")
	l, _ = router.Connect(session.Connect{ID: "c", Expiry: 1000})
	subscribe(t, l, "t")
	publish(t, other, "t", "x", nil)
	check(t, "accepted, not on disk", drain(t, other), "")
	check(t, "delivered", drain(t, l), "x")
	commit()
	check(t, "on disk", drain(t, other), "ack1/0")
}

// TestUnreadableMessageEndsTheSession: the client must resync, not reconnect to the same error
// forever.
func TestUnreadableMessageEndsTheSession(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	router, st, commit := open(t, path)
	l, _ := router.Connect(session.Connect{ID: "c", Expiry: 10})
	subscribe(t, l, "t")
	p, _ := router.Connect(session.Connect{ID: "p"})
	publish(t, p, "t", "x", nil)
	commit()
	kit.NoError(t, st.Close())

	router, st, commit = open(t, path)
	defer func() { _ = st.Close() }()
	kit.NoError(t, st.Each(session.Messages, func(key string, _ []byte) error { st.Delete(session.Messages, key); return nil }))
	commit()
	l, present := router.Connect(session.Connect{ID: "c", Expiry: 10})
	if _, ok, err := l.Next(); !present || ok || err == nil {
		t.Errorf("a message that is not there: present %v, packet %v, error %v", present, ok, err)
	}
	if got := router.Stats(); got.Sessions != 0 || got.Dropped[session.Unreadable] != 1 {
		t.Errorf("stats: %+v", got)
	}
	if _, present := router.Connect(session.Connect{ID: "c", Expiry: 10}); present {
		t.Error("the client finds its session although a message is lost")
	}
}

// TestDurableWithoutChange: a client that reconnects does not wait for the disk, which may be full.
func TestDurableWithoutChange(t *testing.T) {
	router, st, commit := open(t, filepath.Join(t.TempDir(), "db"))
	defer func() { _ = st.Close() }()
	l, _ := router.Connect(session.Connect{ID: "c", Expiry: 10})
	subscribe(t, l, "t")
	commit()
	l.Disconnect(session.Disconnect{})
	l, _ = router.Connect(session.Connect{ID: "c", Expiry: 10})
	subscribe(t, l, "t")
	<-l.Durable()
	subscribe(t, l, "other")
	select {
	case <-l.Durable():
		t.Error("a new subscription is durable before anything was written")
	default:
	}
}

// TestExpiredOnDisk: what expires while the broker is stopped is gone from the disk after its start.
func TestExpiredOnDisk(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "db"), time.Unix(1_000_000, 0)
	router, st, commit := openAt(t, path, now)
	l, _ := router.Connect(session.Connect{ID: "c", Expiry: 1000})
	subscribe(t, l, "t")
	l.Disconnect(session.Disconnect{})
	p, _ := router.Connect(session.Connect{ID: "p"})
	publish(t, p, "t", "expired", func(m *session.Message) { m.Expires = now.Unix() + 1 })
	publish(t, p, "t", "stays", func(m *session.Message) { m.Expires = 1 << 40 })
	commit()
	kit.NoError(t, st.Close())

	router, st, commit = openAt(t, path, now.Add(time.Second))
	defer func() { _ = st.Close() }()
	if got := router.Stats().Queued; got != 2 {
		t.Errorf("%d messages loaded, want 2", got)
	}
	router.Tick()
	commit()
	count := 0
	kit.NoError(t, st.Each(session.Messages, func(string, []byte) error { count++; return nil }))
	if got := router.Stats().Queued; got != 1 || count != 1 {
		t.Errorf("%d messages are queued and %d on disk, want 1", got, count)
	}
	l, _ = router.Connect(session.Connect{ID: "c", Expiry: 1000})
	check(t, "after the start", drain(t, l), "stays")
}
