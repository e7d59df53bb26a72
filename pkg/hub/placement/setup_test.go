package placement_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/workwire/workwire/deploy/crds"
	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/placement"
	"github.com/workwire/workwire/pkg/kube"
	"github.com/workwire/workwire/test/kit/controlplane"
)

// patience is how long a test waits for what must come.
const patience = 60 * time.Second

var plane *controlplane.Plane

func TestMain(m *testing.M) {
	controlplane.Main(m, controlplane.Hub, func(p *controlplane.Plane) error {
		plane = p
		return crds.Install(context.Background(), p.REST(), crds.Hub()...)
	})
}

// world is what a test plays in: a namespace, and clusters that bear its name as
// the label "world". Tests do not run in parallel, since each runs a controller,
// which serves all of the API server.
type world struct {
	*testing.T
	client    versioned.Interface
	namespace string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{T: t, client: versioned.NewForConfigOrDie(plane.REST()), namespace: plane.Namespace(t, "world")}
}

// controller is a running one.
type controller struct {
	*placement.Controller
	registry *prometheus.Registry
	stop     func()

	mu       sync.Mutex
	requests []string                 // verb, resource and path of each
	failing  string                   // the verb and resource of requests that fail
	held     map[string]chan struct{} // by resource: what its watch delivers is held back until this is closed
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// serve runs a controller until the test ends.
func (w *world) serve(recorder record.EventRecorder) *controller {
	w.Helper()
	c := &controller{registry: prometheus.NewRegistry()}
	config := plane.REST()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			verb, resource := kube.Describe(request)
			c.mu.Lock()
			c.requests = append(c.requests, verb+" "+resource+" "+request.URL.Path)
			failing := c.failing == verb+" "+resource
			c.mu.Unlock()
			if failing {
				return nil, errors.New("the test wants it to fail")
			}
			response, err := next.RoundTrip(request)
			if err == nil && verb == "watch" {
				response.Body = &heldBody{ReadCloser: response.Body, controller: c, resource: resource, ctx: request.Context()}
			}
			return response, err
		})
	})
	queues, err := kube.NewQueueMetrics(c.registry)
	if err != nil {
		w.Fatal(err)
	}
	c.Controller, err = placement.New(placement.Config{
		Client: versioned.NewForConfigOrDie(config), Recorder: recorder, Registerer: c.registry, Queues: queues,
		Logger: slog.New(slog.NewTextHandler(w.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	c.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("Run: %v", err)
		}
	})
	w.Cleanup(c.stop)
	w.eventually("the controller is ready", func() bool { return c.Ready(context.Background()) == nil })
	return c
}

// heldBody is the answer to a watch, which a test can hold back.
type heldBody struct {
	io.ReadCloser
	controller *controller
	resource   string
	ctx        context.Context // of the request
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.controller.mu.Lock()
	gate := b.controller.held[b.resource]
	b.controller.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-b.ctx.Done():
		}
	}
	return n, err
}

// hold keeps changes of the resource from the controller until release is called.
func (c *controller) hold(resource string) (release func()) {
	gate := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = map[string]chan struct{}{resource: gate}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.held = nil
		close(gate)
	})
}

// asked reports whether a request of this verb and resource has been made for an
// object with this name.
func (c *controller) asked(verbAndResource, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.requests, func(r string) bool {
		return strings.HasPrefix(r, verbAndResource+" ") && strings.HasSuffix(r, "/"+name)
	})
}

// fail has requests of this verb and resource fail from now on; "" ends that.
func (c *controller) fail(verbAndResource string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failing = verbAndResource
}

// writes gives the requests that change something in the namespace.
func (c *controller) writes(namespace string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.requests), func(r string) bool {
		verb, _, _ := strings.Cut(r, " ")
		return slices.Contains([]string{"get", "list", "watch"}, verb) || !strings.Contains(r, "/namespaces/"+namespace+"/")
	})
}

// metric sums up the metric with this name, over all labels or those that have
// one of these values.
func (c *controller) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	families, err := c.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.Metric {
			counts := len(labels) == 0
			for _, l := range m.Label {
				counts = counts || slices.Contains(labels, l.GetValue())
			}
			if counts {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func (w *world) eventually(what string, is func() bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); !is(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// join makes an accepted cluster, labelled as of this world.
func (w *world) join(name string, change ...func(*clusterv1.ManagedCluster)) {
	w.Helper()
	c := &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace + "-" + name, Labels: map[string]string{"world": w.namespace}},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
	}
	for _, f := range change {
		f(c)
	}
	if _, err := w.client.ClusterV1().ManagedClusters().Create(w.Context(), c, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		_ = w.client.ClusterV1().ManagedClusters().Delete(context.Background(), c.Name, metav1.DeleteOptions{})
	})
}

func (w *world) leave(name string) {
	w.Helper()
	if err := w.client.ClusterV1().ManagedClusters().Delete(w.Context(), w.namespace+"-"+name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// cluster changes a cluster.
func (w *world) cluster(name string, change func(*clusterv1.ManagedCluster)) {
	w.Helper()
	for {
		c, err := w.client.ClusterV1().ManagedClusters().Get(w.Context(), w.namespace+"-"+name, metav1.GetOptions{})
		if err != nil {
			w.Fatal(err)
		}
		change(c)
		if _, err = w.client.ClusterV1().ManagedClusters().Update(w.Context(), c, metav1.UpdateOptions{}); err == nil {
			return
		}
		if !apierrors.IsConflict(err) {
			w.Fatal(err)
		}
	}
}

// place makes a placement among the clusters of this world.
func (w *world) place(name string, change ...func(*clusterv1beta1.Placement)) *clusterv1beta1.Placement {
	w.Helper()
	p := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	p.Spec.Predicates = []clusterv1beta1.ClusterPredicate{{RequiredClusterSelector: selecting("world", w.namespace)}}
	for _, f := range change {
		f(p)
	}
	created, err := w.client.ClusterV1beta1().Placements(p.Namespace).Create(w.Context(), p, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		_ = w.client.ClusterV1beta1().Placements(p.Namespace).Delete(context.Background(), p.Name, metav1.DeleteOptions{})
	})
	return created
}

func selecting(key, value string) clusterv1beta1.ClusterSelector {
	return clusterv1beta1.ClusterSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{key: value}}}
}

// placement changes the spec of a placement.
func (w *world) placement(name string, change func(*clusterv1beta1.Placement)) {
	w.Helper()
	for {
		p := w.get(name)
		change(p)
		_, err := w.client.ClusterV1beta1().Placements(w.namespace).Update(w.Context(), p, metav1.UpdateOptions{})
		if err == nil {
			return
		}
		if !apierrors.IsConflict(err) {
			w.Fatal(err)
		}
	}
}

func (w *world) get(name string) *clusterv1beta1.Placement {
	w.Helper()
	p, err := w.client.ClusterV1beta1().Placements(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return p
}

// decisions gives the PlacementDecisions of the placement, by name.
func (w *world) decisions(name string) []clusterv1beta1.PlacementDecision {
	w.Helper()
	list, err := w.client.ClusterV1beta1().PlacementDecisions(w.namespace).List(w.Context(),
		metav1.ListOptions{LabelSelector: clusterv1beta1.PlacementLabel + "=" + name})
	if err != nil {
		w.Fatal(err)
	}
	return list.Items
}

// chosen writes the decisions of a placement as "index/group: a b; ...", by
// number of the decision, without the world's name.
func (w *world) chosen(name string) string {
	w.Helper()
	parts := []string{}
	for _, d := range w.decisions(name) {
		part := fmt.Sprintf("%s/%s:", d.Labels[clusterv1beta1.DecisionGroupIndexLabel], d.Labels[clusterv1beta1.DecisionGroupNameLabel])
		for _, decision := range d.Status.Decisions {
			part += " " + strings.TrimPrefix(decision.ClusterName, w.namespace+"-")
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// await waits until these decisions are written, and the status says the same.
func (w *world) await(name, want string) {
	w.Helper()
	var got string
	var status clusterv1beta1.PlacementStatus
	for deadline := time.Now().Add(patience); ; <-time.After(10 * time.Millisecond) {
		got = w.chosen(name)
		status = w.get(name).Status
		n, groups := len(strings.Fields(want))-strings.Count(want, ":"), 0
		if n > 0 {
			groups = strings.Count(want, ":")
		}
		if got == want && int(status.NumberOfSelectedClusters) == n && len(status.DecisionGroups) == groups {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("placement %s: %q, want %q; status %+v", name, got, want, status)
		}
	}
}

// withoutGarbageCollector keeps that of the API server, which may be faster, from
// deleting decisions in the namespace.
func (w *world) withoutGarbageCollector() {
	w.Helper()
	const collector = "system:kube-controller-manager"
	config := plane.REST()
	client := kubernetes.NewForConfigOrDie(config).AdmissionregistrationV1()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace + "-keeps-decisions"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Delete}, Rule: admissionv1.Rule{
						APIGroups: []string{clusterv1beta1.GroupName}, APIVersions: []string{"*"}, Resources: []string{"placementdecisions"},
					},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: "request.userInfo.username != '" + collector + "'"}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: policy.ObjectMeta,
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{corev1.LabelMetadataName: w.namespace},
			}},
		},
	}
	_, err := client.ValidatingAdmissionPolicies().Create(w.Context(), policy, metav1.CreateOptions{})
	if err == nil {
		_, err = client.ValidatingAdmissionPolicyBindings().Create(w.Context(), binding, metav1.CreateOptions{})
	}
	probe := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "probe"}}
	if err == nil {
		_, err = w.client.ClusterV1beta1().PlacementDecisions(w.namespace).Create(w.Context(), probe, metav1.CreateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: collector, Groups: []string{"system:masters"}}
	as := versioned.NewForConfigOrDie(config).ClusterV1beta1().PlacementDecisions(w.namespace)
	w.eventually("the policy is in force", func() bool {
		err := as.Delete(w.Context(), probe.Name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsInvalid(err) || apierrors.IsForbidden(err)
	})
}
