package observe_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) {
	controlplane.Main(m, controlplane.Planes{Hub: &plane, Bare: true})
}

var (
	configMaps   = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	clusterRoles = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
)

// cluster is the API server: admin is its administrator, agent a client whose requests wire counts.
type cluster struct {
	*testing.T
	namespace string
	admin     dynamic.Interface
	agent     dynamic.Interface
	wire      *wire
	// changed gets each name that is reported.
	changed chan string
}

func newCluster(t *testing.T, configure ...func(*rest.Config)) *cluster {
	t.Helper()
	t.Parallel()
	c := &cluster{T: t, namespace: plane.Namespace(t, "observe"), wire: &wire{}, changed: make(chan string, 1000)}
	c.admin = dynamic.NewForConfigOrDie(plane.REST())
	config := plane.REST()
	for _, change := range configure {
		change(config)
	}
	c.agent = dynamic.NewForConfigOrDie(kit.Intercept(config, c.wire.roundTrip))
	return c
}

func (c *cluster) report(name string, _ object.Ref, _ string) { c.changed <- name }

func (c *cluster) configMap(name string) object.Ref {
	return object.Ref{GroupVersionResource: configMaps, Namespace: c.namespace, Name: name}
}

func (c *cluster) resource(ref object.Ref) dynamic.ResourceInterface {
	if ref.Namespace == "" {
		return c.admin.Resource(ref.GroupVersionResource)
	}
	return c.admin.Resource(ref.GroupVersionResource).Namespace(ref.Namespace)
}

func (c *cluster) create(ref object.Ref, labels map[string]string) {
	c.Helper()
	kind := map[string]string{"configmaps": "ConfigMap", "clusterroles": "ClusterRole"}[ref.Resource]
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": ref.GroupVersion().String(), "kind": kind}}
	obj.SetName(ref.Name)
	obj.SetLabels(labels)
	if _, err := c.resource(ref).Create(c.Context(), obj, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	if ref.Namespace == "" {
		c.Cleanup(func() { _ = c.resource(ref).Delete(context.Background(), ref.Name, metav1.DeleteOptions{}) })
	}
}

func (c *cluster) annotate(ref object.Ref, value string) {
	c.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"test":%q}}}`, value)
	if _, err := c.resource(ref).Patch(c.Context(), ref.Name, "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) remove(ref object.Ref) {
	c.Helper()
	kit.NoError(c, c.resource(ref).Delete(c.Context(), ref.Name, metav1.DeleteOptions{}))
}

// told waits until name is reported and done returns true.
func (c *cluster) told(name string, what string, done func() bool) {
	c.Helper()
	for reported := ""; reported != name || !done(); {
		reported = kit.Receive(c, name+" is told that "+what, c.changed)
	}
}

// grant lets a user read ConfigMaps of the test's namespace.
func (c *cluster) grant(user string) {
	c.Helper()
	client := kubernetes.NewForConfigOrDie(plane.REST()).RbacV1()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "read"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}},
	}}
	if _, err := client.Roles(c.namespace).Create(c.Context(), role, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "read"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "read"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := client.RoleBindings(c.namespace).Create(c.Context(), binding, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

func impersonate(user string) func(*rest.Config) {
	return func(config *rest.Config) { config.Impersonate = rest.ImpersonationConfig{UserName: user} }
}

// wire counts watch requests, and fails all requests while it is cut.
type wire struct {
	mu             sync.Mutex
	cut            bool
	bodies         map[*watchBody]struct{}
	requests, most int
}

func (w *wire) roundTrip(next http.RoundTripper, request *http.Request) (*http.Response, error) {
	w.mu.Lock()
	cut := w.cut
	w.requests++
	w.mu.Unlock()
	if cut {
		return nil, fmt.Errorf("the test has cut the wire")
	}
	response, err := next.RoundTrip(request)
	if err != nil || request.URL.Query().Get("watch") == "" || response.StatusCode != http.StatusOK {
		return response, err
	}
	body := &watchBody{ReadCloser: response.Body, wire: w}
	response.Body = body
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bodies == nil {
		w.bodies = map[*watchBody]struct{}{}
	}
	w.bodies[body] = struct{}{}
	w.most = max(w.most, len(w.bodies))
	return response, nil
}

// sever ends all watches and lets no request through until mend.
func (w *wire) sever() {
	w.mu.Lock()
	w.cut = true
	open := slices.Collect(maps.Keys(w.bodies))
	w.mu.Unlock()
	for _, body := range open {
		_ = body.Close()
	}
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = false
}

// open is how many watch requests there are, most how many there were at most.
func (w *wire) open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.bodies)
}

func (w *wire) counts() (requests, most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.requests, w.most
}

// watchBody is the answer to a watch request, which lasts until it is closed.
type watchBody struct {
	io.ReadCloser
	wire *wire
}

func (b *watchBody) Close() error {
	b.wire.mu.Lock()
	delete(b.wire.bodies, b)
	b.wire.mu.Unlock()
	return b.ReadCloser.Close()
}

var discard = slog.New(slog.DiscardHandler)
