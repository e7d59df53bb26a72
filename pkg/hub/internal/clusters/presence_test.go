package clusters

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
)

// With these, an agent is asked 15 s after the hub has connected, missing after 90 s, and silent
// after 300 s.
var testLimits = newLimits(time.Minute, 5*time.Minute, 0)

var start = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// play gives what is known after the steps of a text, such as "announce a; 90; left a". A number
// lets so many seconds pass, while the hub is connected. "ask" appears in the log when the agent is
// asked.
func play(t *testing.T, p presence, text string) (presence, []string) {
	t.Helper()
	now := start
	var log []string
	for step := range strings.SplitSeq(text, ";") {
		verb, argument, _ := strings.Cut(strings.TrimSpace(step), " ")
		switch verb {
		case "":
		case "announce":
			p = p.sessionStarted(argument, now)
		case "left":
			p = p.sessionEnded(argument, now)
		case "message":
			p = p.messageReceived(now, testLimits)
		case "connect":
			p = p.hubConnected(now, testLimits)
		case "away": // the hub has no connection for so long
			var seconds int
			if _, err := fmt.Sscan(argument, &seconds); err != nil {
				t.Fatal(err)
			}
			now = now.Add(time.Duration(seconds) * time.Second)
		case "absent": // the hub has no connection for too long
			p = p.hubAbsent(now)
		default:
			var seconds int
			if _, err := fmt.Sscan(verb, &seconds); err != nil {
				t.Fatalf("step %q: %v", step, err)
			}
			end := now.Add(time.Duration(seconds) * time.Second)
			for at := p.deadline(); !at.IsZero() && !at.After(end); at = p.deadline() {
				var ask bool
				if p, ask = p.expire(at); ask {
					log = append(log, fmt.Sprintf("ask %d", int(at.Sub(start).Seconds())))
				}
			}
			now = end
		}
	}
	return p, log
}

func TestPresence(t *testing.T) {
	unheard := presence{state: unseen}
	wasThere := presence{state: present, vouched: true, announces: true}
	wasHeard := presence{state: present}
	for _, c := range []struct {
		name string
		from presence
		text string
		want presenceState
		asks []string
	}{
		{name: "nothing", from: unheard, text: "connect; 1000", want: unseen, asks: []string{"ask 15"}},
		{name: "announced", from: unheard, text: "announce a", want: present},
		{name: "announced and idle", from: unheard, text: "announce a; 86400", want: present},
		{name: "stopped, or cut", from: unheard, text: "announce a; left a", want: ended},
		{name: "back", from: unheard, text: "announce a; left a; announce b", want: present},
		{name: "late will", from: unheard, text: "announce a; announce b; left a; 86400", want: present},
		{name: "late will of a session of long ago", from: unheard, text: "announce a; announce b; announce c; left a; 86400", want: present},
		{name: "delivered twice", from: unheard, text: "announce a; left a; announce a; left a", want: ended},
		{name: "announced once more after the end", from: unheard, text: "announce a; left a; announce a; 1", want: ended},
		{name: "announced again", from: unheard, text: "announce a; announce a; left a", want: ended},
		{name: "messages change nothing", from: unheard, text: "announce a; message; 86400", want: present},
		{name: "a message before the announcement", from: unheard, text: "message; announce a; 86400", want: present},
		{name: "only a will", from: unheard, text: "left a; 86400", want: ended, asks: []string{"ask 0"}},

		{name: "OCM agent", from: unheard, text: "message; 299", want: present, asks: []string{"ask 150"}},
		{name: "OCM agent, silent", from: unheard, text: "message; 300", want: silent, asks: []string{"ask 150"}},
		{name: "OCM agent, speaking", from: unheard, text: "message; 140; message; 140; message; 140; message; 140", want: present},
		{name: "OCM agent, back", from: unheard, text: "message; 300; message", want: present, asks: []string{"ask 150"}},
		{name: "OCM agent after ours", from: unheard, text: "announce a; left a; message; 50; message; 50; message; 299", want: present,
			asks: []string{"ask 45", "ask 95", "ask 250"}},
		{name: "OCM agent after ours, silent at first", from: unheard, text: "announce a; left a; message; 90; message; 299", want: present,
			asks: []string{"ask 45", "ask 240"}},
		{name: "heard, but not announced", from: unheard, text: "announce a; left a; message; 90", want: missing, asks: []string{"ask 45"}},
		{name: "the will of a session that was not announced", from: unheard, text: "announce a; left a; message; left b; 90", want: missing, asks: []string{"ask 45"}},
		{name: "the same, and a late will", from: unheard, text: "announce a; message; left a; message; left a; 1", want: ended, asks: []string{"ask 0"}},
		{name: "ours after an OCM agent", from: unheard, text: "message; announce a; 86400; left a", want: ended},

		{name: "hub back, agent shows", from: unheard, text: "announce a; connect; 10; announce a; 86400", want: present},
		{name: "hub back, agent speaks", from: unheard, text: "announce a; connect; 10; message; 45; announce a; 86400", want: present, asks: []string{"ask 55"}},
		{name: "hub back, a session it has missed ends", from: unheard, text: "announce a; connect; 10; message; left b", want: ended},
		{name: "hub back, a late will of the session before", from: unheard, text: "announce a; connect; 10; message; left a; 1", want: ended, asks: []string{"ask 10"}},
		{name: "hub back, agent does not show", from: unheard, text: "announce a; connect; 90", want: missing, asks: []string{"ask 15"}},
		{name: "hub back, not yet", from: unheard, text: "announce a; connect; 89", want: present, asks: []string{"ask 15"}},
		{name: "hub away", from: unheard, text: "announce a; away 86400", want: present},
		{name: "hub away and back", from: unheard, text: "message; away 86400; connect; 299", want: present, asks: []string{"ask 86415"}},
		{name: "hub away and back, silent", from: unheard, text: "message; away 86400; connect; 300", want: silent, asks: []string{"ask 86415"}},
		{name: "hub back, a lost agent is asked", from: unheard, text: "announce a; left a; connect; 90", want: ended, asks: []string{"ask 15"}},

		{name: "hub absent", from: unheard, text: "announce a; absent", want: unvouched},
		{name: "hub absent, agent was gone", from: unheard, text: "announce a; left a; absent", want: ended},
		{name: "hub absent and back, not heard yet", from: unheard, text: "announce a; absent; connect; 89", want: unvouched, asks: []string{"ask 15"}},
		{name: "hub absent and back, agent shows", from: unheard, text: "announce a; absent; connect; 5; announce a; 86400", want: present},
		{name: "hub absent and back, agent speaks, then shows", from: unheard, text: "announce a; absent; connect; message; announce a; 86400; left a", want: ended},
		{name: "hub absent and back, agent does not show", from: unheard, text: "announce a; absent; connect; 90", want: missing, asks: []string{"ask 15"}},
		{name: "hub absent and back, agent has left meanwhile", from: unheard, text: "announce a; absent; connect; left a", want: ended},
		{name: "hub absent and back, OCM agent silent", from: unheard, text: "message; absent; connect; 300", want: silent, asks: []string{"ask 15"}},

		{name: "hub restarted, agent shows", from: wasThere, text: "connect; 10; announce a; 86400", want: present},
		{name: "hub restarted, agent does not show", from: wasThere, text: "connect; 90", want: missing, asks: []string{"ask 15"}},
		{name: "hub restarted, agent speaks, then shows", from: wasThere, text: "connect; message; announce a; 86400", want: present},
		{name: "hub restarted, an OCM agent instead", from: wasThere, text: "connect; message; 100; message; 300", want: silent, asks: []string{"ask 45", "ask 250"}},
		{name: "hub restarted, agent cut", from: wasThere, text: "connect; 5; left a; 1", want: ended, asks: []string{"ask 5"}},
		{name: "hub restarted, late will", from: wasThere, text: "connect; 5; left z; 1; announce a; 86400", want: present, asks: []string{"ask 5"}},
		{name: "hub restarted, OCM agent", from: wasHeard, text: "connect; 299", want: present, asks: []string{"ask 15"}},
		{name: "hub restarted, OCM agent silent", from: wasHeard, text: "connect; 300", want: silent, asks: []string{"ask 15"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, asks := play(t, c.from, c.text)
			if got.state != c.want || !slices.Equal(asks, c.asks) {
				t.Errorf("%s: %s, %v; want %s, %v", c.text, got.state, asks, c.want, c.asks)
			}
		})
	}
}

// Who announces itself is remembered, and forgotten when another agent takes over.
func TestAnnounces(t *testing.T) {
	for text, want := range map[string]bool{
		"announce a":                       true,
		"left a":                           true,
		"message":                          false,
		"announce a; left a; message; 100": false, // it did not
		"announce a; connect; 100":         true,
		"announce a; left a; message":      true, // the announcement may follow
		"announce a; left a; message; 10; message":              true,
		"announce a; left a; message; 50; message; 50; message": false,
		"message; 100; message; announce a":                     true,
	} {
		if got, _ := play(t, presence{state: unseen}, text); got.announces != want {
			t.Errorf("%s: %v", text, got.announces)
		}
	}
}

// What is stored of a cluster tells a hub that starts what the one before knew.
func TestRestored(t *testing.T) {
	for _, text := range []string{
		"", "connect; 1", "announce a", "message", "announce a; left a", "message; 300", "announce a; connect; 90",
	} {
		known, _ := play(t, presence{state: unseen}, text)
		cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Annotations: annotationsFor(known)}}
		cluster.Status.Conditions = conditionsFor(view{presence: known, stored: cluster}, policy{limits: testLimits}, start)
		got := restorePresence(cluster)
		if got.state != known.state || got.vouched != known.vouched || got.announces != known.announces || !got.heard.Equal(known.heard) {
			t.Errorf("%s: restored %+v from %+v", text, got, known)
		}
		if cluster.Status.Conditions = nil; restorePresence(cluster).state != unseen {
			t.Errorf("%s: without conditions %+v", text, restorePresence(cluster))
		}
	}
}

// model is a cluster whose agent comes, goes and is exchanged, whose messages may be late or come
// twice, and a hub that comes and goes and starts again. It knows whether the agent is there.
type model struct {
	random *rand.Rand
	now    time.Time
	log    []string

	// The agent.
	there    bool
	quiet    bool // it announces nothing
	sessions int
	// late are wills that the broker has not published yet.
	late []string

	// The hub. Its broker keeps what it misses, or loses it.
	connected bool
	missed    []string
	delivered []string
	known     presence
}

func (m *model) session() string { return fmt.Sprint("s", m.sessions) }

// send delivers a step of play to the hub, now or when it is back.
func (m *model) send(step string) {
	if !m.connected {
		m.missed = append(m.missed, step)
		return
	}
	m.delivered = append(m.delivered, step)
	m.take(step)
}

func (m *model) take(step string) {
	m.log = append(m.log, step)
	verb, argument, _ := strings.Cut(step, " ")
	switch verb {
	case "announce":
		m.known = m.known.sessionStarted(argument, m.now)
	case "left":
		m.known = m.known.sessionEnded(argument, m.now)
	case "message":
		m.known = m.known.messageReceived(m.now, testLimits)
	}
}

// speak has the agent show itself, as when it is asked.
func (m *model) speak() {
	switch {
	case !m.there:
	case m.quiet:
		m.send("message")
	default:
		m.send("announce " + m.session())
	}
}

func (m *model) comes() {
	m.there, m.quiet = true, m.random.IntN(4) == 0
	if m.quiet {
		// Messages do not tell it from the agent before, whose will, if it were late, would be
		// believed until the next message.
		m.flush()
	}
	if m.sessions++; m.quiet || m.random.IntN(2) == 0 {
		m.send("message")
	}
	m.speak()
}

func (m *model) goes() {
	m.there = false
	if m.quiet {
		return
	}
	if will := "left " + m.session(); m.random.IntN(2) == 0 {
		m.late = append(m.late, will)
	} else {
		m.send(will)
	}
}

func (m *model) pass(d time.Duration) {
	end := m.now.Add(d)
	m.log = append(m.log, d.String())
	for at := m.known.deadline(); m.connected && !at.IsZero() && !at.After(end); at = m.known.deadline() {
		m.now = at
		var ask bool
		if m.known, ask = m.known.expire(at); ask {
			m.speak()
		}
	}
	m.now = end
}

func (m *model) hubConnects() {
	m.log = append(m.log, "hub connects")
	m.connected = true
	m.known = m.known.hubConnected(m.now, testLimits)
	if m.random.IntN(3) > 0 {
		for _, step := range m.missed {
			m.send(step)
		}
	} else {
		m.delivered = nil // a new session, in which nothing is repeated
	}
	m.missed = nil
}

func (m *model) hubRestarts() {
	m.log = append(m.log, "hub restarts")
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Annotations: annotationsFor(m.known)}}
	cluster.Status.Conditions = conditionsFor(view{presence: m.known, stored: cluster}, policy{limits: testLimits}, m.now)
	m.known = restorePresence(cluster)
	m.connected = false
}

func (m *model) step() {
	switch m.random.IntN(9) {
	case 0, 1:
		if m.there {
			m.goes()
		} else {
			m.comes()
		}
	case 2:
		if m.there { // it is back before the broker has noticed that it was gone
			m.goes()
			m.comes()
		}
	case 3:
		if m.there {
			m.send("message")
		}
	case 4:
		m.flush()
	case 5:
		if m.connected { // the broker repeats what the hub has not acknowledged in time
			for _, step := range m.delivered[max(0, len(m.delivered)-m.random.IntN(5)):] {
				m.take(step)
			}
		}
	case 6:
		m.pass(time.Duration(m.random.IntN(400)) * time.Second)
	case 7:
		m.connected = false
		m.meanwhile()
		m.hubConnects()
	case 8:
		m.hubRestarts()
		m.meanwhile()
		m.hubConnects()
	}
}

// meanwhile is the time without a connection of the hub, in which the agent does as ever.
func (m *model) meanwhile() {
	for range m.random.IntN(3) {
		switch {
		case !m.there:
			m.comes()
		case m.random.IntN(2) == 0:
			m.goes()
		default:
			m.send("message")
		}
	}
	m.pass(time.Duration(m.random.IntN(400)) * time.Second)
}

// flush has the broker publish the wills that are late.
func (m *model) flush() {
	for _, will := range m.late {
		m.send(will)
	}
	m.late = nil
}

// Whatever happens, in the end the hub knows whether the agent is there.
func TestPresenceConverges(t *testing.T) {
	for seed := range uint64(20_000) {
		m := &model{random: rand.New(rand.NewPCG(seed, 1)), now: start, connected: true, known: presence{state: unseen}}
		for range 1 + m.random.IntN(25) {
			m.step()
		}
		m.flush()
		m.pass(testLimits.silence + testLimits.absence)
		if got := m.known.state == present; got != m.there {
			t.Fatalf("seed %d: the agent is there: %v, but the cluster is %s after\n%s", seed, m.there, m.known.state, strings.Join(m.log, "; "))
		}
	}
}
