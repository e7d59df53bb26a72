package delivery

import (
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// script drives a deliveryState like an Engine does, with its own clock.
type script struct {
	t     *testing.T
	state *deliveryState
	now   time.Time
	work  *workv1.ManifestWork // nil: the source has none
	key   workKey
}

func newScript(t *testing.T) *script {
	work := testWork("w", 1)
	s := &script{t: t, state: newDeliveryState(30*time.Second, func(wire.ClusterName) bool { return false }), now: time.Unix(1000, 0), work: work, key: keyOf(work)}
	s.state.connect(0)
	return s
}

// publishNext carries out the next attempt. It returns nil if there is no attempt or it publishes
// nothing.
func (s *script) publishNext() *wire.Spec {
	s.t.Helper()
	c, ok := s.state.dequeue(s.now)
	if !ok {
		return nil
	}
	p := planPublish(&c.workRecord, s.work, "hub1", s.now)
	if p.spec == nil {
		s.state.skipped(c, p)
		return nil
	}
	s.state.publishSucceeded(c, p, s.now, sentSpec{})
	return p.spec
}

// counts checks the number of works, and that nothing is pending.
func (s *script) counts(works int) {
	s.t.Helper()
	if n := len(s.state.works); n != works {
		s.t.Errorf("%d works, want %d", n, works)
	}
	if works == 0 && (len(s.state.clusters) != 0 || len(s.state.due.heap) != 0 || s.state.inPhase != [phases]int{}) {
		s.t.Errorf("%d clusters, %d due and %v by phase are left", len(s.state.clusters), len(s.state.due.heap), s.state.inPhase)
	}
	if n := s.state.pending(); n != 0 {
		s.t.Errorf("%d are pending", n)
	}
}

// TestNothingIsLeft: works whose deletion is complete are forgotten.
func TestNothingIsLeft(t *testing.T) {
	t.Run("never had", func(t *testing.T) {
		s := newScript(t)
		s.work = nil
		s.state.deleteUnknown(s.key, 4, nil)
		if spec := s.publishNext(); spec == nil || !spec.NoMetadata {
			t.Fatalf("published %+v", spec)
		}
		s.counts(0)
	})
	t.Run("deleted, then gone", func(t *testing.T) {
		s := newScript(t)
		s.state.workChanged(s.key)
		s.publishNext()
		s.work = deleting(testWork("w", 2))
		s.state.workChanged(s.key)
		s.publishNext()
		s.state.statusAccepted(s.key, &wire.Status{Generation: 2}, true, true, s.now)
		s.work = nil
		s.state.workRemoved(s.key, removedWork{generation: 2, meta: &metav1.ObjectMeta{}})
		s.counts(0)
	})
	t.Run("gone, then deleted", func(t *testing.T) {
		s := newScript(t)
		s.state.workChanged(s.key)
		s.publishNext()
		s.work = nil
		s.state.workRemoved(s.key, removedWork{generation: 1, meta: &metav1.ObjectMeta{Name: "w"}})
		if spec := s.publishNext(); spec == nil || !spec.IsDeletion() {
			t.Fatalf("published %+v", spec)
		}
		s.counts(1)
		s.state.agentDeleted(s.key)
		s.counts(0)
	})
	t.Run("deleted while the deletion is published", func(t *testing.T) {
		s := newScript(t)
		s.work = nil
		s.state.workRemoved(s.key, removedWork{generation: 1, meta: &metav1.ObjectMeta{Name: "w"}})
		c, _ := s.state.dequeue(s.now)
		s.state.agentDeleted(s.key)
		s.state.publishSucceeded(c, planPublish(&c.workRecord, nil, "hub1", s.now), s.now, sentSpec{})
		s.counts(0)
	})
	for _, published := range []bool{true, false} {
		t.Run(fmt.Sprintf("deleted, reported before the publish of the deletion has returned, which succeeds: %v", published), func(t *testing.T) {
			s := newScript(t)
			s.state.workChanged(s.key)
			s.publishNext()
			s.work = deleting(testWork("w", 2))
			s.state.workChanged(s.key)
			c, _ := s.state.dequeue(s.now)
			s.state.statusAccepted(s.key, &wire.Status{Generation: 2}, true, true, s.now)
			if published {
				s.state.publishSucceeded(c, planPublish(&c.workRecord, s.work, "hub1", s.now), s.now, sentSpec{})
			} else {
				s.state.publishFailed(c, s.now)
			}
			s.work = nil
			s.state.workRemoved(s.key, removedWork{generation: 2, meta: &metav1.ObjectMeta{Name: "w"}})
			if again := s.publishNext(); (again != nil) == published {
				t.Fatalf("published %+v", again)
			}
			s.state.agentDeleted(s.key)
			s.counts(0)
		})
	}
	t.Run("removed and made again under the UID while the deletion is published", func(t *testing.T) {
		s := newScript(t)
		s.state.workChanged(s.key)
		s.publishNext()
		s.work = deleting(testWork("w", 2))
		s.state.workChanged(s.key)
		c, _ := s.state.dequeue(s.now)
		first := s.work
		s.state.statusAccepted(s.key, &wire.Status{Generation: 2}, true, true, s.now)
		s.state.workRemoved(s.key, removedWork{generation: 2, meta: &metav1.ObjectMeta{Name: "w"}})
		s.work = deleting(testWork("w", 4))
		s.state.workChanged(s.key)
		s.state.publishSucceeded(c, planPublish(&c.workRecord, first, "hub1", s.now), s.now, sentSpec{})
		for spec := s.publishNext(); spec == nil || !spec.IsDeletion(); spec = s.publishNext() {
			if spec == nil {
				t.Fatal("the deletion of the new work is not published")
			}
		}
		s.state.statusAccepted(s.key, &wire.Status{Generation: 4}, true, true, s.now)
		s.work = nil
		s.state.workRemoved(s.key, removedWork{generation: 4, meta: &metav1.ObjectMeta{Name: "w"}})
		s.counts(0)
	})
	t.Run("deleted, reported before the spec that was sent once more", func(t *testing.T) {
		s := newScript(t)
		s.state.ensure(s.key).confirmed = 1
		s.work = deleting(testWork("w", 3))
		s.state.workChanged(s.key)
		if spec := s.publishNext(); spec == nil || spec.IsDeletion() || spec.Generation != 2 {
			t.Fatalf("published %+v before the deletion", spec)
		}
		s.state.statusAccepted(s.key, &wire.Status{Generation: 3}, true, true, s.now) // answers an earlier deletion
		s.work = nil
		s.state.workRemoved(s.key, removedWork{generation: 3, meta: &metav1.ObjectMeta{Name: "w"}})
		if spec := s.publishNext(); spec == nil || !spec.IsDeletion() || spec.Generation != 3 {
			t.Fatalf("published %+v: the agent has applied the spec again", spec)
		}
		s.state.agentDeleted(s.key)
		s.counts(0)
	})
	t.Run("gone and refused", func(t *testing.T) {
		s := newScript(t)
		s.work = nil
		s.state.workRemoved(s.key, removedWork{generation: 1, meta: &metav1.ObjectMeta{Name: "w"}})
		c, _ := s.state.dequeue(s.now)
		s.state.publishRefused(c, &refusal{})
		s.counts(0)
	})
}

// TestReseal: once the key of a cluster is another one, its works are published again, also those that
// were refused for want of a key, but not those that are refused for another reason.
func TestReseal(t *testing.T) {
	for reason, published := range map[string]bool{"": true, ReasonNoSealKey: true, ReasonTooLarge: false} {
		s := newScript(t)
		s.work = testWork("w", 1)
		s.state.workChanged(s.key)
		c, _ := s.state.dequeue(s.now)
		p := planPublish(&c.workRecord, s.work, "hub1", s.now)
		if reason == "" {
			s.state.publishSucceeded(c, p, s.now, sentSpec{})
		} else {
			s.state.publishRefused(c, &refusal{revision: p.revision, condition: metav1.Condition{Reason: reason}})
		}
		s.state.reseal(s.key)
		c, ok := s.state.dequeue(s.now)
		if got := ok && planPublish(&c.workRecord, s.work, "hub1", s.now).spec != nil; got != published {
			t.Errorf("refused for %q: published again is %v", reason, got)
		}
	}
}

// TestRecreated: a work that is created again with its UID is published, and its next deletion must
// be confirmed like the first one.
func TestRecreated(t *testing.T) {
	s := newScript(t)
	s.work = nil
	s.state.workRemoved(s.key, removedWork{generation: 1, meta: &metav1.ObjectMeta{Name: "w"}})
	c, _ := s.state.dequeue(s.now) // the deletion is under way
	p := planPublish(&c.workRecord, nil, "hub1", s.now)
	s.work = testWork("w", 2)
	s.state.workChanged(s.key)
	s.state.publishSucceeded(c, p, s.now, sentSpec{})
	if spec := s.publishNext(); spec == nil || spec.IsDeletion() || spec.Generation != 2 {
		t.Fatalf("published %+v", spec)
	}
	s.state.statusAccepted(s.key, &wire.Status{Generation: 2}, true, false, s.now) // of the former work
	s.work = testWork("w", 3)
	s.state.workChanged(s.key)
	s.publishNext()
	s.work = deleting(testWork("w", 4))
	s.state.workChanged(s.key)
	s.publishNext()
	if e := s.state.works[s.key]; !e.unconfirmed() {
		t.Error("an unconfirmed deletion is taken for confirmed")
	}
	s.counts(1)
}

// TestSilentCluster: works that await contact with a silent cluster are not scheduled.
func TestSilentCluster(t *testing.T) {
	s := newScript(t)
	s.state.workChanged(s.key)
	s.publishNext()
	s.now = s.now.Add(31 * time.Second)
	if spec := s.publishNext(); spec != nil {
		t.Fatalf("published %+v", spec)
	}
	if at, ok := s.state.nextDue(); ok {
		t.Errorf("the next check is due at %v", at)
	}
	s.state.clusterHeard(s.key.cluster, s.now)
	if at, ok := s.state.nextDue(); !ok || !at.Equal(s.now.Add(30*time.Second)) {
		t.Errorf("after a message the next check is due at %v %v", at, ok)
	}
	s.state.disconnect(s.state.connected)
	if at, ok := s.state.nextDue(); ok {
		t.Errorf("without a connection a check is due at %v", at)
	}
}

// TestSlowConfirmations: where confirmations take long, works are not published again before they can have come.
func TestSlowConfirmations(t *testing.T) {
	for _, test := range []struct {
		took, want time.Duration
	}{
		{0, 30 * time.Second}, {5 * time.Second, 30 * time.Second}, {20 * time.Second, time.Minute}, {time.Minute, 3 * time.Minute},
		{time.Hour, 5 * time.Minute},
	} {
		t.Run(test.took.String(), func(t *testing.T) {
			s := newScript(t)
			s.state.workChanged(s.key)
			s.publishNext()
			published := s.now
			// The schedule of the work was made before confirmations have become slow.
			for i := range int64(500) {
				other := testWork(fmt.Sprint("other-", i), 1)
				key := workKey{uid: other.UID, cluster: s.key.cluster}
				w := s.state.ensure(key)
				w.published, w.publishedAt = revision{generation: 1}, s.now.Add(-test.took)
				s.state.statusAccepted(key, &wire.Status{Generation: 1, Sequence: wire.SequenceID(i + 1)}, false, false, s.now)
			}
			for s.now.Before(published.Add(time.Hour)) {
				s.now = s.now.Add(time.Second)
				s.state.clusterHeard(s.key.cluster, s.now)
				if s.publishNext() != nil {
					break
				}
			}
			if got := s.now.Sub(published); got < test.want-2*time.Second || got > test.want+2*time.Second {
				t.Errorf("published again after %s, want %s", got, test.want)
			}
		})
	}
}

// TestAwaitingContact: a publish that was lost while its cluster was silent is repeated after the
// next message from the cluster, whatever it is about, and the publisher must be woken for that.
func TestAwaitingContact(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l := newDeliveryState(30*time.Second, func(wire.ClusterName) bool { return false })
	l.connect(0)
	k := workKey{uid: "1", cluster: "cluster1"}
	l.workChanged(k)
	c, ok := l.dequeue(now)
	if !ok {
		t.Fatal("nothing to publish")
	}
	l.publishSucceeded(c, plan{revision: revision{generation: 2}}, now, sentSpec{})

	now = now.Add(time.Minute)
	if _, ok := l.dequeue(now); ok {
		t.Fatal("published again to a cluster that is silent")
	}
	if at, ok := l.nextDue(); ok {
		t.Fatalf("a work that awaits contact wakes the publisher at %v", at)
	}
	if !l.clusterHeard("cluster1", now) {
		t.Error("clusterHeard does not report the new due time")
	}
	if l.clusterHeard("cluster1", now) {
		t.Error("clusterHeard reports the due time twice")
	}
	at, ok := l.nextDue()
	if !ok || at != now.Add(30*time.Second) {
		t.Fatalf("wakes the publisher at %v, %v", at, ok)
	}
	now = at
	l.clusterHeard("cluster1", now)
	if _, ok := l.dequeue(now); !ok {
		t.Error("not published again although the cluster sends messages and does not confirm")
	}
}

// TestPausedCluster: nothing is published to a paused cluster until it is resumed; others are not
// delayed.
func TestPausedCluster(t *testing.T) {
	paused := map[wire.ClusterName]bool{"paused": true}
	l := newDeliveryState(time.Second, func(name wire.ClusterName) bool { return paused[name] })
	l.connect(0)
	now := time.Unix(1000, 0)
	for _, k := range []workKey{{"a", "paused"}, {"b", "free"}, {"c", "paused"}, {"d", "free"}} {
		l.workChanged(k)
	}
	attempts := func() []workKey {
		var keys []workKey
		for {
			c, ok := l.dequeue(now)
			if !ok {
				return keys
			}
			keys = append(keys, c.key)
			l.skipped(c, plan{})
		}
	}
	if got := attempts(); !slices.Equal(got, []workKey{{"b", "free"}, {"d", "free"}}) {
		t.Errorf("attempts %v", got)
	}
	l.deleteUnknown(workKey{"e", "paused"}, 1, nil)
	l.resumeCluster("nowhere")
	if got := attempts(); len(got) > 0 {
		t.Errorf("attempts %v for a paused cluster", got)
	}
	delete(paused, "paused")
	l.resumeCluster("paused")
	if got := attempts(); !slices.Equal(got, []workKey{{"a", "paused"}, {"c", "paused"}, {"e", "paused"}}) {
		t.Errorf("attempts after resumeCluster: %v", got)
	}
}

// A hub has one of these for each of its works: of a million works, 64 bytes more are 100 MB with what the
// garbage collector needs.
func TestSizeOfWorkRecord(t *testing.T) {
	if size := unsafe.Sizeof(workRecord{}); size > 320 {
		t.Errorf("%d bytes, want at most 320, a size of Go's allocator", size)
	}
}
