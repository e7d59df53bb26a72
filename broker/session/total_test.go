package session_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/workwire/workwire/broker/session"
	"github.com/workwire/workwire/test/kit"
)

// TestTotalLimit: above the limit of all queues, the session with the largest one is ended, and as
// many as it takes.
func TestTotalLimit(t *testing.T) {
	for name, test := range map[string]struct {
		queued map[string]int // messages of 100 bytes by session
		limit  int64
		want   string // the sessions that are left
	}{
		"below":             {map[string]int{"a": 2, "b": 2}, 10_000, "a b"},
		"largest goes":      {map[string]int{"a": 9, "b": 2, "c": 3}, 4000, "b c"},
		"last one goes":     {map[string]int{"a": 12}, 4000, ""},
		"empty ones stay":   {map[string]int{"a": 12, "b": 0}, 4000, "b"},
		"no limit":          {map[string]int{"a": 50, "b": 50}, 0, "a b"},
		"another's message": {map[string]int{"a": 4, "b": 7, "c": 1}, 4000, "a c"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(c *session.Config) { c.MaxTotalBytes, c.MaxQueuedBytes = test.limit, 1<<20 })
			for id := range test.queued {
				subscribe(t, b.conn(id, 10), id)
			}
			p := b.conn("p", 0)
			for _, id := range []string{"a", "b", "c"} {
				for range test.queued[id] {
					publish(t, p, id, strings.Repeat("x", 99), nil)
					drain(t, p)
				}
			}
			var left []string
			for _, id := range []string{"a", "b", "c"} {
				if _, exists := test.queued[id]; !exists {
					continue
				}
				if _, present := b.Connect(session.Connect{ID: id, Owner: "owner", Expiry: 10}); present {
					left = append(left, id)
				}
			}
			check(t, "sessions", strings.Join(left, " "), test.want)
			if got := b.Stats(); test.limit > 0 && got.TotalBytes > test.limit {
				t.Errorf("%d bytes are held, more than %d", got.TotalBytes, test.limit)
			}
		})
	}
}

// TestTotalBytes: a message of several sessions counts once, and everything is given back.
func TestTotalBytes(t *testing.T) {
	b := newBench(t, nil)
	one, two, p := b.conn("1", 10), b.conn("2", 10), b.conn("p", 0)
	subscribe(t, one, "t")
	subscribe(t, two, "t")
	publish(t, p, "t", strings.Repeat("x", 99), nil)
	if got := b.Stats().TotalBytes; got != 100+2*256 {
		t.Errorf("%d bytes, want %d", got, 100+2*256)
	}
	check(t, "one", drain(t, one), strings.Repeat("x", 99))
	one.Ack(1, 0)
	two.Disconnect(session.Disconnect{Expiry: new(uint32)})
	if got := b.Stats(); got.TotalBytes != 0 || got.Queued != 0 {
		t.Errorf("afterwards: %+v", got)
	}
}

// TestTotalLimitAtStart: a limit that was lowered is kept by the sessions that are loaded.
func TestTotalLimitAtStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	router, st, commit := open(t, path)
	for _, id := range []string{"large", "small"} {
		l, _ := router.Connect(session.Connect{ID: id, Expiry: 10})
		subscribe(t, l, id)
	}
	p, _ := router.Connect(session.Connect{ID: "p"})
	for range 10 {
		publish(t, p, "large", strings.Repeat("x", 1000), nil)
	}
	publish(t, p, "small", "x", nil)
	commit()
	kit.NoError(t, st.Close())
	st, err := session.OpenStore(path, nil, nil)
	kit.NoError(t, err)
	defer func() { _ = st.Close() }()
	router, err = session.New(session.Config{Store: st, Limits: session.Limits{MaxQueuedMessages: 1000, MaxQueuedBytes: 1 << 20, MaxTotalBytes: 5000}, ReceiveMaximum: 10})
	kit.NoError(t, err)
	for id, want := range map[string]bool{"large": false, "small": true} {
		if _, present := router.Connect(session.Connect{ID: id, Expiry: 10}); present != want {
			t.Errorf("session %s is there: %v, want %v", id, present, want)
		}
	}
}

// TestMessageOutlivesAnEndedQueue: a message whose arrival ends one of its sessions, because all queues are full, reaches the
// others.
func TestMessageOutlivesAnEndedQueue(t *testing.T) {
	b := newBench(t, func(c *session.Config) { c.MaxTotalBytes, c.MaxQueuedBytes = 4000, 1<<20 })
	full, other, p := b.conn("a", 10), b.conn("b", 10), b.conn("p", 0)
	subscribe(t, full, "own", "both")
	subscribe(t, other, "both")
	for b.Stats().TotalBytes < 3700 {
		publish(t, p, "own", strings.Repeat("x", 99), nil)
		drain(t, p)
	}
	publish(t, p, "both", strings.Repeat("y", 99), nil)
	drain(t, p)
	if full.EndReason() != session.StoreFull {
		t.Fatalf("the full session has ended with %q", full.EndReason())
	}
	got, ok, err := other.Next()
	if err != nil || !ok || got.Message == nil || string(got.Message.Payload) != strings.Repeat("y", 99) {
		t.Fatalf("the other session got %+v, %v, %v", got, ok, err)
	}
	if s := b.Stats(); s.Queued != 1 || s.TotalBytes > 4000 {
		t.Errorf("%+v", s)
	}
}
