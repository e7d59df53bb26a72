package delivery

import (
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/wire"
)

const modelLimit = 3 // attempts, and writes, at a time

// model is a source, its broker and its agents, as slow and obvious as can be, around a core.
type model struct {
	t      *testing.T
	random *rand.Rand
	core   *core
	now    time.Time
	// works are those of the source, first the generations at which they were made, last the highest ones.
	works       map[workKey]*workv1.ManifestWork
	first, last map[workKey]wire.Generation
	connected   uint64
	connections int
	states      map[wire.ClusterName]ClusterState
	pausedWork  map[workKey]bool
	// wanted are the works of which something is to be published, begun the attempts under way.
	wanted map[workKey]bool
	begun  []*attempt
	// asked are the clusters that something is to be asked of or answered to, asks what is under way about it.
	asked map[wire.ClusterName]bool
	asks  []*asking
	// accepted are the statuses to store, stores the writes under way, and stored the newest ones that were written.
	accepted, stored map[workKey]*wire.Status
	stores           []*storing
	// holds are the generations that the agents have; said are their statuses that have not arrived.
	holds map[workKey]wire.Generation
	said  []*wire.Status
	log   []string
	trace hash.Hash64 // of the inputs and actions
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{
		t: t, random: rand.New(rand.NewPCG(seed, 7)), now: time.Unix(1_790_000_000, 0), works: map[workKey]*workv1.ManifestWork{},
		first: map[workKey]wire.Generation{}, last: map[workKey]wire.Generation{}, states: map[wire.ClusterName]ClusterState{}, pausedWork: map[workKey]bool{},
		wanted: map[workKey]bool{}, holds: map[workKey]wire.Generation{},
	}
	m.asked, m.accepted, m.stored = map[wire.ClusterName]bool{}, map[workKey]*wire.Status{}, map[workKey]*wire.Status{}
	m.trace = fnv.New64a()
	m.core = testCore(modelLimit, 30*time.Second, ClusterOpen)
	return m
}

func (m *model) fail(format string, args ...any) {
	m.t.Helper()
	for _, line := range m.log[max(0, len(m.log)-40):] {
		m.t.Log(line)
	}
	m.t.Fatalf(format, args...)
}

// step passes an input to the core. k is the work that something is to be published of, if any.
func (m *model) step(in input, keys ...workKey) {
	m.t.Helper()
	m.log = append(m.log, fmt.Sprintf("%T %+v", in, keys))
	for _, k := range keys {
		if m.serves(k.cluster) {
			m.wanted[k] = true
		}
	}
	fmt.Fprintf(m.trace, "%T\n", in)
	for _, a := range m.core.step(m.now, in) {
		m.act(a)
	}
	if len(m.begun) > modelLimit || len(m.stores) > modelLimit || len(m.asks) > resyncWorkers {
		m.fail("%d attempts, %d writes and %d questions at a time", len(m.begun), len(m.stores), len(m.asks))
	}
	m.check()
}

// act begins what the core has decided.
func (m *model) act(a action) {
	m.t.Helper()
	switch a := a.(type) {
	case *attempt:
		m.log = append(m.log, fmt.Sprintf("  begins %v", a.before.key))
		fmt.Fprintf(m.trace, " attempt %v %+v %v %+v %d %d\n", a.before.key, a.before.intent, a.before.said, a.before.published, a.before.confirmed, a.before.republishes)
		switch {
		case m.connected == 0:
			m.fail("%v begins without a connection", a.before.key)
		case m.states[a.before.key.cluster] != ClusterOpen:
			m.fail("%v begins though its cluster is not open", a.before.key)
		case slices.ContainsFunc(m.begun, func(b *attempt) bool { return b.before.key == a.before.key }):
			m.fail("%v begins twice", a.before.key)
		}
		delete(m.wanted, a.before.key)
		m.begun = append(m.begun, a)
	case *asking:
		name := a.job.cluster
		m.log = append(m.log, fmt.Sprintf("  asks %v", name))
		fmt.Fprintf(m.trace, " ask %s %v %v\n", name, a.task.requestStatuses, a.task.probe)
		if !m.serves(name) || slices.ContainsFunc(m.asks, func(b *asking) bool { return b.job == a.job }) {
			m.fail("%s is asked twice at a time, or though another program serves it", name)
		}
		delete(m.asked, name)
		m.asks = append(m.asks, a)
	case *storing:
		k := a.job.key
		m.log = append(m.log, fmt.Sprintf("  stores %v", k))
		fmt.Fprintf(m.trace, " store %v %+v\n", k, a.update.agentGeneration)
		switch {
		case !m.serves(k.cluster), slices.ContainsFunc(m.stores, func(b *storing) bool { return b.job == a.job }):
			m.fail("%v is stored twice at a time, or though another program serves it", k)
		case a.update.status != nil && a.update.status != m.accepted[k.workKey]:
			m.fail("a status of %v is stored that is not the newest one", k)
		}
		m.stores = append(m.stores, a)
	default:
		fmt.Fprintf(m.trace, " %T\n", a)
	}
}

// endAsk ends one of the asks under way.
func (m *model) endAsk(i int, retry bool) {
	a := m.asks[i]
	m.asks = slices.Delete(m.asks, i, i+1)
	if retry && m.serves(a.job.cluster) {
		m.asked[a.job.cluster] = true
	}
	m.step(askEnded{a, retry})
}

// endStore ends one of the writes under way.
func (m *model) endStore(i int, failed bool) {
	a := m.stores[i]
	m.stores = slices.Delete(m.stores, i, i+1)
	if a.update.status != nil && !failed {
		m.stored[a.job.key.workKey] = a.update.status
	}
	m.step(storeEnded{a, failed})
}

// check compares the core with what a search finds.
func (m *model) check() {
	m.t.Helper()
	var found [phases]int
	scheduled, waiting := 0, 0
	for k, w := range m.core.works {
		found[w.phase]++
		under := slices.ContainsFunc(m.begun, func(a *attempt) bool { return a.before.key == k })
		switch {
		case under != (w.phase == inFlight):
			m.fail("%v is in phase %d, under way %v", k, w.phase, under)
		case m.wanted[k] && !under && w.phase != queued:
			m.fail("%v is wanted, and in phase %d", k, w.phase)
		case w.Scheduled() != (w.phase == awaitingAnswer || w.phase == backingOff):
			m.fail("%v is in phase %d, due %v", k, w.phase, w.Scheduled())
		case w.cluster.silent.has(w) != (w.phase == awaitingContact), w.cluster.removed.has(w) != (w.removed != nil), !w.cluster.works.has(w):
			m.fail("%v is in the wrong sets: %+v", k, w)
		case (w.intent == nothing) != (w.phase != queued && w.phase != backingOff && w.phase != paused) && w.phase != inFlight:
			m.fail("%v is in phase %d with the intent %d", k, w.phase, w.intent)
		case w.isDeleted() && w.phase != inFlight && !w.removed.again:
			m.fail("%v is deleted and kept", k)
		}
		if w.Scheduled() {
			scheduled++
		}
		if w.phase == queued && m.states[k.cluster] == ClusterOpen {
			waiting++
			if !w.cluster.inRoundRobin {
				m.fail("%v waits in a cluster that is not served", k)
			}
		}
	}
	if found != m.core.inPhase || scheduled != m.core.due.Len() {
		m.fail("works by phase are %v, counted as %v; %d are due, scheduled %d", found, m.core.inPhase, scheduled, m.core.due.Len())
	}
	if waiting > 0 && m.connected != 0 && len(m.begun) < modelLimit {
		m.fail("%d works wait though %d of %d attempts are under way", waiting, len(m.begun), modelLimit)
	}
	for name := range m.asked {
		if m.core.asks.byKey[name] == nil {
			m.fail("%s is to be asked, and forgotten", name)
		}
	}
	bytes := map[wire.ClusterName]int{}
	for k, s := range m.accepted {
		if j := m.core.stores.byKey[storeKey{k, false}]; s != nil && m.stored[k] != s && j == nil {
			m.fail("a status of %v is accepted, and forgotten", k)
		}
	}
	for _, j := range m.core.stores.byKey {
		bytes[j.cluster] += j.value.size
	}
	for _, a := range m.stores {
		bytes[a.job.cluster] += a.update.size
	}
	for name, c := range m.core.clusters {
		busy := 0
		for _, of := range m.underWay() {
			if of == name {
				busy++
			}
		}
		if !m.serves(name) && busy == 0 && (c.works.len() > 0 || c.silent.len() > 0 || c.waiting > 0 || c.owing || c.asked != nil ||
			!c.heard.IsZero() || !c.distrust.Since.IsZero() || c.divergence != nil) {
			m.fail("another program serves %s, and this is kept: %+v", name, c)
		}
		if c.underWay != busy || c.state != m.states[name] || c.waiting > bytes[name] {
			m.fail("%s is in state %d, want %d; %d are under way, counted as %d; %d bytes wait, counted as %d",
				name, c.state, m.states[name], busy, c.underWay, bytes[name], c.waiting)
		}
	}
	for k := range m.wanted {
		if m.core.works[k] == nil {
			m.fail("%v is wanted and forgotten", k)
		}
	}
}

// underWay returns the cluster of each attempt, ask and write under way.
func (m *model) underWay() (clusters []wire.ClusterName) {
	for _, a := range m.begun {
		clusters = append(clusters, a.before.key.cluster)
	}
	for _, a := range m.asks {
		clusters = append(clusters, a.job.cluster)
	}
	for _, a := range m.stores {
		clusters = append(clusters, a.job.cluster)
	}
	return clusters
}

func (m *model) key() workKey {
	return workKey{uid: types.UID(fmt.Sprint("w", m.random.IntN(4))), cluster: wire.ClusterName(fmt.Sprint("c", m.random.IntN(2)))}
}

// edit makes or changes a work.
func (m *model) edit(k workKey) {
	work, ok := m.works[k]
	m.last[k]++
	if !ok {
		work = &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: string(k.uid), Namespace: string(k.cluster), UID: k.uid}}
		m.first[k] = m.last[k]
	}
	work = work.DeepCopy()
	work.Generation = int64(m.last[k])
	m.works[k] = work
	m.step(workChanged{k}, k)
}

func (m *model) remove(k workKey) {
	if work, ok := m.works[k]; ok {
		delete(m.works, k)
		delete(m.wanted, k)
		m.step(workRemoved{k, removedWork{generation: wire.Generation(work.Generation), deletedAt: work.DeletionTimestamp, meta: &metav1.ObjectMeta{Name: work.Name}}})
	}
}

// end ends one of the attempts under way: what is published may arrive, or be lost.
func (m *model) end(i int, reliable bool) {
	a := m.begun[i]
	m.begun = slices.Delete(m.begun, i, i+1)
	work := m.works[a.before.key]
	in := &attemptEnded{attempt: a, plan: planPublish(&a.before, StoredWork{Work: work}, "hub1", m.now), began: m.now}
	chance := m.random.IntN(10)
	if reliable {
		chance = 9
	}
	switch spec := in.plan.spec; {
	case spec == nil:
	case !spec.IsDeletion() && m.pausedWork[a.before.key]:
		in.paused = true
	case chance < 2:
		in.err = errors.New("failed")
	case chance < 3:
		in.err = errors.New("refused")
		in.refused = &refusal{revision: in.plan.revision, limit: m.connections, condition: metav1.Condition{Reason: workv1.ReasonTooLarge}}
	case chance < 5: // lost
	case spec.IsDeletion():
		delete(m.holds, a.before.key)
		m.say(a.before.key, spec.Generation, workv1.WorkDeleting, workv1.WorkDeleted)
	default:
		m.holds[a.before.key] = max(m.holds[a.before.key], spec.Generation)
		m.say(a.before.key, m.holds[a.before.key], workv1.WorkApplied)
	}
	m.log = append(m.log, fmt.Sprintf("  %v ends: spec %+v, error %v, paused %v", a.before.key, in.plan.spec, in.err, in.paused))
	if in.plan.more && !in.paused && (in.err == nil || in.refused != nil) && m.works[a.before.key] != nil && !a.work.abandoned {
		m.step(in, a.before.key)
	} else {
		m.step(in)
	}
}

func (m *model) say(k workKey, generation wire.Generation, conditions ...string) {
	s := &wire.Status{UID: k.uid, Cluster: k.cluster, Source: "hub1", Generation: generation}
	for _, c := range conditions {
		s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue})
	}
	m.said = append(m.said, s)
}

// receive passes on the oldest status. The source removes a work whose deletion it confirms.
func (m *model) receive() {
	s := m.said[0]
	m.said = m.said[1:]
	k := workKey{uid: s.UID, cluster: s.Cluster}
	work, has := m.works[k]
	in := &statusReceived{from: sender{"hub1", s.Cluster}, status: s, stored: StoredWork{Work: work, FirstGeneration: m.first[k]}, has: has, size: 1}
	m.step(heard{k.cluster})
	if !has && isTrue(s, workv1.WorkDeleted) {
		delete(m.wanted, k) // it may be forgotten
	}
	before := m.accepted[k]
	m.accepted[k] = s // if it is
	if m.core.step(m.now, in); in.verdict != accepted {
		m.accepted[k] = before
	}
	for _, a := range slices.Clone(m.core.actions) {
		m.act(a)
	}
	m.check()
	m.log = append(m.log, fmt.Sprintf("  status %v of generation %d: %s", k, s.Generation, in.verdict))
	if in.verdict == accepted {
		if isTrue(s, workv1.WorkDeleted) {
			m.remove(k)
		}
	}
}

func (m *model) connect() {
	m.connections++
	in := &connected{limit: m.connections, clusters: []wire.ClusterName{"c0", "c1"}}
	for _, name := range in.clusters {
		m.asked[name] = m.serves(name)
	}
	maps.DeleteFunc(m.asked, func(_ wire.ClusterName, to bool) bool { return !to })
	m.connected = m.core.lastConnection + 1
	m.step(in)
}

// resync has the agent of a cluster list what it holds, of which not all is true unless it is honest.
func (m *model) resync(cluster wire.ClusterName, honest bool) {
	m.step(heard{cluster})
	listed, wanted := &worksListed{cluster: cluster, hashed: m.random.IntN(2) == 0}, []workKey(nil)
	for _, k := range sorted(m.works) {
		if k.cluster != cluster {
			continue
		}
		work := m.works[k]
		l := listedWork{uid: k.uid, generation: wire.Generation(work.Generation), deleting: work.DeletionTimestamp != nil, hash: "own"}
		if have, holds := m.holds[k]; holds {
			l.have = wire.SpecVersion{UID: k.uid, Generation: have, ContentHash: "own"}
			if chance := m.random.IntN(10); !honest && chance < 2 {
				l.have.ContentHash = "other"
			} else if !honest && chance < 4 {
				l.have.Generation += 5
			}
		}
		other := listed.hashed && (l.have.ContentHash == "other" || l.have.Generation > l.generation)
		if l.have.Generation < l.generation || l.deleting || other {
			wanted = append(wanted, k)
		}
		listed.works = append(listed.works, l)
	}
	m.step(listed, wanted...)
	for _, l := range listed.works {
		w := m.core.works[workKey{l.uid, cluster}]
		if l.answer == sendAuthoritative && m.serves(cluster) && (!w.authoritative || w.confirmed != 0) {
			m.fail("the agent holds other content of %v, which is not overruled", w.key)
		}
	}
	var others []wire.SpecVersion
	wanted = nil
	for _, k := range sorted(m.holds) {
		if m.works[k] == nil && k.cluster == cluster {
			others = append(others, wire.SpecVersion{UID: k.uid, Generation: m.holds[k]})
		}
	}
	missing := m.core.decideMissing(cluster, false, others, func(wire.SpecVersion) UnknownAction { return AnswerUnknown })
	for i := range missing {
		wanted = append(wanted, workKey{missing[i].held.UID, cluster})
	}
	if m.states[cluster] == ClusterOpen && len(missing) != len(others) {
		m.fail("of %v, %v are answered", others, missing)
	}
	m.step(worksMissing{cluster, missing}, wanted...)
}

// compare has the works of a cluster compared with what its agent says, of which not all is believed.
func (m *model) compare(cluster wire.ClusterName) {
	m.step(&questionSigned{cluster: cluster, at: m.now})
	m.step(&digestCompared{cluster: cluster, differences: []bucketDifference{{by: wire.BucketDigest{Works: 1}}}})
	m.step(quotaExceeded{cluster})
	m.step(distrusted{cluster, signing.Unsigned, true})
}

// set sets the state of a cluster. What is wanted of one that is elsewhere is forgotten, and its works are looked at
// when it is no longer; gained says that it was elsewhere until now.
func (m *model) set(cluster wire.ClusterName, state ClusterState, gained bool) {
	before := m.states[cluster]
	m.states[cluster] = state
	if gained || before != state && (before == ClusterElsewhere || state == ClusterElsewhere) {
		maps.DeleteFunc(m.wanted, func(k workKey, _ bool) bool { return k.cluster == cluster })
		maps.DeleteFunc(m.accepted, func(k workKey, _ *wire.Status) bool { return k.cluster == cluster })
		delete(m.asked, cluster)
	}
	m.step(&clusterSet{cluster: cluster, state: state, gained: gained})
	if state != ClusterElsewhere && (gained || before == ClusterElsewhere) {
		for _, k := range sorted(m.works) {
			if k.cluster == cluster {
				m.step(workChanged{k}, k)
			}
		}
	}
}

// serves reports whether the works of a cluster count.
func (m *model) serves(cluster wire.ClusterName) bool { return m.states[cluster] != ClusterElsewhere }

func sorted[V any](works map[workKey]V) []workKey {
	return slices.SortedFunc(maps.Keys(works), func(a, b workKey) int {
		return slices.Compare([]string{string(a.cluster), string(a.uid)}, []string{string(b.cluster), string(b.uid)})
	})
}

// happen has something happen.
func (m *model) happen() {
	k := m.key()
	switch n := m.random.IntN(100); {
	case n < 25:
		m.edit(k)
	case n < 30:
		if work := m.works[k]; work != nil && work.DeletionTimestamp == nil {
			work.DeletionTimestamp = &metav1.Time{Time: m.now}
			m.edit(k)
		}
	case n < 34:
		m.remove(k)
	case n < 54:
		if len(m.begun) > 0 {
			m.end(m.random.IntN(len(m.begun)), false)
		}
	case n < 57:
		if len(m.asks) > 0 {
			m.endAsk(m.random.IntN(len(m.asks)), m.random.IntN(3) == 0)
		}
	case n < 63:
		if len(m.stores) > 0 {
			m.endStore(m.random.IntN(len(m.stores)), m.random.IntN(3) == 0)
		}
	case n < 80:
		if len(m.said) > 0 {
			m.receive()
		}
	case n < 83:
		m.connect()
	case n < 85:
		if before := m.connected; before != 0 {
			m.connected = 0
			m.step(disconnected{before})
		}
	case n < 88:
		m.resync(k.cluster, false)
	case n < 90:
		m.set(k.cluster, ClusterState(m.random.IntN(3)), m.random.IntN(4) == 0)
	case n < 92:
		if m.pausedWork[k] = !m.pausedWork[k]; !m.pausedWork[k] && m.works[k] != nil {
			m.step(workChanged{k}, k)
		}
	case n < 94:
		m.compare(k.cluster)
	default:
		m.now = m.now.Add(time.Duration(m.random.IntN(90)) * time.Second)
		m.step(timePassed{})
	}
}

// settle has everything work for long.
func (m *model) settle() {
	for _, cluster := range []wire.ClusterName{"c0", "c1"} {
		m.set(cluster, ClusterOpen, false)
	}
	clear(m.pausedWork)
	m.connect()
	for _, k := range sorted(m.works) {
		m.step(workChanged{k}, k)
	}
	for range 50 {
		for len(m.begun)+len(m.said)+len(m.asks)+len(m.stores) > 0 {
			switch {
			case len(m.begun) > 0:
				m.end(0, true)
			case len(m.asks) > 0:
				m.endAsk(0, false)
			case len(m.stores) > 0:
				m.endStore(0, false)
			default:
				m.receive()
			}
		}
		m.resync("c0", true)
		m.resync("c1", true)
		m.now = m.now.Add(time.Minute)
		m.step(timePassed{})
	}
}

// TestCore steps a core with random inputs. Whatever happens, its tables agree with what a search finds, what is
// wanted is in the queue, and as many attempts as may be are under way. Once all is well again, agents hold the
// works of the source and no others, and nothing is left to do.
func TestCore(t *testing.T) {
	for seed := range uint64(300) {
		m := stepped(t, seed)
		for k, work := range m.works {
			if m.holds[k] != wire.Generation(work.Generation) || m.core.works[k].phase != idle {
				m.fail("seed %d: the agent holds generation %d of %v, want %d; %+v", seed, m.holds[k], k, work.Generation, m.core.works[k])
			}
		}
		for k, s := range m.accepted {
			if s != nil && m.stored[k] != s {
				m.fail("seed %d: the newest status of %v is not stored", seed, k)
			}
		}
		if len(m.core.asks.byKey) > 0 || len(m.core.stores.byKey) > 0 {
			m.fail("seed %d: %d clusters are to be asked, %d statuses to be stored", seed, len(m.core.asks.byKey), len(m.core.stores.byKey))
		}
		if len(m.holds) != len(m.works) || len(m.core.works) != len(m.works) {
			m.fail("seed %d: agents hold %v, the source has %d works, the core %d", seed, m.holds, len(m.works), len(m.core.works))
		}
	}
}

// stepped returns a model after a life by this seed.
func stepped(t *testing.T, seed uint64) *model {
	m := newModel(t, seed)
	m.connect()
	for range 300 {
		m.happen()
	}
	m.settle()
	return m
}

// TestSameInputsSameActions: what a core does, and in which order, follows from what has happened alone.
func TestSameInputsSameActions(t *testing.T) {
	for seed := range uint64(300) {
		if first, again := stepped(t, seed).trace.Sum64(), stepped(t, seed).trace.Sum64(); first != again {
			t.Errorf("seed %d: the actions are not the same", seed)
		}
	}
}
