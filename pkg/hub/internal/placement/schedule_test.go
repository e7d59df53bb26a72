package placement

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
)

// text formats groups as "name: a b | c", unnamed groups without a name.
func text(groups []group) string {
	var parts []string
	for _, g := range groups {
		part := strings.Join(g.clusters, " ")
		if g.name != "" {
			part = g.name + ": " + part
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " | ")
}

// parse is the inverse of text.
func parse(s string) []group {
	var groups []group
	for part := range strings.SplitSeq(s, " | ") {
		if part == "" {
			continue
		}
		name, clusters, named := strings.Cut(part, ": ")
		if !named {
			name, clusters = "", part
		}
		groups = append(groups, group{name: name, clusters: strings.Fields(clusters)})
	}
	return groups
}

// plain returns accepted clusters with these names.
func plain(names string) []*cluster {
	var clusters []*cluster
	for _, name := range strings.Fields(names) {
		clusters = append(clusters, accepted(name))
	}
	return clusters
}

func TestSchedule(t *testing.T) {
	const never, ifNew, prefer = clusterv1.TaintEffectNoSelect, clusterv1.TaintEffectNoSelectIfNew, clusterv1.TaintEffectPreferNoSelect
	west, east := labelled("group", "west"), labelled("group", "east")
	for _, test := range []struct {
		name      string
		placement *clusterv1beta1.Placement
		clusters  []*cluster
		before    string
		want      string
	}{
		{"all", placing(), plain("a b c"), "", "a b c"},
		{"none there", placing(), nil, "", ""},
		{"a number, by name", placing(number(2)), plain("a b c"), "", "a b"},
		{"none wanted", placing(number(0)), plain("a b c"), "a b", ""},
		{"more than there are", placing(number(5)), plain("a b c"), "", "a b c"},
		{"who is chosen stays", placing(number(2)), plain("a b c"), "b c", "b c"},
		{"a free place is filled by name", placing(number(3)), plain("a b c d e"), "c e", "a c e"},
		{"who is gone is replaced", placing(number(2)), plain("a b d"), "c d", "a d"},
		{"fewer wanted: the first by name stay", placing(number(2)), plain("a b c d"), "b c d", "b c"},

		{"NoSelect", placing(), []*cluster{accepted("a"), accepted("b", tainting("k", never, 0))}, "a b", "a"},
		{"NoSelectIfNew keeps others out", placing(), []*cluster{accepted("a"), accepted("b", tainting("k", ifNew, 0))}, "", "a"},
		{"NoSelectIfNew keeps who is in", placing(), []*cluster{accepted("a"), accepted("b", tainting("k", ifNew, 0))}, "b", "a b"},
		{"PreferNoSelect last", placing(number(2)), []*cluster{accepted("a", tainting("k", prefer, 0)), accepted("b"), accepted("c")}, "", "b c"},
		{"PreferNoSelect if need be", placing(number(3)), []*cluster{accepted("a", tainting("k", prefer, 0)), accepted("b"), accepted("c")}, "", "a b c"},
		{"PreferNoSelect keeps who is in", placing(number(2)), []*cluster{accepted("a", tainting("k", prefer, 0)), accepted("b"), accepted("c")}, "a", "a b"},
		{"PreferNoSelect goes first", placing(number(1)), []*cluster{accepted("a", tainting("k", prefer, 0)), accepted("b")}, "a b", "b"},

		{"groups of two", placing(perGroup(intstr.FromInt32(2))), plain("a b c d e"), "", "a b | c d | e"},
		{"a percentage of all chosen", placing(perGroup(intstr.FromString("40%"))), plain("a b c d e"), "", "a b | c d | e"},
		{"named groups first", placing(naming("w", "west"), naming("e", "east")),
			[]*cluster{accepted("a"), accepted("b", east), accepted("c", west), accepted("d", west)}, "", "w: c d | e: b | a"},
		{"the first that selects", placing(naming("w", "west"), naming("w2", "west")),
			[]*cluster{accepted("a", west), accepted("b", west)}, "", "w: a b"},
		{"named groups are bounded, too", placing(naming("w", "west"), perGroup(intstr.FromInt32(2))),
			[]*cluster{accepted("a", west), accepted("b", west), accepted("c", west), accepted("d")}, "", "w: a b | w: c | d"},
		{"named groups select among the chosen", placing(naming("w", "west"), number(2)),
			[]*cluster{accepted("a"), accepted("b"), accepted("c", west)}, "", "a b"},

		{"a cluster stays in its group", placing(perGroup(intstr.FromInt32(2))), plain("a b c d"), "c d | b", "c d | a b"},
		{"a free place in a group is filled", placing(perGroup(intstr.FromInt32(2))), plain("a c d e"), "b c | d e", "a c | d e"},
		{"the last group is given up", placing(perGroup(intstr.FromInt32(3))), plain("a c e f"), "a b | c d | e f", "a e f | c"},
		{"a group that lost all is filled from the last", placing(perGroup(intstr.FromInt32(1))), plain("b c"), "a | b | c", "c | b"},
		{"groups are made smaller", placing(perGroup(intstr.FromInt32(2))), plain("a b c d e"), "a b c | d e", "a b | d e | c"},
		{"groups are made larger", placing(perGroup(intstr.FromInt32(4))), plain("a b c d e"), "a b | c d | e", "a b e | c d"},
		{"a cluster changes its group", placing(naming("w", "west"), perGroup(intstr.FromInt32(2))),
			[]*cluster{accepted("a", west), accepted("b"), accepted("c", west), accepted("d")}, "w: a b | c d", "w: a c | b d"},
		{"two groups of one name", placing(naming("x", "west"), naming("x", "east")),
			[]*cluster{accepted("a", east), accepted("b", west)}, "x: b | x: a", "x: b | x: a"},
		{"listed twice", placing(perGroup(intstr.FromInt32(1))), plain("a b"), "a | a b", "a | b"},
	} {
		got := schedule(mustRules(t, test.placement), test.clusters, parse(test.before), noon, unused)
		if text(got.groups) != test.want {
			t.Errorf("%s: %s, want %s", test.name, text(got.groups), test.want)
		}
		if n := len(strings.Fields(strings.NewReplacer("|", "", "w: ", "", "e: ", "", "x: ", "").Replace(test.want))); got.chosen != n {
			t.Errorf("%s: %d are counted", test.name, got.chosen)
		}
	}
}

func TestRequeueAt(t *testing.T) {
	seconds := int64(3600)
	tolerated := tolerating(clusterv1beta1.Toleration{Key: "k", Operator: clusterv1beta1.TolerationOpExists, TolerationSeconds: &seconds})
	const never = clusterv1.TaintEffectNoSelect
	clusters := []*cluster{accepted("a", tainting("k", never, 10*time.Minute)), accepted("b", tainting("k", never, 20*time.Minute)), accepted("c")}
	for _, test := range []struct {
		name      string
		placement *clusterv1beta1.Placement
		now       time.Time
		chosen    string
		again     time.Duration // after noon; 0: never
	}{
		{"not tolerated", placing(), noon, "c", 0},
		{"the first to end", placing(tolerated), noon, "a b c", 40 * time.Minute},
		{"of those that are chosen", placing(tolerated, number(1)), noon, "a", 50 * time.Minute},
		{"then the next", placing(tolerated), noon.Add(40 * time.Minute), "a c", 50 * time.Minute},
		{"then none", placing(tolerated), noon.Add(50 * time.Minute), "c", 0},
	} {
		o := schedule(mustRules(t, test.placement), clusters, nil, test.now, unused)
		want := time.Time{}
		if test.again > 0 {
			want = noon.Truncate(time.Second).Add(test.again)
		}
		if text(o.groups) != test.chosen || !o.requeueAt.Equal(want) {
			t.Errorf("%s: %s, requeue at %s, want %s at %s", test.name, text(o.groups), o.requeueAt, test.chosen, want)
		}
	}
}

// simulation is a random placement with random clusters, generated from a seed.
type simulation struct {
	random    *rand.Rand
	placement *clusterv1beta1.Placement
	clusters  map[string]*cluster
}

func newSimulation(seed uint64) *simulation {
	s := &simulation{random: rand.New(rand.NewPCG(seed, 1)), clusters: map[string]*cluster{}}
	s.change()
	for range s.random.IntN(30) {
		s.join()
	}
	return s
}

// change replaces the placement.
func (s *simulation) change() {
	p := placing()
	one := func(choices ...func(*clusterv1beta1.Placement)) { choices[s.random.IntN(len(choices))](p) }
	same := func(*clusterv1beta1.Placement) {}
	one(same, number(int32(s.random.IntN(25))))
	one(same, predicates(byLabels("group", "1"), byLabels("group", "2")))
	one(same, tolerating(clusterv1beta1.Toleration{Operator: clusterv1beta1.TolerationOpExists, Effect: clusterv1.TaintEffectNoSelect}))
	one(same, naming("one", "1"), func(p *clusterv1beta1.Placement) { naming("two", "2")(p); naming("one", "1")(p) })
	one(same, perGroup(intstr.FromInt32(int32(1+s.random.IntN(6)))), perGroup(intstr.FromString(fmt.Sprintf("%d%%", 1+s.random.IntN(100)))))
	s.placement = p
}

// newCluster generates a cluster.
func (s *simulation) newCluster(name string) *cluster {
	changes := []func(*clusterv1.ManagedCluster){labelled("group", fmt.Sprint(s.random.IntN(4)))}
	if s.random.IntN(4) == 0 {
		effects := []clusterv1.TaintEffect{clusterv1.TaintEffectNoSelect, clusterv1.TaintEffectNoSelectIfNew, clusterv1.TaintEffectPreferNoSelect}
		changes = append(changes, tainting("k", effects[s.random.IntN(3)], time.Hour))
	}
	if s.random.IntN(10) == 0 {
		changes = append(changes, func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false })
	}
	return accepted(name, changes...)
}

func (s *simulation) join() {
	name := fmt.Sprintf("c%03d", s.random.IntN(1000))
	s.clusters[name] = s.newCluster(name)
}

func (s *simulation) leave() {
	if names := s.names(); len(names) > 0 {
		delete(s.clusters, names[s.random.IntN(len(names))])
	}
}

func (s *simulation) names() []string { return slices.Sorted(maps.Keys(s.clusters)) }

func (s *simulation) schedule(t *testing.T, before []group) result {
	t.Helper()
	var clusters []*cluster
	for _, name := range s.names() {
		clusters = append(clusters, s.clusters[name])
	}
	r := mustRules(t, s.placement)
	o := schedule(r, clusters, before, noon, unused)
	if again := schedule(r, clusters, before, noon, unused); text(again.groups) != text(o.groups) {
		t.Fatalf("once %s, once %s", text(o.groups), text(again.groups))
	}
	return o
}

// check checks the invariants of every result.
func (s *simulation) check(t *testing.T, o result, before []group) {
	t.Helper()
	r := mustRules(t, s.placement)
	seen, was := sets.New[string](), members(before)
	limit, perRule, last := r.groupSize(o.chosen), map[int]int{}, 0
	for _, g := range o.groups {
		if len(g.clusters) == 0 || len(g.clusters) > limit || !slices.IsSorted(g.clusters) {
			t.Errorf("group of %d, limit %d: %v", len(g.clusters), limit, g.clusters)
		}
		for _, name := range g.clusters {
			v := r.evaluate(s.clusters[name], noon)
			if seen.Has(name) {
				t.Errorf("%s is in two groups", name)
			}
			seen.Insert(name)
			if v.fit != eligible && (v.fit != keepable || !was.Has(name)) {
				t.Errorf("%s is chosen: %+v", name, v)
			}
			if v.group < last {
				t.Errorf("%s of rule %d comes after rule %d", name, v.group, last)
			}
			if want := append(slices.Clone(r.groups), groupRule{})[v.group].name; g.name != want {
				t.Errorf("%s is in group %q, want %q", name, g.name, want)
			}
			last = v.group
			perRule[v.group]++
		}
	}
	groups := 0
	for _, n := range perRule {
		groups += (n + limit - 1) / limit
	}
	if len(o.groups) != groups {
		t.Errorf("%d groups, want %d", len(o.groups), groups)
	}
	if len(seen) != o.chosen || r.wanted != everyCluster && o.chosen > r.wanted {
		t.Errorf("%d are chosen, counted %d, wanted %d", len(seen), o.chosen, r.wanted)
	}
	for name, c := range s.clusters {
		v := r.evaluate(c, noon)
		if could := v.fit == eligible || v.fit == keepable && was.Has(name); could && !seen.Has(name) && (r.wanted == everyCluster || o.chosen < r.wanted) {
			t.Errorf("%s could have been chosen: %+v", name, v)
		}
		// No chosen cluster is replaced while it can stay.
		if others := seen.Difference(was); v.fit >= keepable && was.Has(name) && !seen.Has(name) && len(others) > 0 {
			t.Errorf("%s was replaced by %v", name, others)
		}
	}
}

func eachSimulation(t *testing.T, f func(*testing.T, *simulation)) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { f(t, newSimulation(seed)) })
		if t.Failed() {
			return
		}
	}
}

func TestResultInvariants(t *testing.T) {
	eachSimulation(t, func(t *testing.T, s *simulation) {
		var before []group
		for range 8 {
			o := s.schedule(t, before)
			s.check(t, o, before)
			if next := s.schedule(t, o.groups); text(next.groups) != text(o.groups) {
				t.Errorf("%s becomes %s without a change", text(o.groups), text(next.groups))
			}
			before = o.groups
			for range s.random.IntN(5) {
				s.join()
				s.leave()
			}
			if s.random.IntN(3) == 0 {
				s.change()
			}
		}
	})
}

// Chosen clusters stay chosen when other clusters are added and removed.
func TestOtherClustersDoNotReplaceChosenOnes(t *testing.T) {
	eachSimulation(t, func(t *testing.T, s *simulation) {
		before := s.schedule(t, nil).groups
		chosen := members(before)
		for range 5 {
			name := fmt.Sprintf("c%03d", s.random.IntN(1000))
			if !chosen.Has(name) {
				s.clusters[name] = s.newCluster(name)
			}
			if names := s.names(); len(names) > 0 {
				if name := names[s.random.IntN(len(names))]; !chosen.Has(name) {
					delete(s.clusters, name)
				}
			}
			if lost := chosen.Difference(members(s.schedule(t, before).groups)); len(lost) > 0 {
				t.Errorf("%v are not chosen any more", lost)
			}
		}
	})
}

// The removal of a cluster moves at most the clusters of one group.
func TestRemovalMovesOneGroup(t *testing.T) {
	eachSimulation(t, func(t *testing.T, s *simulation) {
		before := s.schedule(t, nil)
		if before.chosen == 0 || s.placement.Spec.NumberOfClusters != nil {
			return // another would take its place
		}
		if s.placement.Spec.DecisionStrategy.GroupStrategy.ClustersPerDecisionGroup.Type == intstr.String {
			return // groups become smaller
		}
		at := map[string]int{}
		for i, g := range before.groups {
			for _, name := range g.clusters {
				at[name] = i
			}
		}
		leaving := slices.Sorted(maps.Keys(at))[s.random.IntN(len(at))]
		delete(s.clusters, leaving)
		after := s.schedule(t, before.groups)
		// The index of groups after a removed one decreases by one.
		moved := map[string]bool{}
		for i, g := range after.groups {
			for _, name := range g.clusters {
				if at[name] != i && at[name] != i+1 {
					moved[name] = true
				}
			}
		}
		if limit := s.placement.Spec.DecisionStrategy.GroupStrategy.ClustersPerDecisionGroup.IntValue(); limit > 0 && len(moved) > limit {
			t.Errorf("%d moved for %s: %s becomes %s", len(moved), leaving, text(before.groups), text(after.groups))
		}
	})
}

func TestSkippedReasons(t *testing.T) {
	p := placing(number(9), predicates(byLabels("group", "1")))
	one := labelled("group", "1")
	clusters := []*cluster{
		accepted("a", func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false }), accepted("b"),
		accepted("c", one, tainting("k", clusterv1.TaintEffectNoSelect, 0)), accepted("d", one, tainting("k", clusterv1.TaintEffectNoSelectIfNew, 0)),
		accepted("e", one),
	}
	o := schedule(mustRules(t, p), clusters, nil, noon, unused)
	if diff := cmp.Diff([eligible]bool{false, true, true, true, true}, o.skipped); diff != "" {
		t.Error(diff)
	}
	if got, want := skippedReasons(&o), ": other clusters are not accepted by the hub or are being deleted, or match no predicate, "+
		"or have a NoSelect taint that is not tolerated, or have a NoSelectIfNew taint"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if o := schedule(mustRules(t, p), clusters[4:], nil, noon, unused); skippedReasons(&o) != ": there are no other clusters" {
		t.Errorf("%q", skippedReasons(&o))
	}
}
