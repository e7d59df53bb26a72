package policies_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/test/kit"
)

// TestBind: who may write bindings in a namespace binds only sets of which they may create bind.
func TestBind(t *testing.T) {
	ns := plane.Namespace(t, "bind")
	shops, offices, jane := ns+"-shops", ns+"-offices", "jane-"+ns
	kit.NoError(t, grant(t.Context(), plane.REST(), ns, jane, binder))
	client := dynamic.NewForConfigOrDie(as(plane.REST(), jane)).Resource(bindings).Namespace(ns)
	bind := func(set string) error {
		_, err := client.Create(t.Context(), bindingOf(set), metav1.CreateOptions{})
		return err
	}
	refused := func(err error, set string) {
		t.Helper()
		if !apierrors.IsForbidden(err) {
			t.Errorf("got %v, want Forbidden", err)
			return
		}
		denied(t, err, "workwire-cluster-set-bindings", fmt.Sprintf(
			"user %s cannot bind ManagedClusterSet %s to namespace %s: this needs the right to create managedclustersets/bind", jane, set, ns))
	}
	refused(bind(shops), shops)
	refused(bind("global"), "global")
	kit.NoError(t, grant(t.Context(), plane.REST(), "", jane, toSet("join", shops)))
	refused(bind(shops), shops)
	kit.NoError(t, grant(t.Context(), plane.REST(), "", jane, toSet("bind", shops)))
	kit.NoError(t, bind(shops))
	refused(bind(offices), offices)

	patch := func(text string) error {
		_, err := client.Patch(t.Context(), shops, types.MergePatchType, []byte(text), metav1.PatchOptions{})
		return err
	}
	if err := patch(fmt.Sprintf(`{"spec":{"clusterSet":%q}}`, offices)); !apierrors.IsInvalid(err) {
		t.Errorf("the set of a binding is changed: %v", err)
	}
	kit.NoError(t, patch(`{"metadata":{"labels":{"team":"shop"}}}`))
	another := bindingOf(shops)
	another.SetName("another")
	if _, err := client.Create(t.Context(), another, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a binding with another name than that of its set: %v", err)
	}
	kit.NoError(t, client.Delete(t.Context(), shops, metav1.DeleteOptions{}))
}

// TestJoinByToken: the hub, with its rights in deploy, registers clusters in the set that their token names.
func TestJoinByToken(t *testing.T) {
	ns := plane.Namespace(t, "token")
	text, err := os.ReadFile("../kustomize/hub/join/rights.yaml")
	kit.NoError(t, err)
	var role rbacv1.ClusterRole // the first of the file
	kit.NoError(t, yaml.Unmarshal([]byte(strings.Split(string(text), "\n---\n")[0]), &role))
	hub := "hub-" + ns
	kit.NoError(t, grant(t.Context(), plane.REST(), "", hub, slices.Concat(registrar, role.Rules)))
	client := dynamic.NewForConfigOrDie(as(plane.REST(), hub)).Resource(clusters)
	_, err = client.Create(t.Context(), clusterIn(ns+"-shops", ns), metav1.CreateOptions{})
	kit.NoError(t, err)
	kit.NoError(t, client.Delete(t.Context(), ns, metav1.DeleteOptions{}))
}

// TestJoin: who may write ManagedClusters moves them only between sets of which they may create join.
func TestJoin(t *testing.T) {
	ns := plane.Namespace(t, "join")
	shops, offices, jane := ns+"-shops", ns+"-offices", "jane-"+ns
	kit.NoError(t, grant(t.Context(), plane.REST(), "", jane, registrar))
	client := dynamic.NewForConfigOrDie(as(plane.REST(), jane)).Resource(clusters)
	create := func(set, name string) error {
		_, err := client.Create(t.Context(), clusterIn(set, name), metav1.CreateOptions{})
		return err
	}
	label := func(name, set string) error {
		_, err := client.Patch(t.Context(), name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"labels":{"cluster.open-cluster-management.io/clusterset":%s}}}`, set), metav1.PatchOptions{})
		return err
	}
	refused := func(err error, sets string) {
		t.Helper()
		if !apierrors.IsForbidden(err) {
			t.Errorf("got %v, want Forbidden", err)
			return
		}
		denied(t, err, "workwire-cluster-set-members", fmt.Sprintf(
			"user %s cannot change the ManagedClusterSet of a cluster: this needs the right to create managedclustersets/join for %s", jane, sets))
	}
	free, taken := ns+"-free", ns+"-taken"
	quoted := func(s string) string { return fmt.Sprintf("%q", s) }
	kit.NoError(t, create("", free))
	t.Cleanup(func() { _ = client.Delete(t.Context(), free, metav1.DeleteOptions{}) })
	refused(create(shops, taken), shops)
	refused(label(free, quoted(shops)), "default and "+shops)
	kit.NoError(t, grant(t.Context(), plane.REST(), "", jane, toSet("join", shops)))
	kit.NoError(t, create(shops, taken))
	t.Cleanup(func() { _ = client.Delete(t.Context(), taken, metav1.DeleteOptions{}) })
	refused(label(free, quoted(shops)), "default and "+shops)
	refused(label(taken, quoted(offices)), shops+" and "+offices)
	refused(label(taken, "null"), shops+" and default")
	kit.NoError(t, label(free, `"default"`)) // it was there already
	_, err := client.Patch(t.Context(), taken, types.MergePatchType, []byte(`{"metadata":{"labels":{"env":"prod"}},"spec":{"hubAcceptsClient":true}}`), metav1.PatchOptions{})
	kit.NoError(t, err)
	kit.NoError(t, grant(t.Context(), plane.REST(), "", jane, toSet("join", "default")))
	kit.NoError(t, label(free, quoted(shops)))
	kit.NoError(t, label(taken, "null"))
}
