package replicaset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/internal/clustersets"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/pkg/security/audit"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Hub: &plane}) }

// env is the environment of one test: a namespace for sets and placements, one for each cluster,
// and a clock that the test advances. Tests do not run in parallel, since a controller serves the
// sets of all namespaces; each test deletes its sets.
type env struct {
	t         *testing.T
	client    versioned.Interface
	namespace string
	clusters  []string // in their order
	audit     *audit.Log

	mu    sync.Mutex
	clock time.Time // guarded by mu
}

func newEnv(t *testing.T, clusters int) *env {
	t.Helper()
	e := &env{
		t: t, client: versioned.NewForConfigOrDie(plane.REST()), namespace: plane.Namespace(t, "sets"), clock: time.Now().Truncate(time.Second),
	}
	for i := range clusters {
		e.clusters = append(e.clusters, plane.CreateNamespace(t, fmt.Sprintf("%s-c%02d", e.namespace, i+1)))
	}
	t.Cleanup(e.clear)
	return e
}

// clear deletes sets and works after all controllers have stopped.
func (e *env) clear() {
	ctx := context.Background()
	free := types.MergePatchType
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	sets, err := e.client.WorkV1alpha1().ManifestWorkReplicaSets(e.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		e.t.Error(err)
		return
	}
	for _, set := range sets.Items {
		client := e.client.WorkV1alpha1().ManifestWorkReplicaSets(e.namespace)
		_, _ = client.Patch(ctx, set.Name, free, patch, metav1.PatchOptions{})
		if err := client.Delete(ctx, set.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			e.t.Error(err)
		}
	}
	for _, cluster := range e.clusters {
		client := e.client.WorkV1().ManifestWorks(cluster)
		if err := client.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			e.t.Error(err)
		}
		left, _ := client.List(ctx, metav1.ListOptions{})
		for _, work := range left.Items {
			_, _ = client.Patch(ctx, work.Name, free, patch, metav1.PatchOptions{})
		}
	}
}

func (e *env) now() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.clock
}

func (e *env) advance(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.clock = e.clock.Add(d)
}

// running is a running controller.
type running struct {
	*Controller
	t        *testing.T
	stop     func()
	events   *events
	registry *prometheus.Registry
	requests *kit.Requests
}

// events is a recorder that keeps the texts of events.
type events struct {
	record.EventRecorder
	mu    sync.Mutex
	texts []string // guarded by mu
}

func (e *events) Eventf(_ runtime.Object, kind, reason, format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.texts = append(e.texts, fmt.Sprintf("%s %s ", kind, reason)+fmt.Sprintf(format, args...))
}

func (e *events) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.texts)
}

// workers is Config.Workers.
const workers = 16

// newController returns a controller that does not run, and the informers that it reads.
func newController(t *testing.T, cfg Config) (*Controller, *controller.Informers) {
	t.Helper()
	cfg.Logger, cfg.Workers = kit.Logger(t), workers
	cfg.Core, cfg.Recorder = cmp.Or(cfg.Core, kubernetes.NewForConfigOrDie(plane.REST()).CoreV1()), cmp.Or[record.EventRecorder](cfg.Recorder, &events{})
	cfg.Informers = controller.NewInformers(controller.InformersConfig{Client: cfg.Client, Now: cfg.Now, Logger: cfg.Logger})
	if cfg.Bindings == nil { // most tests have clusters without a ManagedCluster
		cfg.Bindings = clustersets.NewBindings(cfg.Informers, false)
	}
	var err error
	if cfg.Works, err = works.NewCache(cfg.Informers, nil); err != nil {
		t.Fatal(err)
	}
	c, err := New(cfg)
	kit.NoError(t, err)
	return c, cfg.Informers
}

// start runs a controller until it is stopped or the test ends.
func (e *env) start() *running {
	e.t.Helper()
	return e.startWith(func(next http.RoundTripper, request *http.Request) (*http.Response, error) {
		return next.RoundTrip(request)
	})
}

// startWith is start with an interceptor of the controller's requests.
func (e *env) startWith(intercept func(http.RoundTripper, *http.Request) (*http.Response, error)) *running {
	e.t.Helper()
	r := &running{t: e.t, events: &events{}, registry: prometheus.NewRegistry()}
	config := plane.REST()
	kit.Intercept(config, intercept)
	r.requests = kit.CountRequests(config)
	var informers *controller.Informers
	r.Controller, informers = newController(e.t, Config{
		Client: versioned.NewForConfigOrDie(config), Core: kubernetes.NewForConfigOrDie(config).CoreV1(), Recorder: r.events, Now: e.now, Registerer: r.registry, Audit: e.audit,
	})
	stopInformers := kit.Run(e.t, "informers", informers.Run)
	stopController := kit.Run(e.t, "controller", r.Run)
	r.stop = func() { stopController(); stopInformers() }
	kit.Eventually(e.t, "the controller is ready", func() error { return r.Ready(e.t.Context()) })
	return r
}

// writes returns the requests that wrote since the last call.
func (r *running) writes() []string {
	var writes []string
	for _, request := range r.requests.Take(kit.Request.Writes) {
		writes = append(writes, request.String())
	}
	slices.Sort(writes)
	return writes
}

// reconciles returns the number of reconciles.
func (r *running) reconciles() int {
	r.t.Helper()
	return int(kit.Metric(r.t, r.registry, "workwire_hub_replicaset_reconcile_seconds_count"))
}

// clusterStates returns the metric of clusters by state.
func (r *running) clusterStates() map[string]float64 {
	r.t.Helper()
	return kit.Gather(r.t, r.registry).ByLabel("workwire_hub_replicaset_clusters", "state")
}

// writePlacement writes a placement that selected these groups of clusters.
func (e *env) writePlacement(name string, groups ...[]string) {
	e.t.Helper()
	placement, decisions := placementOf(name, groups...)
	e.storePlacement(placement, decisions)
}

// storePlacement writes a placement and its decisions in the order of the placement controller.
func (e *env) storePlacement(placement *clusterv1beta1.Placement, decisions []*clusterv1beta1.PlacementDecision) {
	e.t.Helper()
	ctx := e.t.Context()
	api := e.client.ClusterV1beta1()
	must := func(err error) {
		e.t.Helper()
		if err != nil {
			e.t.Fatal(err)
		}
	}
	known, err := api.PlacementDecisions(e.namespace).List(ctx, metav1.ListOptions{LabelSelector: clusterv1beta1.PlacementLabel + "=" + placement.Name})
	must(err)
	left := map[string]*clusterv1beta1.PlacementDecision{}
	for i := range known.Items {
		left[known.Items[i].Name] = &known.Items[i]
	}
	for _, decision := range decisions {
		decision.Namespace = e.namespace
		stored := left[decision.Name]
		delete(left, decision.Name)
		if stored == nil {
			stored, err = api.PlacementDecisions(e.namespace).Create(ctx, decision, metav1.CreateOptions{})
			must(err)
		}
		stored.Status = decision.Status
		_, err = api.PlacementDecisions(e.namespace).UpdateStatus(ctx, stored, metav1.UpdateOptions{})
		must(err)
	}
	for name := range left {
		must(api.PlacementDecisions(e.namespace).Delete(ctx, name, metav1.DeleteOptions{}))
	}
	placement.Namespace = e.namespace
	stored, err := api.Placements(e.namespace).Create(ctx, placement, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		stored, err = api.Placements(e.namespace).Get(ctx, placement.Name, metav1.GetOptions{})
	}
	must(err)
	stored.Status = placement.Status
	_, err = api.Placements(e.namespace).UpdateStatus(ctx, stored, metav1.UpdateOptions{})
	must(err)
}

func (e *env) createSet(set *workv1alpha1.ManifestWorkReplicaSet) {
	e.t.Helper()
	set.Namespace, set.UID = e.namespace, ""
	if _, err := e.client.WorkV1alpha1().ManifestWorkReplicaSets(e.namespace).Create(e.t.Context(), set, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) updateSet(name string, change func(*workv1alpha1.ManifestWorkReplicaSet)) {
	e.t.Helper()
	client := e.client.WorkV1alpha1().ManifestWorkReplicaSets(e.namespace)
	kit.Eventually(e.t, "update set "+name, func() error {
		set, err := client.Get(e.t.Context(), name, metav1.GetOptions{})
		if err == nil {
			change(set)
			_, err = client.Update(e.t.Context(), set, metav1.UpdateOptions{})
		}
		return err
	})
}

func (e *env) getSet(name string) (*workv1alpha1.ManifestWorkReplicaSet, error) {
	return e.client.WorkV1alpha1().ManifestWorkReplicaSets(e.namespace).Get(e.t.Context(), name, metav1.GetOptions{})
}

// awaitGone waits until the set does not exist.
func (e *env) awaitGone(set string) {
	e.t.Helper()
	kit.True(e.t, set+" is gone", func() bool { _, err := e.getSet(set); return apierrors.IsNotFound(err) })
}

// works returns the works of a set.
func (e *env) works(set string) []*workv1.ManifestWork {
	e.t.Helper()
	list, err := e.client.WorkV1().ManifestWorks("").List(e.t.Context(), metav1.ListOptions{
		LabelSelector: workv1.ReplicaSetLabelKey + "=" + e.namespace + "." + set,
	})
	if err != nil {
		e.t.Fatal(err)
	}
	found := make([]*workv1.ManifestWork, 0, len(list.Items))
	for i := range list.Items {
		found = append(found, &list.Items[i])
	}
	slices.SortFunc(found, func(a, b *workv1.ManifestWork) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return found
}

// short returns the name of a cluster without the prefix of the test: "c01".
func (e *env) short(cluster string) string { return strings.TrimPrefix(cluster, e.namespace+"-") }

// clustersWith returns the clusters whose work has this template: "c01 c02".
func (e *env) clustersWith(set, value string) string {
	e.t.Helper()
	var clusters []string
	want := template(value)
	for _, work := range e.works(set) {
		if sameSpec(&work.Spec, &want) {
			clusters = append(clusters, e.short(work.Namespace))
		}
	}
	return strings.Join(clusters, " ")
}

// awaitTemplate waits until these clusters have the template.
func (e *env) awaitTemplate(set, value, clusters string) {
	e.t.Helper()
	kit.Eventually(e.t, fmt.Sprintf("template %s is in %q", value, clusters), func() error {
		if got := e.clustersWith(set, value); got != clusters {
			return fmt.Errorf("it is in %q", got)
		}
		return nil
	})
}

// reportApplied reports the works of a set in these clusters as applied and available, with
// additional conditions, each "Type=Status".
func (e *env) reportApplied(set string, clusters []string, more ...string) {
	e.t.Helper()
	for _, work := range e.works(set) {
		if slices.Contains(clusters, work.Namespace) {
			e.reportConditions(work, append([]string{"Applied=True", "Available=True"}, more...)...)
		}
	}
}

// reportConditions sets the conditions of a work, as its agent does.
func (e *env) reportConditions(work *workv1.ManifestWork, conditions ...string) {
	e.t.Helper()
	work.Status.Conditions = slices.DeleteFunc(work.Status.Conditions, func(c metav1.Condition) bool {
		return !slices.ContainsFunc(conditions, func(text string) bool { return strings.HasPrefix(text, c.Type+"=") })
	})
	for _, text := range conditions {
		kind, status, _ := strings.Cut(text, "=")
		meta.SetStatusCondition(&work.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionStatus(status), Reason: "Reported", ObservedGeneration: work.Generation,
			LastTransitionTime: metav1.NewTime(e.now()),
		})
	}
	e.patchStatus(work)
}

// patchStatus writes the status of a work.
func (e *env) patchStatus(work *workv1.ManifestWork) {
	e.t.Helper()
	client := e.client.WorkV1().ManifestWorks(work.Namespace)
	patch, err := kube.JSONPatch{{Op: "add", Path: "/status", Value: work.Status}}.Encode()
	if err == nil {
		_, err = client.Patch(e.t.Context(), work.Name, types.JSONPatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

// statusText formats a status: a line for each condition, each placement and the summary.
func statusText(status *workv1alpha1.ManifestWorkReplicaSetStatus) string {
	lines := conditionTexts(status.Conditions)
	sum := func(s workv1alpha1.ManifestWorkReplicaSetSummary) string {
		text := fmt.Sprintf("total %d applied %d available %d progressing %d degraded %d", s.Total, s.Applied, s.Available, s.Progressing, s.Degraded)
		if s.DesiredTotal != 0 || s.Updated != 0 {
			text += " and more"
		}
		return text
	}
	for _, p := range status.PlacementsSummary {
		lines = append(lines, p.Name+": "+p.AvailableDecisionGroups+": "+sum(p.Summary))
	}
	return strings.Join(append(lines, sum(status.Summary)), "\n")
}

// awaitStatus waits until the status of the set has this statusText.
func (e *env) awaitStatus(set, want string) {
	e.t.Helper()
	kit.Eventually(e.t, "the status of "+set, func() error {
		current, err := e.getSet(set)
		if err != nil {
			return err
		}
		if got := strings.ReplaceAll(statusText(&current.Status), e.namespace+"-", ""); got != want {
			return fmt.Errorf("\n got %s\nwant %s", got, want)
		}
		return nil
	})
}

// awaitEvent waits for an event with this prefix.
func (e *env) awaitEvent(r *running, prefix string) {
	e.t.Helper()
	kit.Eventually(e.t, "an event", func() error {
		for _, text := range r.events.all() {
			if strings.HasPrefix(strings.ReplaceAll(text, e.namespace+"-", ""), prefix) {
				return nil
			}
		}
		return fmt.Errorf("%q is not in %q", prefix, r.events.all())
	})
}

// awaitIdle reconciles a set until several reconciles have written nothing. It returns what was
// written.
func (e *env) awaitIdle(r *running, set string) (written []string) {
	e.t.Helper()
	deadline := time.Now().Add(kit.Patience)
	for quiet := 0; quiet < 3; quiet++ {
		if time.Now().After(deadline) {
			e.t.Fatalf("the controller does not stop writing: %q", written)
		}
		before := r.reconciles()
		r.requeue(e, set)
		kit.Eventually(e.t, "a reconcile", func() error {
			if r.reconciles() == before {
				return errors.New("there was none")
			}
			return nil
		})
		if requests := r.writes(); len(requests) > 0 {
			written, quiet = append(written, requests...), 0
		}
	}
	return written
}

// requeue queues a set, as when its requeue time has come.
func (r *running) requeue(e *env, set string) {
	r.Add(types.NamespacedName{Namespace: e.namespace, Name: set})
}

// awaitMetric waits until a metric has these values, without zeros, by one of its labels.
func (e *env) awaitMetric(r *running, name, label string, want map[string]float64) {
	e.t.Helper()
	kit.Eventually(e.t, name, func() error {
		if got := kit.Gather(e.t, r.registry).ByLabel(name, label); !maps.Equal(got, want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	})
}
