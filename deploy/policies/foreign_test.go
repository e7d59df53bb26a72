package policies_test

import (
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/deploy/policies"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

// TestForeignDefinitions runs on a hub whose definitions, made by somebody else, refuse nothing.
func TestForeignDefinitions(t *testing.T) {
	lax := controlplane.StartFor(t, controlplane.Hub)
	config := lax.REST()
	kit.NoError(t, install.CRDs(t.Context(), config, withoutRules()...))
	ns := lax.Namespace(t, "shop")
	kit.NoError(t, grant(t.Context(), config, ns, "hub", hubRules))
	old := storeRefused(t, config, ns)

	kit.NoError(t, install.Policies(t.Context(), config, policies.Default()...))
	kit.NoError(t, inForce(t.Context(), config, policies.Default()...))
	t.Run("refused", func(t *testing.T) { testAllRefused(t, config, ns) })
	t.Run("accepted", func(t *testing.T) { testAccepted(t, config, ns) })
	t.Run("another limit", func(t *testing.T) { testLimit(t, config, ns) })
	t.Run("stored before", func(t *testing.T) { testStoredBefore(t, config, ns, old) })

	kit.NoError(t, install.Policies(t.Context(), config, policies.NilExecutor()...))
	kit.NoError(t, inForce(t.Context(), config, policies.NilExecutor()...))
	t.Run("no executor", func(t *testing.T) { testNilExecutor(t, config, lax.Namespace(t, "nil")) })
	t.Run("removed", func(t *testing.T) { testRemoved(t, config, ns) })
}

// hubRules is all that a hub needs for its works.
var hubRules = []rbacv1.PolicyRule{
	{APIGroups: []string{workv1.GroupName}, Resources: []string{"manifestworks"}, Verbs: []string{"get", "patch"}},
	{APIGroups: []string{workv1.GroupName}, Resources: []string{"manifestworks/status"}, Verbs: []string{"patch"}},
}

// withoutRules gives our definitions with nothing to say about specs.
func withoutRules() []*apiextensionsv1.CustomResourceDefinition {
	var definitions []*apiextensionsv1.CustomResourceDefinition
	anything := true
	for _, definition := range crds.Hub() {
		if definition.Spec.Names.Plural != works.Resource && definition.Spec.Names.Plural != sets.Resource {
			definitions = append(definitions, definition)
			continue
		}
		for _, version := range definition.Spec.Versions {
			schema := version.Schema.OpenAPIV3Schema
			schema.Properties["spec"] = apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &anything}
			schema.XValidations, schema.Required = nil, nil
		}
		definitions = append(definitions, definition)
	}
	return definitions
}

// storeRefused creates, while there is no policy, what the policies refuse.
func storeRefused(t *testing.T, config *rest.Config, ns string) []string {
	t.Helper()
	var names []string
	client := dynamic.NewForConfigOrDie(config).Resource(works).Namespace(ns)
	for _, example := range append(read[[]example](t, "testdata/refused.yaml"), malformed(t)...) {
		work := object(works, "old-"+example.Name, example.Spec)
		_, err := client.Create(t.Context(), work, metav1.CreateOptions{})
		kit.NoError(t, err)
		names = append(names, work.GetName())
	}
	return names
}

func testAllRefused(t *testing.T, config *rest.Config, ns string) {
	for _, resource := range []schema.GroupVersionResource{works, sets} {
		client := dynamic.NewForConfigOrDie(config).Resource(resource).Namespace(ns)
		good, err := client.Create(t.Context(), object(resource, "good", specOf(configMap("a"))), metav1.CreateOptions{})
		kit.NoError(t, err)
		check := func(policy string, example example) {
			bad := object(resource, example.Name, example.Spec)
			_, err := client.Create(t.Context(), bad, metav1.CreateOptions{})
			denied(t, err, policy, example.want(resource))
			changed := good.DeepCopy()
			changed.Object["spec"] = bad.Object["spec"]
			_, err = client.Update(t.Context(), changed, metav1.UpdateOptions{})
			denied(t, err, policy, example.want(resource))
		}
		for _, example := range read[[]example](t, "testdata/refused.yaml") {
			check("workwire-manifests", example)
		}
		for _, example := range malformed(t) {
			check("workwire-executors", example)
		}
		bare := object(resource, "bare", nil)
		delete(bare.Object, "spec")
		_, err = client.Create(t.Context(), bare, metav1.CreateOptions{})
		denied(t, err, "workwire-manifests", map[schema.GroupVersionResource]string{
			works: "manifests should not be empty", sets: "Workload manifests should not be empty",
		}[resource])
	}
}

// testLimit sets another limit, as docs/policies.md says, and has it brought back.
func testLimit(t *testing.T, config *rest.Config, ns string) {
	smaller := policies.Default()
	if limit := &smaller[0].Policy.Spec.Variables[0]; limit.Name != "limit" {
		t.Fatalf("the first variable is %s", limit.Name)
	} else {
		limit.Expression = "1000"
	}
	manifests, _ := filled(t, []map[string]any{configMap("a")}, 1001)
	create := func() error {
		_, err := dynamic.NewForConfigOrDie(config).Resource(works).Namespace(ns).Create(t.Context(),
			object(works, "limit", specOf(manifests...)), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	kit.NoError(t, install.Policies(t.Context(), config, smaller...))
	kit.True(t, "the limit is lower", func() bool { return create() != nil })
	denied(t, create(), "workwire-manifests", "the size of manifests is 1001 bytes which exceeds the 1000 limit")
	kit.NoError(t, install.Policies(t.Context(), config, policies.Default()...))
	kit.True(t, "the limit is back", func() bool { return create() == nil })
}

// testStoredBefore: what is stored already is the hub's to hold by a finalizer, to report about and
// to let go, and anybody's to label; only its spec must be right to be changed.
func testStoredBefore(t *testing.T, config *rest.Config, ns string, names []string) {
	admin := dynamic.NewForConfigOrDie(config).Resource(works).Namespace(ns)
	hub := dynamic.NewForConfigOrDie(as(config, "hub")).Resource(works).Namespace(ns)
	patch := func(client dynamic.ResourceInterface, name, text string, subresources ...string) {
		t.Helper()
		_, err := client.Patch(t.Context(), name, types.MergePatchType, []byte(text), metav1.PatchOptions{}, subresources...)
		if err != nil {
			t.Errorf("%s: %s: %v", name, text, err)
		}
	}
	for _, name := range names {
		patch(hub, name, `{"metadata":{"finalizers":["cluster.open-cluster-management.io/manifest-work-cleanup"]}}`)
		patch(hub, name, `{"status":{"conditions":[{"type":"Applied","status":"False","reason":"InvalidManifestWork",
			"message":"","lastTransitionTime":"2030-01-01T00:00:00Z"}]}}`, "status")
		patch(admin, name, `{"metadata":{"labels":{"team":"shop"}}}`)
		_, err := admin.Patch(t.Context(), name, types.MergePatchType,
			[]byte(`{"spec":{"deleteOption":{"propagationPolicy":"Orphan"}}}`), metav1.PatchOptions{})
		if executor := isMalformed(t, name); executor && err != nil {
			t.Errorf("%s: an executor that is not changed is not looked at: %v", name, err)
		} else if !executor && err == nil {
			t.Errorf("%s: a wrong spec could be changed", name)
		}
		kit.NoError(t, admin.Delete(t.Context(), name, metav1.DeleteOptions{}))
		patch(hub, name, `{"metadata":{"finalizers":null}}`)
		if _, err := admin.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
}

func isMalformed(t *testing.T, name string) bool {
	t.Helper()
	for _, example := range malformed(t) {
		if name == "old-"+example.Name {
			return true
		}
	}
	return false
}

// testNilExecutor: jane may do without an executor, bob may not.
func testNilExecutor(t *testing.T, config *rest.Config, ns string) {
	for _, user := range []string{"jane", "bob"} {
		kit.NoError(t, grant(t.Context(), config, ns, user, writer))
		kit.NoError(t, grant(t.Context(), config, "", user, executing("executor1")))
	}
	nobody := executing("")
	nobody[0].ResourceNames = []string{"system:serviceaccount::klusterlet-work-sa"}
	kit.NoError(t, grant(t.Context(), config, "", "jane", nobody))

	for _, resource := range []schema.GroupVersionResource{works, sets} {
		bob := &user{t, resource, "bob", ns, dynamic.NewForConfigOrDie(as(config, "bob")).Resource(resource).Namespace(ns)}
		jane := &user{t, resource, "jane", ns, dynamic.NewForConfigOrDie(as(config, "jane")).Resource(resource).Namespace(ns)}
		refused := func(err error) {
			t.Helper()
			if !apierrors.IsForbidden(err) {
				t.Errorf("got %v, want Forbidden", err)
			}
			message := fmt.Sprintf(forbidden, "bob", "/klusterlet-work-sa", ns)
			if resource == sets {
				message = fmt.Sprintf(forbiddenEverywhere, "bob", "/klusterlet-work-sa")
			}
			denied(t, err, "workwire-nil-executor", message)
		}
		create := func(u *user, name string, spec map[string]any) error {
			_, err := u.client.Create(t.Context(), object(resource, name, spec), metav1.CreateOptions{})
			return err
		}
		refused(create(bob, "none", specOf(configMap("a"))))
		kit.NoError(t, create(jane, "none", specOf(configMap("a"))))
		kit.NoError(t, create(bob, "one", specWith("executor1", configMap("a"))))
		bob.refused(create(bob, "two", specWith("executor2", configMap("a"))), "default/executor2")

		kit.NoError(t, bob.patch(resource, "none", otherManifest)) // there was none before
		refused(bob.patch(resource, "one", noExecutor))
		kit.NoError(t, bob.patch(resource, "one", otherManifest))
		kit.NoError(t, jane.patch(resource, "one", noExecutor))
		kit.NoError(t, bob.patch(resource, "one", withExecutor1))
		kit.NoError(t, bob.client.Delete(t.Context(), "none", metav1.DeleteOptions{}))
	}
}

func testRemoved(t *testing.T, config *rest.Config, ns string) {
	kit.NoError(t, install.RemovePolicies(t.Context(), config, all()...))
	client := dynamic.NewForConfigOrDie(as(config, "probe")).Resource(works).Namespace(ns)
	kit.NoError(t, grant(t.Context(), config, ns, "probe", writer))
	kit.True(t, "everything is accepted", func() bool {
		_, err := client.Create(t.Context(), object(works, "removed", specWith("probe")), metav1.CreateOptions{})
		return err == nil
	})
}
