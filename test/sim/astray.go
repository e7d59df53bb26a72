package sim

import (
	"maps"
	"slices"
	"strings"
	"sync"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/pkg/transport"
)

// maxKept is how many messages a broker keeps for each program that it may deliver again.
const maxKept = 100

// depot is where a broker that lies has messages for the wrong program, and from earlier times. It is safe for concurrent use.
type depot struct {
	random *random

	mu       sync.Mutex
	programs map[string]func(transport.Message) // by id at the broker, those that have connected
	kept     map[string][]transport.Message     // what each has received, as if it were retained
	replays  map[string]int                     // how many of them come at its next connect
}

func newDepot(r *random) *depot {
	return &depot{random: r, programs: map[string]func(transport.Message){}, kept: map[string][]transport.Message{}, replays: map[string]int{}}
}

// keep keeps a message that a program has received.
func (d *depot) keep(id string, m transport.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m.Event, m.Ack = m.Event.Clone(), func() {}
	d.kept[id] = append(d.kept[id], m)
	if n := len(d.kept[id]); n > maxKept {
		d.kept[id] = d.kept[id][n-maxKept:]
	}
}

// connected notes that a program has connected, and returns the old messages that it gets now.
func (d *depot) connected(id string, receive func(transport.Message)) []transport.Message {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.programs[id] = receive
	var old []transport.Message
	for n := d.replays[id]; n > 0 && len(d.kept[id]) > 0; n-- {
		m := d.kept[id][d.random.of(id+strings.Repeat("retained", n)).intN(len(d.kept[id]))]
		m.Event = m.Event.Clone()
		old = append(old, m)
	}
	delete(d.replays, id)
	return old
}

// replay has a program get n old messages at its next connect.
func (d *depot) replay(id string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replays[id] = n
}

// astray returns the way to another program than that with an id, which the message reaches, half of the times on a topic of that one. It returns
// false if no other one has connected.
func (d *depot) astray(id string, m transport.Message) (func(), bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(d.programs)), func(other string) bool { return other == id })
	if len(others) == 0 {
		return nil, false
	}
	random := d.random.of("astray" + id + identity(m.Event))
	other := others[random.intN(len(others))]
	if random.chance(50) {
		m.Topic = topicOf(other, m.Topic)
	}
	m.Event, m.Ack = m.Event.Clone(), func() {}
	receive := d.programs[other]
	return func() { receive(m) }, true
}

// topicOf returns the topic of a program that is like another topic.
func topicOf(id, topic string) string {
	levels := strings.Split(topic, "/")
	cluster, isAgent := strings.CutSuffix(id, "-agent")
	switch {
	case len(levels) != 5:
	case isAgent:
		levels[3] = cluster
	case sourceIn.MatchString(id):
		levels[1] = sourceProgram
	default:
		levels[1] = string(hubSource)
	}
	return strings.Join(levels, "/")
}

// replay has a program connect again, and get messages that it had before, where programs sign: without signatures, an old spec brings a deleted work back
// until the next digest (docs/reliability.md).
func (w *World) replay() {
	p := w.anyClient()
	if w.o.Keys == "" || p.running == nil || !p.running.is(&p.running.online) || w.away[p.id] {
		return
	}
	n := 1 + w.random.intN(5)
	w.trace.note(p.name, "connects again, and gets messages that were retained")
	w.depot.replay(p.id, n)
	w.broker.Cut(p.id)
	w.broker.Restore(p.id)
}

// isWork reports whether a message is about a work.
func isWork(e cloudevents.Event) bool { return e.Extensions()["resourceid"] != nil }
