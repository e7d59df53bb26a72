package examples

import (
	"context"
	"errors"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent"
	"github.com/workwire/workwire/test/kit"
)

// The agent's ServiceAccount in OCM, which the examples name.
const (
	agentNamespace = "open-cluster-management-agent"
	agentUser      = "system:serviceaccount:" + agentNamespace + ":klusterlet-work-sa"
)

var machinesResource = schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta1", Resource: "machines"}

const machineWork = `
apiVersion: work.open-cluster-management.io/v1
kind: ManifestWork
metadata: {name: machine}
spec:
  workload:
    manifests:
      - {apiVersion: cluster.x-k8s.io/v1beta1, kind: Machine, metadata: {name: m, namespace: default}}
`

// TestPermissions runs agents with the rights that the documentation gives them, one after the
// other: the examples' ClusterRoles have one name.
func TestPermissions(t *testing.T) {
	t.Parallel()
	client := kubernetes.NewForConfigOrDie(spokePlane.REST())
	grantAgent(t, client)
	label := func(spec map[string]any) {
		set(spec, map[string]any{"rbac.authorization.k8s.io/aggregate-to-admin": "true"}, "workload", "manifests", 0, "metadata", "labels")
	}
	for _, option := range []struct {
		name, file string
		change     func(map[string]any)
	}{
		{"aggregate-to-work", "permissions/aggregated-cluster-role.yaml", func(map[string]any) {}},
		{"aggregate-to-admin", "permissions/aggregated-cluster-role.yaml", label},
		{"binding", "permissions/cluster-role-binding.yaml", func(map[string]any) {}},
	} {
		t.Run(option.name, func(t *testing.T) {
			w := newWorld(t, func(c *agent.Config) {
				c.Kube.Impersonate = rest.ImpersonationConfig{UserName: agentUser, Groups: []string{
					"system:serviceaccounts", "system:serviceaccounts:" + agentNamespace, "system:authenticated",
				}}
			})
			machine := w.applyText(machineWork)
			w.until(machine, "is forbidden", manifestFails(0, `machines.cluster.x-k8s.io is forbidden: User "`+agentUser+`" cannot `, `resource "machines"`))

			permission := w.apply(option.file, option.change)
			w.until(permission, "is applied", applied, available)
			w.until(machine, "is applied", applied, available)
			w.exists(machinesResource, "m")

			w.deleted(machine)
			w.gone(w.spoke, machinesResource, w.target, "m")
			w.deleted(permission)
			refusedAgain(t, client, w.target)
		})
	}
}

// grantAgent gives the agent's ServiceAccount: admin, and by a role that collects the rules of
// others, CustomResourceDefinitions, RBAC and its own records.
func grantAgent(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	const name, base = "workwire-examples-agent", "workwire-examples-agent-base"
	all := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	aggregated := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{
			MatchLabels: map[string]string{"open-cluster-management.io/aggregate-to-work": "true"},
		}}},
	}
	own := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: base},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"work.open-cluster-management.io"}, Resources: []string{"appliedmanifestworks", "appliedmanifestworks/status"}, Verbs: all},
			{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: all},
			{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"},
				Verbs: append([]string{"bind", "escalate"}, all...)},
		},
	}
	for _, role := range []*rbacv1.ClusterRole{aggregated, own} {
		if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := client.RbacV1().ClusterRoles().Delete(context.Background(), role.Name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	for _, role := range []string{"admin", name, base} {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "workwire-examples-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: agentNamespace, Name: "klusterlet-work-sa"}},
		}
		if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := client.RbacV1().ClusterRoleBindings().Delete(context.Background(), binding.Name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// refusedAgain waits until the agent's ServiceAccount has no rights to machines any more.
func refusedAgain(t *testing.T, client kubernetes.Interface, namespace string) {
	t.Helper()
	kit.Eventually(t, "the rights are gone", func() error {
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: agentUser, Groups: []string{"system:serviceaccounts"}, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: machinesResource.Group, Resource: machinesResource.Resource, Verb: "create", Namespace: namespace,
			}},
		}, metav1.CreateOptions{})
		if err == nil && review.Status.Allowed {
			err = errors.New("it may create machines")
		}
		return err
	})
}
