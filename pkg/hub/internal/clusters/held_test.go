package clusters_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// lists has the agent of a cluster list its works, of which the hub knows none.
func (f *fleet) lists(cluster string, names ...string) {
	var versions []wire.SpecVersion
	for _, name := range names {
		versions = append(versions, wire.SpecVersion{UID: types.UID("uid-" + name)})
	}
	f.Observe(delivery.UnknownWorks{Cluster: wire.ClusterName(cluster), Listed: versions, All: true})
}

// reports has the agent of a cluster report a condition of works that the hub does not know.
func (f *fleet) reports(cluster, condition string, names ...string) {
	for _, name := range names {
		s := &wire.Status{UID: types.UID("uid-" + name), Cluster: wire.ClusterName(cluster), Meta: metav1.ObjectMeta{Name: name}, Generation: 3}
		s.Status.Conditions = []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, Reason: workv1.ReasonSourceIdentityChanged}}
		f.Observe(delivery.UnknownStatus{Status: s})
	}
}

// worksHeld is a cluster with this reason of WorksHeld, and without a pending release.
func worksHeld(status metav1.ConditionStatus, reason string) func(*clusterv1.ManagedCluster) bool {
	return func(c *clusterv1.ManagedCluster) bool {
		_, asked := c.Annotations[clusterv1.DeleteHeldWorksAnnotationKey]
		return is(clusterv1.ManagedClusterConditionWorksHeld, status, reason)(c) && !asked
	}
}

// TestHeldWorks: works that the hub does not know show in the ManagedCluster, the metric and one
// event; an annotation with their number releases them, also across a restart and while the agent is away;
// another number releases nothing.
func TestHeldWorks(t *testing.T) {
	w := newWorld(t)
	f := w.start()
	const cluster = "c1"
	f.says(cluster, "s", true)
	w.await(cluster, "available", available)
	w.update(cluster, func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = true })
	w.await(cluster, "accepted", isAccepted)
	f.awaitEvents("Normal Registered", "Normal Available", "Normal Accepted")
	annotate := func(value string) {
		t.Helper()
		w.update(cluster, func(c *clusterv1.ManagedCluster) {
			c.Annotations[clusterv1.DeleteHeldWorksAnnotationKey] = value
		})
	}
	deleted := func() (uids []string) {
		f.note(func() { uids = slices.Sorted(slices.Values(f.deleted)) })
		return uids
	}

	f.settle()
	before := f.requested(cluster)["patch managedclusters/status"]
	f.lists(cluster, "a", "b", "c")
	f.reports(cluster, workv1.WorkDeletionHeld, "b", "a", "c")
	f.reports("other", workv1.WorkDeletionHeld, "x")
	c := w.await(cluster, "works are held", worksHeld(metav1.ConditionTrue, workv1.ReasonSourceIdentityChanged))
	message := meta.FindStatusCondition(c.Status.Conditions, clusterv1.ManagedClusterConditionWorksHeld).Message
	if !strings.Contains(message, "3 works") || !strings.Contains(message, "a, b, c") || !strings.Contains(message, clusterv1.DeleteHeldWorksAnnotationKey+"=3") {
		t.Errorf("the message is %q", message)
	}
	f.awaitEvents("Warning WorksHeld")
	f.settle()
	if n := f.requested(cluster)["patch managedclusters/status"] - before; n != 1 {
		t.Errorf("%d status writes for three works, want 1", n)
	}
	if n := kit.Metric(t, f.registry, "workwire_hub_works_deletion_held", "cluster="+cluster); n != 3 {
		t.Errorf("the metric counts %v", n)
	}

	annotate("2")
	w.await(cluster, "the wrong number is removed", worksHeld(metav1.ConditionTrue, workv1.ReasonSourceIdentityChanged))
	f.awaitEvents("Warning HeldWorksNotDeleted")
	if got := deleted(); len(got) > 0 {
		t.Errorf("a wrong number releases %v", got)
	}

	// The hub restarts, and the agent, which knows of one more work that must stay, is away.
	f.stop()
	f = w.start()
	annotate("3")
	f.settle()
	if got := deleted(); len(got) > 0 {
		t.Errorf("without having heard from the agent %v are released", got)
	}
	f.says(cluster, "s", true)
	f.lists(cluster, "a", "b", "c")
	f.reports(cluster, workv1.WorkDeletionHeld, "a", "b", "c")
	want := []string{cluster + "/a/uid-a", cluster + "/b/uid-b", cluster + "/c/uid-c"}
	kit.True(t, "the deletions are delivered", func() bool { return slices.Equal(deleted(), want) })
	f.awaitEvents("Normal DeletingHeldWorks")
	c = w.await(cluster, "they are being deleted", worksHeld(metav1.ConditionTrue, clusterv1.ReasonHeldWorksDeleting))
	if got := c.Annotations[clusterv1.DeletingHeldWorksAnnotationKey]; got != "a/uid-a,b/uid-b,c/uid-c" {
		t.Errorf("the works are recorded as %q", got)
	}
	f.reports(cluster, workv1.WorkDeleted, "a")
	w.await(cluster, "one is deleted", func(c *clusterv1.ManagedCluster) bool {
		return c.Annotations[clusterv1.DeletingHeldWorksAnnotationKey] == "b/uid-b,c/uid-c"
	})

	// It restarts again in the middle, and more works are held by then.
	f.stop()
	f = w.start()
	kit.True(t, "the rest is delivered again", func() bool { return slices.Equal(deleted(), want[1:]) })
	f.says(cluster, "s", true)
	f.lists(cluster, "d")
	f.reports(cluster, workv1.WorkDeletionHeld, "d")
	f.reports(cluster, workv1.WorkDeleted, "b", "c")
	w.await(cluster, "the new one is held", func(c *clusterv1.ManagedCluster) bool {
		return worksHeld(metav1.ConditionTrue, workv1.ReasonSourceIdentityChanged)(c) && c.Annotations[clusterv1.DeletingHeldWorksAnnotationKey] == ""
	})
	if got := deleted(); !slices.Equal(got, want[1:]) {
		t.Errorf("%v are released", got)
	}

	// The cluster is restored from a backup of before the deletions.
	f.lists(cluster, "b", "c", "d")
	f.reports(cluster, workv1.WorkDeletionHeld, "b", "c", "d")
	w.await(cluster, "those that were deleted are held again", func(c *clusterv1.ManagedCluster) bool {
		return worksHeld(metav1.ConditionTrue, workv1.ReasonSourceIdentityChanged)(c) &&
			strings.Contains(meta.FindStatusCondition(c.Status.Conditions, clusterv1.ManagedClusterConditionWorksHeld).Message, "b, c, d")
	})
	annotate("3")
	again := slices.Sorted(slices.Values(append([]string{cluster + "/d/uid-d"}, append(want[1:], want[1:]...)...)))
	kit.True(t, "their deletions are delivered again", func() bool { return slices.Equal(deleted(), again) })
	f.awaitEvents("Normal DeletingHeldWorks")
	f.reports(cluster, workv1.WorkDeleted, "b", "c", "d")
	w.await(cluster, "they are deleted again", worksHeld(metav1.ConditionFalse, clusterv1.ReasonNoWorksHeld))
	f.awaitEvents("Normal NoWorksHeld")

	f.lists(cluster, "d")
	f.reports(cluster, workv1.WorkDeletionHeld, "d")
	w.await(cluster, "one is held", worksHeld(metav1.ConditionTrue, workv1.ReasonSourceIdentityChanged))
	f.awaitEvents("Warning WorksHeld")
	f.reports(cluster, workv1.WorkApplied, "d") // the hub's API is back: the agent knows so first
	w.await(cluster, "none is held", worksHeld(metav1.ConditionFalse, clusterv1.ReasonNoWorksHeld))
	f.awaitEvents("Normal NoWorksHeld")
}

// TestHeldWithoutReason: an agent that gives no reason, or none that the API server takes, holds up nothing else that the
// ManagedCluster says.
func TestHeldWithoutReason(t *testing.T) {
	w := newWorld(t)
	f := w.start()
	for cluster, reason := range map[string]string{"c1": "", "c2": "no reason"} {
		f.says(cluster, "s", true)
		w.await(cluster, "available", available)
		w.accept(cluster, true)
		w.await(cluster, "accepted", isAccepted)
		s := &wire.Status{UID: "uid-a", Cluster: wire.ClusterName(cluster), Meta: metav1.ObjectMeta{Name: "a"}, Generation: 3}
		s.Status.Conditions = []metav1.Condition{{Type: workv1.WorkDeletionHeld, Status: metav1.ConditionTrue, Reason: reason}}
		f.Observe(delivery.UnknownStatus{Status: s})
		w.await(cluster, "works are held", worksHeld(metav1.ConditionTrue, workv1.ReasonSourceKnowsTooFew))
		f.says(cluster, "s", false)
		w.await(cluster, "away", func(c *clusterv1.ManagedCluster) bool { return !available(c) })
	}
}

// TestDivergence: the ManagedCluster, the metric and an event say since when works differ, with one
// write each when it begins and ends.
func TestDivergence(t *testing.T) {
	w := newWorld(t)
	f := w.start()
	f.says("c1", "s", true)
	w.await("c1", "available", available)
	f.awaitEvents("Normal Registered", "Normal Available")
	f.Observe(delivery.DivergenceChanged{Cluster: "c1", Since: time.Time{}})
	f.settle()
	before := f.requested("c1")["patch managedclusters/status"]
	since := time.Now().Add(-2 * time.Minute)
	for range 3 {
		f.Observe(delivery.DivergenceChanged{Cluster: "c1", Since: since})
	}
	inSync := func(status metav1.ConditionStatus, reason string) func(*clusterv1.ManagedCluster) bool {
		return is(clusterv1.ManagedClusterConditionWorksInSync, status, reason)
	}
	c := w.await("c1", "diverged", inSync(metav1.ConditionFalse, clusterv1.ReasonDiverged))
	if m := meta.FindStatusCondition(c.Status.Conditions, clusterv1.ManagedClusterConditionWorksInSync).Message; !strings.Contains(m, since.UTC().Format(time.RFC3339)) {
		t.Errorf("the message is %q", m)
	}
	f.awaitEvents("Warning WorksDiverged")
	if seconds := kit.Metric(t, f.registry, "workwire_hub_cluster_diverged_seconds", "cluster=c1"); seconds < 120 {
		t.Errorf("diverged for %v s", seconds)
	}
	f.Observe(delivery.DivergenceChanged{Cluster: "c1", Since: time.Time{}})
	w.await("c1", "in sync", inSync(metav1.ConditionTrue, clusterv1.ReasonInSync))
	f.awaitEvents("Normal WorksInSync")
	f.settle()
	if n := f.requested("c1")["patch managedclusters/status"] - before; n != 2 {
		t.Errorf("%d status writes, want 2", n)
	}
	families, err := f.registry.Gather()
	kit.NoError(t, err)
	for _, family := range families {
		if family.GetName() == "workwire_hub_cluster_diverged_seconds" {
			t.Errorf("the metric is %v", family)
		}
	}
}
