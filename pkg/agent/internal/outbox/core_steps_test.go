package outbox

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

var epoch = time.Unix(1_000_000, 0)

// steps is a core at one time, of statuses of source "hub".
type steps struct {
	*testing.T
	core
}

func newSteps(t *testing.T, maxUplink int) *steps { return &steps{t, newCore(maxUplink, 3)} }

// set sets a status: value is that of a feedback value, and hash what else it is.
func (c *steps) set(uid types.UID, hash, value string, change ...func(*Status, *version)) (changed, dropped bool) {
	s := Status{Generation: 1, Meta: &metav1.ObjectMeta{Name: hash}, Trace: hash, Received: epoch}
	s.Status.Conditions = []metav1.Condition{{Type: workv1.WorkApplied, Status: metav1.ConditionTrue, Reason: "R" + hash}}
	s.Status.ResourceStatus.Manifests = []workv1.ManifestCondition{{StatusFeedbacks: workv1.StatusFeedbackResult{
		Values: []workv1.FeedbackValue{{Name: "v", Value: workv1.FieldValue{Type: workv1.String, String: &value}}},
	}}}
	want := version{Hash: hash + value, Generation: 1}
	for _, f := range change {
		f(&s, &want)
	}
	return c.core.set(inbox.Key{Source: "hub", UID: uid}, s, want, want.Hash == "not held", epoch)
}

// begin begins a publish of a work, and end ends it.
func (c *steps) begin(uid types.UID) *attempt {
	c.Helper()
	a, idle, _ := c.next(epoch)
	if a == nil || a.key.UID != uid || idle {
		c.Fatalf("the next publish is %+v, idle %t, want one of %s", a, idle, uid)
	}
	a.sent = a.version.Hash
	return a
}

func (c *steps) end(a *attempt, how outcome) result { return c.complete(a, how, epoch) }

func (c *steps) work(uid types.UID) *work { return c.find(inbox.Key{Source: "hub", UID: uid}) }

func isFinal(s *Status, want *version)  { s.Final, want.Final = true, true }
func notHeld(_ *Status, want *version)  { want.Hash, want.Final = "not held", true }
func retraced(s *Status, want *version) { s.Trace, s.Meta = "again", &metav1.ObjectMeta{Name: "again"} }
func (c *steps) wantStats(works int, want Stats) {
	c.Helper()
	if got := c.figures(); got != want || c.countWorks() != works || c.inFlight != 0 {
		c.Errorf("figures\n%+v, want\n%+v", got, want)
	}
}

// TestSet: what becomes of a status hangs on the one before.
func TestSet(t *testing.T) {
	c := newSteps(t, 0)
	for _, step := range []struct {
		what             string
		uid              types.UID
		hash             string
		change           func(*Status, *version)
		changed, dropped bool
	}{
		{"the first", "a", "1", nil, true, false},
		{"the same, with another trace", "a", "1", retraced, false, false},
		{"another", "a", "2", nil, true, false},
		{"the final one", "a", "3", isFinal, true, false},
		{"computed before the deletion", "a", "4", nil, false, false},
		{"of a work that is not held", "b", "", notHeld, true, false},
		{"the same", "b", "", notHeld, false, false},
	} {
		change := step.change
		if change == nil {
			change = func(*Status, *version) {}
		}
		if changed, dropped := c.set(step.uid, step.hash, "", change); changed != step.changed || dropped != step.dropped {
			t.Errorf("%s: changed %t, dropped %t", step.what, changed, dropped)
		}
		if w := c.work("a"); (step.what == "the same, with another trace") != (w.last.trace == "again" && w.last.meta.Name == "again") {
			t.Errorf("%s: the trace is %q and the name %q", step.what, w.last.trace, w.last.meta.Name)
		}
	}
	c.wantStats(2, Stats{Pending: 2, Coalesced: 2})
	c.notHeld["hub"] = maxNotHeld
	if changed, dropped := c.set("c", "", "", notHeld); changed || !dropped {
		t.Errorf("one too many: changed %t, dropped %t", changed, dropped)
	}
	c.notHeld["hub"] = 1
	c.remove(c.work("a"))
	c.remove(c.work("b"))
	if len(c.works) != 0 || len(c.notHeld) != 0 {
		t.Errorf("%v and %v are left", c.works, c.notHeld)
	}
	c.wantStats(0, Stats{Coalesced: 2, Dropped: 1})
}

// TestFeedbackWaits: a change of feedback values alone waits for room, unless there is no limit, and goes on waiting where it is.
func TestFeedbackWaits(t *testing.T) {
	for _, limit := range []int{0, 1000} {
		c := newSteps(t, limit)
		c.connect("s")
		for _, uid := range []types.UID{"a", "b"} {
			c.set(uid, "1", "x")
			c.end(c.begin(uid), acknowledged)
		}
		c.set("a", "1", "y")
		c.set("b", "1", "y")
		c.set("a", "1", "z")
		if got, want := c.figures().Waiting, min(limit, 2); got != want {
			t.Errorf("limit %d: %d works wait, want %d", limit, got, want)
		}
		c.begin("a") // it has not lost its place
		c.set("b", "2", "y")
		if got := c.figures(); got.Waiting != 0 || got.Pending != 2 {
			t.Errorf("limit %d: after another change, %+v", limit, got)
		}
	}
}

// TestComplete: what becomes of a publish that has ended.
func TestComplete(t *testing.T) {
	c := newSteps(t, 0)
	c.connect("s")
	c.set("a", "1", "")
	a := c.begin("a")
	if a.last.times.Received.IsZero() {
		t.Error("it is not sent when the spec was received")
	}
	c.set("a", "2", "")
	if r := c.end(a, exceedsLimit); !r.again || r.reduced || c.figures().Coalesced != 1 {
		t.Errorf("too large, with a newer one: %+v, %+v", r, c.figures())
	}
	a = c.begin("a")
	a.delta = true
	if r := c.end(a, acknowledged); r != (result{}) || c.figures().Deltas != 1 {
		t.Errorf("acknowledged: %+v, %+v", r, c.figures())
	}
	if c.encode(c.work("a")); c.work("a").last.plain != nil {
		t.Error("it is not encoded")
	}
	if s := c.decode(&c.work("a").last, 1); s.Trace != "2" || len(s.Status.Conditions) != 1 {
		t.Errorf("it is held as %+v", s)
	}
	refuse := func(uid types.UID, first bool, backoff time.Duration) {
		t.Helper()
		if r := c.end(c.begin(uid), refused); r != (result{backoff: backoff, first: first, again: true}) {
			t.Errorf("refused: %+v, want %t, %s", r, first, backoff)
		}
	}
	c.set("a", "3", "")
	refuse("a", true, minBackoff)
	c.set("b", "1", "")
	refuse("b", false, minBackoff)
	c.set("b", "2", "") // while it is in backoff
	c.wantStats(2, Stats{Pending: 2, Coalesced: 2, Published: 1, Deltas: 1, Refused: 2})
	c.connect("t") // begins again
	refuse("a", true, 2*minBackoff)
	c.end(c.begin("b"), acknowledged) // the source takes them again
	c.set("b", "3", "")
	refuse("b", true, minBackoff)
	if c.delayed.Len() != 2 || c.work("a").state != backingOff {
		t.Errorf("%d works are in backoff", c.delayed.Len())
	}
}

// TestAddDigests: the digest is that of the status which the broker has acknowledged.
func TestAddDigests(t *testing.T) {
	c := newSteps(t, 0)
	c.connect("s")
	var works, want []wire.WorkDigest
	for i := range 4 {
		uid := types.UID(fmt.Sprint(i))
		works, want = append(works, wire.WorkDigest{UID: uid}), append(want, wire.WorkDigest{UID: uid})
		if i%2 == 1 {
			c.set(uid, "1", "")
			c.end(c.begin(uid), acknowledged)
			want[i].Works = wire.StatusDigest(uid, "1")
		}
	}
	for range 2 {
		got := append([]wire.WorkDigest{}, works...)
		c.addDigests("hub", got)
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%d: %+v, want %+v", i, got[i], want[i])
			}
		}
	}
	c.set("1", "2", "")
	a := c.begin("1")
	c.remove(a.work)
	if c.addDigests("hub", works[:2]); works[1].Works != 0 {
		t.Errorf("a forgotten work counts: %+v", works[1])
	}
}

// TestResyncIsInOrder: two agents that hold the same statuses answer a request for all of them in the same order.
func TestResyncIsInOrder(t *testing.T) {
	var runs [2][]types.UID
	for i := range runs {
		c := newSteps(t, 0)
		c.connect("s")
		for n := range 20 {
			uid := types.UID(fmt.Sprint(n))
			c.set(uid, "1", "")
			c.end(c.begin(uid), acknowledged)
		}
		c.resync(&wire.StatusResync{Source: "hub"}, epoch)
		for a, _, _ := c.next(epoch); a != nil; a, _, _ = c.next(epoch) {
			c.end(a, acknowledged)
			runs[i] = append(runs[i], a.key.UID)
		}
	}
	if len(runs[0]) != 20 || !slices.Equal(runs[0], runs[1]) {
		t.Errorf("one run publishes\n%v, another one\n%v", runs[0], runs[1])
	}
}
