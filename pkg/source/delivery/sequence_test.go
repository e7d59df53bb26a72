package delivery

import (
	"fmt"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/wire"
)

// TestSequences sends statuses, written as session and sequence id, and checks which are taken.
// "+a" announces session a.
func TestSequences(t *testing.T) {
	const forged = 1 << 62
	type status struct {
		session string
		id      wire.SequenceID
		taken   bool
	}
	for _, c := range []struct {
		name     string
		stored   Sequences
		statuses []status
	}{
		{name: "one session", statuses: []status{{"+a", 0, true}, {"a", 5, true}, {"a", 5, false}, {"a", 4, false}, {"a", 6, true}}},
		{name: "no session, as OCM's agents", statuses: []status{{"", 5, true}, {"", 5, false}, {"", 4, false}, {"", 0, true}, {"", 6, true}}},
		{name: "the clock steps back between sessions", statuses: []status{{"+a", 0, true}, {"a", 900, true}, {"+b", 0, true}, {"b", 3, true}, {"b", 4, true}, {"b", 3, false}}},
		{name: "repeated after the step", statuses: []status{{"a", 899, true}, {"a", 900, true}, {"b", 3, true}, {"a", 899, false}, {"a", 900, false}, {"b", 4, true}}},
		{name: "reordered over a connect", statuses: []status{{"+a", 0, true}, {"a", 5, true}, {"+b", 0, true}, {"b", 8, true}, {"a", 6, false}, {"b", 9, true}}},
		{name: "reordered over a connect, the first of its session", statuses: []status{{"+a", 0, true}, {"+b", 0, true}, {"b", 8, true}, {"a", 6, false}, {"b", 9, true}}},
		{name: "a late one after a step back does not shut out", statuses: []status{{"+a", 0, true}, {"a", 900, true}, {"+b", 0, true}, {"b", 3, true}, {"a", 901, true}, {"b", 4, true}}},
		{name: "forged in a session of its own", statuses: []status{{"+a", 0, true}, {"a", 5, true}, {"x", forged, true}, {"a", 6, true}, {"a", 7, true}}},
		{name: "forged without a session", statuses: []status{{"+a", 0, true}, {"a", 5, true}, {"", forged, true}, {"a", 6, true}}},
		{name: "forged in the agent's session", statuses: []status{{"+a", 0, true}, {"a", forged, true}, {"a", 6, false}, {"+b", 0, true}, {"b", 7, true}, {"b", 8, true}}},
		{name: "the agent is upgraded", statuses: []status{{"", 900, true}, {"a", 3, true}, {"", 900, false}, {"a", 4, true}}},
		{name: "the agent is downgraded", statuses: []status{{"+a", 0, true}, {"a", 5, true}, {"", 8, true}, {"", 7, false}, {"", 9, true}}},
		{name: "stored by an older version", stored: Sequences{Newest: SessionSequence{ID: 900}}, statuses: []status{{"", 900, false}, {"a", 3, true}}},
		{name: "redelivered to a source that restarted", stored: Sequences{}.Add(NewSession("a"), 900).Add(NewSession("b"), 3),
			statuses: []status{{"a", 900, false}, {"b", 3, false}, {"b", 4, true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := workKey{uid: "u", cluster: "cluster1"}
			d := testCore(0, 1, ClusterOpen)
			w := d.ensure(k)
			for i, s := range c.statuses {
				if len(s.session) > 0 && s.session[0] == '+' {
					d.step(time.Now(), said{k.cluster, &wire.Presence{Present: true, Session: s.session[1:]}})
					continue
				}
				status := &wire.Status{UID: k.uid, Session: s.session, Sequence: s.id}
				old := d.isOld(w, status, c.stored)
				if old == s.taken {
					t.Errorf("status %d, %q %d: taken %v, want %v", i, s.session, s.id, !old, s.taken)
				}
				if !old {
					d.statusAccepted(w, status, time.Now())
				}
			}
		})
	}
}

// TestSessionOrder: the order of sessions is bounded and forgets the earliest.
func TestSessionOrder(t *testing.T) {
	var o sessionOrder
	for i := range 3 * maxSessions {
		o = o.add(NewSession(fmt.Sprint("s", i))).add(NewSession(fmt.Sprint("s", max(0, i-1))))
	}
	last, earlier, first := NewSession(fmt.Sprint("s", 3*maxSessions-1)), NewSession(fmt.Sprint("s", 3*maxSessions-2)), NewSession("s0")
	if len(o) > maxSessions || !o.before(earlier, last) || o.before(last, earlier) || o.before(last, last) || o.before(first, last) {
		t.Errorf("the order is %v", o)
	}
}
