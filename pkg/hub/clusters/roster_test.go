package clusters

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// testRoster is one that writes down what it queues.
type testRoster struct {
	*roster
	queued map[wire.ClusterName]int
}

func newTestRoster(p policy) *testRoster {
	r := &testRoster{roster: newRoster(p, newMetrics()), queued: map[wire.ClusterName]int{}}
	r.open(func(name wire.ClusterName) { r.queued[name]++ })
	return r
}

func says(session string, present bool) *wire.Presence {
	return &wire.Presence{Session: session, Present: present}
}

func managed(name, uid, version string) *clusterv1.ManagedCluster {
	return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: version}}
}

// Messages queue nothing but the first, and what is worth a write.
func TestHeardQueuesChangesOnly(t *testing.T) {
	r := newTestRoster(registering)
	now := start
	expect := func(what string, want int) {
		t.Helper()
		r.look("c") // a worker comes along
		if got := r.queued["c"]; got != want {
			t.Errorf("%s: queued %d times, want %d", what, got, want)
		}
		r.queued["c"] = 0
	}
	r.heard("c", nil, now)
	expect("first message", 1)
	r.heard("c", nil, now)
	expect("second message", 0)
	r.heard("c", says("a", true), now)
	expect("it announces itself", 1)
	known := managed("c", "1", "5")
	known.Annotations = annotationsFor(r.entries["c"].presence)
	r.stored("c", nil, known, now)
	expect("registered", 1)
	for range 100 {
		r.heard("c", nil, now.Add(lastSeenEvery-time.Second))
	}
	r.heard("c", says("a", true), now)
	expect("messages", 0)
	r.heard("c", nil, now.Add(lastSeenEvery))
	r.heard("c", nil, now.Add(lastSeenEvery))
	expect("messages after long", 1)
	written := managed("c", "1", "6")
	written.Annotations = annotationsFor(r.entries["c"].presence)
	r.wrote(written)
	r.heard("c", says("z", false), now)
	expect("an old session's end", 0)
	r.heard("c", says("a", false), now)
	expect("its end", 1)
	r.heard("c", says("a", false), now)
	r.heard("c", says("a", true), now)
	expect("delivered again", 0)

	quiet := newTestRoster(manual)
	quiet.heard("c", nil, now)
	quiet.heard("c", says("a", true), now)
	quiet.heard("c", says("a", false), now)
	if len(quiet.queued) > 0 {
		t.Errorf("without registration and ManagedCluster: %v", quiet.queued)
	}
}

// What failed waits for its time, whatever is heard meanwhile.
func TestNothingIsQueuedTwice(t *testing.T) {
	r := newTestRoster(registering)
	for range 10 {
		r.heard("c", nil, start)
		r.heard("c", says("a", true), start)
		r.heard("c", says("a", false), start)
	}
	if r.queued["c"] != 1 {
		t.Errorf("queued %d times", r.queued["c"])
	}
	r.look("c")
	r.retried("c")
	r.heard("c", says("b", true), start)
	if r.queued["c"] != 1 {
		t.Errorf("queued %d times while it waits", r.queued["c"])
	}
	r.look("c")
	r.heard("c", says("b", false), start)
	if r.queued["c"] != 2 {
		t.Errorf("queued %d times after it was written", r.queued["c"])
	}
}

// Without a connection of the hub time tells nothing.
func TestTick(t *testing.T) {
	r := newTestRoster(registering)
	r.heard("quiet", nil, start)
	r.heard("loud", says("a", true), start)
	for name := range r.entries {
		r.stored(name, nil, managed(string(name), "1", "5"), start)
	}
	tick := func(after time.Duration, wantNext time.Duration, wantAsked int) {
		t.Helper()
		asked, next := r.tick(start.Add(after))
		if wantNext == 0 && !next.IsZero() || wantNext != 0 && !next.Equal(start.Add(wantNext)) || len(asked) != wantAsked {
			t.Errorf("after %s: asked %v, next %v; want %d and %s", after, asked, next.Sub(start), wantAsked, wantNext)
		}
	}
	state := func(quiet, loud state) {
		t.Helper()
		if r.entries["quiet"].presence.state != quiet || r.entries["loud"].presence.state != loud {
			t.Errorf("quiet is %s, loud is %s", r.entries["quiet"].presence.state, r.entries["loud"].presence.state)
		}
	}
	tick(24*time.Hour, 0, 0)
	state(present, present)
	const day = 24 * time.Hour
	r.connect(start.Add(day))
	tick(day, day+15*time.Second, 0)
	tick(day+14*time.Second, day+15*time.Second, 0)
	tick(day+15*time.Second, day+90*time.Second, 2)
	r.disconnect()
	tick(day+time.Hour, 0, 0)
	state(present, present)
	r.connect(start.Add(2 * day))
	tick(2*day+15*time.Second, 2*day+90*time.Second, 2)
	tick(2*day+90*time.Second, 2*day+300*time.Second, 0)
	state(present, missing)
	tick(2*day+300*time.Second, 0, 0)
	state(silent, missing)
	if got := testutil.ToFloat64(r.metrics.changes.WithLabelValues("missing")); got != 1 {
		t.Errorf("%v changes to missing", got)
	}
}

// Clusters without a ManagedCluster are forgotten when they are silent, and there
// are not more of them than a bound.
func TestStrangers(t *testing.T) {
	r := newTestRoster(manual)
	r.connect(start)
	name := func(i int) wire.ClusterName { return wire.ClusterName(fmt.Sprint("c", i)) }
	for i := range maxStrangers + 10 {
		r.heard(name(i), says("a", true), start)
	}
	if len(r.entries) != maxStrangers || testutil.ToFloat64(r.metrics.unnoted.WithLabelValues("too_many")) != 10 {
		t.Errorf("%d clusters are remembered", len(r.entries))
	}
	// One that is made known is no stranger, however many there are.
	r.stored(name(maxStrangers+1), nil, managed(string(name(maxStrangers+1)), "1", "5"), start)
	r.stored(name(1), nil, managed(string(name(1)), "1", "5"), start)
	if len(r.entries) != maxStrangers+1 || r.strangers != maxStrangers-1 {
		t.Errorf("%d clusters are remembered, %d of them strangers", len(r.entries), r.strangers)
	}
	// One that was deleted is remembered, so that it is not accepted again.
	r.stored(name(2), nil, managed(string(name(2)), "1", "6"), start)
	r.stored(name(2), managed(string(name(2)), "1", "6"), nil, start)
	r.heard(name(3), nil, start.Add(time.Hour))
	late := start.Add(strangerMemory + time.Minute)
	if _, next := r.tick(late); next.IsZero() {
		t.Error("no other look at the strangers")
	}
	if len(r.entries) != 4 || r.strangers != 2 {
		t.Errorf("%d clusters are remembered, %d of them strangers", len(r.entries), r.strangers)
	}
	v, _ := r.look(name(2))
	if !v.removed {
		t.Error("a deleted one is forgotten")
	}
}

// What was written and what the informer says may come in any order.
func TestStoredInAnyOrder(t *testing.T) {
	one, two, three := managed("c", "1", "5"), managed("c", "1", "7"), managed("c", "2", "9")
	type change struct{ before, after *clusterv1.ManagedCluster }
	seen := func(r *testRoster, changes ...change) {
		for _, c := range changes {
			r.stored("c", c.before, c.after, start)
		}
	}
	for name, c := range map[string]struct {
		happens func(*testRoster)
		want    *clusterv1.ManagedCluster
	}{
		"registered, then seen":         {func(r *testRoster) { r.registered(one); seen(r, change{nil, one}) }, one},
		"seen, then registered":         {func(r *testRoster) { seen(r, change{nil, two}); r.registered(one) }, two},
		"written, then seen before":     {func(r *testRoster) { seen(r, change{nil, one}); r.wrote(two); seen(r, change{nil, one}) }, two},
		"written after it was seen":     {func(r *testRoster) { seen(r, change{nil, two}); r.wrote(one) }, two},
		"deleted, then written":         {func(r *testRoster) { seen(r, change{nil, one}, change{one, nil}); r.wrote(two) }, nil},
		"gone, then seen to be deleted": {func(r *testRoster) { seen(r, change{nil, one}); r.vanished(one); seen(r, change{one, nil}) }, nil},
		"gone, and made anew": {func(r *testRoster) {
			seen(r, change{nil, one})
			r.vanished(one)
			r.registered(three)
			seen(r, change{one, nil})
		}, three},
		"made anew, gone before":    {func(r *testRoster) { seen(r, change{nil, one}, change{one, three}); r.vanished(one) }, three},
		"made anew, written before": {func(r *testRoster) { seen(r, change{nil, one}, change{one, three}); r.wrote(two) }, three},
	} {
		r := newTestRoster(registering)
		r.heard("c", nil, start)
		c.happens(r)
		if v, _ := r.look("c"); v.stored != c.want {
			t.Errorf("%s: %+v", name, v.stored)
		}
		if want := map[bool]int{true: 1}[c.want == nil]; r.strangers != want {
			t.Errorf("%s: %d strangers", name, r.strangers)
		}
	}
}

func BenchmarkHeard(b *testing.B) {
	for _, count := range []int{10, 10_000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			r := newTestRoster(registering)
			names := make([]wire.ClusterName, count)
			for i := range names {
				names[i] = wire.ClusterName(fmt.Sprint("c", i))
				r.heard(names[i], says("a", true), start)
				known := managed(string(names[i]), "1", "5")
				known.Annotations = annotationsFor(r.entries[names[i]].presence)
				r.stored(names[i], nil, known, start)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r.heard(names[i%count], nil, start)
			}
		})
	}
}
