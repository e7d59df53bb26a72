package sim

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// happening is one kind of thing that happens at random.
type happening struct {
	weight int
	do     func(*World)
}

// happenings are all of them: what people change, and what breaks.
var happenings = []happening{
	{30, (*World).createWork}, {40, (*World).changeWork}, {12, (*World).deleteWork},
	{8, (*World).createOwn}, {12, (*World).changeOwn}, {4, (*World).deleteOwn}, {3, (*World).killSource},
	{3, (*World).killHub}, {6, (*World).part}, {4, (*World).killAgent}, {6, (*World).cut}, {2, (*World).forgetSession}, {2, (*World).duplicate},
	{4, (*World).overload}, {4, (*World).breakWatches}, {2, (*World).compact},
	{4, (*World).lie}, {5, (*World).deleteObject}, {5, (*World).changeObject}, {5, (*World).keepObject}, {2, (*World).refuseObjects},
	{1, (*World).restoreState}, {3, (*World).forge}, {3, (*World).backUp}, {2, (*World).restoreAPI}, {2, (*World).limitPackets}, {3, (*World).downgrade},
	{6, (*World).halfOpen}, {1, (*World).night}, {3, (*World).readSlowly}, {2, (*World).replay},
	{4, (*World).hang}, {4, (*World).muteWatches}, {2, (*World).lagBehind}, {3, (*World).mutateObjects}, {3, (*World).collectLate},
	{3, (*World).contest}, {4, (*World).relabelObject}, {2, (*World).deleteRecord}, {2, (*World).changeRecord}, {4, (*World).changeHub}, {3, (*World).slowDisk}, {2, (*World).fillDisk},
}

// timer is something that happens later.
type timer struct {
	at time.Time
	do func()
}

// later has do called after at most a time.
func (w *World) later(most time.Duration, do func()) {
	w.timers = append(w.timers, timer{time.Now().Add(w.random.upTo(most)), do})
}

// Run starts everything, lets things happen for Options.Faults, repairs what is broken, and waits until hub and clusters
// agree. It returns what was wrong, in order.
func (w *World) Run() []string {
	w.startForger()
	for _, p := range w.hubs {
		p.run()
	}
	for _, p := range w.sources.programs {
		p.run()
	}
	for _, c := range w.clusters {
		c.agent.run()
	}
	if w.o.Tight { // no list of all works fits, once all exist
		for i := range w.o.Works {
			w.advance(4 * time.Second)
			for _, c := range w.clusters {
				w.create(c, workName(i))
			}
		}
	}
	w.end = time.Now().Add(w.o.Faults)
	for n := 1; time.Now().Before(w.end); n++ {
		w.random.restart(w.o.Seed, 2*n)
		w.advance(w.random.upTo(8 * time.Second))
		w.random.restart(w.o.Seed, 2*n+1)
		w.happen(n)
	}
	w.random.restart(w.o.Seed, 0)
	for _, t := range w.timers { // each repairs something
		t.do()
	}
	w.timers = nil
	w.letAllGo()
	if w.o.Tight {
		w.deleteAll()
	}
	w.lastWords()
	w.trace.note("people", "end of the faults")
	w.agree()
	w.stop()
	return w.violations.all()
}

// lastWords has the broker lose much of what is said last: no fault comes later that has programs ask again for what
// they have missed.
func (w *World) lastWords() {
	w.advance(w.random.upTo(20 * time.Second))
	honest := w.o.Honest || w.o.Tight
	switch number := len(w.trace.decisions) + 1; {
	case !w.decide(number, happening{do: map[bool]func(*World){false: (*World).lie, true: (*World).silence}[honest]}):
	case honest:
		w.silence()
	default:
		w.lieAbout(60, maxOutage)
	}
	for range 6 {
		number := len(w.trace.decisions) + 1
		w.random.restart(w.o.Seed, 2*number)
		word := []func(*World){(*World).createWork, (*World).changeWork, (*World).deleteWork, (*World).deleteSoon, (*World).changeOwn, (*World).deleteOwn}[w.random.intN(6)]
		if w.decide(number, happening{do: word}) {
			word(w)
		}
		w.random.restart(w.o.Seed, 2*number+1)
		w.advance(w.random.upTo(3 * time.Second))
	}
	w.liar.set(0, 0)
}

// tightLimit is a packet limit that all works of a tight world fit, and no list of them.
const tightLimit = 2900

// maxOutage is the longest time that something is away, but for what network.go says.
const maxOutage = 90 * time.Second

// advance lets time go by, and what is due in it happen.
func (w *World) advance(d time.Duration) {
	end := time.Now().Add(d)
	for {
		slices.SortStableFunc(w.timers, func(a, b timer) int { return a.at.Compare(b.at) })
		if len(w.timers) == 0 || w.timers[0].at.After(end) {
			break
		}
		next := w.timers[0]
		w.timers = w.timers[1:]
		time.Sleep(time.Until(next.at))
		next.do()
	}
	time.Sleep(time.Until(end))
}

// happen has the number-th decision happen.
func (w *World) happen(number int) {
	all := slices.Clone(happenings)
	if w.hubs[0].shard != nil {
		all = append(all, happening{15, (*World).moveCluster})
	}
	if w.o.Restores {
		all = append(all, happening{12, (*World).backUp}, happening{16, (*World).restoreAPI})
	}
	total := 0
	for _, h := range all {
		total += h.weight
	}
	n := w.random.intN(total)
	for _, h := range all {
		if n -= h.weight; n < 0 {
			if w.decide(number, h) {
				h.do(w)
			}
			return
		}
	}
}

func (w *World) anyCluster() *cluster { return w.clusters[w.random.intN(len(w.clusters))] }

func (w *World) anyHub() *program { return w.hubs[w.random.intN(len(w.hubs))] }

func (w *World) killHub() { w.kill(w.anyHub()) }

// part cuts a hub or an agent off from its API for a while.
func (w *World) part() {
	p, api := w.anyHub(), w.hubAPI
	if c := w.anyCluster(); w.random.chance(60) {
		p, api = c.agent, c.api
	}
	i := p.running
	if i == nil || i.is(&i.apart) {
		return
	}
	w.trace.note(p.name, "is cut off from its API")
	i.set(&i.apart, true)
	api.BreakWatches()
	cut := time.Now()
	w.afterOutage(func() {
		i.set(&i.apart, false)
		w.trace.note(p.name, "can reach its API again")
		if time.Since(cut) > patience { // the deletion of a work comes first, and then another one of the name, whose objects it takes along
			w.record.rewound(p.name)
		}
	})
}

func (w *World) killAgent() { w.kill(w.anyCluster().agent) }

func (w *World) kill(p *program) {
	if p.running != nil {
		p.kill()
		w.afterOutage(p.run)
	}
}

// restoreState kills an agent whose state is lost, or comes back as an older copy.
func (w *World) restoreState() {
	c := w.anyCluster()
	if c.agent.running == nil || c.disk.dir == "" {
		return
	}
	w.kill(c.agent)
	if from := w.random.intN(c.disk.starts + 1); from < c.disk.starts {
		w.rewind(c, "gets an older copy of its state")
		c.disk.restore(from)
	} else {
		w.trace.note(string(c.name), "loses its state")
		c.disk.lose()
	}
}

// rewind notes that a cluster, its agent or its hub is as it was before.
func (w *World) rewind(c *cluster, what string) {
	w.trace.add(entry{actor: string(c.name), what: what, rewinds: true})
	w.record.rewound(string(c.name))
}

// backUp takes a backup of an API server.
func (w *World) backUp() {
	api := w.anyAPI()
	w.backups[api] = api.Backup()
}

// restoreAPI restores an API server from its last backup.
func (w *World) restoreAPI() {
	api := w.anyAPI()
	backup := w.backups[api]
	if backup == nil || w.o.Honest || w.o.Tight { // without digests nobody asks for what came back, or went
		return
	}
	// Without the bump, agents may not notice it (docs/operations.md), nor does the hub once there were as many changes again
	// as since the backup.
	bump := api != w.hubAPI || w.random.chance(50) || api.Age(backup) < 100
	for _, c := range w.clusters {
		c.restored = c.restored || api == c.api
		if api == w.hubAPI || api == c.api {
			w.rewind(c, fmt.Sprintf("is restored, or its hub is; bump of the revision: %v", bump))
		}
	}
	api.Restore(backup, bump)
	for range 5 { // at once, so that generations come back with other contents
		if w.o.Restores && api == w.hubAPI {
			w.changeWork()
		}
	}
}

// cut cuts the connection of some program for a while.
func (w *World) cut() { w.cutOff(w.anyClient()) }

// anyClient returns a program that is a client of the broker.
func (w *World) anyClient() *program {
	p := append([]*program{w.anyHub()}, w.sources.programs...)[w.random.intN(3)]
	if w.random.chance(60) {
		p = w.anyCluster().agent
	}
	return p
}

// cutOff cuts the connection of a program for a while.
func (w *World) cutOff(p *program) {
	if p.running == nil || w.away[p.id] {
		return
	}
	w.away[p.id] = true
	w.trace.note(p.name, "is cut off from the broker")
	w.broker.Cut(p.id)
	w.afterOutage(func() {
		delete(w.away, p.id)
		if p.running != nil || slices.Contains(w.hubs, p) {
			w.trace.note(p.name, "can reach the broker again")
			w.jumpClock(p)
			w.broker.Restore(p.id)
		}
	})
}

// limitPackets has the broker start again with a packet limit that is near to the size of messages, for a while.
func (w *World) limitPackets() {
	if w.o.Tight {
		return
	}
	w.startBroker(1200 + w.random.intN(3000))
	w.later(maxOutage, func() { w.startBroker(0) })
}

// startBroker ends all connections. Those that are made from then on have a packet limit; 0: none.
func (w *World) startBroker(limit int) {
	w.trace.note(brokerLane, fmt.Sprintf("starts again with a packet limit of %d bytes (0: none)", limit))
	w.broker.SetLimit(limit)
	for _, p := range slices.Concat(w.agents(), w.hubs, w.sources.programs) {
		if i := p.running; i != nil && i.is(&i.online) {
			w.broker.Cut(p.id)
			w.broker.Restore(p.id)
		}
	}
}

// forgetSession has the broker lose what it keeps for a program, as it does when its disk is lost.
func (w *World) forgetSession() {
	p := w.anyHub()
	if w.random.chance(70) {
		p = w.anyCluster().agent
	}
	w.trace.note("broker", "forgets the session of "+p.name)
	w.broker.Forget(p.id)
}

// duplicate has the broker deliver everything twice for a while.
func (w *World) duplicate() {
	w.trace.note("broker", "delivers twice")
	w.broker.Duplicate(1)
	w.later(maxOutage, func() { w.broker.Duplicate(0) })
}

// overload makes the API servers slow and unreliable for a while.
func (w *World) overload() {
	broken, slow, late := w.random.intN(30), w.random.upTo(3*time.Second), w.random.upTo(5*time.Second)
	w.trace.note("network", fmt.Sprintf("%d %% of requests fail, they take up to %v, watches are up to %v late", broken, slow, late))
	w.flaky.set(broken, slow, late)
	w.later(maxOutage, func() { w.flaky.set(0, 0, 0) })
}

// silence cuts hub and second source off from the broker for a while, which forgets the session of the hub: statuses are lost, and people change what these
// cannot say at once. One work is refused before, and no longer meanwhile: its last status follows no spec.
func (w *World) silence() {
	w.flaky.set(0, 3*time.Second, 0)
	w.later(20*time.Second, func() { w.flaky.set(0, 0, 0) })
	c := w.anyCluster()
	if works, err := w.people.WorkV1().ManifestWorks(string(c.name)).List(background, metav1.ListOptions{}); err == nil && len(works.Items) > 0 {
		name := works.Items[w.random.intN(len(works.Items))].Name
		w.refuse(name)
		w.change(c, name)
	}
	w.advance(5*time.Second + w.random.upTo(10*time.Second))
	for range 8 {
		w.changeWork()
	}
	w.advance(w.random.upTo(5 * time.Second))
	for _, p := range w.hubs {
		w.broker.Forget(p.id)
	}
	for _, p := range append(slices.Clone(w.hubs), w.sources.programs...) {
		w.cutOff(p)
	}
	w.later(time.Second, func() { w.refuse("") })
}

// lie has the broker lose, delay and repeat messages for a while that it has acknowledged.
func (w *World) lie() {
	if w.o.Honest || w.o.Tight {
		return
	}
	w.lieAbout(1+w.random.intN(40), w.longestOutage())
	w.later(maxOutage, func() { w.liar.set(0, 0) })
}

// lieAbout has messages be late by a time at most.
func (w *World) lieAbout(percent int, late time.Duration) {
	w.trace.note("broker", fmt.Sprintf("loses, delays or repeats %d %% of messages, by up to %v", percent, late.Round(time.Second)))
	w.liar.set(percent, late)
}

func (w *World) breakWatches() {
	w.trace.note("network", "watches end")
	w.anyAPI().BreakWatches()
}

func (w *World) compact() {
	w.trace.note("network", "history is compacted, and watches end")
	api := w.anyAPI()
	api.Compact()
	api.BreakWatches()
}

// agree waits until hub and clusters agree.
func (w *World) agree() {
	w.advance(max(0, w.liar.lateUntil()-maxOutage))
	began := time.Now()
	w.advance(maxOutage) // until what was delayed has arrived
	var differences []string
	for time.Since(began) < maxAgreement {
		if differences = w.differences(); len(differences) == 0 {
			w.agreedAfter = time.Since(began)
			w.trace.note("people", fmt.Sprintf("all agree after %v", w.agreedAfter))
			return
		}
		if w.releaseHeld(); time.Since(began) > maxAgreement/2 {
			w.releaseOnClusters()
		}
		w.advance(5 * time.Second)
	}
	slices.Sort(differences)
	for _, d := range differences {
		w.violations.add(fmt.Sprintf("%v after the last fault: %s", maxAgreement, d))
	}
}

// maxAgreement is how long after the last fault hub and clusters may disagree.
const maxAgreement = 10 * time.Minute

// stop ends all programs.
func (w *World) stop() {
	for _, p := range slices.Concat(w.agents(), w.hubs, w.sources.programs) {
		if p.running != nil {
			p.kill()
		}
	}
	if w.forger != nil {
		w.forger.stop()
	}
	time.Sleep(5 * time.Minute) // until what they had begun has ended
}

func (w *World) agents() []*program {
	var agents []*program
	for _, c := range w.clusters {
		agents = append(agents, c.agent)
	}
	return agents
}
