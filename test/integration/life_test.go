package integration

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/world"
)

func TestCreateUpdateDelete(t *testing.T) {
	onBothBrokers(t, func(w *world.World) {
		works := w.Works(0)
		w.StartHub()
		w.StartAgent(0)
		w.Create(works, w.Work(0, "web", "1", "a", "b"))
		w.Applied(works, "web")
		w.Holds(0, map[string]string{"a": "1", "b": "1"})
		w.Update(works, w.Work(0, "web", "2", "b", "c"))
		w.Applied(works, "web")
		w.Holds(0, map[string]string{"b": "2", "c": "2"})
		w.Delete(works, "web")
		w.Gone(works, "web")
		w.Holds(0, nil)
		w.NoAppliedManifestWorks(0)
	})
}

// churn makes three works, has while done, and changes, deletes and creates works in it, which away
// is to miss.
func churn(w *world.World, leave func() (back func())) {
	works := w.Works(0)
	for _, name := range []string{"kept", "changed", "deleted"} {
		w.Create(works, w.Work(0, name, "1", name))
	}
	w.Applied(works, "kept", "changed", "deleted")

	back := leave()
	w.Update(works, w.Work(0, "changed", "2", "changed"))
	w.Delete(works, "deleted")
	w.Create(works, w.Work(0, "created", "1", "created"))
	w.Create(works, w.Work(0, "brief", "1", "brief"))
	w.Delete(works, "brief")
	back()

	w.Applied(works, "kept", "changed", "created")
	w.Gone(works, "deleted", "brief")
	w.Holds(0, map[string]string{"kept": "1", "changed": "2", "created": "1"})
	for _, name := range []string{"kept", "changed", "created"} {
		w.Delete(works, name)
	}
	w.Gone(works, "kept", "changed", "created")
	w.Holds(0, nil)
	w.NoAppliedManifestWorks(0)
}

func TestAgentAway(t *testing.T) {
	onBothBrokers(t, func(w *world.World) {
		w.StartHub()
		stop := w.StartAgent(0).Stop
		churn(w, func() func() {
			stop()
			return func() { w.StartAgent(0) }
		})
	})
}

func TestHubAway(t *testing.T) {
	onBothBrokers(t, func(w *world.World) {
		stop := w.StartHub().Stop
		w.StartAgent(0)
		churn(w, func() func() {
			stop()
			return func() { w.StartHub() }
		})
	})
}

func TestBrokerAway(t *testing.T) {
	onBothBrokers(t, func(w *world.World) {
		w.StartHub()
		w.StartAgent(0)
		churn(w, func() func() {
			w.Broker.Stop()
			return func() { w.Broker.Restart(w) }
		})
	})
}

func TestBrokerRestartAmidstWorks(t *testing.T) {
	onBothBrokers(t, func(w *world.World) {
		const n = 40
		works := w.Works(0)
		w.StartHub()
		w.StartAgent(0)
		var names []string
		want := map[string]string{}
		for i := range n {
			name := fmt.Sprintf("web-%d", i)
			names = append(names, name)
			want[name] = "1"
			w.Create(works, w.Work(0, name, "1", name))
			if i == n/2 {
				w.Broker.Restart(w)
			}
		}
		w.Applied(works, names...)
		w.Holds(0, want)
		for i, name := range names {
			w.Delete(works, name)
			if i == n/2 {
				w.Broker.Restart(w)
			}
		}
		w.Gone(works, names...)
		w.Holds(0, nil)
		w.NoAppliedManifestWorks(0)
	})
}

func TestTwoAgents(t *testing.T) {
	onBothBrokers(t, func(w *world.World) {
		w.StartHub()
		for i := range w.Clusters {
			w.StartAgent(i)
			w.Create(w.Works(i), w.Work(i, "web", fmt.Sprint(i), "a"))
		}
		for i := range w.Clusters {
			w.Applied(w.Works(i), "web")
			w.Holds(i, map[string]string{"a": fmt.Sprint(i)})
		}
		w.Delete(w.Works(0), "web")
		w.Gone(w.Works(0), "web")
		w.Holds(0, nil)
		w.Holds(1, map[string]string{"a": "1"})
		w.Applied(w.Works(1), "web")
	})
}

func TestOneAgentOfTwoSources(t *testing.T) {
	onBothBrokers(t, func(w *world.World) {
		w.StartHub()
		fromHub, fromSDK := w.Works(0), w.StartSDK(w.Other).ManifestWorks(string(w.Clusters[0]))
		stop := w.StartAgent(0, world.Serve("+")).Stop
		w.Create(fromHub, w.Work(0, "web", "hub", "a"))
		w.Create(fromSDK, w.Work(0, "web", "sdk", "b"))
		w.Applied(fromHub, "web")
		w.Applied(fromSDK, "web")
		w.Holds(0, map[string]string{"a": "hub", "b": "sdk"})

		stop()
		w.Update(fromSDK, w.Work(0, "web", "sdk again", "b"))
		w.StartAgent(0, world.Serve("+"))
		w.Applied(fromSDK, "web")
		w.Delete(fromHub, "web")
		w.Gone(fromHub, "web")
		w.Holds(0, map[string]string{"b": "sdk again"})
		w.Delete(fromSDK, "web")
		w.Gone(fromSDK, "web")
		w.Holds(0, nil)
		w.NoAppliedManifestWorks(0)
	})
}

// TestAgentServesMoreSources: an agent whose topics named one source, and name all from now on, keeps
// the objects of the works that it has applied, and serves another source.
func TestAgentServesMoreSources(t *testing.T) {
	onBothBrokers(t, func(w *world.World) {
		w.StartHub()
		fromHub, fromSDK := w.Works(0), w.StartSDK(w.Other).ManifestWorks(string(w.Clusters[0]))
		stop := w.StartAgent(0).Stop
		w.Create(fromHub, w.Work(0, "web", "hub", "a"))
		w.Applied(fromHub, "web")
		before, err := w.ConfigMaps(0)
		kit.NoError(w, err)
		stop()
		w.StartAgent(0, world.Serve("+"))
		w.Create(fromSDK, w.Work(0, "web", "sdk", "b"))
		w.Applied(fromSDK, "web")
		w.Update(fromHub, w.Work(0, "web", "hub again", "a"))
		w.Applied(fromHub, "web")
		w.Holds(0, map[string]string{"a": "hub again", "b": "sdk"})
		after, err := w.ConfigMaps(0)
		kit.NoError(w, err)
		for _, c := range after {
			if c.Name == "a" && c.UID != before[0].UID {
				w.Error("the object was replaced")
			}
		}
	})
}

// TestAgentOfARestoredCluster: an agent that starts again in its session on a cluster that has forgotten all works of a source asks
// that source, too.
func TestAgentOfARestoredCluster(t *testing.T) {
	onBothBrokers(t, func(w *world.World) {
		fromSDK := w.StartSDK(w.Other).ManifestWorks(string(w.Clusters[0]))
		stop := w.StartAgent(0, world.Serve("+")).Stop
		w.Create(fromSDK, w.Work(0, "web", "sdk", "a"))
		w.Applied(fromSDK, "web")
		stop()
		forgetWorks(w)
		w.StartAgent(0, world.Serve("+"))
		w.Holds(0, map[string]string{"a": "sdk"})
	})
}

// forgetWorks makes the first cluster as it was before it had works.
func forgetWorks(w *world.World) {
	w.Helper()
	// First: without its AppliedManifestWork, the garbage collector deletes it.
	objects := kubernetes.NewForConfigOrDie(w.Spokes[0].REST()).CoreV1().ConfigMaps(w.Targets[0])
	kit.NoError(w, objects.Delete(w.Context(), "a", metav1.DeleteOptions{}))
	amws := workclient.NewForConfigOrDie(w.Spokes[0].REST()).WorkV1().AppliedManifestWorks()
	list, err := amws.List(w.Context(), metav1.ListOptions{})
	kit.NoError(w, err)
	for _, amw := range list.Items {
		if amw.Spec.AgentID != string(w.Clusters[0]) {
			continue
		}
		_, err := amws.Patch(w.Context(), amw.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		kit.NoError(w, err)
		kit.NoError(w, amws.Delete(w.Context(), amw.Name, metav1.DeleteOptions{}))
	}
}
