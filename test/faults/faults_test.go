package faults

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/transporttest"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/process"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// fault breaks something, changes works meanwhile, and mends it again.
type fault struct {
	name string
	run  func(w *world)
	// soak: it is for TestSoak only, because it takes long, or does to one program what another fault does to another.
	soak bool
}

// faults are all faults. TestSoak chooses among them by their index: add new ones at the end.
var faults = slices.Concat(processFaults, storageFaults, laterFaults)

// processFaults stop programs and cut their connections.
var processFaults = []fault{
	{name: "kill the agent", run: func(w *world) { w.kill(w.agent, w.startAgent) }},
	{name: "kill the hub", run: func(w *world) { w.kill(w.hub, w.startHub) }},
	{name: "kill the broker", run: func(w *world) { w.kill(w.Broker.Process, w.startBroker) }},
	{name: "stop the agent for 3 s", run: func(w *world) { w.away(w.agent.Stop, 6, w.startAgent) }},
	{name: "stop the hub for 3 s", soak: true, run: func(w *world) { w.away(w.hub.Stop, 6, w.startHub) }},
	{name: "stop the broker for 3 s", soak: true, run: func(w *world) { w.away(w.Broker.Stop, 10, w.startBroker) }},
	{name: "kill everything", run: func(w *world) {
		w.during(moment, 4)
		for _, p := range []*process.Process{w.Broker.Process, w.hub, w.agent} {
			kit.NoError(w, p.Kill())
		}
		w.during(moment, 4)
		w.startAgent()
		w.startHub()
		w.startBroker()
	}},
	{name: "freeze the agent", run: func(w *world) { w.freeze(w.agent) }},
	{name: "freeze the hub", soak: true, run: func(w *world) { w.freeze(w.hub) }},
	{name: "freeze the broker", soak: true, run: func(w *world) { w.freeze(w.Broker.Process) }},
	{name: "refuse the agent's connections", run: func(w *world) { w.refuse(w.agentLink) }},
	{name: "refuse the hub's connections", soak: true, run: func(w *world) { w.refuse(w.hubLink) }},
	{name: "lose all packets between agent and broker", soak: true, run: func(w *world) { w.partition(w.agentLink) }},
	{name: "lose all packets between hub and broker", run: func(w *world) { w.partition(w.hubLink) }},
	{name: "slow links", run: func(w *world) {
		for _, link := range []*transporttest.Proxy{w.agentLink, w.hubLink} {
			link.Slow(300 * time.Millisecond)
			defer link.Slow(0)
		}
		w.during(2*time.Second, 10)
	}},
	{name: "repeat events in another order", run: func(w *world) { w.replay() }},
	{name: "lose half of the messages between agent and broker, and reconnect", run: func(w *world) { w.lose(w.agentLoss, w.agentLink) }},
	{name: "lose half of the messages between hub and broker, and reconnect", soak: true, run: func(w *world) { w.lose(w.hubLoss, w.hubLink) }},
}

// moment is how long works change before, during and after a fault.
const moment = 400 * time.Millisecond

// Indices of faults.
const (
	killAgent      = 0
	stopBroker     = 5
	killEverything = 6
)

// kill kills a program, and starts it again.
func (w *world) kill(p *process.Process, start func()) {
	w.Helper()
	w.during(moment, 4)
	kit.NoError(w, p.Kill())
	w.during(moment, 4)
	start()
	w.during(moment, 4)
}

// away stops a program for 3 s, while n changes are made.
func (w *world) away(stop func() error, n int, start func()) {
	w.Helper()
	kit.NoError(w, stop())
	w.during(3*time.Second, n)
	start()
}

// lose loses messages that each side takes for delivered, and then the connection: only a resync
// finds them.
func (w *world) lose(messages *lossy, link *transporttest.Proxy) {
	w.Helper()
	messages.lose(0.5)
	w.during(1500*time.Millisecond, 12)
	if lost := messages.lose(0); lost == 0 {
		w.Error("no message was lost")
	}
	link.Cut()
	link.Restore()
}

// freeze stops a program as a debugger does, until its connections are lost.
func (w *world) freeze(p *process.Process) {
	w.Helper()
	kit.NoError(w, p.Signal(syscall.SIGSTOP))
	w.during(untilCut, 8)
	kit.NoError(w, p.Signal(syscall.SIGCONT))
}

// refuse closes the connections of link, and all new ones.
func (w *world) refuse(link *transporttest.Proxy) {
	w.Helper()
	w.during(moment, 4)
	link.Cut()
	w.during(time.Second, 4)
	link.Restore()
}

// partition lets nothing through, until both sides have given up their connections.
func (w *world) partition(link *transporttest.Proxy) {
	w.Helper()
	w.during(moment, 4)
	link.Stall()
	w.during(untilCut, 8)
	link.Resume()
}

// replay publishes all specs and statuses of some changes twice again, in another order, while
// works change.
func (w *world) replay() {
	w.Helper()
	events := func(by string) string { return fmt.Sprintf("sources/%s/clusters/%s/%s", source, w.cluster, by) }
	asAgent := wirekit.Connect(w, w.client(w.cluster), events("sourceevents"))
	asHub := wirekit.Connect(w, w.client(source), events("agentevents"))
	defer asAgent.Stop()
	defer asHub.Stop()
	w.during(2*time.Second, 8)
	messages := slices.Concat(asAgent.Received(), asHub.Received())
	messages = append(messages, messages...)
	w.random.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	for i, message := range messages {
		switch message := message.(type) {
		case *wire.Spec:
			// MQTT keeps the order of a publisher: no spec comes again after the deletion of its work.
			if _, exists := w.want[message.Meta.Name]; exists || message.IsDeletion() {
				asHub.Publish(w, events("sourceevents"), message, nil)
			}
		case *wire.Status:
			asAgent.Publish(w, events("agentevents"), message, nil)
		}
		if i%10 == 0 {
			w.change()
		}
	}
	w.create() // comes after them: once it is applied, they have been received
}

// client returns another connection of a user, past the proxies.
func (w *world) client(user string) transport.Transport {
	w.Helper()
	return w.Transport(user, user+"-replay", w.Topics)
}

// change makes one change as a user or as somebody at the cluster, which w.random decides.
func (w *world) change() {
	w.Helper()
	w.serial++
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(w.want)), func(name string) bool { return w.ofSets[name] })
	if len(names) == 0 {
		w.create()
		return
	}
	name := names[w.random.IntN(len(names))]
	objects := w.want[name].objects
	switch chance := w.random.IntN(10); {
	case len(names) < 4 || chance < 2 && len(names) < 12:
		w.create()
	case chance < 6:
		w.put(name, fmt.Sprint("value ", w.serial), w.some()...)
	case chance < 8:
		w.remove(name)
	case w.meddled[name] == 2:
		// A third repair in a row is a conflict, which the status shows for minutes (docs/strategies.md).
		w.put(name, fmt.Sprint("value ", w.serial), w.some()...)
	default:
		w.meddled[name]++
		w.meddle(objects[w.random.IntN(len(objects))], chance == 8)
	}
}

func (w *world) create() {
	w.Helper()
	w.put(fmt.Sprintf("work-%d", w.serial), fmt.Sprint("value ", w.serial), w.some()...)
}

// some returns one to three names of objects.
func (w *world) some() []string {
	return [][]string{{"a"}, {"b"}, {"a", "b"}, {"a", "b", "c"}}[w.random.IntN(4)]
}

// TestFaults has one fault of each kind alone, for an agent that asks for its works after a restart, or for one that keeps
// them. TestSoak has them all; the simulator (test/sim) has most of them in many orders.
func TestFaults(t *testing.T) {
	keepState := []string{faults[killEverything].name, agentFile, agentDisk}
	for _, f := range faults {
		switch {
		case f.soak:
		case slices.Contains(keepState, f.name):
			t.Run(f.name+", with --state-dir", func(t *testing.T) { testFault(t, f, (*world).keepState) })
		default:
			t.Run(f.name, func(t *testing.T) { testFault(t, f, func(*world) {}) })
		}
	}
}

func testFault(t *testing.T, f fault, change func(*world)) {
	if f.name == brokerDisk || f.name == agentDisk {
		kit.NewDisk(t, diskSize) // leaves the test out where there can be none
	}
	w := newWorld(t, 1, change)
	for range 6 {
		w.change()
	}
	w.converge()
	f.run(w)
	w.converge()
	w.end()
}

// TestSoak has one fault after the other, in an order that the seed decides.
func TestSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("runs with -soak, see make soak")
	}
	t.Cleanup(func() {
		if t.Skipped() {
			t.Error("a fault has ended it, and left out those that would have followed")
		}
	})
	if *seed == 0 {
		*seed = rand.Uint64N(1_000_000)
	}
	t.Logf("repeat it with SEED=%d", *seed)
	w := newWorld(t, *seed, func(w *world) {
		if *seed%2 == 1 {
			w.keepState()
		}
	})
	step := 0
	var deck []int // each fault once before the next time
	for end := time.Now().Add(*soak); time.Now().Before(end); {
		step++
		if len(deck) == 0 {
			deck = w.random.Perm(len(faults))
		}
		f := faults[deck[0]]
		deck = deck[1:]
		t.Logf("step %d: %s", step, f.name)
		f.run(w)
		w.converge()
	}
	w.end()
	t.Logf("%d faults, %d changes", step, w.serial)
}
