package faults

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

// TestEmptyHub starts the hub on an empty API under the same source id, as with a wrong kubeconfig: the agent keeps all works
// and objects, and says so. Back on the right API, everything goes on. Then the hub is at the empty one again, where somebody
// has made one new work. The ManagedCluster names the works that the agent keeps; a wrong number deletes nothing, the right
// one deletes exactly them, and everything else stays.
func TestEmptyHub(t *testing.T) {
	w := newWorld(t, 1, func(w *world) {})
	for i := range 4 {
		w.put(fmt.Sprint("old-", i), "old", "a", "b")
	}
	w.converge()
	empty := w.emptyAPI()
	// moveTo moves the hub to another API; the agent asks for its works when it connects.
	moveTo := func(api *controlplane.Plane, agentArgs ...string) {
		t.Helper()
		kit.NoError(t, w.hub.Stop())
		w.Hub = api
		w.startHub()
		w.stopAgent()
		w.agentArgs = agentArgs
		w.startAgent()
	}
	moveTo(empty)
	w.holds(4)
	w.converge() // nothing has changed
	moveTo(hubPlane)
	w.holds(0)
	w.converge()

	client := workclient.NewForConfigOrDie(empty.REST())
	clusters := client.ClusterV1().ManagedClusters()
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: w.cluster}}
	cluster.Spec.HubAcceptsClient = true
	_, err := clusters.Create(t.Context(), cluster, create)
	kit.NoError(t, err)
	moveTo(empty, "--state-dir="+t.TempDir())
	old := w.works
	w.works = client.WorkV1().ManifestWorks(w.cluster)
	w.put("new", "new", "a")

	await := func(what string, want func(*clusterv1.ManagedCluster, *metav1.Condition) bool) {
		t.Helper()
		kit.Within(t, limit, what, func() error {
			c, err := clusters.Get(t.Context(), w.cluster, metav1.GetOptions{})
			if err == nil && !want(c, meta.FindStatusCondition(c.Status.Conditions, clusterv1.ManagedClusterConditionWorksHeld)) {
				err = fmt.Errorf("it is %v %+v", c.Annotations, c.Status.Conditions)
			}
			return err
		})
	}
	annotate := func(n int) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, clusterv1.DeleteHeldWorksAnnotationKey, n)
		_, err := clusters.Patch(t.Context(), w.cluster, types.MergePatchType, patch, metav1.PatchOptions{})
		kit.NoError(t, err)
	}
	pending := func(c *clusterv1.ManagedCluster) bool {
		_, asked := c.Annotations[clusterv1.DeleteHeldWorksAnnotationKey]
		_, deleting := c.Annotations[clusterv1.DeletingHeldWorksAnnotationKey]
		return asked || deleting
	}
	four := func(_ *clusterv1.ManagedCluster, c *metav1.Condition) bool {
		return c != nil && c.Status == metav1.ConditionTrue && strings.Contains(c.Message, "4 works") && strings.Contains(c.Message, "old-0, old-1, old-2, old-3")
	}
	await("the ManagedCluster names the works", four)
	c, err := clusters.Get(t.Context(), w.cluster, metav1.GetOptions{})
	kit.NoError(t, err)
	t.Log(meta.FindStatusCondition(c.Status.Conditions, clusterv1.ManagedClusterConditionWorksHeld).Message)
	w.holds(4)
	annotate(3)
	await("the wrong number is removed", func(c *clusterv1.ManagedCluster, held *metav1.Condition) bool { return four(c, held) && !pending(c) })
	w.holds(4)
	w.unchanged()

	// The right number, while the agent is away and across a restart of the hub.
	w.stopAgent()
	annotate(4)
	await("the deletions are recorded", func(c *clusterv1.ManagedCluster, _ *metav1.Condition) bool {
		return c.Annotations[clusterv1.DeletingHeldWorksAnnotationKey] != ""
	})
	kit.NoError(t, w.hub.Kill())
	w.startHub()
	w.startAgent()
	await("nothing is held", func(c *clusterv1.ManagedCluster, held *metav1.Condition) bool {
		return !pending(c) && held != nil && held.Status == metav1.ConditionFalse
	})
	for i := range 4 {
		w.forget(fmt.Sprint("old-", i))
	}
	w.converge() // only the new one is left
	asked, err := w.metric(w.agent, "workwire_agent_spec_resyncs_total")
	kit.NoError(t, err)
	if asked > 20 {
		t.Errorf("the agent has asked for specs %d times", asked)
	}
	w.remove("new")
	w.converge()

	moveTo(hubPlane, w.agentArgs...)
	w.works = old
	list, err := w.works.List(t.Context(), metav1.ListOptions{})
	kit.NoError(t, err)
	for i := range list.Items { // as they are at the hub that still has them
		w.want[list.Items[i].Name] = content{value: "old", objects: []string{list.Items[i].Name + "-a", list.Items[i].Name + "-b"}}
	}
	w.end()
}

// unchanged fails the test unless all objects have the UIDs that they had.
func (w *world) unchanged() {
	w.Helper()
	for key, uid := range w.uids {
		if name, ok := strings.CutPrefix(key, "object/"); ok {
			object, err := w.configMaps.Get(w.Context(), name, metav1.GetOptions{})
			kit.NoError(w, err)
			if object.UID != uid {
				w.Errorf("%s has the UID %s, had %s", name, object.UID, uid)
			}
		}
	}
}

// holds waits until the agent's metric counts so many works that it keeps although their source
// does not know them.
func (w *world) holds(n int) {
	w.Helper()
	kit.Within(w, limit, fmt.Sprintf("the agent holds %d works", n), func() error {
		held, err := w.metric(w.agent, "workwire_agent_works_deletion_held")
		if err == nil && held != n {
			err = fmt.Errorf("it holds %d", held)
		}
		return err
	})
}

// emptyAPI starts a hub API that has nothing but the CRDs and the namespace of the cluster.
func (w *world) emptyAPI() *controlplane.Plane {
	w.Helper()
	api := controlplane.StartFor(w, controlplane.Hub)
	kit.NoError(w, install.CRDs(w.Context(), api.REST(), crds.Hub()...))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.cluster}}
	_, err := kubernetes.NewForConfigOrDie(api.REST()).CoreV1().Namespaces().Create(w.Context(), namespace, create)
	kit.NoError(w, err)
	return api
}
