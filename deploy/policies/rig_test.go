package policies_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/deploy/policies"
	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var (
	works    = workv1.GroupVersion.WithResource("manifestworks")
	sets     = workv1alpha1.GroupVersion.WithResource("manifestworkreplicasets")
	clusters = clusterv1.GroupVersion.WithResource("managedclusters")
	bindings = clusterv1beta2.GroupVersion.WithResource("managedclustersetbindings")
)

// plane is a hub as the project makes it: its definitions, and the policies of Default.
var plane *controlplane.Plane

func TestMain(m *testing.M) {
	controlplane.Main(m, controlplane.Planes{Hub: &plane, Setup: func() (func() error, error) {
		ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
		defer cancel()
		if err := install.Policies(ctx, plane.REST(), policies.Default()...); err != nil {
			return nil, err
		}
		return nil, inForce(ctx, plane.REST(), policies.Default()...)
	}})
}

// inForce waits until the API server refuses, with each of the policies, what it must refuse.
// Nothing is written.
func inForce(ctx context.Context, config *rest.Config, wanted ...policies.Policy) error {
	probes := map[string]*unstructured.Unstructured{
		"workwire-manifests":            object(works, "probe", specOf(map[string]any{"kind": "ConfigMap"})),
		"workwire-executors":            object(works, "probe", specWith("probe", configMap("a"))),
		"workwire-nil-executor":         object(works, "probe", specOf(configMap("a"))),
		"workwire-cluster-set-bindings": bindingOf("probe"),
		"workwire-cluster-set-members":  clusterIn("probe", "probe"),
	}
	resources := map[string]schema.GroupVersionResource{
		"workwire-cluster-set-bindings": bindings, "workwire-cluster-set-members": clusters,
	}
	// Of users without rights, the authorizer would not let the request come as far as to a policy.
	if err := errors.Join(grant(ctx, config, "default", "probe", writer), grant(ctx, config, "default", "probe", binder),
		grant(ctx, config, "", "probe", registrar)); err != nil {
		return err
	}
	for _, policy := range wanted {
		name := policy.Policy.Name
		resource, ok := resources[name]
		if !ok {
			resource = works
		}
		client := dynamic.ResourceInterface(dynamic.NewForConfigOrDie(as(config, "probe")).Resource(resource))
		if resource != clusters {
			client = dynamic.NewForConfigOrDie(as(config, "probe")).Resource(resource).Namespace("default")
		}
		err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			_, err := client.Create(ctx, probes[name], metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err != nil && strings.Contains(err.Error(), fmt.Sprintf("ValidatingAdmissionPolicy '%s'", name)), nil
		})
		if err != nil {
			return fmt.Errorf("waiting until %s is in force: %w", name, err)
		}
	}
	return nil
}

// object is a work, or a replica set with the work as its template.
func object(resource schema.GroupVersionResource, name string, spec map[string]any) *unstructured.Unstructured {
	kind := "ManifestWork"
	if resource == sets {
		kind = "ManifestWorkReplicaSet"
		spec = map[string]any{
			"manifestWorkTemplate": spec,
			"placementRefs":        []any{map[string]any{"name": "everywhere"}},
		}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": resource.GroupVersion().String(), "kind": kind,
		"metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

func configMap(name string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": name, "namespace": "default"},
	}
}

func specOf(manifests ...map[string]any) map[string]any {
	list := []any{}
	for _, manifest := range manifests {
		list = append(list, manifest)
	}
	return map[string]any{"workload": map[string]any{"manifests": list}}
}

// specWith has the ServiceAccount default/executor as its executor.
func specWith(executor string, manifests ...map[string]any) map[string]any {
	spec := specOf(manifests...)
	spec["executor"] = map[string]any{"subject": map[string]any{
		"type":           "ServiceAccount",
		"serviceAccount": map[string]any{"namespace": "default", "name": executor},
	}}
	return spec
}

// as is the configuration of another user.
func as(config *rest.Config, user string, groups ...string) *rest.Config {
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	return config
}

// writer may write works and replica sets, and nothing else.
var writer = []rbacv1.PolicyRule{{
	APIGroups: []string{workv1.GroupName},
	Resources: []string{"manifestworks", "manifestworkreplicasets"},
	Verbs:     []string{"get", "list", "create", "update", "patch", "delete"},
}}

// binder may write bindings of cluster sets, and registrar ManagedClusters. That is not the right to
// bind or join a set.
var (
	binder = []rbacv1.PolicyRule{{
		APIGroups: []string{clusterv1.GroupName}, Resources: []string{"managedclustersetbindings"},
		Verbs: []string{"create", "get", "update", "patch", "delete"},
	}}
	registrar = []rbacv1.PolicyRule{{
		APIGroups: []string{clusterv1.GroupName}, Resources: []string{"managedclusters"},
		Verbs: []string{"create", "get", "update", "patch", "delete"},
	}}
)

// toSet may create this subresource, bind or join, of a set.
func toSet(subresource, set string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		APIGroups: []string{clusterv1.GroupName}, Resources: []string{"managedclustersets/" + subresource},
		ResourceNames: []string{set}, Verbs: []string{"create"},
	}}
}

// bindingOf is a binding of a set.
func bindingOf(set string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": bindings.GroupVersion().String(), "kind": "ManagedClusterSetBinding",
		"metadata": map[string]any{"name": set}, "spec": map[string]any{"clusterSet": set},
	}}
}

// clusterIn is a cluster with the label of a set; without, if the set is empty.
func clusterIn(set, name string) *unstructured.Unstructured {
	metadata := map[string]any{"name": name}
	if set != "" {
		metadata["labels"] = map[string]any{clusterv1.ClusterSetLabelKey: set}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": clusters.GroupVersion().String(), "kind": "ManagedCluster", "metadata": metadata, "spec": map[string]any{},
	}}
}

// executing may name the ServiceAccount default/executor as executor.
func executing(executor string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		APIGroups: []string{workv1.GroupName}, Resources: []string{"manifestworks"}, Verbs: []string{"execute-as"},
		ResourceNames: []string{"system:serviceaccount:default:" + executor},
	}}
}

// grant gives the user the rules in the namespace, or with none everywhere, and waits until they
// count.
func grant(ctx context.Context, config *rest.Config, ns, user string, rules []rbacv1.PolicyRule) error {
	roles := kubernetes.NewForConfigOrDie(config).RbacV1()
	if ns == "" {
		return grantEverywhere(ctx, config, user, rules)
	}
	role, err := roles.Roles(ns).Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Rules: rules,
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := roles.RoleBindings(ns).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	return granted(ctx, config, ns, user, rules)
}

// granted waits until the first of the rules counts.
func granted(ctx context.Context, config *rest.Config, ns, user string, rules []rbacv1.PolicyRule) error {
	name := ""
	if len(rules[0].ResourceNames) > 0 {
		name = rules[0].ResourceNames[0]
	}
	resource, subresource, _ := strings.Cut(rules[0].Resources[0], "/")
	return may(ctx, as(config, user), authorizationv1.ResourceAttributes{
		Group: rules[0].APIGroups[0], Resource: resource, Subresource: subresource, Namespace: ns, Verb: rules[0].Verbs[0], Name: name,
	})
}

// grantEverywhere gives the user the rules in all namespaces, and waits until they count.
func grantEverywhere(ctx context.Context, config *rest.Config, user string, rules []rbacv1.PolicyRule) error {
	roles := kubernetes.NewForConfigOrDie(config).RbacV1()
	role, err := roles.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Rules: rules,
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if _, err := roles.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	return granted(ctx, config, "", user, rules)
}

// may waits until the user of the configuration may do what is asked.
func may(ctx context.Context, config *rest.Config, what authorizationv1.ResourceAttributes) error {
	reviews := kubernetes.NewForConfigOrDie(config).AuthorizationV1().SelfSubjectAccessReviews()
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, kit.Patience, true,
		func(ctx context.Context) (bool, error) {
			review, err := reviews.Create(ctx, &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what},
			}, metav1.CreateOptions{})
			return err == nil && review.Status.Allowed, err
		})
	if err != nil {
		return fmt.Errorf("waiting for the right to %s %s in %s: %w", what.Verb, what.Name, what.Namespace, err)
	}
	return nil
}

// denied fails the test unless err is a refusal by the policy, with this message and no other.
func denied(t *testing.T, err error, policy, message string) {
	t.Helper()
	want := fmt.Sprintf("ValidatingAdmissionPolicy '%[1]s' with binding '%[1]s' denied request: %[2]s", policy, message)
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got the error %v\nwant it to end with %s", err, want)
	}
}

// kubectl runs the kubectl of the control plane and gives what it says.
func kubectl(t *testing.T, kubeconfig, input string, args ...string) (string, error) {
	t.Helper()
	return run(t, "kubectl", input, append([]string{"--kubeconfig=" + kubeconfig}, args...)...)
}

func run(t *testing.T, program, input string, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join("..", "..", "bin", program), args...)
	command.Stdin = strings.NewReader(input)
	output, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(output)), err
}

// login makes a user of the plane with a certificate, and gives its kubeconfig.
func login(t *testing.T, p *controlplane.Plane, user string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	output, err := run(t, "controlplane", "", "kubeconfig", "--dir="+filepath.Dir(p.Kubeconfig), "--user="+user, "--output="+file)
	if err != nil {
		t.Fatalf("a kubeconfig for %s: %v: %s", user, err, output)
	}
	return file
}

func read[T any](t *testing.T, file string) T {
	t.Helper()
	text, err := os.ReadFile(file)
	kit.NoError(t, err)
	var value T
	if err := yaml.UnmarshalStrict(text, &value); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return value
}
