package clusters

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/runtime/walltime"
	"github.com/workwire/workwire/pkg/wire"
)

// The taint comes when the grace has passed since the transition of the condition, and not while
// the hub has no connection or the fleet brake is engaged. It goes as soon as the cluster is
// present.
func TestGrace(t *testing.T) {
	const unreachable, grace = clusterv1.ManagedClusterTaintUnreachable, 5 * time.Minute
	p := policy{limits: newLimits(time.Minute, 5*time.Minute, grace)}
	there, _ := play(t, presence{state: unseen}, "announce a")
	gone, _ := play(t, presence{state: unseen}, "announce a; left a")
	untainted := func(c *clusterv1.ManagedCluster) { c.Spec.Taints = nil }
	for _, c := range []struct {
		name     string
		presence presence
		stored   *clusterv1.ManagedCluster
		failover failover
		after    time.Duration // since the transition
		taints   []string
		again    time.Duration
	}{
		{"it goes", gone, settled(there), failover{}, 0, nil, grace},
		{"within the grace", gone, settled(gone, untainted), failover{}, time.Minute, nil, 4 * time.Minute},
		{"just before its end", gone, settled(gone, untainted), failover{}, grace - time.Second, nil, time.Second},
		{"at its end", gone, settled(gone, untainted), failover{}, grace, []string{unreachable}, 0},
		{"long after, as for a new leader", gone, settled(gone, untainted), failover{}, time.Hour, []string{unreachable}, 0},
		{"a new leader has just connected", gone, settled(gone, untainted), failover{from: start.Add(time.Hour + 90*time.Second)}, time.Hour,
			nil, 90 * time.Second},
		{"held by the brake", gone, settled(gone, untainted), failover{held: true}, time.Hour, nil, 0},
		{"tainted before the brake was engaged", gone, settled(gone), failover{held: true}, time.Hour, []string{unreachable}, 0},
		{"never heard from", presence{state: unseen}, settled(presence{state: unseen}, untainted), failover{held: true}, 0, []string{unreachable}, 0},
		{"back within the grace", there, settled(gone, untainted), failover{}, time.Minute, nil, 0},
		{"back after it", there, settled(gone), failover{}, time.Hour, nil, 0},
		{"back while the brake is engaged", there, settled(gone), failover{held: true}, time.Hour, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := start.Add(c.after)
			s := decide("c", view{presence: c.presence, stored: c.stored, failover: c.failover}, p, now)
			var taints []string
			for _, taint := range s.taints {
				taints = append(taints, taint.Key)
			}
			if !slices.Equal(taints, c.taints) || s.requeueAfter != c.again {
				t.Errorf("taints %v, again after %s; want %v and %s", taints, s.requeueAfter, c.taints, c.again)
			}
		})
	}
}

// A clock that is set forward by an hour does not end the grace.
func TestGraceOverClockStep(t *testing.T) {
	const grace = 5 * time.Minute
	gone, _ := play(t, presence{state: unseen}, "announce a; left a")
	stored := settled(gone, func(c *clusterv1.ManagedCluster) { c.Spec.Taints = nil })
	now, elapsed := start, time.Duration(0)
	p := policy{limits: newLimits(time.Minute, 5*time.Minute, grace),
		clock: walltime.From(func() (time.Time, time.Duration) { return now, elapsed })}
	for _, c := range []struct {
		passes, step time.Duration
		tainted      bool
		again        time.Duration
	}{
		{3 * time.Second, 0, false, grace - 3*time.Second},
		{0, time.Hour, false, grace - 3*time.Second},
		{time.Minute, 0, false, grace - time.Minute - 3*time.Second},
		{0, -time.Hour, false, grace - time.Minute - 3*time.Second + time.Hour}, // late by the step back
		{0, time.Hour, false, grace - time.Minute - 3*time.Second},
		{grace - time.Minute - 3*time.Second, 0, true, 0},
	} {
		now, elapsed = now.Add(c.passes+c.step), elapsed+c.passes
		s := decide("c", view{presence: gone, stored: stored}, p, now)
		if tainted := len(s.taints) > 0; tainted != c.tainted || s.requeueAfter != c.again {
			t.Errorf("%v after a step of %v: tainted %v, again after %v; want %v and %v", c.passes, c.step, tainted, s.requeueAfter, c.tainted, c.again)
		}
	}
}

func TestBrakes(t *testing.T) {
	for _, c := range []struct {
		present, absent int
		want            bool
	}{
		{0, 0, false}, {0, 1, false}, {0, 2, false}, {0, 3, true}, {2, 2, false}, {2, 3, true}, {3, 3, false},
		{45, 55, true}, {46, 54, false}, {1000, 3, false}, {0, 10_000, true},
	} {
		if got := (census{present: c.present, absent: c.absent}).brakes(); got != c.want {
			t.Errorf("%d present, %d absent: %v", c.present, c.absent, got)
		}
	}
}

// fleetOf is an index of n accepted clusters that are present, with a connected hub and a grace of
// 5 minutes.
func fleetOf(n int) *testIndex {
	x := newTestIndex(policy{autoRegister: true, limits: newLimits(time.Minute, 5*time.Minute, 5*time.Minute)})
	x.connectionChanged(true, start)
	for i := range n {
		name := wire.ClusterName(fmt.Sprint("c", i))
		x.messageReceived(name, says("a", true), start)
		cluster := managed(string(name), "1", "5")
		cluster.Spec.HubAcceptsClient = true
		x.see(name, cluster)
		x.view(name)
	}
	clear(x.queued)
	return x
}

// The brake follows the census: engaged by many clusters at once, released when enough are back;
// then the grace begins again for the others, which are queued.
func TestBrakeFollowsTheCensus(t *testing.T) {
	x := fleetOf(10)
	leave := func(from, to int, session string, there bool) {
		for i := from; i < to; i++ {
			name := wire.ClusterName(fmt.Sprint("c", i))
			x.messageReceived(name, says(session, there), start)
			x.view(name)
		}
	}
	expect := func(when string, want census, braked bool, changes int) {
		t.Helper()
		if got := x.takeBrakeChanges(); x.census != want || x.braked != braked || len(got) != changes {
			t.Errorf("%s: %+v, braked %v, changes %+v; want %+v, %v and %d", when, x.census, x.braked, got, want, braked, changes)
		}
	}
	expect("all are present", census{present: 10}, false, 0)
	leave(0, 5, "a", false)
	expect("half of them left", census{5, 5}, false, 0)
	leave(5, 6, "a", false)
	expect("one more left", census{4, 6}, true, 1)
	if v, _ := x.view("c0"); !v.failover.held {
		t.Error("the taint is not held")
	}
	x.connectionChanged(false, start)
	x.connectionChanged(true, start.Add(time.Hour))
	expect("the hub reconnected", census{4, 6}, true, 0)
	clear(x.queued)
	for i := range 6 {
		x.view(wire.ClusterName(fmt.Sprint("c", i)))
	}
	leave(5, 6, "b", true)
	expect("one is back", census{5, 5}, false, 1)
	if v, _ := x.view("c0"); v.failover.held || !v.failover.from.Equal(start.Add(5*time.Minute)) && !v.failover.from.After(start.Add(5*time.Minute)) {
		t.Errorf("the others may be tainted %+v", v.failover)
	}
	if x.queued["c0"] != 1 {
		t.Errorf("queued %v", x.queued)
	}
	// Those that have the taint, are not accepted, or are deleted do not count.
	for i, change := range []func(*clusterv1.ManagedCluster){
		func(c *clusterv1.ManagedCluster) {
			c.Spec.Taints = taintsFor(nil, metav1.ConditionUnknown, true, start)
		},
		func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false },
		func(c *clusterv1.ManagedCluster) { c.DeletionTimestamp = &metav1.Time{Time: start} },
	} {
		name := wire.ClusterName(fmt.Sprint("c", i))
		changed := x.latest[string(name)].DeepCopy()
		change(changed)
		x.see(name, changed)
	}
	x.see("c3", nil)
	expect("four are out of the count", census{5, 1}, false, 0)
}

// A hub that starts goes by all its clusters, and not by those that it happens to read first.
func TestBrakeWaitsForAllClusters(t *testing.T) {
	there, _ := play(t, presence{state: unseen}, "announce a")
	gone, _ := play(t, presence{state: unseen}, "announce a; left a")
	for _, c := range []struct {
		absent  int // of ten, and read first
		changes []brakeChange
	}{
		{3, nil},
		{6, []brakeChange{{"c0", true, census{4, 6}}}},
	} {
		x := newTestIndex(policy{limits: newLimits(time.Minute, 5*time.Minute, 5*time.Minute)})
		x.read = false
		for i := range 10 {
			p := there
			if i < c.absent {
				p = gone
			}
			name := wire.ClusterName(fmt.Sprint("c", i))
			x.see(name, settled(p, func(cluster *clusterv1.ManagedCluster) { cluster.Spec.Taints = nil }))
			x.view(name)
		}
		if got := x.takeBrakeChanges(); len(got) > 0 || !x.taintsFrom.IsZero() {
			t.Errorf("%d absent, before all are read: changes %+v, taints from %v", c.absent, got, x.taintsFrom)
		}
		x.online = true
		if v, _ := x.view("c0"); !v.failover.held {
			t.Errorf("%d absent: the taint is not held before all are read", c.absent)
		}
		clear(x.queued)
		x.allRead(start)
		if got := x.takeBrakeChanges(); !slices.Equal(got, c.changes) || !x.taintsFrom.IsZero() {
			t.Errorf("%d absent: changes %+v, taints from %v; want %+v", c.absent, got, x.taintsFrom, c.changes)
		}
		if x.queued["c0"] != 1 || len(x.queued) != c.absent {
			t.Errorf("%d absent: queued %v", c.absent, x.queued)
		}
		if v, _ := x.view("c0"); v.failover.held != (c.changes != nil) {
			t.Errorf("%d absent: the taint is held: %v", c.absent, v.failover.held)
		}
	}
}

// A hub without a connection cannot know who is back, and gives agents time to announce themselves.
func TestTaintsWaitForTheConnection(t *testing.T) {
	x := fleetOf(10)
	x.messageReceived("c0", says("a", false), start)
	x.connectionChanged(false, start)
	if v, _ := x.view("c0"); !v.failover.held {
		t.Error("the taint is not held while the hub has no connection")
	}
	clear(x.queued)
	x.connectionChanged(true, start.Add(time.Hour))
	if x.queued["c0"] != 1 || len(x.queued) != 1 {
		t.Errorf("queued %v", x.queued)
	}
	if v, _ := x.view("c0"); v.failover.held || !v.failover.from.Equal(start.Add(time.Hour+90*time.Second)) {
		t.Errorf("after it connected: %+v", v.failover)
	}
}
