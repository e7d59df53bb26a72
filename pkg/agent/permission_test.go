package agent_test

import (
	"context"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
)

// TestForbiddenShowsAndHeals runs the agent as a user without permissions for Secrets, and without
// list and watch for ConfigMaps, until a role grants them.
func TestForbiddenShowsAndHeals(t *testing.T) {
	w := newWorld(t)
	works := w.source("hub1")
	user := w.restrictedAgent("get", "create", "update", "delete")

	w.Create(works, w.work("web", configMap("a", "1"), "{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: NAMESPACE}, stringData: {k: v}}"))
	w.manifestSays(works, "web", 1, `secrets is forbidden: User "`+user+`" cannot create resource "secrets"`)
	w.data("a", "1")

	// Objects that cannot be watched are read, so a foreign change is undone.
	w.deleteConfigMap("a")
	w.data("a", "1")

	w.grant(user, "secrets", []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"},
		Verbs: []string{"get", "list", "watch", "create", "update", "delete"}}})
	w.Is(works, "web", "Applied=True", "Available=True")
	w.remove(works, "web")
	w.data("a", "")
	w.noneApplied()
}

// TestUnwatchedApplyIsNoRepair: server-side apply of what cannot be watched, again and again, is not taken for a fight.
func TestUnwatchedApplyIsNoRepair(t *testing.T) {
	w := newWorld(t)
	works := w.source("hub1")
	w.restrictedAgent("get", "create", "update", "patch", "delete")
	work := w.work("web", configMap("a", "1"))
	work.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
		ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: w.namespace, Name: "a"},
		UpdateStrategy:     &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply},
	}}
	w.Create(works, work)
	w.Is(works, "web", "Applied=True")
	w.requests.Take()
	const enough = 6 // a fight shows with the fourth
	kit.True(t, "the object is applied again and again", func() bool { return len(w.requests.All(kit.On("configmaps"), kit.Request.Writes)) >= enough })
	w.Is(works, "web", "Applied=True")
}

// restrictedAgent starts the agent as a user that may do with ConfigMaps what verbs say, and
// returns the user.
func (w *fixture) restrictedAgent(verbs ...string) (user string) {
	w.Helper()
	user = "agent-of-" + w.namespace
	w.grant(user, "amws", []rbacv1.PolicyRule{
		{APIGroups: []string{"work.open-cluster-management.io"}, Resources: []string{"appliedmanifestworks", "appliedmanifestworks/status"},
			Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: verbs},
	})
	w.agent(func(c *agent.Config) { c.Kube.Impersonate = rest.ImpersonationConfig{UserName: user} })
	return user
}

// grant binds the user to a new ClusterRole until the test ends.
func (w *fixture) grant(user, name string, rules []rbacv1.PolicyRule) {
	w.Helper()
	name = w.namespace + "-" + name
	roles := w.cluster.RbacV1().ClusterRoles()
	if _, err := roles.Create(w.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := roles.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			w.Error(err)
		}
	})
	w.bindCluster(name, name, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
}

// bindCluster binds the subject to a ClusterRole until the test ends.
func (w *fixture) bindCluster(name, role string, subject rbacv1.Subject) {
	w.Helper()
	bindings := w.cluster.RbacV1().ClusterRoleBindings()
	if _, err := bindings.Create(w.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{subject},
	}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := bindings.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			w.Error(err)
		}
	})
}
