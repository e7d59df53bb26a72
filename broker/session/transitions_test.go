package session

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/test/kit"
)

// twin steps a router at random, and beside it a slow model of its sessions, which searches where the router counts, and
// says of each message where it is by what has happened to it.
type twin struct {
	*testing.T
	random    *rand.Rand
	now       time.Time
	router    *Router
	publisher *Conn

	sessions map[string]*modelSession
	ended    []*modelConn
	messages int
	stats    Stats // that the router should have
	seen     *seen
}

// seen is what has happened in all runs.
type seen struct {
	moves [2][gone][triggers]state
	ends  map[string]bool
}

type modelSession struct {
	id     string
	conn   *modelConn // nil: disconnected
	left   time.Time
	expiry uint32
	will   *Will // to be published at willAt
	willAt time.Time
	queue  []*modelEntry
}

type modelConn struct {
	*Conn
	window int
	will   *Will
	reason Reason // why it has ended
	rests  bool   // Next has returned nothing
	woken  bool   // since Next was called
}

// modelEntry is a message in a queue. Its connections are those on which its delivery started, and on which it was sent last.
type modelEntry struct {
	message           *Message
	qos               byte
	packetID          uint16
	startedOn, sentOn *modelConn
	gone              bool
	ticked            bool // a Tick has come after its expiry
}

func (s *modelSession) state(e *modelEntry) state {
	switch {
	case e.gone:
		return gone
	case e.sentOn == nil && e.startedOn != nil && e.startedOn == s.conn:
		return started
	case e.sentOn == nil:
		return waiting
	case e.sentOn == s.conn:
		return inFlight
	}
	return unanswered
}

func (s *modelSession) inFlight() (n int) {
	for _, e := range s.queue {
		if s.state(e) == inFlight {
			n++
		}
	}
	return n
}

func (tw *twin) hasExpired(m *Message) bool { return m.Expires > 0 && m.Expires <= tw.now.Unix() }

// move does what t does to the messages of s, and notes which it has moved where.
func (tw *twin) move(s *modelSession, t trigger, do func()) {
	before := map[*modelEntry]state{}
	for _, e := range s.queue {
		before[e] = s.state(e)
	}
	do()
	for e, from := range before {
		if to := s.state(e); to != from {
			tw.seen.moves[e.qos][from][t] = to
		}
	}
	s.queue = slices.DeleteFunc(s.queue, func(e *modelEntry) bool { return e.gone })
}

func (tw *twin) drop(e *modelEntry, reason Reason) {
	e.gone = true
	tw.stats.Dropped[reason]++
}

// all returns the sessions that there are now, by id.
func (tw *twin) all() (found []*modelSession) {
	for _, id := range slices.Sorted(maps.Keys(tw.sessions)) {
		found = append(found, tw.sessions[id])
	}
	return found
}

// route queues m for all sessions, which subscribe to all messages. It reports whether there are any.
func (tw *twin) route(m *Message) bool {
	tw.stats.Received++
	targets := tw.all()
	for _, s := range targets {
		qos := min(m.QoS, subscribedQoS(s.id))
		ready := s.conn != nil && (qos == 0 || s.inFlight() < s.conn.window) && !slices.ContainsFunc(s.queue, func(e *modelEntry) bool { return e.sentOn != s.conn })
		switch {
		case tw.sessions[s.id] != s || s.conn == nil && qos == 0:
		case tw.hasExpired(m) && !ready:
			tw.stats.Dropped[MessageExpired]++
		case len(s.queue) >= tw.router.cfg.MaxQueuedMessages && qos == 0:
			tw.stats.Dropped[QoS0]++
		case len(s.queue) >= tw.router.cfg.MaxQueuedMessages:
			tw.stats.Dropped[QueueFull]++
			tw.end(s, QueueFull)
		default:
			e := &modelEntry{message: m, qos: qos}
			if tw.hasExpired(m) {
				e.startedOn = s.conn
			}
			s.queue = append(s.queue, e)
		}
	}
	return len(targets) > 0
}

// subscribedQoS is the QoS of the subscription of a session.
func subscribedQoS(id string) byte { return 1 - (id[0]-'0')%2 }

func (tw *twin) publishWill(s *modelSession) {
	if will := s.will; will != nil {
		s.will = nil
		if will.Expiry != nil {
			will.Message.Expires = tw.now.Unix() + int64(*will.Expiry)
		}
		tw.route(&will.Message)
	}
}

func (tw *twin) end(s *modelSession, reason Reason) {
	tw.seen.ends[fmt.Sprint(reason, " ", s.conn != nil)] = true
	if s.conn != nil {
		s.will = s.conn.will
		tw.endConn(s, reason)
	}
	if reason == Revoked {
		s.will = nil
	}
	if n := len(s.queue); n > 0 {
		tw.stats.Dropped[reason] += uint64(n)
	}
	delete(tw.sessions, s.id)
	tw.publishWill(s)
}

func (tw *twin) endConn(s *modelSession, reason Reason) {
	s.conn.reason = reason
	tw.ended = append(tw.ended, s.conn)
	s.conn, s.left = nil, tw.now
}

func (tw *twin) disconnect(s *modelSession, d Disconnect) {
	will := s.conn.will
	tw.move(s, disconnected, func() {
		tw.endConn(s, Disconnected)
		for _, e := range s.queue {
			if e.qos == 0 {
				tw.drop(e, Disconnected)
			}
		}
	})
	if d.Expiry != nil {
		s.expiry = *d.Expiry
	}
	if !d.Normal && will != nil {
		s.will, s.willAt = will, tw.now.Add(time.Duration(will.Delay)*time.Second)
	}
	if s.expiry == 0 {
		tw.end(s, Disconnected)
		return
	}
	if s.will != nil && s.will.Delay == 0 {
		tw.publishWill(s)
	}
}

// settle does what is due of a session without a connection.
func (tw *twin) settle(s *modelSession) {
	if s.will != nil && !tw.now.Before(s.willAt) {
		tw.publishWill(s)
	}
	if tw.sessions[s.id] == s && s.expired(tw.now) {
		tw.end(s, Expired)
	}
}

func (s *modelSession) expired(now time.Time) bool {
	return s.expiry != NeverExpires && !now.Before(s.left.Add(time.Duration(s.expiry)*time.Second))
}

func (tw *twin) connect(id string) {
	c := Connect{ID: id, CleanStart: tw.random.IntN(6) == 0, Expiry: []uint32{0, 4, 20, NeverExpires}[tw.random.IntN(4)], ReceiveMaximum: uint16(1 + tw.random.IntN(3))}
	if tw.random.IntN(2) == 0 {
		c.Will = &Will{Message: tw.message(), Delay: uint32(tw.random.IntN(2) * 3)}
		if tw.random.IntN(2) == 0 {
			c.Will.Expiry = new(uint32)
			*c.Will.Expiry = uint32(tw.random.IntN(3))
		}
	}
	if s := tw.sessions[id]; s != nil {
		if s.conn != nil {
			tw.disconnect(s, Disconnect{})
		} else {
			tw.settle(s)
		}
	}
	if s := tw.sessions[id]; s != nil && c.CleanStart {
		tw.end(s, CleanStart)
	}
	s := tw.sessions[id]
	want := s != nil
	is := &modelConn{window: int(c.ReceiveMaximum)}
	c.Wake = func() { is.woken = true }
	var present bool
	is.Conn, present = tw.router.Connect(c)
	if present != want {
		tw.Fatalf("session %s is there: %v", id, present)
	}
	kit.NoError(tw.T, is.Subscribe(Subscription{Filter: "t", QoS: subscribedQoS(id)}))
	if s == nil {
		s = &modelSession{id: id}
		tw.sessions[id] = s
	}
	s.conn, s.expiry, s.will = is, c.Expiry, nil
	if c.Will != nil {
		will := *c.Will
		is.will = &will
	}
}

// message returns a new one, which may expire at once.
func (tw *twin) message() Message {
	tw.messages++
	m := Message{Topic: "t", QoS: byte(min(1, tw.random.IntN(3))), Payload: []byte(fmt.Sprint(tw.messages))}
	if tw.random.IntN(2) == 0 {
		m.Expires = tw.now.Unix() + int64(tw.random.IntN(4))
	}
	return m
}

func (tw *twin) publish() {
	m := tw.message()
	matched := tw.route(&m)
	kit.NoError(tw.T, tw.publisher.Publish(&m, 1))
	want := Packet{PacketID: 1}
	if !matched {
		want.Code = 0x10
	}
	if p, ok, err := tw.publisher.Next(); err != nil || ok != (m.QoS == 1) || ok && p != want {
		tw.Fatalf("the publisher gets %+v, %v, %v", p, ok, err)
	}
}

// next returns what Next returns, if anything, and what has expired before it.
func (tw *twin) next(s *modelSession) (e *modelEntry, before []*modelEntry) {
	for _, e := range s.queue {
		switch {
		case e.sentOn == s.conn:
		case e.qos > 0 && s.inFlight() >= s.conn.window:
			return nil, before
		case tw.hasExpired(e.message) && s.state(e) != started:
			before = append(before, e)
		default:
			return e, before
		}
	}
	return nil, before
}

func (tw *twin) receive(s *modelSession) {
	e, before := tw.next(s)
	tw.move(s, expired, func() {
		for _, e := range before {
			tw.drop(e, MessageExpired)
		}
	})
	s.conn.woken = false
	p, ok, err := s.conn.Next()
	kit.NoError(tw.T, err)
	s.conn.rests = !ok
	if ok != (e != nil) || ok && (p.Message.Topic != "t" || string(p.Message.Payload) != string(e.message.Payload) || p.QoS != e.qos || p.Dup != (e.sentOn != nil) || p.Dup && p.PacketID != e.packetID) {
		tw.Fatalf("%s gets %+v, %v, want %+v", s.id, p, ok, e)
	}
	if ok {
		tw.stats.Sent++
		tw.move(s, sent, func() { e.gone, e.packetID, e.sentOn = e.qos == 0, p.PacketID, s.conn })
	}
}

func (tw *twin) answer(s *modelSession) {
	id := uint16(tw.random.IntN(20))
	if n := len(s.queue); n > 0 {
		id = s.queue[tw.random.IntN(n)].packetID
	}
	switch tw.random.IntN(4) {
	case 0:
		s.conn.Ack(id, 0x80)
		tw.stats.Dropped[RefusedByClient]++
	case 1:
		s.conn.Drop(id)
		tw.stats.Dropped[TooLarge]++
	default:
		s.conn.Ack(id, 0)
	}
	tw.move(s, answered, func() {
		for _, e := range s.queue {
			e.gone = id != 0 && e.packetID == id
		}
	})
}

func (tw *twin) leave(s *modelSession) {
	d := Disconnect{Normal: tw.random.IntN(2) == 0}
	if tw.random.IntN(4) == 0 {
		d.Expiry = new(uint32)
		*d.Expiry = uint32(tw.random.IntN(2) * 5)
	}
	s.conn.Disconnect(d)
	tw.disconnect(s, d)
}

func (tw *twin) tick() {
	tw.router.Tick()
	for _, s := range tw.all() {
		tw.move(s, expired, func() {
			for _, e := range s.queue {
				if !tw.hasExpired(e.message) || e.ticked {
					continue
				}
				if at := s.state(e); at == waiting || at == unanswered {
					tw.drop(e, MessageExpired)
				}
				e.ticked = true
			}
		})
	}
	for _, s := range tw.all() {
		if tw.sessions[s.id] == s && s.conn == nil {
			tw.settle(s)
		}
	}
}

// lateCall calls a connection that has ended, which does nothing.
func (tw *twin) lateCall() {
	if len(tw.ended) == 0 {
		return
	}
	c := tw.ended[tw.random.IntN(len(tw.ended))]
	c.Ack(uint16(tw.random.IntN(5)), 0)
	c.Disconnect(Disconnect{})
	kit.NoError(tw.T, c.Subscribe(Subscription{Filter: "other"}))
	p, ok, err := c.Next()
	if publish := c.Publish(&Message{Topic: "t", QoS: 1}, 1); ok || err != nil || c.Unsubscribe("t") || !errors.Is(publish, ErrEnded) {
		tw.Fatalf("a connection that has ended gets %+v, %v, and publishes: %v", p, err, publish)
	}
}

func (tw *twin) step() {
	id := fmt.Sprint(tw.random.IntN(4))
	s := tw.sessions[id]
	switch p := tw.random.IntN(100); {
	case p < 30:
		tw.publish()
	case p < 40:
		tw.now = tw.now.Add(time.Duration(tw.random.IntN(4)) * time.Second)
	case p < 48:
		tw.tick()
	case p < 50:
		tw.router.RevokeSession(id)
		if s != nil {
			tw.end(s, Revoked)
		}
	case p < 52:
		tw.lateCall()
	case p < 56, s == nil || s.conn == nil:
		tw.connect(id)
	case p < 76:
		tw.receive(s)
	case p < 94:
		tw.answer(s)
	default:
		tw.leave(s)
	}
}

// check compares the router with the model.
func (tw *twin) check() {
	want := tw.stats
	want.Sessions, want.Connected, want.Subscriptions = len(tw.sessions)+1, 1, len(tw.sessions) // the publisher
	held := map[*Message]bool{}
	for id, s := range tw.sessions {
		var model, router strings.Builder
		for _, e := range s.queue {
			fmt.Fprintf(&model, "%s is in state %d with identifier %d\n", e.message.Payload, s.state(e), e.packetID)
			want.Queued++
			want.QueuedBytes += e.message.size()
			want.TotalBytes += entryBytes
			if !held[e.message] {
				want.TotalBytes += e.message.size()
			}
			held[e.message] = true
		}
		is := tw.router.sessions[id]
		if is == nil {
			tw.Fatalf("session %s has ended", id)
		}
		for el := is.queue.Front(); el != nil; el = el.Next() {
			e := el.Value.(*entry)
			fmt.Fprintf(&router, "%s is in state %d with identifier %d\n", e.msg.body.Payload, e.state, e.packetID)
		}
		if model.String() != router.String() || is.inFlight != s.inFlight() {
			tw.Fatalf("in session %s, %d in flight\n%swant %d\n%s", id, is.inFlight, &router, s.inFlight(), &model)
		}
		if s.conn != nil {
			want.Connected++
			if e, _ := tw.next(s); s.conn.EndReason() != "" || e != nil && s.conn.rests && !s.conn.woken {
				tw.Fatalf("the connection of %s has ended: %q; it can receive %+v, and was woken: %v", id, s.conn.EndReason(), e, s.conn.woken)
			}
		}
	}
	want.TotalMemory = want.TotalBytes
	if got := tw.router.Stats(); !reflect.DeepEqual(got, want) {
		tw.Fatalf("stats\n%+v, want\n%+v", got, want)
	}
	for _, c := range tw.ended {
		if got := c.EndReason(); got != c.reason || !c.woken {
			tw.Fatalf("a connection has ended by %q, want %q; it was woken: %v", got, c.reason, c.woken)
		}
	}
}

// TestLives: sessions and their messages are where the model says, and move as the table says, each of whose moves is seen.
func TestLives(t *testing.T) {
	all := &seen{ends: map[string]bool{}}
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			tw := &twin{T: t, random: rand.New(rand.NewPCG(seed, 3)), now: time.Unix(1_000_000, 0), sessions: map[string]*modelSession{}, stats: Stats{Dropped: map[Reason]uint64{}}, seen: all}
			var err error
			tw.router, err = New(Config{Limits: Limits{MaxQueuedMessages: 6}, ReceiveMaximum: 10, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return tw.now }})
			kit.NoError(t, err)
			tw.publisher, _ = tw.router.Connect(Connect{ID: "publisher"})
			for range 300 {
				tw.step()
				tw.check()
			}
		})
	}
	if all.moves != transitions {
		t.Errorf("messages have moved by\n%v, and the table has\n%v", all.moves, transitions)
	}
	want := []string{"clean_start false", "disconnected false", "queue_full false", "queue_full true", "revoked false", "revoked true", "session_expired false"}
	if got := slices.Sorted(maps.Keys(all.ends)); !slices.Equal(got, want) {
		t.Errorf("sessions have ended by, and were connected: %q, want %q", got, want)
	}
}
