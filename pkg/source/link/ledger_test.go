package link

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
	ledger *ledger
	now    time.Time
	work   *workv1.ManifestWork // nil: the source has none
	key    key
}

func newScript(t *testing.T) *script {
	work := testWork("w", 1)
	s := &script{t: t, ledger: newLedger(30*time.Second, func(wire.ClusterName) bool { return false }), now: time.Unix(1000, 0), work: work, key: keyOf(work)}
	s.ledger.connect(0)
	return s
}

// turn takes the next turn and publishes what it asks for; it gives nil when there
// is no turn or nothing to publish.
func (s *script) turn() *wire.Spec {
	s.t.Helper()
	c, ok := s.ledger.next(s.now)
	if !ok {
		return nil
	}
	p := decide(c, s.work, "hub1", s.now)
	if p.spec == nil {
		s.ledger.landed(c, p)
		return nil
	}
	s.ledger.publishedOK(c, p, s.now)
	return p.spec
}

// counts checks that the books are balanced.
func (s *script) counts(entries int) {
	s.t.Helper()
	if n := len(s.ledger.entries); n != entries {
		s.t.Errorf("%d entries, want %d", n, entries)
	}
	if entries == 0 && (len(s.ledger.clusters) != 0 || len(s.ledger.due.slots) != 0 || s.ledger.parked != 0) {
		s.t.Errorf("%d clusters, %d due and %d parked are left", len(s.ledger.clusters), len(s.ledger.due.slots), s.ledger.parked)
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
		s.ledger.answerGone(s.key, 4)
		if spec := s.turn(); spec == nil || !spec.Bare {
			t.Fatalf("published %+v", spec)
		}
		s.counts(0)
	})
	t.Run("deleted, then gone", func(t *testing.T) {
		s := newScript(t)
		s.ledger.changed(s.key)
		s.turn()
		s.work = deleting(testWork("w", 2))
		s.ledger.changed(s.key)
		s.turn()
		s.ledger.took(s.key, &wire.Status{Generation: 2}, true, true)
		s.work = nil
		s.ledger.vanished(s.key, goneWork{generation: 2, meta: &metav1.ObjectMeta{}})
		s.counts(0)
	})
	t.Run("gone, then deleted", func(t *testing.T) {
		s := newScript(t)
		s.ledger.changed(s.key)
		s.turn()
		s.work = nil
		s.ledger.vanished(s.key, goneWork{generation: 1, meta: &metav1.ObjectMeta{Name: "w"}})
		if spec := s.turn(); spec == nil || !spec.Deletes() {
			t.Fatalf("published %+v", spec)
		}
		s.counts(1)
		s.ledger.agentForgot(s.key)
		s.counts(0)
	})
	t.Run("deleted while the deletion is published", func(t *testing.T) {
		s := newScript(t)
		s.work = nil
		s.ledger.vanished(s.key, goneWork{generation: 1, meta: &metav1.ObjectMeta{Name: "w"}})
		c, _ := s.ledger.next(s.now)
		s.ledger.agentForgot(s.key)
		s.ledger.publishedOK(c, decide(c, nil, "hub1", s.now), s.now)
		s.counts(0)
	})
	t.Run("gone and refused", func(t *testing.T) {
		s := newScript(t)
		s.work = nil
		s.ledger.vanished(s.key, goneWork{generation: 1, meta: &metav1.ObjectMeta{Name: "w"}})
		c, _ := s.ledger.next(s.now)
		s.ledger.refuse(c, &refusal{})
		s.counts(0)
	})
}

// TestBackToLife: a work that comes back under its UID is published, and its next
// deletion is waited for as the first was.
func TestBackToLife(t *testing.T) {
	s := newScript(t)
	s.work = nil
	s.ledger.vanished(s.key, goneWork{generation: 1, meta: &metav1.ObjectMeta{Name: "w"}})
	c, _ := s.ledger.next(s.now) // the deletion is under way
	p := decide(c, nil, "hub1", s.now)
	s.work = testWork("w", 2)
	s.ledger.changed(s.key)
	s.ledger.publishedOK(c, p, s.now)
	if spec := s.turn(); spec == nil || spec.Deletes() || spec.Generation != 2 {
		t.Fatalf("published %+v", spec)
	}
	s.ledger.took(s.key, &wire.Status{Generation: 2}, true, false) // of the former work
	s.work = testWork("w", 3)
	s.ledger.changed(s.key)
	s.turn()
	s.work = deleting(testWork("w", 4))
	s.ledger.changed(s.key)
	s.turn()
	if e := s.ledger.entries[s.key]; !e.unsettled() {
		t.Error("a deletion that nobody has confirmed is taken for confirmed")
	}
	s.counts(1)
}

// TestSilentCluster: what waits for a silent cluster costs no time at all.
func TestSilentCluster(t *testing.T) {
	s := newScript(t)
	s.ledger.changed(s.key)
	s.turn()
	s.now = s.now.Add(31 * time.Second)
	if spec := s.turn(); spec != nil {
		t.Fatalf("published %+v", spec)
	}
	if at, ok := s.ledger.wakeAt(); ok {
		t.Errorf("it is looked at again at %v", at)
	}
	s.ledger.heard(s.key.cluster, s.now)
	if at, ok := s.ledger.wakeAt(); !ok || !at.Equal(s.now.Add(30*time.Second)) {
		t.Errorf("after a sign of life it is looked at again at %v %v", at, ok)
	}
	s.ledger.disconnect(s.ledger.connected)
	if at, ok := s.ledger.wakeAt(); ok {
		t.Errorf("without a connection it is looked at at %v", at)
	}
}

// TestParkedWorkIsScheduledWhenItsClusterIsHeardFrom: a publish that was lost while
// its cluster was silent is repeated once the cluster speaks, whatever it speaks
// of, and the publisher has to be woken for that.
func TestParkedWorkIsScheduledWhenItsClusterIsHeardFrom(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l := newLedger(30*time.Second, func(wire.ClusterName) bool { return false })
	l.connect(0)
	k := key{uid: "1", cluster: "cluster1"}
	l.changed(k)
	c, ok := l.next(now)
	if !ok {
		t.Fatal("nothing to publish")
	}
	l.publishedOK(c, plan{stamp: stamp{generation: 2}}, now)

	now = now.Add(time.Minute)
	if _, ok := l.next(now); ok {
		t.Fatal("published again to a cluster that is silent")
	}
	if at, ok := l.wakeAt(); ok {
		t.Fatalf("a parked work wakes the publisher at %v", at)
	}
	if !l.heard("cluster1", now) {
		t.Error("nobody is told that there is something to do at another time")
	}
	if l.heard("cluster1", now) {
		t.Error("told twice")
	}
	at, ok := l.wakeAt()
	if !ok || at != now.Add(30*time.Second) {
		t.Fatalf("wakes the publisher at %v, %v", at, ok)
	}
	now = at
	l.heard("cluster1", now)
	if _, ok := l.next(now); !ok {
		t.Error("not published again although the cluster speaks and does not confirm")
	}
}

// TestHeldCluster: a cluster that is held gets nothing, and all of it once it is
// released; others go on.
func TestHeldCluster(t *testing.T) {
	held := map[wire.ClusterName]bool{"held": true}
	l := newLedger(time.Second, func(name wire.ClusterName) bool { return held[name] })
	l.connect(0)
	now := time.Unix(1000, 0)
	for _, k := range []key{{"a", "held"}, {"b", "free"}, {"c", "held"}, {"d", "free"}} {
		l.changed(k)
	}
	turns := func() []key {
		var keys []key
		for {
			c, ok := l.next(now)
			if !ok {
				return keys
			}
			keys = append(keys, c.key)
			l.landed(c, plan{})
		}
	}
	if got := turns(); !slices.Equal(got, []key{{"b", "free"}, {"d", "free"}}) {
		t.Errorf("turns %v", got)
	}
	l.answerGone(key{"e", "held"}, 1)
	l.released("nowhere")
	if got := turns(); len(got) > 0 {
		t.Errorf("turns %v of a cluster that is held", got)
	}
	delete(held, "held")
	l.released("held")
	if got := turns(); !slices.Equal(got, []key{{"a", "held"}, {"c", "held"}, {"e", "held"}}) {
		t.Errorf("turns after the release: %v", got)
	}
}
