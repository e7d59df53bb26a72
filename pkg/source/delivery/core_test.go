package delivery

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/wire"
)

// script drives a core like an Engine does, with its own clock and one attempt at a time. What is stored or asked
// ends at once.
type script struct {
	t     *testing.T
	core  *core
	now   time.Time
	work  *workv1.ManifestWork // nil: the source has none
	key   workKey
	begun []*attempt
}

// testCore returns a core of the source hub1 that has this many attempts in flight, and clusters of this state.
func testCore(limit int, republishAfter time.Duration, state ClusterState) *core {
	return newCore(&Config{Source: "hub1", PublishWorkers: limit, StatusWorkers: limit, RepublishAfter: republishAfter, Clusters: state, Quota: &quota.Rates{}})
}

func newScript(t *testing.T) *script {
	work := testWork("w", 1)
	s := &script{t: t, core: testCore(1, 30*time.Second, ClusterOpen), now: time.Unix(1000, 0), work: work, key: keyOf(work)}
	s.step(&connected{})
	return s
}

func (s *script) step(in input) {
	for _, a := range slices.Clone(s.core.step(s.now, in)) {
		switch a := a.(type) {
		case *attempt:
			s.begun = append(s.begun, a)
		case *storing:
			s.step(storeEnded{a, false})
		case *asking:
			s.step(askEnded{a, false})
		}
	}
}

// next returns the next attempt.
func (s *script) next() (*attempt, bool) {
	if len(s.begun) == 0 {
		s.step(timePassed{})
	}
	if len(s.begun) == 0 {
		return nil, false
	}
	a := s.begun[0]
	s.begun = s.begun[1:]
	return a, true
}

// begin returns the next attempt, and what it does with work.
func (s *script) begin(work *workv1.ManifestWork) *attemptEnded {
	s.t.Helper()
	a, ok := s.next()
	if !ok {
		s.t.Fatal("nothing is to be published")
	}
	return &attemptEnded{attempt: a, plan: planPublish(&a.before, StoredWork{Work: work}, "hub1", s.now), began: s.now}
}

// publishNext carries out the next attempt. It returns nil if there is no attempt or it publishes
// nothing.
func (s *script) publishNext() *wire.Spec {
	s.t.Helper()
	if s.step(timePassed{}); len(s.begun) == 0 {
		return nil
	}
	ended := s.begin(s.work)
	s.step(ended)
	return ended.plan.spec
}

// change has the source have work.
func (s *script) change(work *workv1.ManifestWork) {
	s.work = work
	s.step(workChanged{s.key})
}

// remove has the source remove the work, whose generation was this one.
func (s *script) remove(generation wire.Generation) {
	s.work = nil
	s.step(workRemoved{s.key, removedWork{generation: generation, meta: &metav1.ObjectMeta{Name: "w"}}})
}

// says has the agent send a status with these conditions.
func (s *script) says(generation wire.Generation, want verdict, conditions ...string) {
	s.t.Helper()
	status := &wire.Status{UID: s.key.uid, Cluster: s.key.cluster, Source: "hub1", Generation: generation}
	for _, condition := range conditions {
		meta.SetStatusCondition(&status.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue})
	}
	in := &statusReceived{from: sender{"hub1", s.key.cluster}, status: status, stored: StoredWork{Work: s.work}, has: s.work != nil}
	if s.step(in); in.verdict != want {
		s.t.Errorf("the status is %s, want %s", in.verdict, want)
	}
}

// counts checks the number of works, and that nothing is pending.
func (s *script) counts(works int) {
	s.t.Helper()
	if n := len(s.core.works); n != works {
		s.t.Errorf("%d works, want %d", n, works)
	}
	if works == 0 && (len(s.core.clusters) != 0 || s.core.due.Len() != 0 || s.core.inPhase != [phases]int{}) {
		s.t.Errorf("%d clusters, %d due and %v by phase are left", len(s.core.clusters), s.core.due.Len(), s.core.inPhase)
	}
	if n := s.core.pending(); n != 0 {
		s.t.Errorf("%d are pending", n)
	}
}

// TestHiddenWorkWaits: while the source does not show a work whose agent has not answered, the core looks for it now and then.
func TestHiddenWorkWaits(t *testing.T) {
	s := newScript(t)
	s.change(s.work)
	s.publishNext()
	s.now = s.now.Add(time.Second)
	s.step(heard{s.key.cluster})
	s.work = nil
	attempts := 0
	for until := s.now.Add(time.Minute); s.now.Before(until); s.now = s.now.Add(time.Second) {
		for s.step(timePassed{}); len(s.begun) > 0; attempts++ {
			if attempts > 10 {
				t.Fatalf("%d attempts by %s", attempts, s.now)
			}
			s.step(s.begin(nil))
		}
	}
	if attempts == 0 {
		t.Error("the work was not looked for")
	}
}

// TestNothingIsLeft: works whose deletion is complete are forgotten.
func TestNothingIsLeft(t *testing.T) {
	t.Run("never had", func(t *testing.T) {
		s := newScript(t)
		s.work = nil
		s.step(workLost{s.key, 4})
		if spec := s.publishNext(); spec == nil || !spec.NoMetadata {
			t.Fatalf("published %+v", spec)
		}
		s.counts(0)
	})
	t.Run("forgotten", func(t *testing.T) {
		s := newScript(t)
		s.change(s.work)
		s.publishNext()
		s.work = nil
		s.step(workForgotten{s.key})
		s.counts(0)
		s.step(workForgotten{s.key})
		if s.counts(0); s.publishNext() != nil {
			t.Error("something is published of it")
		}
	})
	t.Run("forgotten while its deletion waits", func(t *testing.T) {
		s := newScript(t)
		s.change(s.work)
		s.publishNext()
		s.step(&clusterSet{cluster: s.key.cluster, state: ClusterPaused})
		s.remove(2)
		s.step(workForgotten{s.key})
		s.step(&clusterSet{cluster: s.key.cluster, state: ClusterOpen})
		if spec := s.publishNext(); spec != nil {
			t.Errorf("published %+v", spec)
		}
		s.counts(0)
	})
	t.Run("forgotten in flight", func(t *testing.T) {
		s := newScript(t)
		s.change(s.work)
		ended := s.begin(s.work)
		s.work = nil
		s.step(workForgotten{s.key})
		s.step(ended)
		s.counts(0)
	})
	t.Run("forgotten in flight, and there again", func(t *testing.T) {
		s := newScript(t)
		work := s.work
		s.change(work)
		ended := s.begin(work)
		s.step(workForgotten{s.key})
		s.change(work)
		s.step(ended)
		if spec := s.publishNext(); spec == nil || spec.IsDeletion() {
			t.Errorf("published %+v", spec)
		}
	})
	t.Run("deleted, then gone", func(t *testing.T) {
		s := newScript(t)
		s.change(s.work)
		s.publishNext()
		s.change(deleting(testWork("w", 2)))
		s.publishNext()
		s.says(2, accepted, workv1.WorkDeleting, workv1.WorkDeleted)
		s.remove(2)
		s.counts(0)
	})
	t.Run("gone, then deleted", func(t *testing.T) {
		s := newScript(t)
		s.change(s.work)
		s.publishNext()
		s.remove(1)
		if spec := s.publishNext(); spec == nil || !spec.IsDeletion() {
			t.Fatalf("published %+v", spec)
		}
		s.counts(1)
		s.says(1, unknownWork, workv1.WorkDeleted)
		s.counts(0)
	})
	t.Run("deleted while the deletion is published", func(t *testing.T) {
		s := newScript(t)
		s.remove(1)
		ended := s.begin(nil)
		s.says(1, unknownWork, workv1.WorkDeleted)
		s.step(ended)
		s.counts(0)
	})
	for _, published := range []bool{true, false} {
		t.Run(fmt.Sprintf("deleted, reported before the publish of the deletion has returned, which succeeds: %v", published), func(t *testing.T) {
			s := newScript(t)
			s.change(s.work)
			s.publishNext()
			s.change(deleting(testWork("w", 2)))
			ended := s.begin(s.work)
			s.says(2, accepted, workv1.WorkDeleting, workv1.WorkDeleted)
			if !published {
				ended.err = errors.New("broken")
			}
			s.step(ended)
			s.remove(2)
			if again := s.publishNext(); (again != nil) == published {
				t.Fatalf("published %+v", again)
			}
			s.says(2, unknownWork, workv1.WorkDeleted)
			s.counts(0)
		})
	}
	t.Run("removed and made again under the UID while the deletion is published", func(t *testing.T) {
		s := newScript(t)
		s.change(s.work)
		s.publishNext()
		s.change(deleting(testWork("w", 2)))
		ended := s.begin(s.work)
		s.says(2, accepted, workv1.WorkDeleting, workv1.WorkDeleted)
		s.remove(2)
		s.change(deleting(testWork("w", 4)))
		s.step(ended)
		for spec := s.publishNext(); spec == nil || !spec.IsDeletion(); spec = s.publishNext() {
			if spec == nil {
				t.Fatal("the deletion of the new work is not published")
			}
		}
		s.says(4, accepted, workv1.WorkDeleting, workv1.WorkDeleted)
		s.remove(4)
		s.counts(0)
	})
	t.Run("deleted, reported before the spec that was sent once more", func(t *testing.T) {
		s := newScript(t)
		s.core.ensure(s.key).confirmed = 1
		s.change(deleting(testWork("w", 3)))
		if spec := s.publishNext(); spec == nil || spec.IsDeletion() || spec.Generation != 2 {
			t.Fatalf("published %+v before the deletion", spec)
		}
		s.says(3, accepted, workv1.WorkDeleting, workv1.WorkDeleted) // answers an earlier deletion
		s.remove(3)
		if spec := s.publishNext(); spec != nil {
			t.Fatalf("the attempt that began before the removal publishes %+v", spec)
		}
		if spec := s.publishNext(); spec == nil || !spec.IsDeletion() || spec.Generation != 3 {
			t.Fatalf("published %+v: the agent has applied the spec again", spec)
		}
		s.says(3, unknownWork, workv1.WorkDeleted)
		s.counts(0)
	})
	t.Run("gone and refused", func(t *testing.T) {
		s := newScript(t)
		s.remove(1)
		ended := s.begin(nil)
		ended.err, ended.refused = errors.New("refused"), &refusal{}
		s.step(ended)
		s.counts(0)
	})
}

// TestReseal: once the key of a cluster is another one, its works are published again, also those that
// were refused for want of a key, but not those that are refused for another reason.
func TestReseal(t *testing.T) {
	for reason, published := range map[string]bool{"": true, workv1.ReasonNoSealKey: true, workv1.ReasonTooLarge: false} {
		s := newScript(t)
		s.change(testWork("w", 1))
		ended := s.begin(s.work)
		if reason != "" {
			ended.err, ended.refused = errors.New(reason), &refusal{revision: ended.plan.revision, condition: metav1.Condition{Reason: reason}}
		}
		s.step(ended)
		s.step(keyChanged{s.key})
		if got := s.publishNext() != nil; got != published {
			t.Errorf("refused for %q: published again is %v", reason, got)
		}
	}
}

// TestRecreated: a work that is created again with its UID is published, and its next deletion must
// be confirmed like the first one.
func TestRecreated(t *testing.T) {
	s := newScript(t)
	s.remove(1)
	ended := s.begin(nil) // the deletion is under way
	s.change(testWork("w", 2))
	s.step(ended)
	if spec := s.publishNext(); spec == nil || spec.IsDeletion() || spec.Generation != 2 {
		t.Fatalf("published %+v", spec)
	}
	s.says(2, accepted, workv1.WorkDeleting) // of the former work
	s.change(testWork("w", 3))
	s.publishNext()
	s.change(deleting(testWork("w", 4)))
	s.publishNext()
	if w := s.core.works[s.key]; !w.unconfirmed() {
		t.Error("an unconfirmed deletion is taken for confirmed")
	}
	s.counts(1)
}

// TestSilentCluster: works that await contact with a silent cluster are not scheduled.
func TestSilentCluster(t *testing.T) {
	s := newScript(t)
	s.change(s.work)
	s.publishNext()
	s.now = s.now.Add(31 * time.Second)
	if spec := s.publishNext(); spec != nil {
		t.Fatalf("published %+v", spec)
	}
	if at := s.core.nextDue(); !at.IsZero() {
		t.Errorf("the next check is due at %v", at)
	}
	s.step(heard{s.key.cluster})
	if at := s.core.nextDue(); !at.Equal(s.now.Add(30 * time.Second)) {
		t.Errorf("after a message the next check is due at %v", at)
	}
	s.step(disconnected{s.core.connection})
	if at := s.core.nextDue(); !at.IsZero() {
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
			s.change(s.work)
			s.publishNext()
			published := s.now
			// The schedule of the work was made before confirmations have become slow.
			for i := range int64(500) {
				other := testWork(fmt.Sprint("other-", i), 1)
				key := workKey{uid: other.UID, cluster: s.key.cluster}
				w := s.core.ensure(key)
				w.published, w.publishedAt = revision{generation: 1}, s.now.Add(-test.took)
				s.core.statusAccepted(w, &wire.Status{Generation: 1, Sequence: wire.SequenceID(i + 1)}, s.now)
			}
			for s.now.Before(published.Add(time.Hour)) {
				s.now = s.now.Add(time.Second)
				s.step(heard{s.key.cluster})
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
// next message from the cluster, whatever it is about.
func TestAwaitingContact(t *testing.T) {
	s := newScript(t)
	s.change(testWork("w", 2))
	if s.publishNext() == nil {
		t.Fatal("nothing to publish")
	}
	s.now = s.now.Add(time.Minute)
	if s.publishNext() != nil {
		t.Fatal("published again to a cluster that is silent")
	}
	if at := s.core.nextDue(); !at.IsZero() {
		t.Fatalf("a work that awaits contact is due at %v", at)
	}
	s.step(heard{s.key.cluster})
	at := s.core.nextDue()
	if !at.Equal(s.now.Add(30 * time.Second)) {
		t.Fatalf("due at %v", at)
	}
	s.now = s.now.Add(time.Second)
	if s.step(heard{s.key.cluster}); !s.core.nextDue().Equal(at) {
		t.Error("a further message puts it off")
	}
	s.now = at
	if s.publishNext() == nil {
		t.Error("not published again although the cluster sends messages and does not confirm")
	}
}

// TestPausedCluster: nothing is published to a paused cluster until it is resumed; others are not
// delayed.
func TestPausedCluster(t *testing.T) {
	s := &script{t: t, core: testCore(1, time.Second, ClusterOpen), now: time.Unix(1000, 0)}
	s.step(&connected{})
	s.step(&clusterSet{cluster: "paused", state: ClusterPaused})
	for _, k := range []workKey{{"a", "paused"}, {"b", "free"}, {"c", "paused"}, {"d", "free"}} {
		s.step(workChanged{k})
	}
	attempts := func() []workKey {
		var keys []workKey
		for {
			a, ok := s.next()
			if !ok {
				return keys
			}
			keys = append(keys, a.before.key)
			s.step(&attemptEnded{attempt: a})
		}
	}
	if got := attempts(); !slices.Equal(got, []workKey{{"b", "free"}, {"d", "free"}}) {
		t.Errorf("attempts %v", got)
	}
	s.step(workLost{workKey{"e", "paused"}, 1})
	s.step(&clusterSet{cluster: "nowhere"})
	if got := attempts(); len(got) > 0 {
		t.Errorf("attempts %v for a paused cluster", got)
	}
	s.step(&clusterSet{cluster: "paused"})
	if got := attempts(); !slices.Equal(got, []workKey{{"a", "paused"}, {"c", "paused"}, {"e", "paused"}}) {
		t.Errorf("attempts after it is resumed: %v", got)
	}
}

// A hub has one of these for each of its works: of a million works, 64 bytes more are 100 MB with what the
// garbage collector needs.
// TestGainedInFlight: a publish that was under way when a cluster is gained says nothing about what another program has
// published since.
func TestGainedInFlight(t *testing.T) {
	s := newScript(t)
	s.change(testWork("w", 1))
	s.publishNext()
	s.says(1, accepted, workv1.WorkApplied)
	s.change(testWork("w", 2))
	before := s.begin(s.work)
	in := &clusterSet{cluster: s.key.cluster, state: ClusterOpen, gained: true}
	if s.step(in); !in.found {
		t.Fatal("its works are not looked at")
	}
	if w := s.core.peek(s.key); w.confirmed != 0 || w.published != (revision{}) || w.said != saidNothing || w.phase != inFlight {
		t.Errorf("the work in flight keeps %+v", w)
	}
	s.change(s.work)
	s.step(before)
	if spec := s.publishNext(); spec == nil || spec.Generation != 2 {
		t.Errorf("then this is published: %+v", spec)
	}
	s.says(2, accepted, workv1.WorkApplied)
	s.counts(1)

	s.change(testWork("w", 3))
	before = s.begin(s.work)
	s.step(&clusterSet{cluster: s.key.cluster, state: ClusterOpen, gained: true})
	if s.step(before); len(s.core.works) != 0 {
		t.Error("a work is kept that the source did not have any more")
	}
}

func TestSizeOfWorkRecord(t *testing.T) {
	if size := unsafe.Sizeof(workRecord{}); size > 320 {
		t.Errorf("%d bytes, want at most 320, a size of Go's allocator", size)
	}
}

// stores returns the stores among actions.
func stores(actions []action) (begun []*storing) {
	for _, a := range actions {
		if a, ok := a.(*storing); ok {
			begun = append(begun, a)
		}
	}
	return begun
}

// TestPutOffStores: statuses that wait until their cluster may write again do not count as what the store is behind with.
func TestPutOffStores(t *testing.T) {
	rates := quota.Rates{quota.Writes: {PerSecond: 10, Burst: 10}}
	e := &Engine{core: newCore(&Config{Source: "hub1", StatusWorkers: 4, RepublishAfter: 30 * time.Second, Clusters: ClusterOpen, Quota: &rates})}
	now := time.Unix(1000, 0)
	var underWay []*storing
	step := func(in input) { underWay = append(underWay, stores(e.core.step(now, in))...) }
	for i := range 200 {
		uid := types.UID(fmt.Sprint(i))
		step(storeWanted{key: workKey{cluster: "noisy", uid: uid}, update: statusUpdate{status: &wire.Status{UID: uid, Cluster: "noisy"}}})
	}
	if n := e.StatusesPending(); n != 200 {
		t.Errorf("%d statuses are pending while the store is busy, want 200", n)
	}
	for len(underWay) > 0 {
		first := underWay[0]
		underWay = underWay[1:]
		step(storeEnded{first, false})
	}
	if putOff, n := len(e.core.stores.byKey), e.StatusesPending(); putOff < 100 || n != 0 {
		t.Errorf("%d statuses are put off and %d are pending, want most of 200 and 0", putOff, n)
	}
}

// TestOvertakeWait: a source that another program under its id is above of, each time, goes above it ever less often. What else it
// publishes makes no difference, and once the other program has stopped, it goes above it.
func TestOvertakeWait(t *testing.T) {
	d := testCore(1, time.Minute, ClusterOpen)
	k := workKey{uid: "u", cluster: "c"}
	w := d.ensure(k)
	now := time.Unix(1_000_000_000, 0)
	fight := func(publishes time.Duration) (times int) {
		for end := now.Add(10 * time.Minute); now.Before(end); now = now.Add(10 * time.Millisecond) {
			if now.UnixMilli()%publishes.Milliseconds() == 0 {
				w.publishedAt = now
			}
			if d.admitOvertaking(k, now) == 0 {
				times++
				w.publishedAt = now.Add(time.Millisecond)
			}
		}
		return times
	}
	if times := fight(time.Hour); times < 20 || times > 30 {
		t.Errorf("it went above %d times in ten minutes", times)
	}
	if times := fight(time.Second); times < 19 || times > 21 {
		t.Errorf("while it publishes other changes, it went above %d times in ten minutes", times)
	}
	now = now.Add(time.Hour)
	if wait := d.admitOvertaking(k, now); wait != 0 {
		t.Errorf("an hour later it waits %v", wait)
	}
	for range 100 {
		if wait := d.admitOvertaking(k, now); wait != 0 {
			t.Fatalf("nothing was published since, and it waits %v", wait)
		}
	}
	w.published.generation = 4
	d.stores.add(storeKey{k, true}, "", k.cluster, statusUpdate{agentGeneration: 9})
	if d.statusAccepted(w, &wire.Status{Generation: 4}, now); d.stores.byKey[storeKey{k, true}].value.agentGeneration != 0 {
		t.Error("the agent has what was published, and the source goes above what it had before")
	}
	if d.forget(w); len(d.clusters) != 0 {
		t.Error("its cluster is not forgotten")
	}
}
