package clusters

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/pkg/wire"
)

// testIndex records what it queues, and has the ManagedClusters in a map.
type testIndex struct {
	*clusterIndex
	latest testClusters
	queued map[wire.ClusterName]int
}

type testClusters map[string]*clusterv1.ManagedCluster

func (c testClusters) Latest(key types.NamespacedName) (*clusterv1.ManagedCluster, bool) {
	cluster, ok := c[key.Name]
	return cluster, ok
}

func newTestIndex(p policy) *testIndex {
	x := &testIndex{latest: testClusters{}, queued: map[wire.ClusterName]int{}}
	none, _ := works.NewCache(controller.NewInformers(controller.InformersConfig{Client: &versioned.Clientset{}}), nil)
	x.clusterIndex = newClusterIndex(p, newMetrics(), x.latest, none, func(name wire.ClusterName) { x.queued[name]++ })
	x.allRead(start)
	return x
}

// see has the index see a ManagedCluster, nil standing for its deletion.
func (x *testIndex) see(name wire.ClusterName, after *clusterv1.ManagedCluster) {
	if after != nil {
		x.latest[string(name)] = after
	} else {
		delete(x.latest, string(name))
	}
	x.clusterChanged(name, after, start)
}

func says(session string, present bool) *wire.Presence {
	return &wire.Presence{Session: session, Present: present}
}

func managed(name, uid, version string) *clusterv1.ManagedCluster {
	return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: version}}
}

// Messages queue nothing but the first, and what is worth a write.
func TestMessagesQueueChangesOnly(t *testing.T) {
	x := newTestIndex(registering)
	now := start
	expect := func(what string, want int) {
		t.Helper()
		x.view("c") // a worker comes along
		if got := x.queued["c"]; got != want {
			t.Errorf("%s: queued %d times, want %d", what, got, want)
		}
		x.queued["c"] = 0
	}
	x.messageReceived("c", nil, now)
	expect("first message", 1)
	x.messageReceived("c", nil, now)
	expect("second message", 0)
	x.messageReceived("c", says("a", true), now)
	expect("it announces itself", 1)
	known := managed("c", "1", "5")
	known.Annotations = annotationsFor(x.entries["c"].presence)
	x.see("c", known)
	expect("registered", 1)
	for range 100 {
		x.messageReceived("c", nil, now.Add(lastSeenInterval-time.Second))
	}
	x.messageReceived("c", says("a", true), now)
	expect("messages", 0)
	x.messageReceived("c", nil, now.Add(lastSeenInterval))
	x.messageReceived("c", nil, now.Add(lastSeenInterval))
	expect("messages after long", 1)
	written := managed("c", "1", "6")
	written.Annotations = annotationsFor(x.entries["c"].presence)
	x.latest["c"] = written
	x.messageReceived("c", says("z", false), now)
	expect("an old session's end", 0)
	x.messageReceived("c", says("a", false), now)
	expect("its end", 1)
	x.messageReceived("c", says("a", false), now)
	x.messageReceived("c", says("a", true), now)
	expect("delivered again", 0)

	quiet := newTestIndex(manual)
	quiet.messageReceived("c", nil, now)
	quiet.messageReceived("c", says("a", true), now)
	quiet.messageReceived("c", says("a", false), now)
	if len(quiet.queued) > 0 {
		t.Errorf("without registration and ManagedCluster: %v", quiet.queued)
	}
}

// What failed waits for its time, whatever is heard meanwhile.
func TestNothingIsQueuedTwice(t *testing.T) {
	x := newTestIndex(registering)
	for range 10 {
		x.messageReceived("c", nil, start)
		x.messageReceived("c", says("a", true), start)
		x.messageReceived("c", says("a", false), start)
	}
	if x.queued["c"] != 1 {
		t.Errorf("queued %d times", x.queued["c"])
	}
	x.view("c")
	x.requeued("c")
	x.messageReceived("c", says("b", true), start)
	if x.queued["c"] != 1 {
		t.Errorf("queued %d times while it waits", x.queued["c"])
	}
	x.view("c")
	x.messageReceived("c", says("b", false), start)
	if x.queued["c"] != 2 {
		t.Errorf("queued %d times after it was written", x.queued["c"])
	}
}

// Without a connection of the hub time tells nothing but that nobody knows.
func TestTick(t *testing.T) {
	x := newTestIndex(registering)
	x.messageReceived("quiet", nil, start)
	x.messageReceived("loud", says("a", true), start)
	for name := range x.entries {
		x.see(name, managed(string(name), "1", "5"))
	}
	tick := func(after time.Duration, wantNext time.Duration, wantAsked int) {
		t.Helper()
		asked, next := x.tick(start.Add(after))
		if wantNext == 0 && !next.IsZero() || wantNext != 0 && !next.Equal(start.Add(wantNext)) || len(asked) != wantAsked {
			t.Errorf("after %s: asked %v, next %v; want %d and %s", after, asked, next.Sub(start), wantAsked, wantNext)
		}
	}
	state := func(quiet, loud presenceState) {
		t.Helper()
		if x.entries["quiet"].presence.state != quiet || x.entries["loud"].presence.state != loud {
			t.Errorf("quiet is %s, loud is %s", x.entries["quiet"].presence.state, x.entries["loud"].presence.state)
		}
	}
	tick(24*time.Hour, 0, 0)
	state(present, present)
	const day = 24 * time.Hour
	x.connectionChanged(true, start.Add(day))
	tick(day, day+15*time.Second, 0)
	tick(day+14*time.Second, day+15*time.Second, 0)
	tick(day+15*time.Second, day+90*time.Second, 2)
	x.connectionChanged(false, start.Add(day))
	tick(day+59*time.Second, day+time.Minute, 0)
	state(present, present)
	tick(day+time.Hour, 0, 0)
	state(unvouched, unvouched)
	<-x.wake
	x.connectionChanged(true, start.Add(2*day))
	if len(x.wake) == 0 {
		t.Error("the timer, which waits for nothing, is not woken")
	}
	tick(2*day+15*time.Second, 2*day+90*time.Second, 2)
	tick(2*day+90*time.Second, 2*day+300*time.Second, 0)
	state(unvouched, missing)
	tick(2*day+300*time.Second, 0, 0)
	state(silent, missing)
	if got := testutil.ToFloat64(x.metrics.changes.WithLabelValues("missing")); got != 1 {
		t.Errorf("%v changes to missing", got)
	}
}

// A cluster that another hub served has the time to announce itself here, however long it was away there.
func TestTaintAfterTakeover(t *testing.T) {
	gone, _ := play(t, presence{state: unseen}, "announce a; left a")
	unsure, _ := play(t, presence{state: unseen}, "announce a; absent")
	taken, graced := start.Add(time.Hour), policy{limits: newLimits(time.Minute, 5*time.Minute, 5*time.Minute)}
	for name, before := range map[string]presence{"Disconnected": gone, "HubDisconnected": unsure} {
		x := newTestIndex(graced)
		x.connectionChanged(true, start)
		stored := settled(before, func(c *clusterv1.ManagedCluster) { c.Spec.Taints = nil })
		x.latest["c"] = stored
		x.clusterChanged("c", stored, taken)
		for _, after := range []time.Duration{0, 89 * time.Second, 90 * time.Second} {
			now, want := taken.Add(after), after == 90*time.Second
			x.tick(now)
			v, _ := x.view("c")
			if s := decide("c", v, graced, now); (len(s.taints) > 0) != want {
				t.Errorf("%s, %s after it was taken over: taints %v, want %t", name, after, s.taints, want)
			}
		}
	}
}

// Clusters without a ManagedCluster are forgotten when they are silent, and there are not more of
// them than a bound.
func TestUnregisteredClusters(t *testing.T) {
	x := newTestIndex(manual)
	x.connectionChanged(true, start)
	name := func(i int) wire.ClusterName { return wire.ClusterName(fmt.Sprint("c", i)) }
	for i := range maxUnregistered + 10 {
		x.messageReceived(name(i), says("a", true), start)
	}
	if len(x.entries) != maxUnregistered || testutil.ToFloat64(x.metrics.ignored.WithLabelValues("too_many")) != 10 {
		t.Errorf("%d clusters are remembered", len(x.entries))
	}
	// One that is made known is registered, however many there are.
	x.see(name(maxUnregistered+1), managed(string(name(maxUnregistered+1)), "1", "5"))
	x.see(name(1), managed(string(name(1)), "1", "5"))
	if len(x.entries) != maxUnregistered+1 || x.unregistered != maxUnregistered-1 {
		t.Errorf("%d clusters are remembered, %d of them unregistered", len(x.entries), x.unregistered)
	}
	// One that was deleted is remembered, so that it is not accepted again.
	x.see(name(2), managed(string(name(2)), "1", "6"))
	x.see(name(2), nil)
	x.messageReceived(name(3), nil, start.Add(time.Hour))
	late := start.Add(unregisteredTimeout + time.Minute)
	if _, next := x.tick(late); next.IsZero() {
		t.Error("no other pass over the unregistered")
	}
	if len(x.entries) != 4 || x.unregistered != 1 {
		t.Errorf("%d clusters are remembered, %d of them unregistered", len(x.entries), x.unregistered)
	}
	v, _ := x.view(name(2))
	if !v.removed {
		t.Error("a deleted one is forgotten")
	}
}

// However many ManagedClusters were deleted, new clusters are remembered. What the old ones said is not.
func TestDeletedClustersDoNotCount(t *testing.T) {
	x := newTestIndex(registering)
	for i := range maxUnregistered {
		name := fmt.Sprint("old", i)
		x.see(wire.ClusterName(name), managed(name, "1", "5"))
		x.entries[wire.ClusterName(name)].about = &wire.About{}
		x.see(wire.ClusterName(name), nil)
	}
	x.messageReceived("new", says("a", true), start)
	if x.entries["new"] == nil || x.queued["new"] != 1 || x.unregistered != 1 {
		t.Errorf("a new cluster is not remembered, %d are unregistered", x.unregistered)
	}
	if v, _ := x.view("old1"); !v.removed || v.about != nil {
		t.Errorf("of a deleted cluster is known: %+v", v)
	}
}

// Of the works that clusters keep which are not registered, or not accepted, nothing is remembered.
func TestHeldWorksOfStrangers(t *testing.T) {
	for name, c := range map[string]struct {
		policy policy
		stored *clusterv1.ManagedCluster
		want   bool
	}{
		"accepted":     {registering, accepted(managed("c", "1", "5")), true},
		"not accepted": {registering, managed("c", "1", "5"), false},
		"unregistered": {manual, nil, false},
	} {
		x := newTestIndex(c.policy)
		x.messageReceived("c", nil, start)
		if c.stored != nil {
			x.see("c", c.stored)
		}
		held := &wire.Status{UID: "u", Cluster: "c", Meta: metav1.ObjectMeta{Name: "w"}}
		held.Status.Conditions = []metav1.Condition{{Type: workv1.WorkDeletionHeld, Status: metav1.ConditionTrue}}
		x.unknownListed("c", []wire.SpecVersion{{UID: "u"}, {UID: "v"}}, true, start)
		x.unknownReported(held, start)
		if got := x.entries["c"].held != nil; got != c.want {
			t.Errorf("%s: held works are remembered: %v", name, got)
		}
	}
}

func accepted(c *clusterv1.ManagedCluster) *clusterv1.ManagedCluster {
	c.Spec.HubAcceptsClient = true
	return c
}

// The number of clusters that never had a ManagedCluster follows watch events, and writes that find none.
func TestUnregisteredAreCounted(t *testing.T) {
	one, two := managed("c", "1", "5"), managed("c", "2", "9")
	vanish := func(x *testIndex) { delete(x.latest, "c"); x.removed("c", start) }
	for name, c := range map[string]struct {
		happens func(*testIndex)
		want    *clusterv1.ManagedCluster
		counted int
	}{
		"heard of":                      {func(*testIndex) {}, nil, 1},
		"seen":                          {func(x *testIndex) { x.see("c", one) }, one, 0},
		"seen twice":                    {func(x *testIndex) { x.see("c", one); x.see("c", one) }, one, 0},
		"deleted":                       {func(x *testIndex) { x.see("c", one); x.see("c", nil) }, nil, 0},
		"gone, then seen to be deleted": {func(x *testIndex) { x.see("c", one); vanish(x); x.see("c", nil) }, nil, 0},
		"gone, and created again": {func(x *testIndex) {
			x.see("c", one)
			vanish(x)
			x.latest["c"] = two
			x.clusterChanged("c", nil, start) // the deletion of one
			x.see("c", two)
		}, two, 0},
		"deleted, and of another hub": {func(x *testIndex) { x.see("c", one); x.see("c", nil); x.forget("c", start) }, nil, 0},
		"of another hub, and deleted": {func(x *testIndex) { x.forget("c", start); x.see("c", nil) }, nil, 0},
		"replaced":                    {func(x *testIndex) { x.see("c", one); x.see("c", two) }, two, 0},
	} {
		x := newTestIndex(registering)
		x.messageReceived("c", nil, start)
		c.happens(x)
		if v, _ := x.view("c"); v.stored != c.want {
			t.Errorf("%s: %+v", name, v.stored)
		}
		if x.unregistered != c.counted {
			t.Errorf("%s: %d clusters that never had a ManagedCluster", name, x.unregistered)
		}
	}
}

func BenchmarkMessageReceived(b *testing.B) {
	for _, count := range []int{10, 10_000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			x := newTestIndex(registering)
			names := make([]wire.ClusterName, count)
			for i := range names {
				names[i] = wire.ClusterName(fmt.Sprint("c", i))
				x.messageReceived(names[i], says("a", true), start)
				known := managed(string(names[i]), "1", "5")
				known.Annotations = annotationsFor(x.entries[names[i]].presence)
				x.see(names[i], known)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				x.messageReceived(names[i%count], nil, start)
			}
		})
	}
}
