// Package clusters follows the life of a cluster at the hub, with a real hub, broker and agent: how it is forgotten, and what
// others read of it. Its tests have the API to themselves, one after the other: what a hub says of a cluster, another one that
// does not hear from it would contradict.
package clusters

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/pkg/agent"
	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/pkg/ctl/forget"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/world"
)

var hubPlane, spokePlane *controlplane.Plane

func TestMain(m *testing.M) {
	controlplane.Main(m, controlplane.Planes{Hub: &hubPlane, Spoke: &spokePlane})
}

// forgettable is a world with a registered cluster that the hub has made the namespace for.
type forgettable struct {
	*world.World
	name string
}

func newForgettable(t *testing.T) *forgettable {
	t.Helper()
	w := world.New(t, world.Options{Hub: hubPlane, Spokes: []*controlplane.Plane{spokePlane}})
	w.StartBroker(broker.Config{})
	f := &forgettable{w, string(w.Clusters[0])}
	_, err := f.namespaces().CoreV1().Namespaces().Patch(w.Context(), f.name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, clusterv1.NamespaceLabelKey, f.name), metav1.PatchOptions{})
	kit.NoError(w, err)
	accept(w, f.name)
	w.Cleanup(func() {
		_ = w.Client().ClusterV1().ManagedClusters().Delete(context.Background(), f.name, metav1.DeleteOptions{})
	})
	return f
}

func (f *forgettable) namespaces() *kubernetes.Clientset {
	return kubernetes.NewForConfigOrDie(f.Hub.REST())
}

// find reads what the hub's API has of the cluster.
func (f *forgettable) find() *forget.Found {
	f.Helper()
	reader, err := fleet.NewReader(f.Hub.REST())
	kit.NoError(f, err)
	found, err := forget.Find(f.Context(), reader, f.name, "default")
	kit.NoError(f, err)
	return found
}

// forget ends all of it, and checks that nothing is left.
func (f *forgettable) forget() {
	f.Helper()
	left, err := f.find().End(f.Context(), kit.Patience, func(string) {})
	if err != nil || len(left) > 0 {
		f.Fatalf("%v, left: %v", err, left)
	}
	if found := f.find(); !found.NothingLeft() || found.Namespace != nil {
		f.Errorf("left: %+v", found)
	}
}

// cluster waits until the ManagedCluster is as wanted.
func (f *forgettable) cluster(what string, want func(*clusterv1.ManagedCluster) bool) {
	f.Helper()
	kit.True(f, what, func() bool {
		cluster, err := f.Client().ClusterV1().ManagedClusters().Get(f.Context(), f.name, metav1.GetOptions{})
		return err == nil && want(cluster)
	})
}

// keeping has an agent keep its works in dir.
func keeping(dir string) func(*agent.Config) {
	return func(c *agent.Config) { c.StateDir = dir }
}

func available(status metav1.ConditionStatus) func(*clusterv1.ManagedCluster) bool {
	return func(c *clusterv1.ManagedCluster) bool {
		return meta.IsStatusConditionPresentAndEqual(c.Status.Conditions, clusterv1.ManagedClusterConditionAvailable, status)
	}
}

// TestForget: a cluster that was forgotten while it was away comes back, to a hub that registers clusters or not, that has restarted
// meanwhile or not; and one that was connected. It keeps its objects, also once it is registered again, until somebody decides.
func TestForget(t *testing.T) {
	for name, c := range map[string]struct{ registers, restarts, connected bool }{
		"registering": {registers: true}, "by hand": {}, "by hand, restarted": {restarts: true}, "by hand, connected": {connected: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newForgettable(t)
			register := func(h *hub.Config) { h.AutoRegister = c.registers }
			h, dir := w.StartHub(register), t.TempDir()
			a := w.StartAgent(0, keeping(dir))
			w.Create(w.Works(0), w.Work(0, "web", "1", "a"))
			w.Create(w.Works(0), w.Work(0, "db", "1", "b"))
			w.Applied(w.Works(0), "web", "db")
			kept := w.Holds(0, map[string]string{"a": "1", "b": "1"})
			w.cluster("present", available(metav1.ConditionTrue))
			if why := w.find().Refusal(); why != "it is connected" {
				t.Errorf("a cluster that is connected may be forgotten: %q", why)
			}
			if !c.connected {
				a.Stop()
				w.cluster("away", available(metav1.ConditionUnknown))
			}
			found := w.find()
			if text := found.Describe(time.Now()); (found.Refusal() != "") != c.connected || !strings.Contains(text, "  web: ConfigMap "+w.Targets[0]+"/a\n") || !strings.Contains(text, "2 works") {
				t.Errorf("refused for %q:\n%s", found.Refusal(), text)
			}
			w.forget()
			if c.restarts {
				h.Stop()
				h = w.StartHub(register)
			}
			h.AwaitConnected()

			if !c.connected {
				a = w.StartAgent(0, keeping(dir))
			}
			if c.registers {
				w.cluster("registered again, and a stranger", func(c *clusterv1.ManagedCluster) bool { return !c.Spec.HubAcceptsClient && available("True")(c) })
			} else {
				kit.True(t, "the agent holds its works", func() bool { return a.Metric("workwire_agent_works_deletion_held") == 2 })
			}
			accept(w.World, w.name)
			w.cluster("the hub says what is held", func(c *clusterv1.ManagedCluster) bool {
				held := meta.FindStatusCondition(c.Status.Conditions, clusterv1.ManagedClusterConditionWorksHeld)
				return held != nil && held.Status == metav1.ConditionTrue && held.Reason == workv1.ReasonSourceIdentityChanged && strings.Contains(held.Message, "2 works")
			})
			if uids := w.Holds(0, map[string]string{"a": "1", "b": "1"}); !maps.Equal(uids, kept) {
				t.Errorf("the objects are %v, were %v", uids, kept)
			}
			works, err := w.Works(0).List(t.Context(), metav1.ListOptions{})
			if err != nil || len(works.Items) > 0 {
				t.Errorf("%v, %d works are there again", err, len(works.Items))
			}

			w.Create(w.Works(0), w.Work(0, "web", "2", "a")) // takes its objects over
			w.Applied(w.Works(0), "web")
			if uids := w.Holds(0, map[string]string{"a": "2", "b": "1"}); !maps.Equal(uids, kept) {
				t.Errorf("the objects are %v, were %v", uids, kept)
			}
			kit.Eventually(t, "the rest is deleted by decision", func() error {
				_, err := w.Client().ClusterV1().ManagedClusters().Patch(t.Context(), w.name, types.MergePatchType,
					fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"1"}}}`, clusterv1.DeleteHeldWorksAnnotationKey), metav1.PatchOptions{})
				if err != nil {
					return err
				}
				list, err := w.ConfigMaps(0)
				if err == nil && len(list) != 1 {
					err = fmt.Errorf("%d objects", len(list))
				}
				return err
			})
		})
	}
}

// attempt ends what the hub has of the cluster. If it is interrupted, that is after one step. It reports whether nothing is left.
func (f *forgettable) attempt(interrupted bool) bool {
	f.Helper()
	ctx, end := context.WithCancel(f.Context())
	defer end()
	left, err := f.find().End(ctx, kit.Patience, func(what string) {
		f.Log(what)
		if interrupted {
			end()
		}
	})
	return err == nil && len(left) == 0
}

// TestForgetIsResumed: whatever ends the command, the next one goes on; works that were being deleted are ended, too, and what is
// deleted while the cluster is away is not published.
func TestForgetIsResumed(t *testing.T) {
	w := newForgettable(t)
	w.StartHub()
	dir := t.TempDir()
	a := w.StartAgent(0, keeping(dir))
	for _, name := range []string{"a", "b", "c"} {
		w.Create(w.Works(0), w.Work(0, name, "1", name))
	}
	w.Applied(w.Works(0), "a", "b", "c")
	a.Stop()
	w.cluster("away", available(metav1.ConditionUnknown))
	for n, done := 1, false; !done; n++ {
		if done = w.attempt(n < 5); n > 20 {
			t.Fatal("it does not end")
		}
	}
	if found := w.find(); !found.NothingLeft() {
		t.Errorf("left: %+v", found)
	}
	a = w.StartAgent(0, keeping(dir))
	kit.True(t, "the agent holds its works", func() bool { return a.Metric("workwire_agent_works_deletion_held") == 3 })
	w.Holds(0, map[string]string{"a": "1", "b": "1", "c": "1"})
}

// accept makes the ManagedCluster, accepted, or accepts the one that is there.
func accept(w *world.World, name string) {
	w.Helper()
	clusters := w.Client().ClusterV1().ManagedClusters()
	_, err := clusters.Patch(w.Context(), name, types.MergePatchType, []byte(`{"spec":{"hubAcceptsClient":true}}`), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = clusters.Create(w.Context(), &clusterv1.ManagedCluster{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
		}, metav1.CreateOptions{})
	}
	kit.NoError(w, err)
}
