package session_test

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/broker/session"
	"github.com/workwire/workwire/pkg/runtime/statestore"
	"github.com/workwire/workwire/test/kit"
)

// model drives a router with random events, including crashes, and checks the guarantees of the
// package comment:
//
//  1. A message that was acknowledged to its publisher reaches every session that
//     subscribed eventually.
//  2. Messages on one connection have the order of publication.
//  3. A message that a client has acknowledged is not sent again, unless there was a crash.
type model struct {
	t      *testing.T
	rnd    *rand.Rand
	path   string
	router *session.Router
	store  *statestore.Store
	commit func()

	published int
	topics    map[int]string
	acked     map[int]bool // to the publisher
	publisher *session.Conn
	order     []int // published and not yet acknowledged
	clients   []*modelClient
}

type modelClient struct {
	id        string
	topic     string
	conn      *session.Conn // nil: away
	last      int           // message that came last on this connection
	unacked   map[uint16]int
	seen      map[int]bool // ever received
	acked     map[int]bool // acknowledged by the client
	committed map[int]bool // acked that are on disk
}

func (m *model) open() {
	m.router, m.store, m.commit = open(m.t, m.path)
	m.publisher, _ = m.router.Connect(session.Connect{ID: "publisher"})
	m.order = nil
}

func (m *model) connect(c *modelClient) {
	var present bool
	c.conn, present = m.router.Connect(session.Connect{ID: c.id, Expiry: session.NeverExpires, ReceiveMaximum: uint16(1 + m.rnd.IntN(5))})
	if !present {
		m.t.Fatalf("the session of %s is lost", c.id)
	}
	c.last, c.unacked = -1, map[uint16]int{}
}

func (m *model) publish() {
	topic := []string{"one", "two", "both/x"}[m.rnd.IntN(3)]
	payload := fmt.Sprint(m.published) + " " + topic
	kit.NoError(m.t, m.publisher.Publish(&session.Message{Topic: topic, QoS: 1, Payload: []byte(payload)}, uint16(m.published%60000+1)))
	m.order, m.topics[m.published] = append(m.order, m.published), topic
	m.published++
}

func (m *model) collectAcks() {
	for {
		out, ok, err := m.publisher.Next()
		if err != nil || out.Code != 0 || out.Message != nil {
			m.t.Fatalf("the publisher gets %+v, %v", out, err)
		}
		if !ok {
			return
		}
		if want := uint16(m.order[0]%60000 + 1); out.PacketID != want {
			m.t.Fatalf("message %d is acknowledged before %d", out.PacketID, want)
		}
		m.acked[m.order[0]] = true
		m.order = m.order[1:]
	}
}

func (m *model) receive(c *modelClient) bool {
	out, ok, err := c.conn.Next()
	kit.NoError(m.t, err)
	if !ok {
		return false
	}
	var n int
	var topic string
	if _, err := fmt.Sscan(string(out.Message.Payload), &n, &topic); err != nil {
		m.t.Fatal(err)
	}
	if topic != c.topic && topic != "both/x" || topic != out.Message.Topic {
		m.t.Fatalf("%s gets message %d of %s", c.id, n, topic)
	}
	if n <= c.last {
		m.t.Fatalf("%s gets message %d after %d", c.id, n, c.last)
	}
	if c.acked[n] {
		m.t.Fatalf("%s gets message %d again, which it acknowledged", c.id, n)
	}
	c.last, c.seen[n], c.unacked[out.PacketID] = n, true, n
	return true
}

func (m *model) ack(c *modelClient) {
	for id, n := range c.unacked { // any one
		c.conn.Ack(id, 0)
		c.acked[n] = true
		delete(c.unacked, id)
		return
	}
}

func (m *model) write() {
	m.commit()
	for _, c := range m.clients {
		c.committed = maps.Clone(c.acked)
	}
}

// crash discards all changes that are not committed.
func (m *model) crash() {
	kit.NoError(m.t, m.store.Close())
	m.open()
	for _, c := range m.clients {
		c.conn, c.acked = nil, maps.Clone(c.committed)
	}
}

func (m *model) step() {
	c := m.clients[m.rnd.IntN(len(m.clients))]
	switch p := m.rnd.IntN(100); {
	case p < 35:
		m.publish()
	case p < 45:
		m.collectAcks()
	case p < 53:
		m.write()
	case p < 55:
		m.crash()
	case c.conn == nil:
		m.connect(c)
	case p < 75:
		m.receive(c)
	case p < 95:
		m.ack(c)
	default:
		c.conn.Disconnect(session.Disconnect{})
		c.conn = nil
	}
}

func TestPromises(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			m := &model{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), path: filepath.Join(t.TempDir(), "db"), acked: map[int]bool{}, topics: map[int]string{}}
			m.open()
			for _, c := range []*modelClient{{id: "c1", topic: "one"}, {id: "c2", topic: "two"}} {
				c.seen, c.acked, c.committed = map[int]bool{}, map[int]bool{}, map[int]bool{}
				c.conn, _ = m.router.Connect(session.Connect{ID: c.id, Expiry: session.NeverExpires})
				subscribe(t, c.conn, c.topic, "both/+")
				c.conn.Disconnect(session.Disconnect{})
				c.conn = nil
				m.clients = append(m.clients, c)
			}
			m.write()
			for range 400 {
				m.step()
			}
			m.write()
			m.collectAcks()
			m.crash() // and at last, everybody takes what is left
			for _, c := range m.clients {
				m.connect(c)
				for m.receive(c) || len(c.unacked) > 0 {
					m.ack(c)
				}
			}
			m.checkComplete()
			m.write()
			if s := m.router.Stats(); s.Queued != 0 || s.QueuedBytes != 0 {
				t.Errorf("left in queues: %+v", s)
			}
			for _, b := range []statestore.Bucket{session.Queue, session.Messages} {
				if err := m.store.Each(b, func(key string, _ []byte) error { return fmt.Errorf("left on disk: %s %q", b, key) }); err != nil {
					t.Error(err)
				}
			}
			if err := m.store.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// checkComplete checks that every message acknowledged to the publisher was received.
func (m *model) checkComplete() {
	if len(m.acked) < 20 {
		m.t.Fatalf("only %d messages were acknowledged: the test tests nothing", len(m.acked))
	}
	for n := range m.acked {
		for _, c := range m.clients {
			if m.topics[n] != "both/x" && m.topics[n] != c.topic {
				continue
			}
			if !c.seen[n] {
				m.t.Errorf("message %d was acknowledged to its publisher and never reached %s", n, c.id)
			}
		}
	}
}

// TestSameCallsSameEffects: routers that get the same calls deliver, refuse and end the same in the same order, although many sessions, shared
// subscriptions and wills are concerned and the limits of all queues are reached.
func TestSameCallsSameEffects(t *testing.T) {
	run := func(seed uint64) string {
		random, now := rand.New(rand.NewPCG(seed, 2)), time.Unix(1_000_000, 0)
		router, err := session.New(session.Config{
			Limits: session.Limits{MaxQueuedMessages: 40, MaxQueuedBytes: 1 << 20, MaxTotalBytes: 60_000}, ReceiveMaximum: 100, Logger: slog.New(slog.DiscardHandler),
			Now: func() time.Time { return now }, Shares: isSource,
		})
		kit.NoError(t, err)
		var trace strings.Builder
		conns := make([]*session.Conn, 12)
		for range 600 {
			i := random.IntN(len(conns))
			now = now.Add(time.Duration(random.IntN(3)) * time.Second)
			switch conn := conns[i]; {
			case conn == nil || conn.EndReason() != "":
				c := session.Connect{ID: fmt.Sprintf("agent:c%d/x%d", i/3, i), Owner: fmt.Sprintf("agent:c%d", i/3), Expiry: uint32(random.IntN(60)), ReceiveMaximum: 5}
				if random.IntN(2) == 0 {
					c.Will = &session.Will{Message: session.Message{Topic: "all", QoS: 1, Payload: []byte(c.ID)}, Delay: uint32(random.IntN(20))}
				}
				conns[i], _ = router.Connect(c)
				for _, filter := range []string{"all", "$share/g/all", "a/+"} {
					kit.NoError(t, conns[i].Subscribe(session.Subscription{Filter: filter, QoS: 1}))
				}
			case random.IntN(8) == 0:
				conn.Disconnect(session.Disconnect{Normal: random.IntN(2) == 0})
			case random.IntN(3) == 0:
				m := &session.Message{Topic: []string{"all", "a/b"}[random.IntN(2)], QoS: 1, Payload: make([]byte, random.IntN(2000))}
				fmt.Fprintln(&trace, i, "publishes", conn.Publish(m, uint16(1+random.IntN(1000))))
			default:
				p, ok, err := conn.Next()
				if fmt.Fprintln(&trace, i, "receives", p.PacketID, p.Code, p.Dup, ok, err); p.Message != nil {
					conn.Ack(p.PacketID, 0)
				}
			}
			router.Tick()
			fmt.Fprintf(&trace, "%+v\n", router.Stats())
		}
		return trace.String()
	}
	for seed := range uint64(20) {
		first := run(seed)
		for range 3 {
			if again := run(seed); again != first {
				t.Fatalf("seed %d: two runs differ", seed)
			}
		}
	}
}
