package executor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/pkg/agent/internal/executor"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var plane *controlplane.Plane

// The API of a hub has all that an executor asks for.
func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Hub: &plane, Bare: true}) }

// world is a namespace of the cluster, an account in it, and an executor that key "work" follows it
// with.
type world struct {
	*testing.T
	namespace string
	account   executor.Account
	cluster   kubernetes.Interface
	requests  *kit.Requests
	checks    *executor.Executor[string]
	changed   chan string
}

// modes runs a test in both modes.
func modes(t *testing.T, test func(t *testing.T, inMemory bool)) {
	for _, inMemory := range []bool{false, true} {
		t.Run(fmt.Sprintf("inMemory=%t", inMemory), func(t *testing.T) {
			t.Parallel()
			test(t, inMemory)
		})
	}
}

func newWorld(t *testing.T, inMemory bool) *world {
	t.Helper()
	namespace := plane.Namespace(t, "executor")
	w := &world{
		T: t, namespace: namespace,
		account: executor.Account{Namespace: namespace, Name: "executor1"},
		cluster: kubernetes.NewForConfigOrDie(plane.REST()),
		changed: make(chan string, 1000),
	}
	w.start(plane.REST(), inMemory)
	w.checks.Follow("work", nil, &w.account)
	return w
}

// start runs an executor with config, until the test ends.
func (w *world) start(config *rest.Config, inMemory bool) {
	w.Helper()
	w.requests = kit.CountRequests(config)
	w.checks = newExecutor(w, executor.Config[string]{
		Client: kit.RESTClient(w, config), InMemory: inMemory, Changed: func(key string) { w.changed <- key },
		Logger: slog.New(slog.DiscardHandler),
	})
	kit.Run(w, "the executor", w.checks.Run)
}

const reviews = "create subjectaccessreviews"

// mappings has the resources that the tests' manifests are about.
var mappings = map[string]*meta.RESTMapping{
	"ConfigMap":          {Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Scope: meta.RESTScopeNamespace},
	"Namespace":          {Resource: corev1.SchemeGroupVersion.WithResource("namespaces"), Scope: meta.RESTScopeRoot},
	"Deployment":         {Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Scope: meta.RESTScopeNamespace},
	"Role":               {Resource: rbacv1.SchemeGroupVersion.WithResource("roles"), Scope: meta.RESTScopeNamespace},
	"RoleBinding":        {Resource: rbacv1.SchemeGroupVersion.WithResource("rolebindings"), Scope: meta.RESTScopeNamespace},
	"ClusterRole":        {Resource: rbacv1.SchemeGroupVersion.WithResource("clusterroles"), Scope: meta.RESTScopeRoot},
	"ClusterRoleBinding": {Resource: rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"), Scope: meta.RESTScopeRoot},
}

func newExecutor(t testing.TB, config executor.Config[string]) *executor.Executor[string] {
	t.Helper()
	e, err := executor.New(config)
	kit.NoError(t, err)
	return e
}

// manifest reads one manifest as the agent does. configure may be nil.
func manifest(t testing.TB, text string, configure func(*workv1.ManifestWorkSpec)) *strategy.Manifest {
	t.Helper()
	spec := &workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{rawManifest(t, text)}}}
	if configure != nil {
		configure(spec)
	}
	m := strategy.Parse(nil, spec, func(kind schema.GroupVersionKind) (*meta.RESTMapping, error) { return mappings[kind.Kind], nil })[0]
	if m.Err != nil {
		t.Fatal(m.Err)
	}
	return &m
}

func (w *world) manifest(format string, args ...any) *strategy.Manifest {
	w.Helper()
	return manifest(w, fmt.Sprintf(format, args...), nil)
}

func (w *world) configMap(name string) *strategy.Manifest {
	w.Helper()
	return w.manifest("{apiVersion: v1, kind: ConfigMap, metadata: {namespace: %s, name: %s}}", w.namespace, name)
}

// allow gives the account rights in its namespace, by a Role and a RoleBinding.
func (w *world) allow(name string, rules ...rbacv1.PolicyRule) {
	w.Helper()
	w.role(name, rules...)
	w.bind(name, "Role", name)
}

func (w *world) role(name string, rules ...rbacv1.PolicyRule) {
	w.Helper()
	w.must(w.cluster.RbacV1().Roles(w.namespace).Create(w.Context(),
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}))
}

func (w *world) setRole(name string, rules ...rbacv1.PolicyRule) {
	w.Helper()
	w.must(w.cluster.RbacV1().Roles(w.namespace).Update(w.Context(),
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.UpdateOptions{}))
}

// bind binds a role to the account in its namespace.
func (w *world) bind(name, kind, roleName string) {
	w.Helper()
	w.must(w.cluster.RbacV1().RoleBindings(w.namespace).Create(w.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: roleName},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: w.account.Name, Namespace: w.account.Namespace}},
	}, metav1.CreateOptions{}))
}

// clusterRole makes a ClusterRole until the test ends, and gives its name.
func (w *world) clusterRole(name string, rules ...rbacv1.PolicyRule) string {
	w.Helper()
	name = w.namespace + "-" + name
	w.must(w.cluster.RbacV1().ClusterRoles().Create(w.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}))
	return w.deleted(name, w.cluster.RbacV1().ClusterRoles().Delete)
}

// bindCluster makes a ClusterRoleBinding until the test ends, and gives its name.
func (w *world) bindCluster(name, roleName string, subjects ...rbacv1.Subject) string {
	w.Helper()
	name = w.namespace + "-" + name
	w.must(w.cluster.RbacV1().ClusterRoleBindings().Create(w.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: roleName},
		Subjects:   subjects,
	}, metav1.CreateOptions{}))
	return w.deleted(name, w.cluster.RbacV1().ClusterRoleBindings().Delete)
}

// deleted deletes an object at the end of the test, and gives its name.
func (w *world) deleted(name string, remove func(context.Context, string, metav1.DeleteOptions) error) string {
	w.Cleanup(func() {
		if err := remove(context.Background(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			w.Error(err)
		}
	})
	return name
}

// must fails the test if a request failed.
func (w *world) must(_ any, err error) {
	w.Helper()
	kit.NoError(w, err)
}

// rule allows verbs on resources of a group.
func rule(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

// applying is the verbs that are checked.
var applying = []string{"create", "update", "patch", "get", "delete"}

// check gives the text of a denial, "" if it is allowed.
func (w *world) check(m *strategy.Manifest) string {
	w.Helper()
	_, err := w.checks.Check(w.Context(), w.account, m)
	var denied *executor.DeniedError
	if err != nil && !errors.As(err, &denied) {
		w.Fatal(err)
	}
	return errorText(err)
}

// becomes checks m, as told to, until it says want.
func (w *world) becomes(m *strategy.Manifest, want string) {
	w.Helper()
	deadline := time.After(kit.Patience)
	for {
		recheck, err := w.checks.Check(w.Context(), w.account, m)
		text := errorText(err)
		if text == want {
			return
		}
		var again <-chan time.Time
		if recheck > 0 {
			again = time.After(recheck)
		}
		select {
		case <-w.changed:
		case <-again:
		case <-deadline:
			w.Fatalf("%s: %q, want %q", m.Ref, text, want)
		}
	}
}

func rawManifest(t testing.TB, text string) workv1.Manifest {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	kit.NoError(t, err)
	return workv1.Manifest{RawExtension: runtime.RawExtension{Raw: raw}}
}
