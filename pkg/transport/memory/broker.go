// Package memory is a broker inside a process and the transport to it, for tests
// of what stands on a transport. Its sessions behave as an MQTT broker's do:
// they are kept by client id, queue while the client is away, and deliver again
// what was not acknowledged. Nothing of it is on disk or on the network.
//
//	broker := memory.NewBroker()
//	agent, source := broker.Client("cluster1-agent"), broker.Client("hub1")
//	go agent.Run(ctx, ...)
//	go source.Run(ctx, ...)
//	...
//	broker.Cut("cluster1-agent")     // the agent loses its connection
//	broker.Restore("cluster1-agent") // and gets it back, with what came meanwhile
package memory

import (
	"errors"
	"slices"
	"strings"
	"sync"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/workwire/workwire/pkg/transport"
)

// window is how many messages a session hands out without acknowledgement.
const window = 256

var (
	errCut       = errors.New("the connection was cut")
	errTakenOver = errors.New("another client connected with the same client id")
)

// Broker passes events between its clients. All methods may be called at any
// time from any goroutine.
type Broker struct {
	mu         sync.Mutex
	sessions   map[string]*session
	cut        map[string]bool
	denied     map[string][]string // filters by client id
	limit      int
	duplicates int
	turn       int           // rotates the members of shared subscriptions
	changed    chan struct{} // closed and replaced at every change that somebody may wait for
}

// session is what the broker keeps of a client.
type session struct {
	filters []string
	queue   []*message // in order of arrival, the first ones perhaps handed out
	handed  int        // how many of queue are handed out on the connection
	conn    *connection
}

type message struct {
	topic string
	event cloudevents.Event
}

// connection is one connection of a client.
type connection struct {
	lost   chan struct{} // closed when it is lost
	reason error         // set before lost is closed
	limit  int
	will   *message // published when the connection is lost
}

// NewBroker makes a broker without sessions.
func NewBroker() *Broker {
	return &Broker{
		sessions: make(map[string]*session), cut: make(map[string]bool),
		denied: make(map[string][]string), changed: make(chan struct{}),
	}
}

// Client makes a transport with the client id. Of several that run with one id,
// the latest to connect is connected, as on MQTT.
func (b *Broker) Client(id string) *Transport { return &Transport{broker: b, id: id} }

// Cut ends the connection of the client and keeps it from connecting until
// Restore. What is published meanwhile is queued.
func (b *Broker) Cut(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cut[id] = true
	b.drop(id, errCut)
}

// Restore lets the client connect again after Cut.
func (b *Broker) Restore(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.cut, id)
	b.notify()
}

// Forget ends the connection of the client and forgets its session with all
// that is queued: its next connection is not resumed.
func (b *Broker) Forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(id, errCut)
	delete(b.sessions, id)
}

// Connected reports whether a client of that id is connected, with its
// subscriptions.
func (b *Broker) Connected(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sessions[id]
	return s != nil && s.conn != nil
}

// SetLimit sets the maximum packet size in bytes that the broker announces to
// clients that connect from now on; 0 for none. The size of an event is that of
// its topic, attributes and data.
func (b *Broker) SetLimit(bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = bytes
}

// Deny refuses events that the client publishes from now on to topics that
// match filter.
func (b *Broker) Deny(id, filter string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.denied[id] = append(b.denied[id], filter)
}

// Duplicate delivers each event published from now on n times more.
func (b *Broker) Duplicate(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.duplicates = n
}

// drop ends the connection of the client, if there is one; b.mu is held.
func (b *Broker) drop(id string, reason error) {
	s := b.sessions[id]
	if s == nil || s.conn == nil {
		return
	}
	c := s.conn
	c.reason = reason
	close(c.lost)
	s.conn = nil
	if c.will != nil && !errors.Is(reason, errStopping) {
		b.route(c.will.topic, c.will.event)
	}
	b.notify()
}

// notify wakes up who waits for a change; b.mu is held.
func (b *Broker) notify() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// connect gives the client a connection, or nil and what to wait for. It takes
// the connection from another client of that id, unless it yields to that.
func (b *Broker) connect(id string, filters []string, will *message, yield bool) (c *connection, resumed bool, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if held := b.sessions[id]; b.cut[id] || yield && held != nil && held.conn != nil {
		return nil, false, b.changed
	}
	b.drop(id, errTakenOver)
	s, resumed := b.sessions[id]
	if !resumed {
		s = &session{}
		b.sessions[id] = s
	}
	s.filters, s.handed = filters, 0
	s.conn = &connection{lost: make(chan struct{}), limit: b.limit, will: will}
	return s.conn, resumed, nil
}

// disconnect ends c, if it is the client's connection still.
func (b *Broker) disconnect(id string, c *connection, reason error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.sessions[id]; s != nil && s.conn == c {
		b.drop(id, reason)
	}
}

// next gives the next message for c, or nil and what to wait for.
func (b *Broker) next(id string, c *connection) (m *message, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sessions[id]
	if s == nil || s.conn != c || s.handed == len(s.queue) || s.handed == window {
		return nil, b.changed
	}
	m = s.queue[s.handed]
	s.handed++
	return m, nil
}

// ack takes note that m, handed out on c, is held. As on MQTT, the broker is
// told in the order of arrival, and not at all once c is lost.
func (b *Broker) ack(id string, c *connection, m *message, marked map[*message]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sessions[id]
	if s == nil || s.conn != c {
		return
	}
	marked[m] = true
	for len(s.queue) > 0 && marked[s.queue[0]] {
		delete(marked, s.queue[0])
		s.queue = s.queue[1:]
		s.handed--
	}
	b.notify()
}

// publish passes e on to every session that subscribes to topic.
func (b *Broker) publish(id string, c *connection, topic string, e cloudevents.Event) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.sessions[id]; s == nil || s.conn != c {
		return transport.ErrNotConnected
	}
	for _, filter := range b.denied[id] {
		if matches(filter, topic) {
			return transport.ErrNotAuthorized
		}
	}
	b.route(topic, e)
	b.notify()
	return nil
}

// route queues e for every session that subscribes to topic; b.mu is held.
func (b *Broker) route(topic string, e cloudevents.Event) {
	groups := make(map[string][]*session)
	for _, id := range sortedKeys(b.sessions) {
		s := b.sessions[id]
		for _, filter := range s.filters {
			group, plain := share(filter)
			if !matches(plain, topic) {
				continue
			}
			if group == "" {
				b.deliver(s, topic, e)
				break // once per session, however many filters match
			}
			groups[group+"/"+plain] = append(groups[group+"/"+plain], s)
		}
	}
	for _, group := range sortedKeys(groups) {
		b.turn++
		b.deliver(pick(groups[group], b.turn), topic, e)
	}
}

func (b *Broker) deliver(s *session, topic string, e cloudevents.Event) {
	for range 1 + b.duplicates {
		s.queue = append(s.queue, &message{topic: topic, event: e.Clone()})
	}
}

// pick gives the member whose turn it is, among those connected if any is.
func pick(members []*session, turn int) *session {
	connected := slices.DeleteFunc(slices.Clone(members), func(s *session) bool { return s.conn == nil })
	if len(connected) > 0 {
		members = connected
	}
	return members[turn%len(members)]
}

// share takes the group off a shared subscription's filter.
func share(filter string) (group, plain string) {
	if rest, shared := strings.CutPrefix(filter, "$share/"); shared {
		group, plain, _ = strings.Cut(rest, "/")
		return group, plain
	}
	return "", filter
}

// matches reports whether topic matches filter by MQTT's rules.
func matches(filter, topic string) bool {
	levels, names := strings.Split(filter, "/"), strings.Split(topic, "/")
	if strings.HasPrefix(topic, "$") && !strings.HasPrefix(filter, "$") {
		return false
	}
	for i, level := range levels {
		if level == "#" {
			return true
		}
		if i >= len(names) || level != "+" && level != names[i] {
			return false
		}
	}
	return len(levels) == len(names)
}

// size counts the bytes of what an event is published with.
func size(topic string, e cloudevents.Event) int {
	n := len(topic) + len(e.ID()) + len(e.Source()) + len(e.Type()) + len(e.DataContentType()) + len(e.Data())
	for name, value := range e.Extensions() {
		text, _ := types.Format(value) // extensions are of types that have a format
		n += len(name) + len(text)
	}
	return n
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
