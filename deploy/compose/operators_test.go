package compose

import (
	"os"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

// TestOperators: a user of the group that docs/compose.md names may do an operator's work at the hub
// API, and nothing that leads to more rights.
func TestOperators(t *testing.T) {
	plane := controlplane.StartFor(t, controlplane.Hub)
	client := kubernetes.NewForConfigOrDie(plane.REST())
	text, err := os.ReadFile("hub-api/operators.yaml")
	kit.NoError(t, err)
	role, binding, found := strings.Cut(string(text), "\n---\n")
	if !found {
		t.Fatal("the file has not two objects")
	}
	var r rbacv1.ClusterRole
	kit.NoError(t, yaml.UnmarshalStrict([]byte(role), &r))
	_, err = client.RbacV1().ClusterRoles().Create(t.Context(), &r, metav1.CreateOptions{})
	kit.NoError(t, err)
	var b rbacv1.ClusterRoleBinding
	kit.NoError(t, yaml.UnmarshalStrict([]byte(binding), &b))
	_, err = client.RbacV1().ClusterRoleBindings().Create(t.Context(), &b, metav1.CreateOptions{})
	kit.NoError(t, err)

	config := plane.REST()
	config.Impersonate = rest.ImpersonationConfig{UserName: "me", Groups: []string{"workwire:operators"}}
	operator := kubernetes.NewForConfigOrDie(config)
	may := func(attributes authorizationv1.ResourceAttributes) bool {
		review, err := operator.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
		}, metav1.CreateOptions{})
		kit.NoError(t, err)
		return review.Status.Allowed
	}
	const work, cluster = "work.open-cluster-management.io", "cluster.open-cluster-management.io"
	kit.Eventually(t, "the rights are in force", func() error {
		if !may(authorizationv1.ResourceAttributes{Verb: "get", Group: work, Resource: "manifestworks", Namespace: "cluster1"}) {
			return os.ErrPermission
		}
		return nil
	})
	for want, attributes := range map[bool][]authorizationv1.ResourceAttributes{
		true: {
			{Verb: "create", Group: work, Resource: "manifestworks", Namespace: "cluster1"},
			{Verb: "patch", Group: work, Resource: "manifestworkreplicasets", Namespace: "default"},
			{Verb: "list", Group: "coordination.k8s.io", Resource: "leases"},
			{Verb: "list", Group: "workwire.dev", Resource: "manifestworkreplicasetrevisions", Namespace: "default"},
			{Verb: "create", Group: "workwire.dev", Resource: "workoverrides", Namespace: "default"},
			{Verb: "create", Group: "workwire.dev", Resource: "rolloutplans", Namespace: "default"},
			{Verb: "create", Group: cluster, Resource: "placements", Namespace: "default"},
			{Verb: "patch", Group: cluster, Resource: "managedclusters", Name: "cluster1"},
			{Verb: "create", Group: cluster, Resource: "managedclustersets", Subresource: "bind", Name: "global"},
		},
		false: {
			{Verb: "get", Resource: "secrets", Namespace: "default"},
			{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: "workwire-hub"},
			{Verb: "create", Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"},
			{Verb: "escalate", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
			{Verb: "impersonate", Resource: "users"},
			{Verb: "update", Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
			{Verb: "delete", Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"},
			{Verb: "create", Group: cluster, Resource: "managedclustersets", Subresource: "bind", Name: "default"},
			{Verb: "delete", Group: cluster, Resource: "managedclusters", Name: "cluster1"},
			{Verb: "execute-as", Group: work, Resource: "manifestworks", Namespace: "cluster1"},
		},
	} {
		for _, a := range attributes {
			if got := may(a); got != want {
				t.Errorf("%s %s %s/%s %s: %t", a.Verb, a.Group, a.Resource, a.Subresource, a.Name, got)
			}
		}
	}
}
