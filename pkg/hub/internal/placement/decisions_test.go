package placement

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
)

// stored simulates an API server: PlacementDecisions by name.
type stored map[string]*clusterv1beta1.PlacementDecision

func (s stored) all() []*clusterv1beta1.PlacementDecision { return slices.Collect(maps.Values(s)) }

// apply performs one write.
func (s stored) apply(t *testing.T, w write) {
	t.Helper()
	held, exists := s[w.object.Name]
	if exists == w.create {
		t.Fatalf("%s: exists %t, is created %t", w.object.Name, exists, w.create)
	}
	next := w.object.DeepCopy()
	if !w.metadata && !w.create {
		next.ObjectMeta = held.ObjectMeta
	}
	if !w.status {
		next.Status = clusterv1beta1.PlacementDecisionStatus{}
		if exists {
			next.Status = held.Status
		}
	}
	if len(next.Status.Decisions) > clusterv1beta1.MaxDecisions {
		t.Errorf("%s holds %d clusters", next.Name, len(next.Status.Decisions))
	}
	s[next.Name] = next
}

// listed returns all clusters of all objects.
func (s stored) listed() sets.Set[string] {
	listed := sets.New[string]()
	for _, d := range s {
		listed.Insert(clusterNames(d)...)
	}
	return listed
}

// members returns all clusters of the groups.
func members(groups []group) sets.Set[string] {
	all := sets.New[string]()
	for _, g := range groups {
		all.Insert(g.clusters...)
	}
	return all
}

// execute performs the writes of a plan, those of a stage in random order, and checks that no
// cluster of stay is missing at any time.
func (s stored) execute(t *testing.T, p plan, random *rand.Rand, stay sets.Set[string]) {
	t.Helper()
	check := func() {
		t.Helper()
		if missing := stay.Difference(s.listed()); len(missing) > 0 {
			t.Errorf("%v are temporarily not listed", missing)
		}
	}
	for _, stage := range [][]write{p.first, p.then} {
		for _, i := range random.Perm(len(stage)) {
			s.apply(t, stage[i])
			check()
		}
	}
	for _, d := range p.remove {
		delete(s, d.Name)
		check()
	}
}

func never(string) bool { return false }

// show formats objects as "number[index/group] clusters".
func (s stored) show() string {
	var parts []string
	for _, d := range sortedByNumber("p", s.all()) {
		parts = append(parts, fmt.Sprintf("%s[%s/%s] %s", strings.TrimPrefix(d.Name, "p-decision-"),
			d.Labels[clusterv1beta1.DecisionGroupIndexLabel], d.Labels[clusterv1beta1.DecisionGroupNameLabel], strings.Join(clusterNames(d), " ")))
	}
	return strings.Join(parts, "; ")
}

func TestPlanDecisions(t *testing.T) {
	for _, test := range []struct {
		name   string
		states []string // consecutive groups
		want   string
		writes string // for the last state: created, updated, removed
	}{
		{"none", []string{""}, "1[0/] ", "1 0 0"},
		{"the first", []string{"", "a b"}, "1[0/] a b", "0 1 0"},
		{"groups", []string{"w: a b | w: c | d"}, "1[0/w] a b; 2[1/w] c; 3[2/] d", "3 0 0"},
		{"unchanged", []string{"w: a b | c", "w: a b | c"}, "1[0/w] a b; 2[1/] c", "0 0 0"},
		{"one joins", []string{"a b | c", "a b | c d"}, "1[0/] a b; 2[1/] c d", "0 1 0"},
		{"one leaves", []string{"a b | c", "b | c"}, "1[0/] b; 2[1/] c", "0 1 0"},
		{"all leave", []string{"a b | c", ""}, "1[0/] ", "0 1 1"},
		{"a group is renamed", []string{"w: a b | c", "v: a b | c"}, "1[0/v] a b; 2[1/] c", "0 1 0"},
		{"a group comes before", []string{"b | c", "w: a | b | c"}, "1[1/] b; 2[2/] c; 3[0/w] a", "1 2 0"},
		{"what is left over is used again", []string{"a | b", "b | c"}, "1[1/] c; 2[0/] b", "0 2 0"},
		{"one moves", []string{"a b | c", "a | b c"}, "1[0/] a; 2[1/] b c", "0 2 0"},
		{"two change places", []string{"a b | c d", "a d | b c"}, "1[0/] a d; 2[1/] b c", "0 4 0"},
		{"two become one", []string{"a | b", "a b"}, "1[0/] a b", "0 1 1"},
		{"one becomes two", []string{"a b", "a | b"}, "1[0/] a; 2[1/] b", "1 1 0"},
	} {
		objects, random, before := stored{}, rand.New(rand.NewPCG(1, 2)), sets.New[string]()
		var p plan
		for _, state := range test.states {
			groups := parse(state)
			p = planDecisions(placing(), groups, objects.all(), never)
			objects.execute(t, p, random, members(groups).Intersection(before))
			before = members(groups)
		}
		if got := objects.show(); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
		var created, updated int
		for _, w := range slices.Concat(p.first, p.then) {
			if w.create {
				created++
			} else {
				updated++
			}
		}
		if got := fmt.Sprint(created, updated, len(p.remove)); got != test.writes {
			t.Errorf("%s: %s writes, want %s", test.name, got, test.writes)
		}
	}
}

func TestNamesThatAreTaken(t *testing.T) {
	objects := stored{}
	p := planDecisions(placing(), parse("a | b"), nil, func(name string) bool { return name == "p-decision-1" })
	objects.execute(t, p, rand.New(rand.NewPCG(1, 2)), nil)
	if got, want := objects.show(), "2[0/] a; 3[1/] b"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := p.groups[0].Decisions; !slices.Equal(got, []string{"p-decision-2"}) {
		t.Errorf("the status names %v", got)
	}
}

// Decisions of another controller are adopted, including additional labels.
func TestAdoption(t *testing.T) {
	controller := true
	objects := stored{"p-decision-1": {
		ObjectMeta: metav1.ObjectMeta{
			Name: "p-decision-1", Namespace: "ns", Labels: map[string]string{clusterv1beta1.PlacementLabel: "p", "mine": "kept"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "cluster.open-cluster-management.io/v1beta1", Kind: "Placement", Name: "p", UID: "uid-p", Controller: &controller}},
		},
		Status: clusterv1beta1.PlacementDecisionStatus{Decisions: []clusterv1beta1.ClusterDecision{{ClusterName: "b", Reason: "why"}, {ClusterName: "a"}}},
	}, "by-hand": {
		ObjectMeta: metav1.ObjectMeta{Name: "by-hand", Namespace: "ns", Labels: map[string]string{clusterv1beta1.PlacementLabel: "p"}},
		Status:     clusterv1beta1.PlacementDecisionStatus{Decisions: []clusterv1beta1.ClusterDecision{{ClusterName: "x"}}},
	}}
	before := readGroups("p", objects.all())
	if got := text(before); got != "a b x" {
		t.Errorf("read back: %s", got)
	}
	o := schedule(mustRules(t, placing(number(2))), plain("a b c x"), before, noon, unused)
	p := planDecisions(placing(), o.groups, objects.all(), never)
	objects.execute(t, p, rand.New(rand.NewPCG(1, 2)), sets.New("a", "b"))
	if got, want := objects.show(), "1[0/] a b"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	d := objects["p-decision-1"]
	if d.Labels["mine"] != "kept" || len(d.OwnerReferences) != 1 || !slices.Equal(p.removed, []string{"x"}) || p.added != nil {
		t.Errorf("%v, added %v, removed %v", d.ObjectMeta, p.added, p.removed)
	}
	// Missing labels and owner are added.
	d.Labels, d.OwnerReferences = map[string]string{clusterv1beta1.PlacementLabel: "p"}, nil
	p = planDecisions(placing(), o.groups, objects.all(), never)
	objects.execute(t, p, rand.New(rand.NewPCG(1, 2)), nil)
	d = objects["p-decision-1"]
	if owner := metav1.GetControllerOf(d); owner == nil || owner.UID != types.UID("uid-p") || d.Labels[clusterv1beta1.DecisionGroupIndexLabel] != "0" {
		t.Errorf("%v", d.ObjectMeta)
	}
	if p := planDecisions(placing(), o.groups, objects.all(), never); !p.empty() {
		t.Errorf("not stable: %+v", p)
	}
}

// For random changes of a placement and its clusters: the decisions hold exactly the chosen
// clusters, no object mixes groups or holds more than 100 clusters, a cluster that stays chosen is
// listed at any time, and a second plan is empty.
func TestDecisionsFollowEveryOutcome(t *testing.T) {
	for seed := range uint64(60) {
		s, objects := newSimulation(seed), stored{}
		if seed%3 == 0 { // many clusters
			for range 500 {
				s.join()
			}
		}
		for range 6 {
			before := objects.listed()
			o := s.schedule(t, readGroups("p", objects.all()))
			p := planDecisions(s.placement, o.groups, objects.all(), never)
			objects.execute(t, p, s.random, members(o.groups).Intersection(before))
			if again := planDecisions(s.placement, o.groups, objects.all(), never); !again.empty() { // clusters moved between groups
				if len(again.added)+len(again.removed) > 0 {
					t.Errorf("added and removed without a change: %v added, %v removed", again.added, again.removed)
				}
				objects.execute(t, again, s.random, objects.listed())
				p = again
			}
			checkWritten(t, objects, o, p)
			if again := planDecisions(s.placement, o.groups, objects.all(), never); !again.empty() {
				t.Errorf("written once more: %+v", again)
			}
			if back := readGroups("p", objects.all()); len(back) != len(o.groups) {
				t.Errorf("read back %s, written %s", text(back), text(o.groups))
			}
			for range s.random.IntN(20) {
				s.join()
				s.leave()
			}
			if s.random.IntN(2) == 0 {
				s.change()
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// FuzzAdoption checks that a few plans are enough for any existing decisions.
func FuzzAdoption(f *testing.F) {
	f.Add("p-decision-1", "0", "w", "a b", "p-decision-2", "1", "", "c")
	f.Add("p-decision-1", "0", "", "a b", "p-decision-1x", "0", "v", "b a")
	f.Add("q", "", "w", "c a", "p-decision-01", "-7", "w", "c b x y")
	f.Add("p-decision-99999999999999999999", "99999999999999999999", "w", "x x", "p-decision-2", "1.5", "w", "")
	f.Fuzz(func(t *testing.T, name1, index1, group1, clusters1, name2, index2, group2, clusters2 string) {
		objects := stored{}
		for _, d := range [][4]string{{name1, index1, group1, clusters1}, {name2, index2, group2, clusters2}} {
			clusters := strings.Fields(d[3])
			if len(clusters) > clusterv1beta1.MaxDecisions {
				t.Skip("more than an API server takes")
			}
			objects[d[0]] = &clusterv1beta1.PlacementDecision{
				ObjectMeta: metav1.ObjectMeta{Name: d[0], Namespace: "ns", Labels: map[string]string{
					clusterv1beta1.PlacementLabel: "p", clusterv1beta1.DecisionGroupIndexLabel: d[1], clusterv1beta1.DecisionGroupNameLabel: d[2],
				}},
				Status: clusterv1beta1.PlacementDecisionStatus{Decisions: clusterDecisions(clusters)},
			}
		}
		before := objects.listed()
		r := mustRules(t, placing(number(3), naming("w", "west"), perGroup(intstr.FromInt32(2))))
		clusters := []*cluster{accepted("a"), accepted("b", labelled("group", "west")), accepted("c"), accepted("d"), accepted("x")}
		for i := range 4 {
			o := schedule(r, clusters, readGroups("p", objects.all()), noon, unused)
			p := planDecisions(placing(), o.groups, objects.all(), never)
			if p.empty() {
				checkWritten(t, objects, o, p)
				return
			}
			if i == 3 {
				t.Errorf("not stable: %s", objects.show())
			}
			objects.execute(t, p, rand.New(rand.NewPCG(1, 2)), members(o.groups).Intersection(before))
		}
	})
}

// A full object that lists a cluster of another object does not keep that cluster when another one
// is added.
func TestListedTwiceInFullObjects(t *testing.T) {
	objects := stored{}
	var names []string
	for i := range 200 {
		names = append(names, fmt.Sprintf("c%03d", i))
	}
	random := rand.New(rand.NewPCG(1, 2))
	objects.execute(t, planDecisions(placing(), []group{{clusters: names}}, nil, never), random, nil)
	objects["p-decision-2"].Status.Decisions[0].ClusterName = "c000"
	p := planDecisions(placing(), []group{{clusters: names}}, objects.all(), never)
	objects.execute(t, p, random, objects.listed())
	checkWritten(t, objects, result{groups: []group{{clusters: names}}}, p)
}

func checkWritten(t *testing.T, objects stored, o result, p plan) {
	t.Helper()
	needed := 0
	for i, g := range o.groups {
		needed += (len(g.clusters) + 99) / 100
		var held, names []string
		for _, d := range sortedByNumber("p", objects.all()) {
			if d.Labels[clusterv1beta1.DecisionGroupIndexLabel] == fmt.Sprint(i) && d.Labels[clusterv1beta1.DecisionGroupNameLabel] == g.name {
				held, names = append(held, clusterNames(d)...), append(names, d.Name)
				if !slices.IsSorted(clusterNames(d)) {
					t.Errorf("%s is not sorted", d.Name)
				}
			}
		}
		if slices.Sort(held); !slices.Equal(held, g.clusters) {
			t.Errorf("group %d holds %v, want %v", i, held, g.clusters)
		}
		if s := p.groups[i]; int(s.DecisionGroupIndex) != i || s.DecisionGroupName != g.name || int(s.ClustersCount) != len(g.clusters) || !slices.Equal(s.Decisions, names) {
			t.Errorf("group %d has the status %+v, objects %v", i, s, names)
		}
	}
	if len(objects) != max(1, needed) {
		t.Errorf("%d objects, want %d", len(objects), needed)
	}
}

// With many clusters, adding or removing one costs one write.
func TestOneChangeCostsOneWrite(t *testing.T) {
	r, objects, random := mustRules(t, placing()), stored{}, rand.New(rand.NewPCG(1, 2))
	var clusters []*cluster
	for i := range 5000 {
		clusters = append(clusters, accepted(fmt.Sprintf("c%04d", i)))
	}
	for _, step := range []struct {
		clusters []*cluster
		writes   int
	}{{clusters, 50}, {clusters[1:], 1}, {clusters, 1}, {clusters[:4999], 1}, {clusters[:4901], 1}, {clusters[:4900], 1}} {
		o := schedule(r, step.clusters, readGroups("p", objects.all()), noon, unused)
		p := planDecisions(placing(), o.groups, objects.all(), never)
		if got := len(p.first) + len(p.then) + len(p.remove); got != step.writes {
			t.Errorf("%d clusters: %d writes, want %d", len(step.clusters), got, step.writes)
		}
		objects.execute(t, p, random, nil)
	}
}

func TestStatus(t *testing.T) {
	for _, test := range []struct {
		name      string
		placement *clusterv1beta1.Placement
		clusters  string
		want      string
	}{
		{"all of none", placing(), "", "False NoManagedClusterMatched No ManagedCluster matches: there are no other clusters"},
		{"all", placing(), "a b", "True AllDecisionsScheduled All cluster decisions scheduled"},
		{"none wanted", placing(number(0)), "a", "True AllDecisionsScheduled All cluster decisions scheduled"},
		{"as many as wanted", placing(number(1)), "a b", "True AllDecisionsScheduled All cluster decisions scheduled"},
		{"some", placing(number(5)), "a b", "False NotAllDecisionsScheduled 3 cluster decisions unscheduled: there are no other clusters"},
		{"some of none", placing(number(5), predicates(byLabels("x", "y"))), "a b",
			"False NoManagedClusterMatched No ManagedCluster matches: other clusters match no predicate"},
	} {
		r := mustRules(t, test.placement)
		o := schedule(r, plain(test.clusters), nil, noon, unused)
		status := scheduledStatus(test.placement, r, &o, nil)
		c := meta.FindStatusCondition(status.Conditions, clusterv1beta1.PlacementConditionSatisfied)
		if got := fmt.Sprint(c.Status, " ", c.Reason, " ", c.Message); got != test.want || c.ObservedGeneration != 1 {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
		if c := meta.FindStatusCondition(status.Conditions, clusterv1beta1.PlacementConditionMisconfigured); c.Status != metav1.ConditionFalse ||
			c.Reason != "Succeedconfigured" || int(status.NumberOfSelectedClusters) != o.chosen {
			t.Errorf("%s: %+v", test.name, status)
		}
	}

	p := placing()
	p.Status.NumberOfSelectedClusters = 7
	status := misconfiguredStatus(p, errors.Join(errors.New("one"), errors.New("two"+strings.Repeat("ü", messageMax))))
	if status.NumberOfSelectedClusters != 7 || len(status.Conditions) != 2 {
		t.Errorf("%+v", status)
	}
	for kind, is := range map[string]metav1.ConditionStatus{"PlacementSatisfied": metav1.ConditionFalse, "PlacementMisconfigured": metav1.ConditionTrue} {
		c := meta.FindStatusCondition(status.Conditions, kind)
		if c == nil || c.Status != is || c.Reason != "Misconfigured" || !strings.Contains(c.Message, "decisions are unchanged: one; two") || len(c.Message) > messageMax+100 {
			t.Errorf("%s: %+v", kind, c)
		}
	}
}

func TestSummary(t *testing.T) {
	o := &result{chosen: 12, groups: make([]group, 2)}
	p := &plan{added: strings.Fields("a b c d e f g"), removed: []string{"x"}}
	if got, want := changeSummary(o, p), "12 clusters selected in 2 decision groups; added: a, b, c, d, e and 2 more; removed: x"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
