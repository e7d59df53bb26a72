package replicaset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/controller"
	"github.com/workwire/workwire/pkg/hub/works"
	"github.com/workwire/workwire/pkg/kube"
)

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// world is what a test plays in: a namespace for sets and placements, one for
// each cluster, and a time that passes only as the test says. Controllers keep
// the sets of all namespaces, so the tests of this package run one after the
// other, and each takes its sets away.
type world struct {
	t         testing.TB
	client    versioned.Interface
	namespace string
	clusters  []string // in their order

	mu  sync.Mutex
	now time.Time // guarded by mu
}

func newWorld(t testing.TB, clusters int) *world {
	t.Helper()
	client, err := versioned.NewForConfig(plane.REST())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, client: client, namespace: plane.Namespace(t, "sets"), now: time.Now().Truncate(time.Second)}
	namespaces := kubernetes.NewForConfigOrDie(plane.REST()).CoreV1().Namespaces()
	for i := range clusters {
		name := fmt.Sprintf("%s-c%02d", w.namespace, i+1)
		if _, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.clusters = append(w.clusters, name)
	}
	t.Cleanup(w.clear)
	return w
}

// clear takes sets and works away. No controller is running any more.
func (w *world) clear() {
	ctx := context.Background()
	free := types.MergePatchType
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	sets, err := w.client.WorkV1alpha1().ManifestWorkReplicaSets(w.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		w.t.Error(err)
		return
	}
	for _, set := range sets.Items {
		client := w.client.WorkV1alpha1().ManifestWorkReplicaSets(w.namespace)
		_, _ = client.Patch(ctx, set.Name, free, patch, metav1.PatchOptions{})
		if err := client.Delete(ctx, set.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			w.t.Error(err)
		}
	}
	for _, cluster := range w.clusters {
		client := w.client.WorkV1().ManifestWorks(cluster)
		if err := client.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			w.t.Error(err)
		}
		left, _ := client.List(ctx, metav1.ListOptions{})
		for _, work := range left.Items {
			_, _ = client.Patch(ctx, work.Name, free, patch, metav1.PatchOptions{})
		}
	}
}

func (w *world) time() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// running is a controller.
type running struct {
	*Controller
	stop     func()
	events   *events
	registry *prometheus.Registry

	mu       sync.Mutex
	requests []string // guarded by mu: verb and resource of each that writes
	lists    int      // guarded by mu: how often the works of a set were asked for
}

// events are those that were recorded.
type events struct {
	record.EventRecorder
	mu    sync.Mutex
	texts []string // guarded by mu
}

func (e *events) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.texts = append(e.texts, fmt.Sprintf("%s %s ", kind, reason)+fmt.Sprintf(format, args...))
}

func (e *events) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.texts)
}

// start runs a controller until it is stopped or the test ends.
func (w *world) start() *running {
	w.t.Helper()
	r := &running{events: &events{}, registry: prometheus.NewRegistry()}
	config := plane.REST()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if verb, resource := kube.Describe(request); verb != "get" && verb != "list" && verb != "watch" {
				r.mu.Lock()
				r.requests = append(r.requests, verb+" "+resource)
				r.mu.Unlock()
			} else if verb == "list" && request.URL.Query().Has("labelSelector") {
				r.mu.Lock()
				r.lists++
				r.mu.Unlock()
			}
			return next.RoundTrip(request)
		})
	})
	client, err := versioned.NewForConfig(config)
	if err != nil {
		w.t.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	informers := controller.NewInformers(controller.InformersConfig{Client: client, Logger: logger})
	cache, err := works.New(works.Config{Informers: informers})
	if err != nil {
		w.t.Fatal(err)
	}
	r.Controller, err = New(Config{
		Works: cache, Client: client, Recorder: r.events, Now: w.time, Logger: logger, Registerer: r.registry,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = informers.Run(ctx) })
	group.Go(func() {
		if err := r.Run(ctx); err != nil {
			w.t.Error(err)
		}
	})
	r.stop = sync.OnceFunc(func() { cancel(); group.Wait() })
	w.t.Cleanup(r.stop)
	w.eventually("the controller works", func() error { return r.Ready(ctx) })
	return r
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// writes gives the requests that wrote, and forgets them.
func (r *running) writes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	requests := r.requests
	r.requests = nil
	slices.Sort(requests)
	return requests
}

func (w *world) eventually(what string, check func() error) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: %v", what, err)
		}
	}
}

// place writes a placement that chose these groups of clusters.
func (w *world) place(name string, groups ...[]string) {
	w.t.Helper()
	placement, decisions := placementOf(name, groups...)
	w.store(placement, decisions)
}

// store writes a placement and its decisions, as whoever serves Placement does.
func (w *world) store(placement *clusterv1beta1.Placement, decisions []*clusterv1beta1.PlacementDecision) {
	w.t.Helper()
	ctx := w.t.Context()
	api := w.client.ClusterV1beta1()
	must := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	known, err := api.PlacementDecisions(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: clusterv1beta1.PlacementLabel + "=" + placement.Name})
	must(err)
	left := map[string]*clusterv1beta1.PlacementDecision{}
	for i := range known.Items {
		left[known.Items[i].Name] = &known.Items[i]
	}
	for _, decision := range decisions {
		decision.Namespace = w.namespace
		stored := left[decision.Name]
		delete(left, decision.Name)
		if stored == nil {
			stored, err = api.PlacementDecisions(w.namespace).Create(ctx, decision, metav1.CreateOptions{})
			must(err)
		}
		stored.Status = decision.Status
		_, err = api.PlacementDecisions(w.namespace).UpdateStatus(ctx, stored, metav1.UpdateOptions{})
		must(err)
	}
	for name := range left {
		must(api.PlacementDecisions(w.namespace).Delete(ctx, name, metav1.DeleteOptions{}))
	}
	placement.Namespace = w.namespace
	stored, err := api.Placements(w.namespace).Create(ctx, placement, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		stored, err = api.Placements(w.namespace).Get(ctx, placement.Name, metav1.GetOptions{})
	}
	must(err)
	stored.Status = placement.Status
	_, err = api.Placements(w.namespace).UpdateStatus(ctx, stored, metav1.UpdateOptions{})
	must(err)
}

func (w *world) create(set *workv1alpha1.ManifestWorkReplicaSet) {
	w.t.Helper()
	set.Namespace, set.UID = w.namespace, ""
	if _, err := w.client.WorkV1alpha1().ManifestWorkReplicaSets(w.namespace).Create(w.t.Context(), set, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) update(name string, change func(*workv1alpha1.ManifestWorkReplicaSet)) {
	w.t.Helper()
	client := w.client.WorkV1alpha1().ManifestWorkReplicaSets(w.namespace)
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		set, err := client.Get(w.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(set)
		_, err = client.Update(w.t.Context(), set, metav1.UpdateOptions{})
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) set(name string) (*workv1alpha1.ManifestWorkReplicaSet, error) {
	return w.client.WorkV1alpha1().ManifestWorkReplicaSets(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{})
}

// works gives the works of a set.
func (w *world) works(set string) []*workv1.ManifestWork {
	w.t.Helper()
	list, err := w.client.WorkV1().ManifestWorks("").List(w.t.Context(), metav1.ListOptions{
		LabelSelector: workv1.ReplicaSetLabelKey + "=" + w.namespace + "." + set,
	})
	if err != nil {
		w.t.Fatal(err)
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

// short is the name of a cluster without the test's namespace: "c01".
func (w *world) short(cluster string) string { return strings.TrimPrefix(cluster, w.namespace+"-") }

// holding gives, in words, the clusters whose work has this template: "c01 c02".
func (w *world) holding(set, value string) string {
	w.t.Helper()
	var clusters []string
	want := template(value)
	for _, work := range w.works(set) {
		if sameSpec(&work.Spec, &want) {
			clusters = append(clusters, w.short(work.Namespace))
		}
	}
	return strings.Join(clusters, " ")
}

// expect waits until these clusters hold the template.
func (w *world) expect(set, value, clusters string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("template %s is in %q", value, clusters), func() error {
		if got := w.holding(set, value); got != clusters {
			return fmt.Errorf("it is in %q", got)
		}
		return nil
	})
}

// answer is what agents report of the works of a set in these clusters: that they
// are applied and available, and these conditions besides, each "Type=Status".
func (w *world) answer(set string, clusters []string, besides ...string) {
	w.t.Helper()
	for _, work := range w.works(set) {
		if slices.Contains(clusters, work.Namespace) {
			w.report(work, append([]string{"Applied=True", "Available=True"}, besides...)...)
		}
	}
}

// report is what an agent reports of a work.
func (w *world) report(work *workv1.ManifestWork, conditions ...string) {
	w.t.Helper()
	work.Status.Conditions = slices.DeleteFunc(work.Status.Conditions, func(c metav1.Condition) bool {
		return !slices.ContainsFunc(conditions, func(text string) bool { return strings.HasPrefix(text, c.Type+"=") })
	})
	for _, text := range conditions {
		kind, status, _ := strings.Cut(text, "=")
		meta.SetStatusCondition(&work.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionStatus(status), Reason: "Reported", ObservedGeneration: work.Generation,
			LastTransitionTime: metav1.NewTime(w.time()),
		})
	}
	client := w.client.WorkV1().ManifestWorks(work.Namespace)
	patch, err := encode([]operation{{"add", "/status", work.Status}})
	if err == nil {
		_, err = client.Patch(w.t.Context(), work.Name, types.JSONPatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// statusText is a status in words, a line for each condition and placement, and
// one for the sum.
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

// reaches waits until the status of the set is this text.
func (w *world) reaches(set, want string) {
	w.t.Helper()
	w.eventually("the status of "+set, func() error {
		current, err := w.set(set)
		if err != nil {
			return err
		}
		if got := strings.ReplaceAll(statusText(&current.Status), w.namespace+"-", ""); got != want {
			return fmt.Errorf("\n got %s\nwant %s", got, want)
		}
		return nil
	})
}

// tells waits until an event begins like that.
func (w *world) tells(r *running, prefix string) {
	w.t.Helper()
	w.eventually("an event", func() error {
		for _, text := range r.events.all() {
			if strings.HasPrefix(strings.ReplaceAll(text, w.namespace+"-", ""), prefix) {
				return nil
			}
		}
		return fmt.Errorf("%q is not in %q", prefix, r.events.all())
	})
}

// settle has the controller look at a set until it has nothing to write in
// several passes, which are a pause apart. It gives what it wrote.
func (w *world) settle(r *running, set string) (written []string) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	for quiet := 0; quiet < 3; quiet++ {
		if time.Now().After(deadline) {
			w.t.Fatalf("there is no end of writes: %q", written)
		}
		before := passesOf(w.t, r.registry)
		r.look(w, set)
		w.eventually("a pass", func() error {
			if passesOf(w.t, r.registry) == before {
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

// look has the controller look at a set again, as when the time has come.
func (r *running) look(w *world, set string) {
	r.changed(types.NamespacedName{Namespace: w.namespace, Name: set})
}

func passesOf(t testing.TB, registry *prometheus.Registry) int {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "workwire_hub_replicaset_pass_seconds" {
			return int(family.GetMetric()[0].GetHistogram().GetSampleCount())
		}
	}
	return 0
}

// shows waits until a metric with one label has these values.
func (w *world) shows(r *running, name string, want map[string]int) {
	w.t.Helper()
	w.eventually(name, func() error {
		if got := gauge(w.t, r.registry, name); !maps.Equal(got, want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	})
}

// gauge gives the values of a metric by their one label, without zeros.
func gauge(t testing.TB, registry *prometheus.Registry, name string) map[string]int {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]int{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == name {
				values[metric.GetLabel()[0].GetValue()] = int(metric.GetGauge().GetValue())
			}
		}
	}
	maps.DeleteFunc(values, func(_ string, value int) bool { return value == 0 })
	return values
}
