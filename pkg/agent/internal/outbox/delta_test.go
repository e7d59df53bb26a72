package outbox_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent/internal/outbox"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// feedback returns a large status of generation 1 with a feedback value n.
func feedback(n int64) outbox.Status {
	s := status(1, "up")
	s.Status = wirekit.LargeStatus(20)
	s.Status.ResourceStatus.Manifests[7].StatusFeedbacks.Values[0].Value.Integer = &n
	return s
}

// tookValues checks the feedback values that the broker took since the last call, and how many of
// these statuses were sent as deltas.
func (r *rig) tookValues(t *testing.T, what string, deltas int, want ...int64) {
	t.Helper()
	synctest.Wait()
	var got []int64
	for _, s := range r.broker.took() {
		got = append(got, *s.Status.ResourceStatus.Manifests[7].StatusFeedbacks.Values[0].Value.Integer)
	}
	if len(got) != len(want) {
		t.Fatalf("%s: took %v, want %v", what, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: took %v, want %v", what, got, want)
		}
	}
	r.broker.mu.Lock()
	defer r.broker.mu.Unlock()
	if r.broker.deltas != deltas {
		t.Errorf("%s: %d deltas, want %d", what, r.broker.deltas, deltas)
	}
	r.broker.deltas = 0
}

func TestDeltas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &broker{})
		set := func(n int64) { r.Set(key("a"), feedback(n)); synctest.Wait() }
		set(1)
		set(2)
		r.tookValues(t, "the source has not said that it takes them", 0, 1, 2)
		r.Accepts("hub", wire.Accepts{Deltas: true})
		r.Accepts("foe", wire.Accepts{})
		set(3)
		set(4)
		r.tookValues(t, "the source takes them", 2, 3, 4)
		if stats := r.Stats(); stats.Deltas != 2 || stats.Published != 4 {
			t.Errorf("Stats = %+v", stats)
		}

		// Whoever asks gets the whole, and for a while nothing else: it could not use the delta.
		ask := &wire.StatusResync{Source: "hub", Hashes: []wire.StatusVersion{{UID: "a", Hash: wire.NoStatus}}}
		r.Resync(ask)
		r.tookValues(t, "the answer", 0, 4)
		set(5)
		r.tookValues(t, "after a delta that was not used", 0, 5)
		pass(10 * time.Minute)
		set(6)
		r.tookValues(t, "later", 1, 6)
		set(7)
		set(8)
		r.tookValues(t, "again", 2, 7, 8)

		// Another source may be behind the name after a while.
		r.Lost()
		set(9)
		set(10)
		r.Connected("another")
		r.tookValues(t, "on a new connection", 0, 10)
		r.Accepts("hub", wire.Accepts{Deltas: true})
		set(11)
		r.tookValues(t, "and when the source was heard", 1, 11)
		r.Accepts("hub", wire.Accepts{})
		set(12)
		r.tookValues(t, "a source that takes none", 0, 12)
	})
}

// A delta is one from what the broker has acknowledged, not from what was set.
func TestDeltaIsFromWhatWasAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan error)
		r := start(t, &broker{answer: func(int, *wire.Status) error { return <-release }})
		r.Accepts("hub", wire.Accepts{Deltas: true})
		set := func(n int64) { r.Set(key("a"), feedback(n)); synctest.Wait() }
		answer := func(err error) { release <- err; synctest.Wait() }
		set(1)
		answer(nil)
		set(2)
		set(3) // while 2 is on its way
		set(4)
		answer(nil)
		answer(nil)
		r.tookValues(t, "newer ones while one is on its way", 2, 1, 2, 4)
		set(5)
		answer(transport.ErrNotAuthorized)
		set(6) // while 5 is in backoff
		pass(time.Hour)
		answer(nil)
		r.tookValues(t, "after one that was refused", 1, 6)
	})
}

// A source that could not use a delta cannot use the next one either, which was on its way when it asked.
func TestDeltaIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan error)
		r := start(t, &broker{answer: func(int, *wire.Status) error { return <-release }})
		r.Accepts("hub", wire.Accepts{Deltas: true})
		set := func(n int64) { r.Set(key("a"), feedback(n)); synctest.Wait() }
		for n := range int64(2) {
			set(n + 1)
			release <- nil
			synctest.Wait()
		}
		set(3)
		r.Resync(&wire.StatusResync{Source: "hub", Hashes: []wire.StatusVersion{{UID: "a", Hash: wire.NoStatus}}})
		close(release)
		r.tookValues(t, "two deltas and the answer", 2, 1, 2, 3, 3)
		set(4)
		r.tookValues(t, "after deltas that were not used", 0, 4)
	})
}

// What is small, final, about a deletion, or changes most of a status is sent whole.
func TestNoDelta(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &broker{})
		r.Accepts("hub", wire.Accepts{Deltas: true})
		r.Set(key("small"), status(1, "up"))
		synctest.Wait()
		r.Set(key("small"), status(1, "down"))
		r.took(t, "small@1 up; small@1 down")

		r.Set(key("a"), feedback(1))
		synctest.Wait()
		r.broker.took()
		other := feedback(2)
		for i := range other.Status.ResourceStatus.Manifests {
			for j := range other.Status.ResourceStatus.Manifests[i].Conditions {
				other.Status.ResourceStatus.Manifests[i].Conditions[j].Message = strings.Repeat("other", 100)
			}
		}
		r.Set(key("a"), other)
		r.tookValues(t, "other conditions of all manifests", 0, 2)
		now := metav1.Now()
		deleting := feedback(3)
		deleting.Meta = &metav1.ObjectMeta{Name: "lamp", DeletionTimestamp: &now}
		r.Set(key("a"), deleting)
		r.tookValues(t, "a work that is being deleted", 0, 3)
		held := feedback(33)
		held.Status.Conditions = append(held.Status.Conditions, metav1.Condition{Type: workv1.WorkDeletionHeld, Status: metav1.ConditionTrue})
		r.Set(key("a"), held)
		r.tookValues(t, "a work whose deletion is held", 0, 33)
		final := feedback(4)
		final.Final = true
		final.Status.Conditions = append(final.Status.Conditions, metav1.Condition{Type: workv1.WorkDeleted, Status: metav1.ConditionTrue})
		r.Set(key("a"), final)
		r.tookValues(t, "a work that is deleted", 0, 4)
	})
}

// What is sent is compressed for sources that read that.
func TestCompressedStatuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &broker{})
		r.Set(key("a"), feedback(1))
		r.tookValues(t, "a source that has not said so", 0, 1)
		if r.broker.zstd != 0 {
			t.Error("it is compressed")
		}
		plain := r.Stats().Bytes
		r.Accepts("hub", wire.Accepted)
		r.Resync(&wire.StatusResync{Source: "hub"})
		r.tookValues(t, "one that has", 0, 1)
		if compressed := r.Stats().Bytes - plain; r.broker.zstd != 1 || compressed*4 > plain {
			t.Errorf("%d are compressed, to %d bytes of %d", r.broker.zstd, compressed, plain)
		}
		r.Set(key("a"), feedback(2))
		r.tookValues(t, "a delta", 1, 2)
	})
}

// Statuses in which only feedback values have changed stay within the budget; others do not wait.
func TestMaxUplink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &broker{}, func(c *outbox.Config) { c.MaxUplink = 16_000 })
		set := func(n int64) { r.Set(key("a"), feedback(n)); synctest.Wait() }
		for n := range int64(100) {
			set(n)
		}
		size := 0
		for _, s := range r.broker.took() {
			e, err := wire.Encode(s, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			size += len(e.Data())
		}
		if size < 16_000 || size > 2*16_000 {
			t.Errorf("%d bytes were sent at once, of a budget of 16000", size)
		}
		if stats := r.Stats(); stats.Waiting != 1 || stats.Pending != 1 || stats.Bytes < uint64(size) {
			t.Errorf("Stats = %+v after %d bytes", stats, size)
		}

		// What else has changed does not wait, and brings the newest value along.
		changed := feedback(101)
		changed.Status.Conditions[0].Message = "changed"
		r.Set(key("a"), changed)
		r.tookValues(t, "a condition", 0, 101)
		changed = feedback(102)
		changed.Status.Conditions[0].Message = "changed"
		r.Set(key("a"), changed)
		r.tookValues(t, "a value", 0)
		r.Set(key("a"), feedback(103))
		r.tookValues(t, "a condition while a value waits", 0, 103)
		set(104)
		set(105)
		r.Resync(&wire.StatusResync{Source: "hub"})
		r.tookValues(t, "the source asks", 0, 105)

		set(106)
		set(107)
		r.tookValues(t, "values", 0)
		pass(10 * time.Minute)
		r.tookValues(t, "the newest value, when there is room", 0, 107)
		if stats := r.Stats(); stats.Waiting != 0 || stats.Pending != 0 {
			t.Errorf("Stats = %+v", stats)
		}

		// For an hour of changes, the budget is kept.
		before := r.Stats().Bytes
		for n := range int64(3600) {
			set(1000 + n)
			pass(time.Second)
		}
		sent := r.Stats().Bytes - before
		if sent > 62*16_000 || sent < 50*16_000 {
			t.Errorf("%d bytes in an hour, of a budget of %d", sent, 60*16_000)
		}
		r.Set(key("a"), feedback(9999))
		r.stop()
		synctest.Wait()
	})
}
