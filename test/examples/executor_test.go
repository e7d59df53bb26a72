package examples

import (
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/pkg/agent"
)

// allow lets a ServiceAccount of the test's namespace do all that applying and deleting ConfigMaps
// there needs.
func (w *site) allow(account string) {
	w.Helper()
	client := kubernetes.NewForConfigOrDie(spokePlane.REST()).RbacV1()
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "update", "patch", "get", "delete"},
		}},
	}
	if _, err := client.Roles(w.target).Create(w.Context(), role, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.target, Name: account}},
	}
	if _, err := client.RoleBindings(w.target).Create(w.Context(), binding, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// inBothModes runs a test by SubjectAccessReviews, and with the feature gate
// ExecutorValidatingCaches.
func inBothModes(t *testing.T, test func(w *site)) {
	t.Parallel()
	for name, caches := range map[string]bool{"reviews": false, "caches": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(c *agent.Config) { c.ExecutorCaches = caches })
			w.serviceAccount("executor1")
			test(w)
		})
	}
}

func TestExecutorWithRights(t *testing.T) {
	inBothModes(t, func(w *site) {
		w.allow("executor1")
		name := w.apply("executor/executor.yaml")
		w.until(name, "is applied", applied, available)
		w.has(configMapsResource, "test", "b", "data", "a")
		w.deleted(name)
		w.gone(w.spoke, configMapsResource, w.target, "test")
	})
}

func TestExecutorWithoutRights(t *testing.T) {
	inBothModes(t, func(w *site) {
		name := w.apply("executor/executor.yaml")
		w.until(name, "is denied", notApplied, manifestIs(0, "Applied", "False", "AppliedManifestFailed", text(
			"Failed to apply manifest: not allowed to apply the resource  configmaps, %s test, will try again in 1m0s", w.target)))
		if w.get(configMapsResource, "test") != nil {
			w.Error("the ConfigMap was applied")
		}

		w.allow("executor1") // counts at once, not after the minute
		start := time.Now()
		w.until(name, "is applied", applied, available)
		if took := time.Since(start); took > 50*time.Second { // less than the minute
			w.Errorf("the right counted after %v", took)
		}
		w.has(configMapsResource, "test", "b", "data", "a")
	})
}

// TestWithoutExecutor: the agent's own rights are what counts, and an executor that is named later
// is checked from then on.
func TestWithoutExecutor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serviceAccount("executor1")
	var executor any
	name := w.apply("executor/executor.yaml", func(spec map[string]any) {
		executor = spec["executor"]
		delete(spec, "executor")
	})
	w.until(name, "is applied", applied, available)
	w.edit(name, func(spec map[string]any) { spec["executor"] = executor })
	w.until(name, "is denied", manifestFails(0, "not allowed to apply the resource  configmaps"))
	w.has(configMapsResource, "test", "b", "data", "a")
}
