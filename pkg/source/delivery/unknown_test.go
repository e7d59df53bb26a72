package delivery_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
)

// TestUnknownWorksAreReported: works that the source neither has nor has deleted, and their
// statuses, are reported. Those that the agent lists without a generation, as it does with works
// whose deletion is held, are asked for their status; the request says that it is a reply.
func TestUnknownWorksAreReported(t *testing.T) {
	type listed struct {
		uids []types.UID
		all  bool
	}
	var mu sync.Mutex
	var lists []listed
	var statuses []types.UID
	config := remembering()
	config.Observe = func(event delivery.Event) {
		mu.Lock()
		defer mu.Unlock()
		switch event := event.(type) {
		case delivery.UnknownWorks:
			l := listed{all: event.All}
			for _, work := range event.Listed {
				l.uids = append(l.uids, work.UID)
			}
			slices.Sort(l.uids)
			lists = append(lists, l)
		case delivery.UnknownStatus:
			statuses = append(statuses, event.UID)
		}
	}
	withHarness(t, config, func(b *harness) {
		a := b.agent("cluster1")
		b.start()
		known := b.store.put(newWork("cluster1", "known"))
		gone := b.store.put(newWork("cluster1", "gone"))
		b.holds(a, known.UID, 1)
		a.IgnoreDeletions(true)
		b.store.remove(gone)
		synctest.Wait()
		lists = nil
		versions := []wire.SpecVersion{{UID: known.UID, Generation: 1}, {UID: gone.UID, Generation: 1}, {UID: "held"}, {UID: "stray", Generation: 4}, {UID: "probe", Probe: true}}
		for _, r := range []*wire.SpecResync{
			{Agent: "a", Cluster: "cluster1", Source: "hub1", Versions: versions},
			{Agent: "a", Cluster: "cluster1", Versions: versions[2:3]},
			{Agent: "a", Cluster: "cluster1", Source: "hub1"},
		} {
			if err := a.Send(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if n := b.metric("workwire_source_resync_answers_total", "answer=gone"); n != 4 { // gone, held twice and stray
			t.Errorf("%v works are counted as gone, want 4", n)
		}
		want := []listed{{[]types.UID{"held", "stray"}, true}, {[]types.UID{"held"}, false}, {nil, false}}
		if diff := cmp.Diff(want, lists, cmp.AllowUnexported(listed{})); diff != "" {
			t.Errorf("the lists (-want +got):\n%s", diff)
		}
		asks := b.tap.asks()
		if got := asks[len(asks)-3]; !got.Reply || len(got.Hashes) != 2 || got.Hashes[0] != (wire.StatusVersion{UID: "held", Hash: wire.NoStatus}) {
			t.Errorf("the source asks for %+v", got)
		}
		if asks[0].Reply && len(asks) > 3 {
			t.Errorf("a request of the source itself is a reply: %+v", asks[0])
		}
		a.Report(&wire.Spec{UID: "held", Cluster: "cluster1", Source: "hub1", Meta: metav1.ObjectMeta{Name: "held"}},
			workv1.ManifestWorkStatus{Conditions: []metav1.Condition{{Type: workv1.WorkDeletionHeld, Status: metav1.ConditionTrue, Reason: "R"}}})
		synctest.Wait()
		if !slices.Contains(statuses, "held") || slices.Contains(statuses, known.UID) {
			t.Errorf("statuses of %v are reported", statuses)
		}
	})
}
