package clusters_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/clusters"
	"github.com/workwire/workwire/pkg/hub/controller"
	"github.com/workwire/workwire/pkg/kube"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

var plane *controlplane.Plane

// The agents of these tests apply nothing, so that a hub's API does for their
// clusters as well.
func TestMain(m *testing.M) {
	controlplane.Main(m, controlplane.Hub, func(p *controlplane.Plane) error {
		plane = p
		return install.CRDs(context.Background(), p.REST(), append(crds.Hub(), crds.Spoke()...)...)
	})
}

// world is the API of a hub. Tests share it, and as every fleet keeps all clusters
// of its hub, one test runs at a time, and begins without any.
type world struct {
	*testing.T
	client versioned.Interface
	core   kubernetes.Interface
}

func newWorld(t *testing.T) *world {
	t.Helper()
	plane.Require(t)
	w := &world{T: t, client: versioned.NewForConfigOrDie(plane.REST()), core: kubernetes.NewForConfigOrDie(plane.REST())}
	t.Cleanup(func() {
		err := w.client.ClusterV1().ManagedClusters().DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{})
		if err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return w
}

var worlds atomic.Int64

// unique gives a name that no namespace has had, also if tests are repeated.
func (w *world) unique(name string) string { return fmt.Sprint(name, "-", worlds.Add(1)) }

// fleet is a running clusters.Clusters, and all that it has said and asked for.
type fleet struct {
	*clusters.Clusters
	w        *world
	events   *record.FakeRecorder
	registry *prometheus.Registry
	stop     func()
	engine   atomic.Pointer[delivery.Engine] // see world.hub; may be nil

	mu        sync.Mutex
	changed   []wire.ClusterName
	probed    []wire.ClusterName
	requests  []string                 // verb, resource and name
	announced map[wire.ClusterName]int // see world.hub
	busy      int                      // requests under way, but for watches
	busiest   int
	pulse     chan struct{} // closed and replaced when something of these changes
	// trip, if it is set, stands for the way to the API server.
	trip func(verb, resource string, r *http.Request) error
}

// start runs a fleet until the test ends, and returns when it knows all
// ManagedClusters.
func (w *world) start(change ...func(*clusters.Config)) *fleet {
	w.Helper()
	f := &fleet{w: w, events: record.NewFakeRecorder(10_000), registry: prometheus.NewRegistry(), pulse: make(chan struct{}), announced: map[wire.ClusterName]int{}}
	config := plane.REST()
	kit.Intercept(config, f.roundTrip)
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		w.Fatal(err)
	}
	client, err := versioned.NewForConfigAndClient(config, httpClient)
	if err != nil {
		w.Fatal(err)
	}
	core, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		w.Fatal(err)
	}
	logger := kit.Logger(w)
	informers := controller.NewInformers(controller.InformersConfig{Client: client, Logger: logger})
	c := clusters.Config{
		Informers: informers, Client: client, Namespaces: core.CoreV1().Namespaces(), AutoRegister: true, Recorder: f.events,
		Registerer: f.registry, Logger: logger,
	}
	for _, set := range change {
		set(&c)
	}
	if f.Clusters, err = clusters.New(c); err != nil {
		w.Fatal(err)
	}
	f.Listen(f)
	f.stop = kit.Run(w, "fleet", func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return informers.Run(ctx) })
		group.Go(func() error { return f.Run(ctx) })
		return group.Wait()
	})
	bounded, done := context.WithTimeout(w.Context(), patience)
	defer done()
	if !f.WaitForSync(bounded) {
		w.Fatalf("not synced: %v", f.Ready(bounded))
	}
	return f
}

// AcceptanceChanged implements [clusters.Listener].
func (f *fleet) AcceptanceChanged(name wire.ClusterName) {
	f.note(func() { f.changed = append(f.changed, name) })
}

// ProbeCluster implements [clusters.Listener].
func (f *fleet) ProbeCluster(name wire.ClusterName) {
	f.note(func() { f.probed = append(f.probed, name) })
	if engine := f.engine.Load(); engine != nil {
		engine.ProbeCluster(name)
	}
}

func (f *fleet) roundTrip(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	verb, resource := kube.Describe(r)
	if verb == "watch" || verb == "list" {
		return next.RoundTrip(r)
	}
	path := strings.Split(strings.TrimSuffix(r.URL.Path, "/status"), "/")
	f.mu.Lock()
	trip := f.trip
	f.mu.Unlock()
	f.note(func() {
		f.requests = append(f.requests, verb+" "+resource+" "+path[len(path)-1])
		f.busy++
		f.busiest = max(f.busiest, f.busy)
	})
	defer f.note(func() { f.busy-- })
	if trip != nil {
		if err := trip(verb, resource, r); err != nil {
			return nil, err
		}
	}
	return next.RoundTrip(r)
}

// note changes what is written down.
func (f *fleet) note(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.pulse)
	f.pulse = make(chan struct{})
}

// await waits until what is written down is as wanted.
func (f *fleet) await(what string, want func() bool) {
	f.w.Helper()
	for deadline := time.After(patience); ; {
		f.mu.Lock()
		ok, pulse := want(), f.pulse
		f.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-pulse:
		case <-deadline:
			f.w.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// intercept puts trip on the way to the API server.
func (f *fleet) intercept(trip func(verb, resource string, r *http.Request) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trip = trip
}

// requested counts the requests about a cluster by verb and resource.
func (f *fleet) requested(name string) map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := map[string]int{}
	for _, request := range f.requests {
		if what, of, _ := cutLast(request); of == name {
			counts[what]++
		}
	}
	return counts
}

func cutLast(s string) (string, string, bool) {
	i := strings.LastIndex(s, " ")
	return s[:max(i, 0)], s[i+1:], i >= 0
}

// awaitChanged waits until AcceptanceChanged was called for a cluster.
func (f *fleet) awaitChanged(name string) {
	f.w.Helper()
	f.await("AcceptanceChanged of "+name, func() bool {
		i := slices.Index(f.changed, wire.ClusterName(name))
		if i >= 0 {
			f.changed = slices.Delete(f.changed, i, i+1)
		}
		return i >= 0
	})
}

// awaitProbed waits until the agent of a cluster was probed.
func (f *fleet) awaitProbed(name string) {
	f.w.Helper()
	f.await("probe of "+name, func() bool {
		i := slices.Index(f.probed, wire.ClusterName(name))
		if i >= 0 {
			f.probed = slices.Delete(f.probed, i, i+1)
		}
		return i >= 0
	})
}

// awaitEvents waits for the next events, each as its type and reason.
func (f *fleet) awaitEvents(want ...string) {
	f.w.Helper()
	for _, text := range want {
		select {
		case got := <-f.events.Events:
			if !strings.HasPrefix(got, text+" ") {
				f.w.Errorf("event %q, want %s", got, text)
			}
		case <-time.After(patience):
			f.w.Fatalf("no event %s within %s", text, patience)
		}
	}
}

// says has the agent of a cluster announce a session, or its end.
func (f *fleet) says(name, session string, present bool) {
	f.MessageReceived(wire.ClusterName(name), &wire.Presence{Agent: name + "-agent", Cluster: wire.ClusterName(name), Session: session, Present: present})
}

func (f *fleet) accepted(name string) bool { return f.Accepted(wire.ClusterName(name)) }

// settle returns when all that was to be written before is written.
func (f *fleet) settle() {
	f.w.Helper()
	f.await("the end of what is under way", func() bool { return f.busy == 0 })
}

func (w *world) get(name string) *clusterv1.ManagedCluster {
	w.Helper()
	cluster, err := w.client.ClusterV1().ManagedClusters().Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return cluster
}

func (w *world) create(name string, change ...func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
	w.Helper()
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, set := range change {
		set(cluster)
	}
	created, err := w.client.ClusterV1().ManagedClusters().Create(w.Context(), cluster, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return created
}

// update changes a cluster until it meets no other change.
func (w *world) update(name string, change func(*clusterv1.ManagedCluster)) {
	w.Helper()
	for {
		cluster := w.get(name)
		change(cluster)
		_, err := w.client.ClusterV1().ManagedClusters().Update(w.Context(), cluster, metav1.UpdateOptions{})
		if err == nil {
			return
		}
		if !apierrors.IsConflict(err) {
			w.Fatal(err)
		}
	}
}

func (w *world) accept(name string, accept bool) {
	w.Helper()
	w.update(name, func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = accept })
}

func (w *world) delete(name string) {
	w.Helper()
	if err := w.client.ClusterV1().ManagedClusters().Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// await watches a cluster until it is as wanted; nil stands for one that does not exist.
func (w *world) await(name, what string, want func(*clusterv1.ManagedCluster) bool) *clusterv1.ManagedCluster {
	w.Helper()
	return kit.Await(w, w.client.ClusterV1().ManagedClusters(), name, what, want)
}

// awaitAll watches until there are so many clusters, and all are as wanted.
func (w *world) awaitAll(count int, what string, want func(*clusterv1.ManagedCluster) bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 4*patience)
	defer cancel()
	as := map[string]bool{}
	defer func() {
		if len(as) != count {
			w.Fatalf("%d clusters are %s, want %d", len(as), what, count)
		}
	}()
	for len(as) != count && ctx.Err() == nil {
		list, err := w.client.ClusterV1().ManagedClusters().List(ctx, metav1.ListOptions{})
		if err != nil {
			w.Fatal(err)
		}
		clear(as)
		for i := range list.Items {
			if want(&list.Items[i]) {
				as[list.Items[i].Name] = true
			}
		}
		changes, err := w.client.ClusterV1().ManagedClusters().Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		if err != nil {
			w.Fatal(err)
		}
		for open := true; open && len(as) != count; {
			var change watch.Event
			if change, open = <-changes.ResultChan(); open {
				if cluster, ok := change.Object.(*clusterv1.ManagedCluster); ok && want(cluster) {
					as[cluster.Name] = true
				} else if ok {
					delete(as, cluster.Name)
				}
			}
		}
		changes.Stop()
	}
}

// is tells of a cluster with a condition of this status and reason, and with taints
// that go with it.
func is(kind string, status metav1.ConditionStatus, reason string) func(*clusterv1.ManagedCluster) bool {
	return func(cluster *clusterv1.ManagedCluster) bool {
		if cluster == nil {
			return false
		}
		c := meta.FindStatusCondition(cluster.Status.Conditions, kind)
		if c == nil || c.Status != status || c.Reason != reason {
			return false
		}
		unreachable := slices.ContainsFunc(cluster.Spec.Taints, func(t clusterv1.Taint) bool {
			return t.Key == clusterv1.ManagedClusterTaintUnreachable
		})
		return kind != clusterv1.ManagedClusterConditionAvailable || unreachable == (status == metav1.ConditionUnknown)
	}
}

var (
	available    = is(clusterv1.ManagedClusterConditionAvailable, metav1.ConditionTrue, clusters.ReasonAvailable)
	disconnected = is(clusterv1.ManagedClusterConditionAvailable, metav1.ConditionUnknown, clusters.ReasonDisconnected)
	silent       = is(clusterv1.ManagedClusterConditionAvailable, metav1.ConditionUnknown, clusters.ReasonSilent)
	missing      = is(clusterv1.ManagedClusterConditionAvailable, metav1.ConditionUnknown, clusters.ReasonMissing)
	notSeen      = is(clusterv1.ManagedClusterConditionAvailable, metav1.ConditionUnknown, clusters.ReasonNotSeen)
	isAccepted   = is(clusterv1.ManagedClusterConditionHubAccepted, metav1.ConditionTrue, clusters.ReasonAccepted)
	notAccepted  = is(clusterv1.ManagedClusterConditionHubAccepted, metav1.ConditionFalse, clusters.ReasonNotAccepted)
	joined       = is(clusterv1.ManagedClusterConditionJoined, metav1.ConditionTrue, clusters.ReasonJoined)
)

func gone(cluster *clusterv1.ManagedCluster) bool { return cluster == nil }
