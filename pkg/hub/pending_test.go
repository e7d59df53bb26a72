package hub_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// delivered tells of a work whose condition Delivered has this reason at its newest generation.
func delivered(reason string) func(*workv1.ManifestWork) bool {
	return func(work *workv1.ManifestWork) bool {
		if work == nil {
			return false
		}
		c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkDelivered)
		return c != nil && c.Reason == reason && c.ObservedGeneration == work.Generation
	}
}

// impatient is a hub that says at once that a work is pending.
func impatient(c *hub.Config) {
	c.PendingDelay = 10 * time.Millisecond
}

// silentAgent runs an agent that answers nothing until it is told to.
func (w *hubWorld) silentAgent(holds map[types.UID]*wire.Spec) *wirekit.Agent {
	return wirekit.StartAgent(w, wirekit.AgentConfig{
		Cluster: wire.ClusterName(w.namespace), Source: source, Topics: topics, Transport: w.Memory.Client(w.namespace),
		Holds: holds, Silent: true, NoStatusResync: true,
	})
}

// TestDeliveredComesWithTheAnswer: a work that is answered says so, and when it went where, by the
// write that its status costs anyway.
func TestDeliveredComesWithTheAnswer(t *testing.T) {
	w := newWorld(t)
	r := w.startHub()
	r.AwaitConnected()
	w.startAgent(nil).AwaitConnected(t)
	w.create("web")
	work := w.await("web", "delivered", delivered(workv1.ReasonAnswered))
	d := work.Status.Delivery
	if d == nil || d.Generation != 1 || d.AcceptedTime == nil || d.PublishedTime == nil || d.AcceptedTime.After(d.PublishedTime.Time) {
		t.Errorf("delivery %+v", d)
	}
	want := map[string]int{"patch manifestworks": 1, "update manifestworks/status": 1} // the finalizer, the status
	if got := r.requestCounts(w.namespace, "web"); !maps.Equal(got, want) {
		t.Errorf("requests %v, want %v", got, want)
	}
}

// TestPendingSaysWhy follows one work through what can hold it up.
func TestPendingSaysWhy(t *testing.T) {
	w := newWorld(t)
	w.startHub(func(c *hub.Config) {
		impatient(c)
		c.Controllers, c.AutoRegister = []string{hub.ControllerClusters}, true
	}).AwaitConnected()
	w.create("web")
	w.await("web", "of no cluster", delivered(workv1.ReasonClusterNotFound))
	a := w.silentAgent(nil)
	a.AwaitConnected(t)
	w.sendPresence(a, "1", true)
	w.await("web", "of a cluster that is not accepted", delivered(workv1.ReasonClusterNotAccepted))
	w.accept(true)
	w.await("web", "published", delivered(workv1.ReasonPublished))

	w.sendPresence(a, "1", false)
	w.await("web", "away", delivered(workv1.ReasonClusterAway))
	w.Memory.Cut("hub1-hub")
	w.await("web", "without a broker", delivered(workv1.ReasonBrokerUnreachable))
	w.Memory.Restore("hub1-hub")
	w.await("web", "away again", delivered(workv1.ReasonClusterAway))

	a.SetSilent(false)
	w.sendPresence(a, "2", true)
	w.await("web", "answered", delivered(workv1.ReasonAnswered))
	w.sendPresence(a, "2", false)
	w.managed("away", func(c *clusterv1.ManagedCluster) bool {
		return !meta.IsStatusConditionTrue(c.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
	})
	a.Stop()
	changed := w.change("web", "2")
	work := w.await("web", "changed while it is away", delivered(workv1.ReasonClusterAway))
	if c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied); c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != changed.Generation-1 {
		t.Errorf("Applied is %+v, want True of the generation before %d", c, changed.Generation)
	}
}

// TestPendingAwayBehindAnOutage: an agent that goes away while the hub has no connection is missing some time after the hub
// has connected again, and its works say so.
func TestPendingAwayBehindAnOutage(t *testing.T) {
	w := newWorld(t)
	w.startHub(func(c *hub.Config) {
		impatient(c)
		c.Controllers, c.AutoRegister, c.AutoAccept = []string{hub.ControllerClusters}, true, true
		c.KeepAlive, c.HubAbsence = 2*time.Second, time.Millisecond
	}).AwaitConnected()
	a := w.silentAgent(nil)
	a.AwaitConnected(t)
	w.sendPresence(a, "1", true)
	w.create("web")
	w.await("web", "published", delivered(workv1.ReasonPublished))
	w.Memory.Cut("hub1-hub")
	w.managed("of a hub without a connection", func(c *clusterv1.ManagedCluster) bool {
		available := meta.FindStatusCondition(c.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
		return available != nil && available.Reason == clusterv1.ReasonHubDisconnected
	})
	a.Stop()
	w.Memory.Restore("hub1-hub")
	w.await("web", "away", delivered(workv1.ReasonClusterAway))
}

// TestPendingByTheBroker: the reasons that only the broker knows.
func TestPendingByTheBroker(t *testing.T) {
	w := newWorld(t)
	w.startHub(impatient).AwaitConnected()
	w.create("web")
	w.await("web", "without a subscriber", delivered(workv1.ReasonNobodyListens))
	w.Memory.Deny("hub1-hub", "sources/hub1/clusters/"+w.namespace+"/sourceevents")
	w.change("web", "2")
	work := w.await("web", "refused", delivered(workv1.ReasonAccessRefused))
	if c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied); c == nil || c.ObservedGeneration != work.Generation {
		t.Errorf("Applied is %+v", c)
	}
}

// TestPendingDeletionOfATooLargeWork: a work that keeps objects, and whose last spec is too large, is deleted when it fits. A hub that starts
// meanwhile waits, too.
func TestPendingDeletionOfATooLargeWork(t *testing.T) {
	w := newWorld(t)
	w.Memory.SetLimit(16 << 10)
	first := w.startHub(impatient)
	a := w.startAgent(nil)
	size := func(n int) func(*workv1.ManifestWork) {
		return func(work *workv1.ManifestWork) {
			work.Spec.Workload.Manifests = []workv1.Manifest{manifest("web", strings.Repeat("x", n))}
			work.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
		}
	}
	uid := w.create("web").UID
	w.Applied(w.works, "web")
	w.update("web", size(20<<10))
	w.await("web", "too large", delivered(workv1.ReasonTooLarge))
	w.Delete(w.works, "web")
	waits := func(work *workv1.ManifestWork) bool {
		return delivered(workv1.ReasonTooLarge)(work) &&
			strings.Contains(meta.FindStatusCondition(work.Status.Conditions, workv1.WorkDelivered).Message, "before the deletion")
	}
	w.await("web", "waiting with its deletion", waits)
	first.Stop()
	w.startHub(impatient).AwaitConnected()
	w.settle(a)
	w.await("web", "still waiting", waits)
	work := w.update("web", size(1))
	last := a.Await(t, "last spec", generation(uid, wire.Generation(work.Generation-1)))
	if option := last.Bundle.DeleteOption; option == nil || option.PropagationPolicy != workv1.DeletePropagationPolicyTypeOrphan {
		t.Errorf("the last spec has the deleteOption %+v", option)
	}
	w.Gone(w.works, "web")
}

// TestPendingSurvivesARestart: what is written stays, and costs the next hub nothing.
func TestPendingSurvivesARestart(t *testing.T) {
	w := newWorld(t)
	first := w.startHub(impatient)
	first.AwaitConnected()
	w.create("web")
	before := w.await("web", "pending", delivered(workv1.ReasonNobodyListens))
	first.Stop()
	second := w.startHub(impatient)
	second.AwaitConnected()
	w.create("later")
	w.await("later", "pending", delivered(workv1.ReasonNobodyListens))
	if after := w.get("web"); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("the next hub made %v requests: %+v", second.requestCounts(w.namespace, "web"), after.Status)
	}
	a := w.startAgent(nil)
	a.AwaitConnected(t)
	w.await("web", "answered", delivered(workv1.ReasonAnswered))
}

// TestPause: while a work or its cluster is paused, no newer spec is sent, also not to an agent that
// asks; deletions are; and afterwards the newest spec is.
func TestPause(t *testing.T) {
	w := newWorld(t)
	w.startHub(func(c *hub.Config) {
		impatient(c)
		c.Controllers, c.AutoRegister, c.AutoAccept = []string{hub.ControllerClusters}, true, true
	}).AwaitConnected()
	a := w.startAgent(nil)
	a.AwaitConnected(t)
	w.sendPresence(a, "1", true)
	work := w.create("web")
	w.create("other")
	w.Applied(w.works, "web")
	w.Applied(w.works, "other")

	w.update("web", func(work *workv1.ManifestWork) {
		work.Annotations = map[string]string{workv1.PausedAnnotationKey: workv1.PausedValue}
		work.Spec.Workload.Manifests = []workv1.Manifest{manifest("web", "2")}
	})
	w.await("web", "paused", delivered(workv1.ReasonPaused))
	a.Stop()
	a = w.startAgent(a.Holds()) // it asks for what it lacks
	a.AwaitConnected(t)
	w.settle(a)
	w.change("web", "3")
	w.settle(a)
	if specs := a.Specs(work.UID); len(specs) > 0 {
		t.Errorf("a paused work was sent: %+v", specs)
	}
	resumed := w.update("web", func(work *workv1.ManifestWork) { work.Annotations = nil })
	w.Applied(w.works, "web")
	if specs := a.Specs(work.UID); len(specs) != 1 || int64(specs[0].Generation) != resumed.Generation {
		t.Errorf("after the pause %d specs were sent: %+v", len(specs), specs)
	}

	pause := func(patch string) {
		if _, err := w.Client().ClusterV1().ManagedClusters().Patch(t.Context(), w.namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	pause(`{"metadata":{"annotations":{"workwire.dev/paused":"true"}}}`)
	w.create("new")
	w.await("new", "paused with its cluster", delivered(workv1.ReasonPaused))
	w.change("web", "4")
	w.await("web", "paused with its cluster", delivered(workv1.ReasonPaused))
	w.Delete(w.works, "other")
	w.Gone(w.works, "other")
	pause(`{"metadata":{"annotations":{"workwire.dev/paused":null}}}`)
	w.Applied(w.works, "web")
	w.Applied(w.works, "new")
}
