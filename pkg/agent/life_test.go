package agent_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/test/kit"
)

func TestLifeOfAWork(t *testing.T) {
	w, works := start(t)

	work := w.Create(works, w.work("web", configMap("a", "1"), configMap("b", "1")))
	w.Is(works, "web", "Applied=True", "Available=True")
	w.data("a", "1")
	amw := w.names("web", "a", "b")
	if !strings.HasSuffix(amw.Name, "-web") || amw.Labels[workv1.OriginalSourceLabelKey] != "hub1" || amw.Status.AppliedResources[0].UID == "" {
		t.Errorf("the AppliedManifestWork is %+v", amw)
	}

	w.change(works, "web", configMap("a", "2"), configMap("c", "2"))
	updated := w.Is(works, "web", "Applied=True", "Available=True")
	if len(updated.Status.ResourceStatus.Manifests) != 2 || updated.Generation == work.Generation {
		t.Errorf("status after the update: %+v", updated.Status)
	}
	w.data("a", "2")
	w.data("b", "")
	w.data("c", "2")

	w.remove(works, "web")
	w.data("a", "")
	w.data("c", "")
	w.noneApplied()
}

func TestRequestsOfAWork(t *testing.T) {
	w, works := start(t)
	// The first work makes the agent look up the kind and watch the type.
	w.deploy(works, "first", configMap("first", "1"))
	w.names("first")
	w.requests.Take(kit.NotWatch)

	w.deploy(works, "web", configMap("a", "1"), configMap("b", "1"), configMap("c", "1"))
	w.names("web")
	if got := w.requests.Take(kit.NotWatch); len(got) != 3+2 {
		t.Errorf("creating a work of 3 objects took %d requests, want 5: %v", len(got), got)
	}
	w.change(works, "web", configMap("a", "1"), configMap("b", "2"), configMap("c", "1"))
	w.Is(works, "web", "Applied=True")
	w.data("b", "2")
	if got := w.requests.Take(kit.NotWatch); len(got) != 1 {
		t.Errorf("changing 1 of 3 objects took %d requests, want 1: %v", len(got), got)
	}
	w.remove(works, "web")
	if got := w.requests.Take(kit.NotWatch); len(got) != 3+2 {
		t.Errorf("deleting a work of 3 objects took %d requests, want 5: %v", len(got), got)
	}
}

func TestFeedbackFollowsTheCluster(t *testing.T) {
	w, works := start(t)
	work := w.work("web", `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NAMESPACE}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web}]}`)
	work.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
		ResourceIdentifier: workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Namespace: w.namespace, Name: "web"},
		FeedbackRules: []workv1.FeedbackRule{{Type: workv1.WellKnownStatusType}, {Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{
			{Name: "isAvailable", Path: `.status.conditions[?(@.type=="Available")].status`},
		}}},
	}}
	w.Create(works, work)
	w.fedBack(works, "web", "ReadyReplicas=2 Replicas=2 AvailableReplicas=2 isAvailable=True")
	w.Change(works, "web", func(work *workv1.ManifestWork) {
		raw := &work.Spec.Workload.Manifests[0].Raw
		*raw = []byte(strings.Replace(string(*raw), `"replicas":2`, `"replicas":3`, 1))
	})
	w.fedBack(works, "web", "ReadyReplicas=3 Replicas=3 AvailableReplicas=3 isAvailable=True")
}

// fedBack waits until the first manifest of the work has the values.
func (w *fixture) fedBack(works workclientv1.ManifestWorkInterface, name, want string) {
	w.Helper()
	kit.Await(w, works, name, "feeds back "+want, func(work *workv1.ManifestWork) bool {
		if work == nil || len(work.Status.ResourceStatus.Manifests) == 0 {
			return false
		}
		var got []string
		for _, v := range work.Status.ResourceStatus.Manifests[0].StatusFeedbacks.Values {
			switch v.Value.Type {
			case workv1.Integer:
				got = append(got, fmt.Sprintf("%s=%d", v.Name, *v.Value.Integer))
			default:
				got = append(got, v.Name+"="+*v.Value.String)
			}
		}
		return strings.Join(got, " ") == want
	})
}

func TestForeignChangesAreUndone(t *testing.T) {
	w, works := start(t)
	w.deploy(works, "web", configMap("a", "1"), configMap("b", "1"))
	w.deleteConfigMap("a")
	w.data("a", "1")
	w.patch("b", `{"data":{"k":"mine","l":"too"}}`)
	w.data("b", "1")
	// Without the label the watch does not select the object.
	w.patch("b", `{"metadata":{"labels":{"workwire.dev/agent":null}},"data":{"k":"mine"}}`)
	w.data("b", "1")
	w.Is(works, "web", "Applied=True", "Available=True")
}

func TestDeletionWaitsForFinalizers(t *testing.T) {
	w, works := start(t)
	twice := strings.Replace(held(configMap("held", "1")), `["`, `["test.workwire.dev/too", "`, 1)
	// Nothing else of the agent is a Secret.
	w.deploy(works, "web", "{apiVersion: v1, kind: Secret, metadata: {name: free, namespace: NAMESPACE}}", twice)
	w.Delete(works, "web")
	kit.Await(w, w.cluster.CoreV1().Secrets(w.namespace), "free", "is gone", func(s *corev1.Secret) bool { return s == nil })
	work := w.Is(works, "web", "Deleting=True", "Available=False")
	if c := meta.FindStatusCondition(work.Status.Conditions, "Available"); c.Message != "1 of 2 resources are not available" {
		t.Errorf("Available says %q", c.Message)
	}
	says := func(finalizers string) *workv1.ManifestWork {
		return w.deleting(works, "web", "ConfigMap "+w.namespace+"/held waits for its finalizers "+finalizers)
	}
	says("test.workwire.dev/too, test.workwire.dev/hold")
	if amw := w.names("web", "held"); amw.DeletionTimestamp == nil {
		t.Error("the AppliedManifestWork is not being deleted")
	}

	w.stop()
	w.patch("held", `{"metadata":{"finalizers":["test.workwire.dev/hold"]}}`)
	w.agent() // without state
	work = says("test.workwire.dev/hold")
	if c := meta.FindStatusCondition(work.Status.Conditions, "Available"); c == nil || c.Message != "1 of 2 resources are not available" {
		t.Errorf("after a restart, Available is %+v", c)
	}
	for _, manifest := range append(work.Status.ResourceStatus.Manifests, workv1.ManifestCondition{Conditions: work.Status.Conditions}) {
		for _, c := range manifest.Conditions {
			if c.Reason == "" {
				t.Errorf("after a restart, %s has no reason", c.Type)
			}
		}
	}
	w.patch("held", `{"metadata":{"finalizers":null}}`)
	w.Gone(works, "web")
	w.data("held", "")
	w.noneApplied()
}

func TestAppliedManifestWorkDeletedByHand(t *testing.T) {
	w, works := start(t)
	w.deploy(works, "web", configMap("a", "1"))
	amw := w.names("web")
	before, err := w.cluster.CoreV1().ConfigMaps(w.namespace).Get(w.Context(), "a", metav1.GetOptions{})
	kit.NoError(t, err)
	kit.NoError(t, w.amws.Delete(w.Context(), amw.Name, metav1.DeleteOptions{}))
	kit.Await(w, w.cluster.CoreV1().ConfigMaps(w.namespace), "a", "is recreated", func(c *corev1.ConfigMap) bool {
		return c != nil && c.UID != before.UID
	})
	w.Is(works, "web", "Applied=True", "Available=True")
}
