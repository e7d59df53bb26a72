package agent_test

import (
	"context"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent"
)

// TestForbiddenShowsAndHeals runs the agent as a user without permissions for Secrets, and without list
// and watch for ConfigMaps, until a role grants them.
func TestForbiddenShowsAndHeals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	works := w.source("hub1")
	user := "agent-of-" + w.namespace
	w.grant(user, "amws", []rbacv1.PolicyRule{
		{APIGroups: []string{"work.open-cluster-management.io"}, Resources: []string{"appliedmanifestworks", "appliedmanifestworks/status"},
			Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "update", "delete"}},
	})
	w.agent(func(c *agent.Config) { c.Kube.Impersonate = rest.ImpersonationConfig{UserName: user} })

	w.create(works, w.work("web", configMap("a", "1"), "{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: NAMESPACE}, stringData: {k: v}}"))
	w.manifestSays(works, "web", 1, `secrets is forbidden: User "`+user+`" cannot create resource "secrets"`)
	w.data("a", "1")

	// Objects that cannot be watched are read, so a foreign change is undone.
	w.deleteConfigMap("a")
	w.data("a", "1")

	w.grant(user, "secrets", []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"},
		Verbs: []string{"get", "list", "watch", "create", "update", "delete"}}})
	w.is(works, "web", "Applied=True", "Available=True")
	w.remove(works, "web")
	w.data("a", "")
	w.noneApplied()
}

// grant binds the user to a new ClusterRole until the test ends.
func (w *world) grant(user, name string, rules []rbacv1.PolicyRule) {
	w.Helper()
	name = w.namespace + "-" + name
	roles, bindings := w.cluster.RbacV1().ClusterRoles(), w.cluster.RbacV1().ClusterRoleBindings()
	if _, err := roles.Create(w.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	_, err := bindings.Create(w.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		for _, err := range []error{
			bindings.Delete(context.Background(), name, metav1.DeleteOptions{}), roles.Delete(context.Background(), name, metav1.DeleteOptions{}),
		} {
			if err != nil {
				w.Error(err)
			}
		}
	})
}
