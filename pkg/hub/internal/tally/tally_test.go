package tally

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate"
	"github.com/workwire/workwire/test/kit"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// testTally returns a tally at a time that the test sets.
func testTally(groups int) (t *Tally, now *time.Time) {
	t = newTally(Config{GroupLabel: "region", MaxGroups: groups, Served: func(wire.ClusterName) bool { return true }})
	at := start
	t.now = func() time.Time { return at }
	return t, &at
}

// work returns a work that is pending or ready.
func work(cluster, name string, state workstate.Phase, generation int64) *workv1.ManifestWork {
	w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name, UID: types.UID(cluster + "/" + name), Generation: generation}}
	if state == workstate.PhaseReady {
		for _, kind := range []string{workv1.WorkApplied, workv1.WorkAvailable} {
			w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, ObservedGeneration: generation})
		}
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: workv1.WorkProgressing, Status: metav1.ConditionFalse, ObservedGeneration: generation})
	}
	return w
}

func inRegion(name, region string) *clusterv1.ManagedCluster {
	return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"region": region}}}
}

func (t *Tally) wants(test *testing.T, seconds int, counts ...string) {
	test.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(t)
	text := fmt.Sprintf("# HELP workwire_hub_oldest_pending_seconds %s\n# TYPE workwire_hub_oldest_pending_seconds gauge\nworkwire_hub_oldest_pending_seconds %d\n"+
		"# HELP workwire_hub_works_by_state %s\n# TYPE workwire_hub_works_by_state gauge\n",
		"How long the oldest pending ManifestWork has waited for the answer of its cluster; 0 if there is none.", seconds,
		"ManifestWorks by state, as the dashboard has them, and by group of their clusters, see --metrics-cluster-group-label.")
	for _, c := range counts { // group pending ready
		parts := strings.Split(c, " ")
		for _, state := range workstate.Phases() {
			count := map[workstate.Phase]string{workstate.PhasePending: parts[1], workstate.PhaseReady: parts[2]}[state]
			text += fmt.Sprintf("workwire_hub_works_by_state{group=%q,state=%q} %s\n", parts[0], state, cmp.Or(count, "0"))
		}
	}
	test.Helper()
	kit.NoError(test, testutil.GatherAndCompare(registry, strings.NewReader(text)))
}

func TestCounts(t *testing.T) {
	tally, now := testTally(2)
	tally.wants(t, 0, " 0 0")
	first := work("c1", "a", "pending", 1)
	tally.workChanged(nil, first)
	*now = now.Add(10 * time.Second)
	tally.workChanged(nil, work("c2", "b", "pending", 1))
	tally.wants(t, 10, " 2 0")
	tally.clusterChanged(nil, inRegion("c1", "east"))
	tally.wants(t, 10, " 1 0", "east 1 0")
	tally.clusterChanged(inRegion("c1", "east"), inRegion("c1", "west")) // its works go with it
	tally.wants(t, 10, " 1 0", "west 1 0")
	changed := work("c1", "a", "pending", 1) // a status: it still waits
	*now = now.Add(10 * time.Second)
	tally.workChanged(first, changed)
	tally.wants(t, 20, " 1 0", "west 1 0")
	newer := work("c1", "a", "pending", 2) // a newer spec waits from now on
	tally.workChanged(changed, newer)
	tally.wants(t, 10, " 1 0", "west 1 0")
	tally.workChanged(newer, work("c1", "a", "ready", 2))
	tally.wants(t, 10, " 1 0", "west 0 1")
	tally.workChanged(work("c2", "b", "pending", 1), nil)
	tally.wants(t, 0, " 0 0", "west 0 1")
	tally.clusterChanged(inRegion("c1", "west"), nil)
	tally.wants(t, 0, " 0 1")
}

// What a hub before this one has written counts.
func TestSinceBeforeARestart(t *testing.T) {
	tally, _ := testTally(2)
	waits := work("c1", "a", "pending", 3)
	accepted := metav1.NewMicroTime(start.Add(-time.Hour))
	waits.Status.Delivery = &workv1.DeliveryStatus{Generation: 3, AcceptedTime: &accepted}
	tally.workChanged(nil, waits)
	tally.wants(t, 3600, " 1 0")
	older := work("c1", "b", "pending", 3) // what is stored is about another generation
	older.Status.Delivery = &workv1.DeliveryStatus{Generation: 2, AcceptedTime: &accepted}
	tally.workChanged(nil, older)
	tally.workChanged(waits, nil)
	tally.wants(t, 0, " 1 0")
}

func TestGroupsAreBounded(t *testing.T) {
	tally, _ := testTally(2)
	for i, region := range []string{"d", "c", "b", "a", ""} {
		name := fmt.Sprint("c", i)
		tally.clusterChanged(nil, inRegion(name, region))
		tally.workChanged(nil, work(name, "w", "ready", 1))
	}
	tally.wants(t, 0, " 0 1", "a 0 1", "b 0 1", "other 0 2")
	tally.clusterChanged(nil, inRegion("c9", "other"))
	tally.workChanged(nil, work("c9", "w", "ready", 1))
	tally.wants(t, 0, " 0 1", "a 0 1", "b 0 1", "other 0 3")
}

// Whatever happens, the counts are those of a look at all works.
func TestCountsOfRandomEvents(t *testing.T) {
	tally, now := testTally(100)
	random := rand.New(rand.NewPCG(1, 2))
	held := map[types.UID]*workv1.ManifestWork{}
	for range 5000 {
		*now = now.Add(time.Second)
		next := work(fmt.Sprint("c", random.IntN(5)), fmt.Sprint("w", random.IntN(20)), []workstate.Phase{workstate.PhasePending, workstate.PhaseReady}[random.IntN(2)], random.Int64N(3))
		before := held[next.UID]
		if before != nil && random.IntN(3) == 0 {
			delete(held, next.UID)
			tally.workChanged(before, nil)
			continue
		}
		held[next.UID] = next
		tally.workChanged(before, next)
	}
	want := map[workstate.Phase]int{}
	for w := range maps.Values(held) {
		want[workstate.PhaseOf(w)]++
	}
	if got := tally.groups()[""]; !maps.Equal(got, want) {
		t.Errorf("counts %v, want %v", got, want)
	}
	if len(tally.pending) != want[workstate.PhasePending] {
		t.Errorf("%d pending, want %d", len(tally.pending), want[workstate.PhasePending])
	}
}

// Works of clusters that another hub serves do not count.
func TestServed(t *testing.T) {
	tally, now := testTally(2)
	served := map[wire.ClusterName]bool{"c2": true}
	tally.cfg.Served = func(cluster wire.ClusterName) bool { return served[cluster] }
	tally.workChanged(nil, work("c1", "a", "pending", 1))
	*now = now.Add(10 * time.Second)
	tally.workChanged(nil, work("c2", "b", "pending", 1))
	tally.wants(t, 0, " 1 0")
	served["c1"] = true
	tally.wants(t, 10, " 2 0")
	clear(served)
	tally.wants(t, 0, " 0 0")
}
