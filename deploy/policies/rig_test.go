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

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/deploy/policies"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var (
	works = workv1.GroupVersion.WithResource("manifestworks")
	sets  = workv1alpha1.GroupVersion.WithResource("manifestworkreplicasets")
)

// plane is a hub as the project makes it: its definitions, and the policies of Default.
var plane *controlplane.Plane

func TestMain(m *testing.M) {
	controlplane.Main(m, controlplane.Hub, func(p *controlplane.Plane) error {
		plane = p
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := install.CRDs(ctx, p.REST(), crds.Hub()...); err != nil {
			return err
		}
		if err := install.Policies(ctx, p.REST(), policies.Default()...); err != nil {
			return err
		}
		return inForce(ctx, p.REST(), policies.Default()...)
	})
}

// inForce waits until the API server refuses, with each of the policies, what it must refuse.
// Nothing is written.
func inForce(ctx context.Context, config *rest.Config, wanted ...policies.Policy) error {
	probes := map[string]map[string]any{
		"workwire-manifests":    specOf(map[string]any{"kind": "ConfigMap"}),
		"workwire-executors":    specWith("probe", configMap("a")),
		"workwire-nil-executor": specOf(configMap("a")),
	}
	for _, policy := range wanted {
		name := policy.Policy.Name
		// Of users without rights, the authorizer would not let the request come as far as to a
		// policy.
		client := dynamic.NewForConfigOrDie(as(config, "probe")).Resource(works).Namespace("default")
		if err := grant(ctx, config, "default", "probe", writer); err != nil {
			return err
		}
		err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			_, err := client.Create(ctx, object(works, "probe", probes[name]), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
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

// executing may name the ServiceAccount default/executor as executor.
func executing(executor string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		APIGroups: []string{workv1.GroupName}, Resources: []string{"manifestworks"}, Verbs: []string{"execute-as"},
		ResourceNames: []string{"system:serviceaccount:default:" + executor},
	}}
}

// grant gives the user the rules in the namespace, and waits until they count.
func grant(ctx context.Context, config *rest.Config, ns, user string, rules []rbacv1.PolicyRule) error {
	roles := kubernetes.NewForConfigOrDie(config).RbacV1()
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
	name := ""
	if len(rules[0].ResourceNames) > 0 {
		name = rules[0].ResourceNames[0]
	}
	return may(ctx, as(config, user), authorizationv1.ResourceAttributes{
		Group: rules[0].APIGroups[0], Resource: rules[0].Resources[0], Namespace: ns, Verb: rules[0].Verbs[0], Name: name,
	})
}

// may waits until the user of the configuration may do what is asked.
func may(ctx context.Context, config *rest.Config, what authorizationv1.ResourceAttributes) error {
	reviews := kubernetes.NewForConfigOrDie(config).AuthorizationV1().SelfSubjectAccessReviews()
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true,
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
