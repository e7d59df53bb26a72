package world

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/test/kit"
)

// Client returns the clients for the API of the hub.
func (w *World) Client() workclient.Interface { return workclient.NewForConfigOrDie(w.Hub.REST()) }

// Works returns the client for a cluster's works at the hub.
func (w *World) Works(i int) workclientv1.ManifestWorkInterface {
	return w.Client().WorkV1().ManifestWorks(string(w.Clusters[i]))
}

// Work returns a work with a ConfigMap for each name, in the cluster's namespace for objects, with
// value in each.
func (w *World) Work(i int, name, value string, configMaps ...string) *workv1.ManifestWork {
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: string(w.Clusters[i]), Name: name}}
	for _, c := range configMaps {
		work.Spec.Workload.Manifests = append(work.Spec.Workload.Manifests, ConfigMap(w.Targets[i], c, value))
	}
	return work
}

// ConfigMap returns a manifest with value as k.
func ConfigMap(namespace, name, value string) workv1.Manifest {
	return workv1.Manifest{RawExtension: runtime.RawExtension{Raw: fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q},"data":{"k":%q}}`, name, namespace, value)}}
}

// Create creates a work.
func (w *World) Create(works workclientv1.ManifestWorkInterface, work *workv1.ManifestWork) *workv1.ManifestWork {
	w.Helper()
	created, err := works.Create(w.Context(), work, metav1.CreateOptions{})
	kit.NoError(w, err)
	return created
}

// Change changes a work until it meets no other change, and returns it.
func (w *World) Change(works workclientv1.ManifestWorkInterface, name string, change func(*workv1.ManifestWork)) (changed *workv1.ManifestWork) {
	w.Helper()
	kit.Eventually(w, "update "+name, func() error {
		work, err := works.Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(work)
		changed, err = works.Update(w.Context(), work, metav1.UpdateOptions{})
		return err
	})
	return changed
}

// Update gives a work the spec of wanted.
func (w *World) Update(works workclientv1.ManifestWorkInterface, wanted *workv1.ManifestWork) {
	w.Helper()
	w.Change(works, wanted.Name, func(work *workv1.ManifestWork) { work.Spec = wanted.Spec })
}

// Put creates a work or gives it the spec of wanted.
func (w *World) Put(works workclientv1.ManifestWorkInterface, wanted *workv1.ManifestWork) {
	w.Helper()
	if _, err := works.Create(w.Context(), wanted, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		w.Update(works, wanted)
	} else {
		kit.NoError(w, err)
	}
}

// Delete deletes a work.
func (w *World) Delete(works workclientv1.ManifestWorkInterface, name string) {
	w.Helper()
	kit.NoError(w, works.Delete(w.Context(), name, metav1.DeleteOptions{}))
}

// Is waits until a work has the conditions, each given as type=status, at its generation, and returns it.
func (w *World) Is(works workclientv1.ManifestWorkInterface, name string, conditions ...string) *workv1.ManifestWork {
	w.Helper()
	return kit.Await(w, works, name, fmt.Sprintf("is %v", conditions), func(work *workv1.ManifestWork) bool {
		return work != nil && !slices.ContainsFunc(conditions, func(want string) bool {
			kind, status, _ := strings.Cut(want, "=")
			c := meta.FindStatusCondition(work.Status.Conditions, kind)
			return c == nil || string(c.Status) != status || c.ObservedGeneration != work.Generation
		})
	})
}

// Applied waits until the works are applied and available at their generations.
func (w *World) Applied(works workclientv1.ManifestWorkInterface, names ...string) {
	w.Helper()
	for _, name := range names {
		w.Is(works, name, "Applied=True", "Available=True")
	}
}

// Gone waits until the works are gone.
func (w *World) Gone(works workclientv1.ManifestWorkInterface, names ...string) {
	w.Helper()
	for _, name := range names {
		kit.Await(w, works, name, "is gone", func(work *workv1.ManifestWork) bool { return work == nil })
	}
}

// ConfigMaps returns the ConfigMaps in a cluster's namespace for objects.
func (w *World) ConfigMaps(i int) ([]corev1.ConfigMap, error) {
	list, err := kubernetes.NewForConfigOrDie(w.Spokes[i].REST()).CoreV1().ConfigMaps(w.Targets[i]).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(c corev1.ConfigMap) bool { return c.Name == "kube-root-ca.crt" }), nil
}

// Holds waits until a cluster's namespace for objects has exactly these ConfigMaps, and returns their
// UIDs.
func (w *World) Holds(i int, want map[string]string) (uids map[string]string) {
	w.Helper()
	kit.Eventually(w, fmt.Sprintf("cluster %d holds %d ConfigMaps", i, len(want)), func() error {
		list, err := w.ConfigMaps(i)
		if err != nil {
			return err
		}
		got := map[string]string{}
		uids = map[string]string{}
		for _, c := range list {
			got[c.Name], uids[c.Name] = c.Data["k"], string(c.UID)
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("it holds %v, want %v", got, want)
		}
		return nil
	})
	return uids
}

// NoAppliedManifestWorks waits until none of a cluster's agent is left.
func (w *World) NoAppliedManifestWorks(i int) {
	w.Helper()
	w.NoAppliedManifestWorksOf(i, string(w.Clusters[i]))
}

// NoAppliedManifestWorksOf waits until a cluster has none of the agent with this id.
func (w *World) NoAppliedManifestWorksOf(i int, agentID string) {
	w.Helper()
	client := workclient.NewForConfigOrDie(w.Spokes[i].REST())
	kit.Eventually(w, "no AppliedManifestWork is left", func() error {
		list, err := client.WorkV1().AppliedManifestWorks().List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, applied := range list.Items {
			if applied.Spec.AgentID == agentID {
				return fmt.Errorf("%s is", applied.Name)
			}
		}
		return nil
	})
}
