package placement_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/internal/clustersets"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/placement"
	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Hub: &plane}) }

// env is the environment of one test: a namespace, and clusters with its name as the label "env".
// Tests do not run in parallel, since the controller of each serves all namespaces.
type env struct {
	*testing.T
	client    versioned.Interface
	namespace string
}

func newEnv(t *testing.T) *env {
	t.Helper()
	return &env{T: t, client: versioned.NewForConfigOrDie(plane.REST()), namespace: plane.Namespace(t, "placement")}
}

// running is a running controller.
type running struct {
	*placement.Controller
	t        *testing.T
	registry *prometheus.Registry
	requests *kit.Requests
	stop     func()

	mu   sync.Mutex
	held map[string]chan struct{} // guarded by mu: by resource, blocks the events of its watch until closed
}

// start runs a controller that does not require bindings until the test ends; recorder may be nil.
func (e *env) start(recorder record.EventRecorder) *running {
	e.Helper()
	return e.startWith(recorder, false)
}

// startWith runs a controller until the test ends.
func (e *env) startWith(recorder record.EventRecorder, requireBindings bool) *running {
	e.Helper()
	c := &running{t: e.T, registry: prometheus.NewRegistry()}
	config := kit.Intercept(plane.REST(), func(next http.RoundTripper, request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if verb, resource := kube.Describe(request); err == nil && verb == "watch" {
			response.Body = &heldBody{ReadCloser: response.Body, controller: c, resource: resource, ctx: request.Context()}
		}
		return response, err
	})
	c.requests = kit.CountRequests(config)
	queues, err := kube.NewQueueMetrics(c.registry)
	kit.NoError(e, err)
	client := versioned.NewForConfigOrDie(config)
	informers := controller.NewInformers(controller.InformersConfig{Client: client, Logger: kit.Logger(e)})
	c.Controller, err = placement.New(placement.Config{
		Informers: informers, Bindings: clustersets.NewBindings(informers, requireBindings), Client: client, Recorder: cmp.Or[record.EventRecorder](recorder, &record.FakeRecorder{}), Registerer: c.registry, Queues: queues, Logger: kit.Logger(e),
	})
	kit.NoError(e, err)
	stopInformers := kit.Run(e, "informers", informers.Run)
	stopController := kit.Run(e, "controller", c.Run)
	c.stop = func() { stopController(); stopInformers() }
	kit.Eventually(e, "the controller is ready", func() error { return c.Ready(context.Background()) })
	return c
}

// heldBody is the response to a watch, whose events a test can hold back.
type heldBody struct {
	io.ReadCloser
	controller *running
	resource   string
	ctx        context.Context //nolint:containedctx // of the request
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
func (c *running) hold(resource string) (release func()) {
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

// asked reports whether a request, such as "get placements", was made for this object.
func (c *running) asked(request, namespace, name string) bool {
	return c.requests.Counts(kit.InNamespace(namespace), kit.Named(name))[request] > 0
}

// fail lets requests, such as "update placements/status", fail from now on; "" ends that.
func (c *running) fail(request string) {
	c.requests.Fail(func(r kit.Request) error {
		if r.String() == request {
			return errors.New("refused by the test")
		}
		return nil
	})
}

// writes returns the requests that change something in the namespace.
func (c *running) writes(namespace string) []kit.Request {
	return c.requests.All(kit.Request.Writes, kit.InNamespace(namespace))
}

// metric returns the sum of the samples with these labels, each "name=value".
func (c *running) metric(name string, labels ...string) float64 {
	c.t.Helper()
	return kit.Gather(c.t, c.registry).Sum(name, labels...)
}

// evaluations returns the number of reconciles, or of those with one of these results.
func (c *running) evaluations(results ...string) float64 {
	c.t.Helper()
	const name = "workwire_hub_placement_evaluations_total"
	if len(results) == 0 {
		return c.metric(name)
	}
	sum := 0.0
	for _, result := range results {
		sum += c.metric(name, "result="+result)
	}
	return sum
}

// createCluster creates an accepted cluster of this environment.
func (e *env) createCluster(name string, change ...func(*clusterv1.ManagedCluster)) {
	e.Helper()
	c := &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: e.namespace + "-" + name, Labels: map[string]string{"env": e.namespace}},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
	}
	for _, f := range change {
		f(c)
	}
	if _, err := e.client.ClusterV1().ManagedClusters().Create(e.Context(), c, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		_ = e.client.ClusterV1().ManagedClusters().Delete(context.Background(), c.Name, metav1.DeleteOptions{})
	})
}

func (e *env) deleteCluster(name string) {
	e.Helper()
	kit.NoError(e, e.client.ClusterV1().ManagedClusters().Delete(e.Context(), e.namespace+"-"+name, metav1.DeleteOptions{}))
}

func (e *env) updateCluster(name string, change func(*clusterv1.ManagedCluster)) {
	e.Helper()
	kit.Eventually(e, "update cluster "+name, func() error {
		c, err := e.client.ClusterV1().ManagedClusters().Get(e.Context(), e.namespace+"-"+name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(c)
		_, err = e.client.ClusterV1().ManagedClusters().Update(e.Context(), c, metav1.UpdateOptions{})
		return err
	})
}

// createPlacement creates a placement that selects from the clusters of this environment.
func (e *env) createPlacement(name string, change ...func(*clusterv1beta1.Placement)) *clusterv1beta1.Placement {
	e.Helper()
	p := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name}}
	p.Spec.Predicates = []clusterv1beta1.ClusterPredicate{{RequiredClusterSelector: selecting("env", e.namespace)}}
	for _, f := range change {
		f(p)
	}
	created, err := e.client.ClusterV1beta1().Placements(p.Namespace).Create(e.Context(), p, metav1.CreateOptions{})
	kit.NoError(e, err)
	e.Cleanup(func() {
		_ = e.client.ClusterV1beta1().Placements(p.Namespace).Delete(context.Background(), p.Name, metav1.DeleteOptions{})
	})
	return created
}

func selecting(key, value string) clusterv1beta1.ClusterSelector {
	return clusterv1beta1.ClusterSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{key: value}}}
}

func (e *env) updatePlacement(name string, change func(*clusterv1beta1.Placement)) {
	e.Helper()
	kit.Eventually(e, "update placement "+name, func() error {
		p := e.placement(name)
		change(p)
		_, err := e.client.ClusterV1beta1().Placements(e.namespace).Update(e.Context(), p, metav1.UpdateOptions{})
		return err
	})
}

func (e *env) placement(name string) *clusterv1beta1.Placement {
	e.Helper()
	p, err := e.client.ClusterV1beta1().Placements(e.namespace).Get(e.Context(), name, metav1.GetOptions{})
	kit.NoError(e, err)
	return p
}

// decisions returns the PlacementDecisions of the placement, by name.
func (e *env) decisions(name string) []clusterv1beta1.PlacementDecision {
	e.Helper()
	list, err := e.client.ClusterV1beta1().PlacementDecisions(e.namespace).List(e.Context(),
		metav1.ListOptions{LabelSelector: clusterv1beta1.PlacementLabel + "=" + name})
	kit.NoError(e, err)
	return list.Items
}

// chosen returns the decisions of a placement as "index/group: a b; ...", by name of the decision,
// without the prefix of cluster names.
func (e *env) chosen(name string) string {
	e.Helper()
	parts := []string{}
	for _, d := range e.decisions(name) {
		part := fmt.Sprintf("%s/%s:", d.Labels[clusterv1beta1.DecisionGroupIndexLabel], d.Labels[clusterv1beta1.DecisionGroupNameLabel])
		for _, decision := range d.Status.Decisions {
			part += " " + strings.TrimPrefix(decision.ClusterName, e.namespace+"-")
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// await waits until these decisions are written and the status agrees.
func (e *env) await(name, want string) {
	e.Helper()
	kit.Eventually(e, "decisions of "+name, func() error {
		got, status := e.chosen(name), e.placement(name).Status
		n, groups := len(strings.Fields(want))-strings.Count(want, ":"), 0
		if n > 0 {
			groups = strings.Count(want, ":")
		}
		if got != want || int(status.NumberOfSelectedClusters) != n || len(status.DecisionGroups) != groups {
			return fmt.Errorf("%q, want %q; status %+v", got, want, status)
		}
		return nil
	})
}

// withoutGarbageCollector prevents the garbage collector of the API server, which may be faster,
// from deleting decisions in the namespace.
func (e *env) withoutGarbageCollector() {
	e.Helper()
	const collector = "system:kube-controller-manager"
	config := plane.REST()
	client := kubernetes.NewForConfigOrDie(config).AdmissionregistrationV1()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: e.namespace + "-keeps-decisions"},
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
				MatchLabels: map[string]string{corev1.LabelMetadataName: e.namespace},
			}},
		},
	}
	_, err := client.ValidatingAdmissionPolicies().Create(e.Context(), policy, metav1.CreateOptions{})
	if err == nil {
		_, err = client.ValidatingAdmissionPolicyBindings().Create(e.Context(), binding, metav1.CreateOptions{})
	}
	probe := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "probe"}}
	if err == nil {
		_, err = e.client.ClusterV1beta1().PlacementDecisions(e.namespace).Create(e.Context(), probe, metav1.CreateOptions{})
	}
	kit.NoError(e, err)
	config.Impersonate = rest.ImpersonationConfig{UserName: collector, Groups: []string{"system:masters"}}
	as := versioned.NewForConfigOrDie(config).ClusterV1beta1().PlacementDecisions(e.namespace)
	kit.True(e, "the policy is in force", func() bool {
		err := as.Delete(e.Context(), probe.Name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsInvalid(err) || apierrors.IsForbidden(err)
	})
}
