package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
)

func spreading(terms ...clusterv1beta1.SpreadConstraintsTerm) func(*clusterv1beta1.Placement) {
	return func(p *clusterv1beta1.Placement) { p.Spec.SpreadPolicy.SpreadConstraints = terms }
}

func term(key string, kind clusterv1beta1.TopologyKeyType, skew int32, otherwise clusterv1beta1.UnsatisfiableMaxSkewAction) clusterv1beta1.SpreadConstraintsTerm {
	return clusterv1beta1.SpreadConstraintsTerm{TopologyKey: key, TopologyKeyType: kind, MaxSkew: skew, WhenUnsatisfiable: otherwise}
}

// inRegions returns clusters by the names "region" + number, with the region as label and as claim; those that begin with
// an x have none.
func inRegions(names string) []*cluster {
	var clusters []*cluster
	for _, name := range strings.Fields(names) {
		if region := name[:1]; region == "x" {
			clusters = append(clusters, accepted(name))
		} else {
			clusters = append(clusters, accepted(name, labelled("region", region), claiming("region", region), labelled("parity", fmt.Sprint(name[1]%2))))
		}
	}
	return clusters
}

func TestSpread(t *testing.T) {
	const label, claim = clusterv1beta1.TopologyKeyTypeLabel, clusterv1beta1.TopologyKeyTypeClaim
	const must, may = clusterv1beta1.DoNotSchedule, clusterv1beta1.ScheduleAnyway
	const nine = "a1 a2 a3 b1 b2 b3 c1 c2 c3"
	for _, test := range []struct {
		name     string
		change   []func(*clusterv1beta1.Placement)
		clusters string
		before   string
		want     string
		why      string // in the message
	}{
		{"one of each", []func(*clusterv1beta1.Placement){number(3), spreading(term("region", label, 1, must))}, nine, "", "a1 b1 c1", ""},
		{"by claim", []func(*clusterv1beta1.Placement){number(4), spreading(term("region", claim, 1, must))}, nine, "", "a1 a2 b1 c1", ""},
		{"evenly, also where the skew permits more", []func(*clusterv1beta1.Placement){number(4), spreading(term("region", label, 2, must))}, nine, "", "a1 a2 b1 c1", ""},
		{"who is chosen stays up to the skew", []func(*clusterv1beta1.Placement){number(3), spreading(term("region", label, 2, must))}, nine, "a1 a2 a3", "a1 a2 b1", ""},
		{"and no further", []func(*clusterv1beta1.Placement){number(3), spreading(term("region", label, 1, must))}, nine, "a1 a2 a3", "a1 b1 c1", ""},
		{"rather than too many in one", []func(*clusterv1beta1.Placement){number(6), spreading(term("region", label, 1, must))},
			"a1 a2 a3 a4 b1", "", "a1 a2 b1", "would exceed the skew"},
		{"anyway", []func(*clusterv1beta1.Placement){number(4), spreading(term("region", label, 1, may))}, "a1 a2 a3 a4 b1", "", "a1 a2 a3 b1", ""},
		{"all, as far as permitted", []func(*clusterv1beta1.Placement){spreading(term("region", label, 1, must))}, "a1 a2 a3 b1", "", "a1 a2 b1", ""},
		{"one without a region", []func(*clusterv1beta1.Placement){number(3), spreading(term("region", label, 1, must))}, "a1 b1 x1", "", "a1 b1", "lack the label or claim"},
		{"one without, anyway", []func(*clusterv1beta1.Placement){number(3), spreading(term("region", label, 1, may))}, "a1 a2 x1", "", "a1 a2 x1", ""},
		{"a region with a chosen cluster stays", []func(*clusterv1beta1.Placement){number(3), spreading(term("region", label, 1, must))}, nine, "a3 b3 c3", "a3 b3 c3", ""},
		{"a place that is free goes to its region", []func(*clusterv1beta1.Placement){number(6), spreading(term("region", label, 1, must))},
			"a1 a2 a3 b1 b2 b3 c1 c2", "a2 a3 b2 b3 c2 c3", "a2 a3 b2 b3 c1 c2", ""},
		{"a new region", []func(*clusterv1beta1.Placement){number(6), spreading(term("region", label, 1, must))}, nine, "a1 a2 a3 b1 b2 b3", "a1 a2 b1 b2 c1 c2", ""},
		{"a new region moves nobody", []func(*clusterv1beta1.Placement){number(6), spreading(term("region", label, 1, may))}, nine, "a1 a2 a3 b1 b2 b3", "a1 a2 a3 b1 b2 b3", ""},
		{"fewer are wanted", []func(*clusterv1beta1.Placement){number(2), spreading(term("region", label, 1, may))}, nine, "a1 a2 a3 c1", "a1 c1", ""},
		{"two constraints", []func(*clusterv1beta1.Placement){number(4), spreading(term("region", label, 1, must), term("parity", label, 1, must))},
			"a1 a3 a5 b1 b2 b3", "", "a1 a3 b2", "would exceed the skew"},
		{"the score decides where the spread permits", []func(*clusterv1beta1.Placement){number(2), spreading(term("region", label, 1, may)),
			prioritizing(exact, builtIn("ResourceAllocatableCPU", 1))}, nine, "", "a1 b1", ""},
	} {
		p := placing(test.change...)
		r, clusters := mustRules(t, p), inRegions(test.clusters)
		got := schedule(r, clusters, parse(test.before), noon, unused)
		if text(got.groups) != test.want {
			t.Errorf("%s: %s, want %s", test.name, text(got.groups), test.want)
		}
		message := scheduledStatus(p, r, &got, nil).Conditions[0].Message
		if !strings.Contains(message, test.why) || test.why == "" && strings.Contains(message, "spread") {
			t.Errorf("%s: %s", test.name, message)
		}
	}
}

// TestScoresAgainstSpread: a ScheduleAnyway constraint counts like a score, which a higher one outweighs.
func TestScoresAgainstSpread(t *testing.T) {
	for weight, want := range map[int32]string{1: "a1 b1", 10: "a1 a2"} {
		var clusters []*cluster
		for name, score := range map[string]int{"a1": 50, "a2": 40, "b1": 5} {
			clusters = append(clusters, withScores(accepted(name, labelled("region", name[:1])), scored(name, "usage", 0, "cpu", score)))
		}
		slices.SortFunc(clusters, func(a, b *cluster) int { return strings.Compare(a.name, b.name) })
		p := placing(number(2), prioritizing(exact, addOn("usage", "cpu", weight)), spreading(term("region", clusterv1beta1.TopologyKeyTypeLabel, 1, "")))
		if got := schedule(mustRules(t, p), clusters, nil, noon, unused); text(got.groups) != want {
			t.Errorf("with weight %d: %s, want %s", weight, text(got.groups), want)
		}
	}
}

// TestSpreadProperties checks random fleets: the skew is bounded, as many are chosen as any choice could have, no
// cluster moves that could stay, and nothing moves without a change.
func TestSpreadProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	moved := 0
	for round := range 3000 {
		var names []string
		for region := range 1 + random.IntN(4) {
			for i := range random.IntN(6) {
				names = append(names, fmt.Sprintf("%c%d", 'a'+region, i))
			}
		}
		skew, wanted := 1+random.IntN(2), random.IntN(len(names)+2)
		p := placing(number(int32(wanted)), spreading(term("region", clusterv1beta1.TopologyKeyTypeLabel, int32(skew), clusterv1beta1.DoNotSchedule)))
		r := mustRules(t, p)
		choose := func(names, before []string) []string {
			shown := schedule(r, inRegions(strings.Join(names, " ")), []group{{clusters: before}}, noon, unused)
			return strings.Fields(text(shown.groups))
		}
		check := func(what string, names, before, got []string) {
			size, kept := bestSpread(names, before, wanted, skew)
			stayed := len(slices.DeleteFunc(slices.Clone(got), func(n string) bool { return !slices.Contains(before, n) }))
			if low, high := counts(names, got); high-low > skew || len(got) != size || stayed != kept {
				t.Fatalf("round %d, %s: of %v, with %v before, %d wanted with skew %d: %v; best are %d, of which %d stay", round, what, names, before, wanted, skew, got, size, kept)
			}
		}
		var before []string // also one that no constraint would have made
		for _, name := range names {
			if random.IntN(2) == 0 {
				before = append(before, name)
			}
		}
		got := choose(names, before)
		check("of anything", names, before, got)
		if again := choose(names, got); !slices.Equal(again, got) {
			t.Fatalf("round %d: once %v, then %v", round, got, again)
		}
		if len(got) == 0 {
			continue
		}
		gone := got[random.IntN(len(got))]
		rest := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == gone })
		after := choose(rest, got)
		check("one is gone", rest, got, after)
		if !slices.Equal(slices.DeleteFunc(slices.Clone(got), func(n string) bool { return n == gone }), after) {
			moved++
		}
	}
	if moved < 500 {
		t.Errorf("only %d of the fleets had a cluster to replace", moved)
	}
}

// counts returns the lowest and highest number of chosen clusters in a region that has clusters.
func counts(names, chosen []string) (low, high int) {
	perRegion := map[byte]int{}
	for _, name := range names {
		perRegion[name[0]] += 0
	}
	for _, name := range chosen {
		perRegion[name[0]]++
	}
	low = len(chosen)
	for _, n := range perRegion {
		low, high = min(low, n), max(high, n)
	}
	return low, high
}

// bestSpread tries all numbers of clusters by region, and returns the largest choice that the skew permits, and how many
// of before the best of these keeps.
func bestSpread(names, before []string, wanted, skew int) (size, kept int) {
	type region struct{ all, chosen int }
	byName := map[byte]*region{}
	var regions []*region
	for _, name := range names {
		if byName[name[0]] == nil {
			byName[name[0]] = &region{}
			regions = append(regions, byName[name[0]])
		}
		byName[name[0]].all++
		if slices.Contains(before, name) {
			byName[name[0]].chosen++
		}
	}
	var try func(i, low, high, total, stay int)
	try = func(i, low, high, total, stay int) {
		if total > wanted || high-low > skew {
			return
		}
		if i == len(regions) {
			if total > size || total == size && stay > kept {
				size, kept = total, stay
			}
			return
		}
		for n := range regions[i].all + 1 {
			l, h := min(low, n), max(high, n)
			if i == 0 {
				l, h = n, n
			}
			try(i+1, l, h, total+n, stay+min(n, regions[i].chosen))
		}
	}
	try(0, 0, 0, 0, 0)
	return size, kept
}
