package delivery

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// script drives a ledger as a Link does, with a clock of its own.
type script struct {
	t      *testing.T
	ledger *deliveryState
	now    time.Time
	work   *workv1.ManifestWork // nil: the source has none
	key    workKey
}

func newScript(t *testing.T) *script {
	work := testWork("w", 1)
	s := &script{t: t, ledger: newDeliveryState(30*time.Second, func(wire.ClusterName) bool { return false }), now: time.Unix(1000, 0), work: work, key: keyOf(work)}
	s.ledger.connect(0)
	return s
}

// turn takes the next turn and publishes what it asks for; it gives nil when there
// is no turn or nothing to publish.
func (s *script) turn() *wire.Spec {
	s.t.Helper()
	c, ok := s.ledger.dequeue(s.now)
	if !ok {
		return nil
	}
	p := planPublish(c, s.work, "hub1", s.now)
	if p.spec == nil {
		s.ledger.skipped(c, p)
		return nil
	}
	s.ledger.publishSucceeded(c, p, s.now)
	return p.spec
}

// counts checks that the books are balanced.
func (s *script) counts(entries int) {
	s.t.Helper()
	if n := len(s.ledger.works); n != entries {
		s.t.Errorf("%d entries, want %d", n, entries)
	}
	if entries == 0 && (len(s.ledger.clusters) != 0 || len(s.ledger.due.slots) != 0 || s.ledger.awaitingContact != 0) {
		s.t.Errorf("%d clusters, %d due and %d parked are left", len(s.ledger.clusters), len(s.ledger.due.slots), s.ledger.awaitingContact)
	}
	if s.ledger.pending != 0 {
		s.t.Errorf("%d are pending", s.ledger.pending)
	}
}

// TestNothingIsLeft: what is over is forgotten.
func TestNothingIsLeft(t *testing.T) {
	t.Run("never had", func(t *testing.T) {
		s := newScript(t)
		s.work = nil
		s.ledger.deleteUnknown(s.key, 4)
		if spec := s.turn(); spec == nil || !spec.NoMetadata {
			t.Fatalf("published %+v", spec)
		}
		s.counts(0)
	})
	t.Run("deleted, then gone", func(t *testing.T) {
		s := newScript(t)
		s.ledger.workChanged(s.key)
		s.turn()
		s.work = deleting(testWork("w", 2))
		s.ledger.workChanged(s.key)
		s.turn()
		s.ledger.statusAccepted(s.key, &wire.Status{Generation: 2}, true, true)
		s.work = nil
		s.ledger.workRemoved(s.key, removedWork{generation: 2, meta: &metav1.ObjectMeta{}})
		s.counts(0)
	})
	t.Run("gone, then deleted", func(t *testing.T) {
		s := newScript(t)
		s.ledger.workChanged(s.key)
		s.turn()
		s.work = nil
		s.ledger.workRemoved(s.key, removedWork{generation: 1, meta: &metav1.ObjectMeta{Name: "w"}})
		if spec := s.turn(); spec == nil || !spec.IsDeletion() {
			t.Fatalf("published %+v", spec)
		}
		s.counts(1)
		s.ledger.agentDeleted(s.key)
		s.counts(0)
	})
	t.Run("deleted while the deletion is published", func(t *testing.T) {
		s := newScript(t)
		s.work = nil
		s.ledger.workRemoved(s.key, removedWork{generation: 1, meta: &metav1.ObjectMeta{Name: "w"}})
		c, _ := s.ledger.dequeue(s.now)
		s.ledger.agentDeleted(s.key)
		s.ledger.publishSucceeded(c, planPublish(c, nil, "hub1", s.now), s.now)
		s.counts(0)
	})
	t.Run("gone and refused", func(t *testing.T) {
		s := newScript(t)
		s.work = nil
		s.ledger.workRemoved(s.key, removedWork{generation: 1, meta: &metav1.ObjectMeta{Name: "w"}})
		c, _ := s.ledger.dequeue(s.now)
		s.ledger.publishRefused(c, &refusal{})
		s.counts(0)
	})
}

// TestBackToLife: a work that comes back under its UID is published, and its next
// deletion is waited for as the first was.
func TestBackToLife(t *testing.T) {
	s := newScript(t)
	s.work = nil
	s.ledger.workRemoved(s.key, removedWork{generation: 1, meta: &metav1.ObjectMeta{Name: "w"}})
	c, _ := s.ledger.dequeue(s.now) // the deletion is under way
	p := planPublish(c, nil, "hub1", s.now)
	s.work = testWork("w", 2)
	s.ledger.workChanged(s.key)
	s.ledger.publishSucceeded(c, p, s.now)
	if spec := s.turn(); spec == nil || spec.IsDeletion() || spec.Generation != 2 {
		t.Fatalf("published %+v", spec)
	}
	s.ledger.statusAccepted(s.key, &wire.Status{Generation: 2}, true, false) // of the former work
	s.work = testWork("w", 3)
	s.ledger.workChanged(s.key)
	s.turn()
	s.work = deleting(testWork("w", 4))
	s.ledger.workChanged(s.key)
	s.turn()
	if e := s.ledger.works[s.key]; !e.unconfirmed() {
		t.Error("a deletion that nobody has confirmed is taken for confirmed")
	}
	s.counts(1)
}

// TestSilentCluster: what waits for a silent cluster costs no time at all.
func TestSilentCluster(t *testing.T) {
	s := newScript(t)
	s.ledger.workChanged(s.key)
	s.turn()
	s.now = s.now.Add(31 * time.Second)
	if spec := s.turn(); spec != nil {
		t.Fatalf("published %+v", spec)
	}
	if at, ok := s.ledger.nextDue(); ok {
		t.Errorf("it is looked at again at %v", at)
	}
	s.ledger.clusterHeard(s.key.cluster, s.now)
	if at, ok := s.ledger.nextDue(); !ok || !at.Equal(s.now.Add(30*time.Second)) {
		t.Errorf("after a sign of life it is looked at again at %v %v", at, ok)
	}
	s.ledger.disconnect(s.ledger.connected)
	if at, ok := s.ledger.nextDue(); ok {
		t.Errorf("without a connection it is looked at at %v", at)
	}
}

// TestParkedWorkIsScheduledWhenItsClusterIsHeardFrom: a publish that was lost while
// its cluster was silent is repeated once the cluster speaks, whatever it speaks
// of, and the publisher has to be woken for that.
func TestParkedWorkIsScheduledWhenItsClusterIsHeardFrom(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l := newDeliveryState(30*time.Second, func(wire.ClusterName) bool { return false })
	l.connect(0)
	k := workKey{uid: "1", cluster: "cluster1"}
	l.workChanged(k)
	c, ok := l.dequeue(now)
	if !ok {
		t.Fatal("nothing to publish")
	}
	l.publishSucceeded(c, plan{revision: revision{generation: 2}}, now)

	now = now.Add(time.Minute)
	if _, ok := l.dequeue(now); ok {
		t.Fatal("published again to a cluster that is silent")
	}
	if at, ok := l.nextDue(); ok {
		t.Fatalf("a parked work wakes the publisher at %v", at)
	}
	if !l.clusterHeard("cluster1", now) {
		t.Error("nobody is told that there is something to do at another time")
	}
	if l.clusterHeard("cluster1", now) {
		t.Error("told twice")
	}
	at, ok := l.nextDue()
	if !ok || at != now.Add(30*time.Second) {
		t.Fatalf("wakes the publisher at %v, %v", at, ok)
	}
	now = at
	l.clusterHeard("cluster1", now)
	if _, ok := l.dequeue(now); !ok {
		t.Error("not published again although the cluster speaks and does not confirm")
	}
}

// TestHeldCluster: a cluster that is held gets nothing, and all of it once it is
// released; others go on.
func TestHeldCluster(t *testing.T) {
	held := map[wire.ClusterName]bool{"held": true}
	l := newDeliveryState(time.Second, func(name wire.ClusterName) bool { return held[name] })
	l.connect(0)
	now := time.Unix(1000, 0)
	for _, k := range []workKey{{"a", "held"}, {"b", "free"}, {"c", "held"}, {"d", "free"}} {
		l.workChanged(k)
	}
	turns := func() []workKey {
		var keys []workKey
		for {
			c, ok := l.dequeue(now)
			if !ok {
				return keys
			}
			keys = append(keys, c.workKey)
			l.skipped(c, plan{})
		}
	}
	if got := turns(); !slices.Equal(got, []workKey{{"b", "free"}, {"d", "free"}}) {
		t.Errorf("turns %v", got)
	}
	l.deleteUnknown(workKey{"e", "held"}, 1)
	l.resumeCluster("nowhere")
	if got := turns(); len(got) > 0 {
		t.Errorf("turns %v of a cluster that is held", got)
	}
	delete(held, "held")
	l.resumeCluster("held")
	if got := turns(); !slices.Equal(got, []workKey{{"a", "held"}, {"c", "held"}, {"e", "held"}}) {
		t.Errorf("turns after the release: %v", got)
	}
}
