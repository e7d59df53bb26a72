// Package memory implements a broker and its transport within a process, for tests of packages that
// use a transport. Its sessions behave like those of an MQTT broker: they are kept by client id,
// queue messages while the client is disconnected, and deliver unacknowledged messages again.
//
//	broker := memory.NewBroker()
//	agent, source := broker.Client("cluster1-agent"), broker.Client("hub1")
//	go agent.Run(ctx, ...)
//	go source.Run(ctx, ...)
//	...
//	broker.Cut("cluster1-agent")     // the agent loses its connection
//	broker.Restore("cluster1-agent") // the agent reconnects and receives the queued messages
package memory

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/topicfilter"
)

// window is the maximum number of unacknowledged messages of a session.
const window = 256

var (
	errCut       = errors.New("the connection was cut")
	errTakenOver = errors.New("another client connected with the same client id")
	// errUnanswered says that a message was lost, or its acknowledgement.
	errUnanswered = errors.New("no acknowledgement")
)

// Broker passes events between its clients. All methods are safe for concurrent use.
type Broker struct {
	mu         sync.Mutex
	sessions   map[string]*session
	cut        map[string]bool
	denied     map[string][]string // filters by client id
	limit      int
	duplicates int
	nextMember int           // of shared subscriptions
	changed    chan struct{} // closed and replaced at each change that a client may wait for
}

// session is the session of a client.
type session struct {
	filters   []string
	queue     []*message // in order of arrival; the first ones may be delivered
	delivered int        // number of messages of queue that are delivered on the connection
	conn      *connection
}

type message struct {
	topic string
	event cloudevents.Event
}

// expired reports whether the event's extension expirytime has passed.
func (m *message) expired() bool {
	at, err := types.ToTime(m.event.Extensions()["expirytime"])
	return err == nil && !at.After(time.Now())
}

// connection is a connection of a client. Broker.mu guards it.
type connection struct {
	lost   chan struct{} // closed when the client knows that it is lost
	reason error         // set before lost is closed
	limit  int
	will   *message // published when the broker knows that the connection is lost
	// What is lost on it, see [Broker.Break].
	sent, received bool
}

// end tells the client that the connection is lost.
func (c *connection) end(reason error) {
	if c.reason == nil {
		c.reason = reason
		close(c.lost)
	}
}

// NewBroker returns a broker without sessions.
func NewBroker() *Broker {
	return &Broker{
		sessions: make(map[string]*session), cut: make(map[string]bool),
		denied: make(map[string][]string), changed: make(chan struct{}),
	}
}

// Client returns a transport with this client id. If several transports run with one id, the latest
// to connect takes over the session, like with MQTT.
func (b *Broker) Client(id string) *Transport { return &Transport{broker: b, id: id} }

// Cut ends the connection of the client and refuses new ones until Restore. Messages are queued
// meanwhile.
func (b *Broker) Cut(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cut[id] = true
	b.disconnectLocked(id, errCut)
}

// Break has the client's connection be half-open: what the client sends, or receives, or both, is lost from now on. The
// broker notices after one time and the client after another, unless the client connects again before. What the broker has
// sent and got no acknowledgement of, it sends again on the next connection.
func (b *Broker) Break(id string, sent, received bool, broker, client time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sessions[id]
	if s == nil || s.conn == nil {
		return
	}
	c := s.conn
	c.sent, c.received = c.sent || sent, c.received || received
	time.AfterFunc(broker, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if s.conn == c {
			b.dropLocked(s, errCut)
		}
	})
	time.AfterFunc(client, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		c.end(errCut)
	})
}

// Restore allows the client to connect again after Cut.
func (b *Broker) Restore(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.cut, id)
	b.notify()
}

// Forget ends the connection of the client and removes its session with all queued messages.
func (b *Broker) Forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.disconnectLocked(id, errCut)
	delete(b.sessions, id)
}

// Connected reports whether a client with this id is connected.
func (b *Broker) Connected(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sessions[id]
	return s != nil && s.conn != nil
}

// SetLimit sets the maximum packet size in bytes that the broker announces to clients that connect
// from now on; 0 for none. The size of an event is that of its topic, attributes and data.
func (b *Broker) SetLimit(bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = bytes
}

// Deny refuses events that the client publishes from now on to topics that match filter.
func (b *Broker) Deny(id, filter string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.denied[id] = append(b.denied[id], filter)
}

// Duplicate delivers each event that is published from now on n more times.
func (b *Broker) Duplicate(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.duplicates = n
}

// disconnectLocked ends the connection of the client at both ends, if there is one. The caller must hold b.mu.
func (b *Broker) disconnectLocked(id string, reason error) {
	s := b.sessions[id]
	if s == nil || s.conn == nil {
		return
	}
	s.conn.end(reason)
	b.dropLocked(s, reason)
}

// dropLocked ends the connection of s for the broker. The caller must hold b.mu.
func (b *Broker) dropLocked(s *session, reason error) {
	c := s.conn
	s.conn = nil
	if c.will != nil && !errors.Is(reason, errStopping) {
		b.route(c.will.topic, c.will.event)
	}
	b.notify()
}

// notify wakes all waiters. The caller must hold b.mu.
func (b *Broker) notify() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// connect connects the client. If the client cannot connect it returns nil and a channel that is
// closed at the next change. It takes over the session of another client with this id, unless yield
// is set.
func (b *Broker) connect(id string, filters []string, will *message, yield bool) (c *connection, resumed bool, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if held := b.sessions[id]; b.cut[id] || yield && held != nil && held.conn != nil {
		return nil, false, b.changed
	}
	s, resumed := b.sessions[id]
	switch {
	case !resumed:
		s = &session{}
		b.sessions[id] = s
	case s.conn != nil && s.conn.received: // the other client does not hear of it
		b.dropLocked(s, errTakenOver)
	default:
		b.disconnectLocked(id, errTakenOver)
	}
	s.filters, s.delivered = filters, 0
	s.conn = &connection{lost: make(chan struct{}), limit: b.limit, will: will}
	return s.conn, resumed, nil
}

// disconnect ends c because the client stops. The broker hears of it unless that is lost.
func (b *Broker) disconnect(id string, c *connection) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.end(errStopping)
	if s := b.sessions[id]; s != nil && s.conn == c && !c.sent {
		b.dropLocked(s, errStopping)
	}
}

// next returns the next message for c, or nil and a channel that is closed at the next change.
func (b *Broker) next(id string, c *connection) (m *message, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sessions[id]
	if s == nil || s.conn != c || c.received {
		return nil, b.changed
	}
	for s.delivered < len(s.queue) && s.queue[s.delivered].expired() {
		s.queue = slices.Delete(s.queue, s.delivered, s.delivered+1)
	}
	if s.delivered == len(s.queue) || s.delivered == window {
		return nil, b.changed
	}
	m = s.queue[s.delivered]
	s.delivered++
	return m, nil
}

// ack acknowledges m, which was delivered on c. Like with MQTT, acknowledgements take effect in the
// order of delivery, and not after c is lost.
func (b *Broker) ack(id string, c *connection, m *message, acked map[*message]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sessions[id]
	if s == nil || s.conn != c || c.sent {
		return
	}
	acked[m] = true
	for len(s.queue) > 0 && acked[s.queue[0]] {
		delete(acked, s.queue[0])
		s.queue = s.queue[1:]
		s.delivered--
	}
	b.notify()
}

// publish delivers e to each session that subscribes to topic. It reports whether there is none, and fails with errUnanswered if
// the client gets no answer.
func (b *Broker) publish(id string, c *connection, topic string, e cloudevents.Event) (nobody bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch s := b.sessions[id]; {
	case c.reason != nil:
		return false, transport.ErrNotConnected
	case s == nil || s.conn != c || c.sent:
		return false, errUnanswered
	}
	if slices.ContainsFunc(b.denied[id], func(filter string) bool { return topicfilter.Match(filter, topic) }) {
		return false, transport.ErrNotAuthorized
	}
	delivered := b.route(topic, e)
	b.notify()
	if c.received {
		return false, errUnanswered
	}
	return !delivered, nil
}

// route queues e for each session that subscribes to topic, and reports whether there is one. The
// caller must hold b.mu.
func (b *Broker) route(topic string, e cloudevents.Event) (delivered bool) {
	groups := make(map[string][]*session)
	for _, id := range slices.Sorted(maps.Keys(b.sessions)) {
		s := b.sessions[id]
		for _, filter := range s.filters {
			group, plain := topicfilter.SplitShare(filter)
			if !topicfilter.Match(plain, topic) {
				continue
			}
			delivered = true
			if group == "" {
				b.deliver(s, topic, e)
				break // once per session, however many filters match
			}
			groups[group+"/"+plain] = append(groups[group+"/"+plain], s)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		b.nextMember++
		b.deliver(pickMember(groups[group], b.nextMember), topic, e)
	}
	return delivered
}

func (b *Broker) deliver(s *session, topic string, e cloudevents.Event) {
	for range 1 + b.duplicates {
		s.queue = append(s.queue, &message{topic: topic, event: e.Clone()})
	}
}

// pickMember returns the n-th member, modulo their number, of the connected ones if there are any.
func pickMember(members []*session, n int) *session {
	connected := slices.DeleteFunc(slices.Clone(members), func(s *session) bool { return s.conn == nil })
	if len(connected) > 0 {
		members = connected
	}
	return members[n%len(members)]
}

// eventSize returns the size in bytes of an event with its topic.
func eventSize(topic string, e cloudevents.Event) int {
	n := len(topic) + len(e.ID()) + len(e.Source()) + len(e.Type()) + len(e.DataContentType()) + len(e.Data())
	for name, value := range e.Extensions() {
		text, _ := types.Format(value) // all types of extensions have a format
		n += len(name) + len(text)
	}
	return n
}
