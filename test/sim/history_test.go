package sim

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// deletion is the generation of a work that is deleted.
const deletion = -1

// access is a write to a register, or a read from it.
type access struct {
	entry      int // of the trace
	write      bool
	generation int64
}

// register is what people, cluster and hub do with a work: people write generations, and its cluster sees them, late, but
// in their order; or: what the cluster has seen is written, and the hub sees it in statuses.
type register struct {
	name     string // what a reader sees
	accesses []access
}

func (r *register) add(a access) {
	same := func(b access) bool { return b.write == a.write && b.generation == a.generation }
	if last := len(r.accesses) - 1; last >= 0 && same(r.accesses[last]) {
		return
	}
	r.accesses = append(r.accesses, a)
}

// held is the state of a register in a history.
type held struct {
	generation int64
	reads      int // so far
}

// read is an input of the model: the n-th of its client, from 0. A write is a generation.
type read struct{ n int }

// model is a register with one reader, who reads one after the other.
var model = porcupine.Model{
	Init: func() any { return held{} },
	Step: func(state, input, output any) (bool, any) {
		s := state.(held)
		if r, isRead := input.(read); isRead {
			return r.n == s.reads && output.(int64) == s.generation, held{s.generation, s.reads + 1}
		}
		return true, held{output.(int64), s.reads}
	},
}

// explained reports whether a single register explains the first count accesses: each read has its effect at some time
// before its reader is known to have read, and each write when it is made.
func (r *register) explained(count int) bool {
	var operations []porcupine.Operation
	reads := 0
	for i, a := range r.accesses[:count] {
		call, end := int64(2*i+1), int64(2*i+2)
		if a.write {
			operations = append(operations, porcupine.Operation{ClientId: 0, Call: call, Input: nil, Output: a.generation, Return: end})
			continue
		}
		operations = append(operations, porcupine.Operation{ClientId: reads + 1, Call: 0, Input: read{reads}, Output: a.generation, Return: end})
		reads++
	}
	return porcupine.CheckOperations(model, operations)
}

// wrong returns the number of the first access that no register explains, -1 if there is none.
func (r *register) wrong() int {
	if r.explained(len(r.accesses)) {
		return -1
	}
	for count := range r.accesses {
		if !r.explained(count + 1) {
			return count
		}
	}
	return -1
}

// histories are the registers of a run.
type histories struct {
	specs    map[string]*register // by UID
	statuses map[string]*register
	names    map[string]string     // of works, as cluster/name
	declared map[string]declaredIn // by cluster/object/value
	foreign  map[string]bool       // UIDs of AppliedManifestWorks that somebody else deletes
	rewound  map[string]bool       // works that came back as they were before: nothing is promised of them
	trace    *trace
}

func newHistories(t *trace) *histories {
	h := &histories{specs: map[string]*register{}, statuses: map[string]*register{}, names: map[string]string{}, declared: map[string]declaredIn{}, foreign: map[string]bool{}, rewound: map[string]bool{}, trace: t}
	for i := range t.entries {
		h.read(i, &t.entries[i])
	}
	return h
}

func (h *histories) read(i int, e *entry) {
	switch w := e.write; {
	case e.what == starts:
		h.started(i, e.actor)
	case e.verb == "publishes" && strings.HasSuffix(e.event.Type(), ".spec.resync_response"):
		m, _ := wire.Decode(*e.event) // other versions may send what this one cannot read
		if spec, ok := m.(*wire.Spec); ok && spec.Action == wire.ResyncResponse && !spec.IsDeletion() && h.specs[string(spec.UID)] != nil {
			h.sentAgain(i, h.specs[string(spec.UID)])
		}
	case w == nil:
		if e.rewinds {
			h.rewind(e.actor)
		}
		if gained := takesOver.FindStringSubmatch(e.what); gained != nil {
			h.takenOver(i, e.at, gained[1])
		}
	case w.Kind.Kind == "ManifestWork":
		h.hubWrite(i, e)
	case w.Kind.Kind == "ConfigMap" && w.User == "agent" && w.After != nil && valueOf(w.Before) != valueOf(w.After):
		if from, known := h.declared[e.actor+"/"+w.After.GetName()+"/"+valueOf(w.After)]; known {
			h.seen(from.uid, access{i, false, from.generation})
		}
	case w.Kind.Kind == "AppliedManifestWork" && w.User == people && w.After != nil && w.After.GetDeletionTimestamp() != nil:
		h.foreign[string(w.After.GetUID())] = true
	case w.Kind.Kind == "AppliedManifestWork" && w.User == "agent" && w.After == nil && !h.foreign[string(w.Before.GetUID())]:
		h.seen(w.Before.GetAnnotations()[uidAnnotation], access{i, false, deletion})
	}
}

// rewind forgets the works of a cluster.
func (h *histories) rewind(cluster string) {
	for uid, name := range h.names {
		if strings.HasPrefix(name, cluster+"/") {
			h.rewound[uid] = true
		}
	}
}

// started notes that the agent of a cluster starts: it does not know what it has deleted before.
func (h *histories) started(i int, cluster string) {
	for uid, name := range h.names {
		if strings.HasPrefix(name, cluster+"/") {
			h.sentAgain(i, h.specs[uid])
		}
	}
}

// takesOver is what a hub logs that begins to serve a cluster, or all.
var takesOver = regexp.MustCompile(`msg=(?:leading program=hub|"cluster gained".* cluster=(\S+))`)

// takenOver notes that a hub begins to serve a cluster, all if it is empty. It does not know which statuses came before, and takes those that were signed
// up to a minute ago (docs/protocol.md, Signatures).
func (h *histories) takenOver(i int, at time.Time, cluster string) {
	for uid, name := range h.names {
		r := h.statuses[uid]
		if !strings.HasPrefix(name, cluster) {
			continue
		}
		var recent []access
		for _, a := range r.accesses {
			switch {
			case !a.write || takesOver.MatchString(h.trace.entries[a.entry].what): // it was added here: with it, each hub that begins would double them
			case h.trace.entries[a.entry].at.Before(at.Add(-time.Minute)):
				recent = []access{a}
			default:
				recent = append(recent, a)
			}
		}
		for _, a := range recent {
			r.add(access{i, true, a.generation})
		}
	}
}

// sentAgain notes that the cluster may see the last spec of a work again, and the deletion, if it has seen that: a source that has not heard of that
// sends both, and an agent takes a spec that answers its question, or that came since it started (docs/protocol.md, Deletion).
func (h *histories) sentAgain(i int, r *register) {
	if !r.ended() {
		return
	}
	for _, a := range slices.Backward(r.accesses) {
		if a.write && a.generation != deletion {
			r.add(access{i, true, a.generation})
			r.add(access{i, true, deletion})
			return
		}
	}
}

// ended reports whether the deletion was seen, and nothing but that was written since.
func (r *register) ended() bool {
	for _, a := range slices.Backward(r.accesses) {
		if !a.write || a.generation != deletion {
			return !a.write && a.generation == deletion
		}
	}
	return false
}

// seen notes what a cluster sees of a work.
func (h *histories) seen(uid string, a access) {
	if h.specs[uid] != nil {
		h.specs[uid].add(a)
		h.statuses[uid].add(access{a.entry, true, a.generation})
	}
}

func (h *histories) hubWrite(i int, e *entry) {
	o := e.write.After
	if o == nil {
		o = e.write.Before
	}
	work := workFrom(o)
	uid, name := string(work.UID), work.Namespace+"/"+work.Name
	if h.specs[uid] == nil {
		h.names[uid] = name
		h.specs[uid], h.statuses[uid] = &register{name: "its cluster has seen"}, &register{name: "the statuses at the hub were of"}
	}
	switch applied := appliedGeneration(work); {
	case e.write.After == nil || work.DeletionTimestamp != nil:
		h.specs[uid].add(access{i, true, deletion})
	case e.write.Before == nil || e.write.Before.GetGeneration() != work.Generation:
		h.specs[uid].add(access{i, true, work.Generation})
		for object, value := range declared(work) {
			h.declared[work.Namespace+"/"+object+"/"+value] = declaredIn{uid, work.Generation}
		}
	case applied > 0 && e.actor != sourceProgram: // its replicas may go back for a moment (docs/simulation.md, seed 61)
		h.statuses[uid].add(access{i, false, applied})
	}
}

// appliedGeneration returns of which generation the hub knows that it is applied; 0: of none.
func appliedGeneration(work *workv1.ManifestWork) int64 {
	at := slices.IndexFunc(work.Status.Conditions, func(c metav1.Condition) bool { return c.Type == workv1.WorkApplied && c.Status == metav1.ConditionTrue })
	if at < 0 {
		return 0
	}
	return work.Status.Conditions[at].ObservedGeneration
}

// inexplicable is a history that no register explains.
type inexplicable struct {
	entry int // the first that is wrong
	text  string
}

// wrong returns which histories no register explains, in the order in which that happened.
func (h *histories) wrong() []inexplicable {
	var found []inexplicable
	for uid, name := range h.names {
		for _, r := range []*register{h.specs[uid], h.statuses[uid]} {
			if at := r.wrong(); at >= 0 && !h.rewound[uid] {
				found = append(found, inexplicable{r.accesses[at].entry, fmt.Sprintf("%s generations %s of work %s, which no register explains that has held %s",
					r.name, generations(r.accesses[:at+1], false), name, generations(r.accesses[:at+1], true))})
			}
		}
	}
	slices.SortFunc(found, func(a, b inexplicable) int { return a.entry - b.entry })
	return found
}

func generations(accesses []access, written bool) string {
	var list []string
	for _, a := range accesses {
		switch {
		case a.write != written:
		case a.generation == deletion:
			list = append(list, "the deletion")
		default:
			list = append(list, fmt.Sprint(a.generation))
		}
	}
	return strings.Join(list, ", ")
}

// checkHistories adds to a trace what no register explains, and returns it. Without signatures, a broker can have an old
// spec applied again.
func checkHistories(t *trace) []string {
	var found []string
	for n, i := range newHistories(t).wrong() {
		at := t.entries[i.entry+n].at
		t.entries = slices.Insert(t.entries, i.entry+n+1, entry{at: at, actor: check, what: i.text})
		found = append(found, at.UTC().Format(clock)+" "+i.text)
	}
	return found
}

func TestHistories(t *testing.T) {
	w := func(generation int64) access { return access{write: true, generation: generation} }
	r := func(generation int64) access { return access{generation: generation} }
	for name, test := range map[string]struct {
		accesses []access
		wrong    int
	}{
		"nothing":                                 {nil, -1},
		"in order":                                {[]access{w(1), r(1), w(2), r(2)}, -1},
		"late":                                    {[]access{w(1), w(2), w(3), r(1), r(3)}, -1},
		"some are not seen":                       {[]access{w(1), w(2), w(3), r(3), w(deletion), r(deletion)}, -1},
		"before it was written":                   {[]access{w(1), r(2), w(2)}, 1},
		"back":                                    {[]access{w(1), w(2), r(2), r(1)}, 3},
		"applied after its deletion was":          {[]access{w(1), r(1), w(deletion), r(deletion), r(1)}, 4},
		"deleted, though nobody has deleted it":   {[]access{w(1), r(1), r(deletion)}, 2},
		"again, between two of a later":           {[]access{w(1), w(2), w(3), r(2), r(1), r(3)}, 4},
		"the same twice, which was written once":  {[]access{w(1), r(1), w(2), r(2), r(1), r(2)}, 4},
		"the same twice, which was written twice": {[]access{w(1), w(2), w(1), r(1), r(2), r(1)}, -1},
	} {
		if got := (&register{accesses: test.accesses}).wrong(); got != test.wrong {
			t.Errorf("%s: access %d is wrong, want %d", name, got, test.wrong)
		}
	}
}

// An agent that has started or asked since it has carried out a deletion may see the last spec again, and no earlier one, until the deletion follows.
func TestHistoriesOfSpecsSentAgain(t *testing.T) {
	const start, answer, repeat = -2, -3, -4
	published := func(action wire.Action) *entry {
		bundle := &wire.Bundle{Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"work1-0"}}`)}}}}
		e, err := wire.Encode(&wire.Spec{UID: "u", Generation: 2, Source: "hub1", Cluster: "cluster1", Action: action, Bundle: bundle}, time.Now())
		kit.NoError(t, err)
		if _, err := wire.Decode(e); err != nil {
			t.Fatal(err)
		}
		return &entry{actor: "hub", verb: "publishes", event: &e}
	}
	for name, test := range map[string]struct {
		seen  []int64
		wrong bool
	}{
		"nothing":                             {[]int64{start, start}, false},
		"the last spec, and the deletion":     {[]int64{start, 2, deletion}, false},
		"the same after each start":           {[]int64{start, 2, deletion, start, 2, deletion}, false},
		"the deletion alone":                  {[]int64{start, deletion}, false},
		"as an answer":                        {[]int64{answer, 2, deletion}, false},
		"by itself":                           {[]int64{repeat, 2}, true},
		"an agent that has not started":       {[]int64{2}, true},
		"again, and it has not started again": {[]int64{start, 2, deletion, 2}, true},
		"an earlier spec":                     {[]int64{start, 1}, true},
		"twice without a deletion":            {[]int64{start, 2, start, deletion, 2}, true},
	} {
		r := &register{accesses: []access{{write: true, generation: 1}, {write: true, generation: 2}, {generation: 2}, {write: true, generation: deletion}, {generation: deletion}, {write: true, generation: deletion}}}
		h := &histories{specs: map[string]*register{"u": r}, statuses: map[string]*register{"u": {}}, names: map[string]string{"u": "cluster1/work1"}}
		for i, generation := range test.seen {
			switch h.started(i, "cluster2"); generation {
			case start:
				h.started(i, "cluster1")
			case answer:
				h.read(i, published(wire.ResyncResponse))
			case repeat:
				h.read(i, published(wire.Update))
			default:
				h.seen("u", access{i, false, generation})
			}
		}
		if wrong := r.wrong() >= 0; wrong != test.wrong {
			t.Errorf("%s: wrong is %v, want %v", name, wrong, test.wrong)
		}
	}
}

// A hub that begins to serve a cluster may take statuses that were signed up to a minute before.
func TestHistoriesOfHubsThatTakeOver(t *testing.T) {
	at := func(second int) time.Time { return time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC) }
	for what, wrong := range map[string]bool{
		`level=INFO msg=leading program=hub`:                           false,
		`level=INFO msg="cluster gained" program=hub cluster=cluster1`: false,
		`level=INFO msg="cluster gained" program=hub cluster=cluster2`: true,
		`level=INFO msg="caches are current" program=hub`:              true,
	} {
		entries := []entry{{at: at(0)}, {at: at(30)}, {at: at(110)}, {actor: "log", what: what, at: at(120)}}
		r := &register{accesses: []access{{0, true, 1}, {1, true, 2}, {2, true, 3}, {2, false, 3}}}
		h := &histories{specs: map[string]*register{"u": {}}, statuses: map[string]*register{"u": r}, names: map[string]string{"u": "cluster1/work1"}, trace: &trace{entries: entries}}
		h.read(3, &entries[3])
		r.add(access{generation: 2})
		if got := r.wrong() >= 0; got != wrong {
			t.Errorf("after %s: wrong is %v, want %v", what, got, wrong)
		}
		r.add(access{generation: 1})
		if r.wrong() < 0 {
			t.Errorf("after %s: a status of more than a minute ago is explained", what)
		}
	}
}

// Hubs that begin to serve a cluster many times in a minute add the same statuses each, not twice as many as the one before.
func TestHistoriesOfHubsThatTakeOverOften(t *testing.T) {
	entries := []entry{{}, {}}
	r := &register{accesses: []access{{0, true, 1}, {1, true, 2}}}
	h := &histories{statuses: map[string]*register{"u": r}, names: map[string]string{"u": "cluster1/work1"}, trace: &trace{}}
	for range 16 {
		entries = append(entries, entry{actor: "log", what: "level=INFO msg=leading program=hub"})
		h.trace.entries = entries
		h.read(len(entries)-1, &entries[len(entries)-1])
	}
	if got, want := len(r.accesses), 2+16*2; got != want {
		t.Errorf("the history has %d accesses, want %d", got, want)
	}
}

// A history that is wrong is told with its time, after what was wrong.
func TestCheckHistories(t *testing.T) {
	world, _ := small(t)
	if found := checkHistories(world.trace); len(found) > 0 {
		t.Fatal(found)
	}
	at := slices.IndexFunc(world.trace.entries, func(e entry) bool {
		return e.write != nil && e.write.Kind.Kind == "ConfigMap" && e.write.User == "agent" && e.write.After != nil
	})
	early := world.trace.entries[at]
	early.at = time.Date(2026, 1, 1, 0, 20, 0, 0, time.UTC)
	gone := *early.write
	gone.Kind.Kind, gone.After = "AppliedManifestWork", nil
	gone.Before = early.write.After.DeepCopy()
	uid := newHistories(world.trace).declared["cluster1/"+gone.Before.GetName()+"/"+valueOf(gone.Before)].uid
	gone.Before.SetAnnotations(map[string]string{uidAnnotation: uid})
	for range 3 { // it may be sent again once after a deletion, see sentAgain
		world.trace.entries = append(world.trace.entries, entry{at: early.at, actor: early.actor, write: &gone}, early)
	}
	found := checkHistories(world.trace)
	if len(found) == 0 || !strings.HasPrefix(found[0], "00:20:00.000 its cluster has seen generations ") {
		t.Errorf("found %q, want what the cluster has seen after it has carried out a deletion", found)
	}
}
