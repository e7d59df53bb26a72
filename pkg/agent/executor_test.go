package agent_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

func (w *fixture) executed(name string, manifests ...string) *workv1.ManifestWork {
	work := w.work(name, manifests...)
	work.Spec.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
		Type:           workv1.ExecutorSubjectTypeServiceAccount,
		ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: w.namespace, Name: "executor1"},
	}}
	return work
}

// bind binds executor1 to a new role in the test's namespace.
func (w *fixture) bind(name string, rules ...rbacv1.PolicyRule) {
	w.Helper()
	if _, err := w.cluster.RbacV1().Roles(w.namespace).Create(w.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules,
	}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	if _, err := w.cluster.RbacV1().RoleBindings(w.namespace).Create(w.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: "executor1"}},
	}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// TestExecutor: a manifest is applied if the executor is permitted to. A change of its permissions
// takes effect at once, not after a minute.
func TestExecutor(t *testing.T) {
	t.Parallel()
	for name, caches := range map[string]bool{"by reviews": false, "from memory": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			works := w.source("hub1")
			if _, err := w.cluster.CoreV1().ServiceAccounts(w.namespace).Create(w.Context(),
				&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "executor1"}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			all := []string{"get", "create", "update", "patch", "delete"}
			w.bind("config", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: all})
			w.agent(func(c *agent.Config) { c.ExecutorCaches = caches })
			w.Create(works, w.executed("web", configMap("a", "1"),
				"{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: NAMESPACE}, stringData: {k: v}}"))
			w.manifestSays(works, "web", 1, "Failed to apply manifest: not allowed to apply the resource  secrets, "+w.namespace+" s, will try again in 1m0s")
			w.data("a", "1")

			w.bind("secrets", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: all})
			w.Is(works, "web", "Applied=True", "Available=True")

			kit.NoError(t, w.cluster.RbacV1().RoleBindings(w.namespace).Delete(w.Context(), "config", metav1.DeleteOptions{}))
			w.manifestSays(works, "web", 0, "Failed to apply manifest: not allowed to apply the resource  configmaps, "+w.namespace+" a, will try again in 1m0s")
			w.data("a", "1")
			// Taking a right away deletes nothing, and deleting asks for none.
			w.remove(works, "web")
			w.data("a", "")
		})
	}
}

// A work with a namespace and a role in it is applied at once.
func TestExecutorOfANamespaceAndItsRole(t *testing.T) {
	w := newWorld(t)
	name := w.namespace + "-new"
	w.bindCluster(name, "cluster-admin", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: "executor1"})
	raw := w.rawSource("hub1")
	spec := raw.spec("web", "uid-1", 1,
		"{apiVersion: v1, kind: Namespace, metadata: {name: NAMESPACE-new}}",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r, namespace: NAMESPACE-new}, rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]}")
	spec.Bundle.Executer = w.executed("web").Spec.Executor
	raw.send(spec, nil)
	raw.answered("all is applied", func(s *wire.Status) bool {
		if !meta.IsStatusConditionTrue(s.Status.Conditions, workv1.WorkApplied) {
			t.Errorf("a status on the way: %+v", s.Status.ResourceStatus.Manifests)
		}
		return true
	})
	raw.delete("uid-1", 2)
	raw.reported("uid-1", 2, workv1.WorkDeleted)
}

// An executor without a service account fails all manifests.
func TestExecutorOfNoAccount(t *testing.T) {
	raw := newWorld(t).rawSource("hub1")
	spec := raw.spec("web", "uid-1", 1, configMap("a", "1"))
	for generation, c := range []struct {
		subject workv1.ManifestWorkExecutorSubject
		want    string
	}{
		{workv1.ManifestWorkExecutorSubject{Type: workv1.ExecutorSubjectTypeServiceAccount}, "the executor service account is nil"},
		{workv1.ManifestWorkExecutorSubject{Type: "User"}, "only support ServiceAccount type for the executor"},
	} {
		spec.Generation, spec.Bundle.Executer = wire.Generation(generation+1), &workv1.ManifestWorkExecutor{Subject: c.subject}
		raw.send(spec, nil)
		raw.answered(c.want, func(s *wire.Status) bool {
			if s.Generation != spec.Generation || len(s.Status.ResourceStatus.Manifests) == 0 {
				return false
			}
			applied := meta.FindStatusCondition(s.Status.ResourceStatus.Manifests[0].Conditions, workv1.ManifestApplied)
			return applied != nil && applied.Status == metav1.ConditionFalse && strings.Contains(applied.Message, c.want)
		})
	}
	raw.data("a", "")
}

// Permissions are not checked again until they change.
func TestExecutorCostsNothingAtRest(t *testing.T) {
	t.Parallel()
	for name, caches := range map[string]bool{"by reviews": false, "from memory": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			works := w.source("hub1")
			w.bind("all", rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}})
			w.agent(func(c *agent.Config) { c.ExecutorCaches = caches })
			w.Create(works, w.executed("web", configMap("a", "1")))
			w.Is(works, "web", "Applied=True")
			w.names("web")
			change := 0
			kit.Eventually(w, "a change costs one request", func() error {
				change++
				value := fmt.Sprint(change)
				w.requests.Take(kit.NotWatch)
				w.change(works, "web", configMap("a", value))
				w.data("a", value)
				if got := w.requests.Take(kit.NotWatch); len(got) != 1 {
					return fmt.Errorf("it took %v", got)
				}
				return nil
			})
		})
	}
}
