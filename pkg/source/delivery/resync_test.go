package delivery_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// TestSpecResync: an agent that lost its session receives the works that it lacks and those that
// are being deleted, and a deletion of each work that the source does not have.
func TestSpecResync(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		a := b.agent("cluster1", func(c *wirekit.AgentConfig) { c.KeepDeleting = true })
		b.start()
		same := b.store.put(newWork("cluster1", "same")).UID
		changed := b.store.put(newWork("cluster1", "changed")).UID
		dying := b.store.put(newWork("cluster1", "dying")).UID
		b.holds(a, dying, 1)
		b.store.change(dying, doom)
		synctest.Wait()
		a.Receive(&wire.Spec{UID: "stray", Generation: 4, Source: "hub1", Cluster: "cluster1", Meta: metav1.ObjectMeta{Name: "stray"}})
		b.broker.Cut("cluster1")
		b.broker.Forget("cluster1")
		b.store.change(changed, bump)
		fresh := b.store.put(newWork("cluster1", "fresh")).UID
		synctest.Wait()
		b.broker.Restore("cluster1")
		b.holds(a, same, 1)
		b.holds(a, changed, 2)
		b.holds(a, fresh, 1)
		b.published(same, 1)
		for uid, events := range map[types.UID]int{changed: 3, fresh: 2, dying: 3, "stray": 1} {
			specs := b.published(uid, events)
			if got := specs[events-1].Action; got != wire.ResyncResponse {
				t.Errorf("%s was answered by a %s", uid, got)
			}
		}
		stray := b.published("stray", 1)[0]
		if !stray.NoMetadata || !stray.IsDeletion() || stray.Generation != 4 || stray.Cluster != "cluster1" {
			t.Errorf("the stray work was answered by %+v", stray)
		}
		if !a.Holds()["stray"].IsDeletion() {
			t.Error("the agent does not delete the stray work")
		}
		time.Sleep(24 * time.Hour)
		b.published("stray", 1)
		if n := b.metric("workwire_source_resync_answers_total", "answer=gone"); n != 1 {
			t.Errorf("%v works were answered as gone, want 1", n)
		}
	})
}

// TestSpecResyncOfNothing: an empty list requests everything, and the source answers with a
// deletion for each listed work of a cluster that it has no works for.
func TestSpecResyncOfNothing(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		a := b.agent("cluster1", func(c *wirekit.AgentConfig) { c.EmptyResync = true })
		b.start()
		uid := b.store.put(newWork("cluster1", "w")).UID
		b.holds(a, uid, 1)
		a.Resync(t.Context())
		b.published(uid, 2)

		empty := b.agent("cluster2")
		empty.Receive(&wire.Spec{UID: "stray", Generation: 1, Source: "hub1", Cluster: "cluster2"})
		empty.Resync(t.Context())
		b.holds(empty, "stray", 0)
	})
}

// TestSpecResyncOfOthers: requests for another source, or with a forged cluster, are not answered,
// and one cluster cannot have another's work deleted.
func TestSpecResyncOfOthers(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		mallory := b.agent("cluster2")
		a := b.agent("cluster1")
		b.start()
		uid := b.store.put(newWork("cluster1", "w")).UID
		b.holds(a, uid, 1)
		versions := []wire.SpecVersion{{UID: uid, Generation: 1}, {UID: "stray", Generation: 1}}
		for _, r := range []*wire.SpecResync{
			{Agent: "m", Cluster: "cluster2", Source: "hub2", Versions: versions},
			{Agent: "m", Cluster: "cluster1", Source: "hub1", Versions: nil},
		} {
			if err := mallory.Send(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		b.published(uid, 1)
		b.published("stray", 0)
		if err := mallory.Send(t.Context(), &wire.SpecResync{Agent: "m", Cluster: "cluster2", Source: "hub1", Versions: versions}); err != nil {
			t.Fatal(err)
		}
		specs := b.published(uid, 2)
		if specs[1].Cluster != "cluster2" || !specs[1].IsDeletion() {
			t.Errorf("the claim was answered by %+v", specs[1])
		}
		b.holds(a, uid, 1)
		b.store.change(uid, bump) // and the work itself is untouched by it
		b.holds(a, uid, 2)
		for verdict, want := range map[string]float64{"foreign": 1, "wrong_cluster": 1} {
			if n := b.metric("workwire_source_received_total", "message=spec_resync", "verdict="+verdict); n != want {
				t.Errorf("%s: %v, want %v", verdict, n, want)
			}
		}
	})
}

// TestResyncConfirms: a work that an agent lists is confirmed and not published again.
func TestResyncConfirms(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		a := b.agent("cluster1", func(c *wirekit.AgentConfig) { c.Silent = true })
		b.start()
		uid := b.store.put(newWork("cluster1", "w")).UID
		b.holds(a, uid, 1)
		if n := b.metric("workwire_source_works_unconfirmed"); n != 1 {
			t.Fatalf("works_unconfirmed is %v", n)
		}
		a.Resync(t.Context())
		synctest.Wait()
		time.Sleep(time.Hour)
		b.broker.Cut("hub1")
		b.broker.Restore("hub1")
		b.published(uid, 1)
		if n := b.metric("workwire_source_works_unconfirmed"); n != 0 {
			t.Errorf("works_unconfirmed is %v", n)
		}
	})
}

// TestAgentAhead: an agent that holds a higher generation, by its resync request or its status, is
// reported to the store, and its status is dropped. What follows at once waits: another program may be above the source each time.
func TestAgentAhead(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		a := b.agent("cluster1")
		uid := newWork("cluster1", "w").UID
		a.Receive(&wire.Spec{UID: uid, Generation: 9, Source: "hub1", Cluster: "cluster1", Meta: metav1.ObjectMeta{Name: "w"}})
		b.store.put(newWork("cluster1", "w"))
		b.start()
		if reported := b.store.reportedAhead(); len(reported) == 0 || reported[0] != 9 {
			t.Fatalf("reported: %v", reported)
		}
		if len(b.store.updates) != 0 {
			t.Error("a status of a generation to come was taken in")
		}
		a.Resync(t.Context())
		synctest.Wait()
		if len(b.store.reportedAhead()) != 0 {
			t.Error("it was reported again at once")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(b.store.reportedAhead()) == 0 {
			t.Error("the resync request did not report it")
		}
	})
}

// TestStatusResync: lost statuses, and only those, are sent again at the next connect of either
// side.
func TestStatusResync(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		var lose atomic.Bool
		a := b.agent("cluster1", func(c *wirekit.AgentConfig) { c.LoseStatus = func(*wire.Status) bool { return lose.Load() } })
		b.start()
		uid := b.store.put(newWork("cluster1", "w")).UID
		other := b.store.put(newWork("cluster1", "other")).UID
		b.holds(a, other, 1)
		for _, id := range []string{"hub1", "cluster1"} {
			lose.Store(true)
			a.Touch(uid, "lost before the connect of "+id)
			synctest.Wait()
			lose.Store(false)
			taken := len(b.store.updates)
			b.broker.Cut(id)
			b.broker.Restore(id)
			synctest.Wait()
			got, _ := wire.StatusHash(&b.store.get(uid).Status)
			status := a.Status(uid)
			want, _ := wire.StatusHash(&status)
			if got != want {
				t.Errorf("after a connect of %s, the lost status is still missing", id)
			}
			if n := len(b.store.updates) - taken; n != 1 {
				t.Errorf("after a connect of %s, %d statuses came, want 1", id, n)
			}
		}
	})
}

// TestStatusResyncFits: requests are split to fit the broker's limit, and a cluster without works
// gets none.
func TestStatusResyncFits(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		b.broker.SetLimit(8000)
		for i := range 200 {
			b.store.put(newWork("cluster1", fmt.Sprintf("w%d", i)))
		}
		b.agent("cluster2")
		b.start()
		listed := make(map[types.UID]int)
		for _, r := range b.tap.asks() {
			if r.Cluster != "cluster1" || len(r.Hashes) == 0 {
				t.Errorf("a request for %s lists %d works", r.Cluster, len(r.Hashes))
			}
			for _, have := range r.Hashes {
				listed[have.UID]++
			}
		}
		if len(listed) != 200 || len(b.tap.asks()) < 3 {
			t.Errorf("%d works were listed in %d requests", len(listed), len(b.tap.asks()))
		}
		for uid, n := range listed {
			if n != 1 {
				t.Errorf("%s was listed %d times", uid, n)
			}
		}
	})
}

// TestNoScans: a status does not list the other works.
func TestNoScans(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		a := b.agent("cluster1")
		b.start()
		for i := range 50 {
			b.store.put(newWork("cluster1", fmt.Sprintf("w%d", i)))
		}
		synctest.Wait()
		lists := b.store.lists
		for i := range 50 {
			uid := newWork("cluster1", fmt.Sprintf("w%d", i)).UID
			a.Touch(uid, "x")
			b.store.change(uid, func(w *workv1.ManifestWork) { bump(w) })
		}
		synctest.Wait()
		if b.store.lists != lists {
			t.Errorf("%d passes over a cluster's works", b.store.lists-lists)
		}
	})
}

// TestDuplicates: duplicates of all messages change only the counters.
func TestDuplicates(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		b.broker.Duplicate(1)
		a := b.agent("cluster1")
		b.start()
		uid := b.store.put(newWork("cluster1", "w")).UID
		b.store.change(uid, bump)
		b.holds(a, uid, 2)
		for i := range 3 {
			a.Replay(t.Context(), i)
		}
		synctest.Wait()
		seen := make(map[wire.SequenceID]bool)
		for _, s := range b.store.updates {
			if seen[s.Sequence] {
				t.Errorf("status %s was taken in twice", s.Sequence)
			}
			seen[s.Sequence] = true
		}
		if n := b.metric("workwire_source_received_total", "verdict=out_of_order"); n == 0 {
			t.Error("no status was dropped")
		}
		b.store.change(uid, doom)
		synctest.Wait()
		if b.store.get(uid) != nil {
			t.Error("the deleted work is still there")
		}
	})
}

// TestForgedStatus: a cluster cannot write another's status.
func TestForgedStatus(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		a, mallory := b.agent("cluster1"), b.agent("cluster2")
		b.start()
		uid := b.store.put(newWork("cluster1", "w")).UID
		b.holds(a, uid, 1)
		taken := len(b.store.updates)
		sequence := wire.SequenceID(1 << 62)
		for _, cluster := range []wire.ClusterName{"cluster1", "cluster2"} {
			forged := &wire.Status{UID: uid, Generation: 1, Source: "hub1", Cluster: cluster, Agent: "m", Action: wire.Update, Sequence: sequence}
			if err := mallory.Send(t.Context(), forged); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if len(b.store.updates) != taken {
			t.Error("a forged status was taken in")
		}
		a.Touch(uid, "goes on")
		synctest.Wait()
		if len(b.store.updates) != taken+1 {
			t.Error("the forged sequence id shuts the agent out")
		}
		if n := b.metric("workwire_source_received_total", "verdict=wrong_cluster"); n != 2 {
			t.Errorf("wrong_cluster is %v, want 2", n)
		}
	})
}
