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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/internal/clusters"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var plane *controlplane.Plane

// The agents of these tests apply nothing, so that a hub's API does for their clusters as well.
func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Hub: &plane}) }

// world is the API of a hub. Tests share it, and as every fleet keeps all clusters of its hub, one
// test runs at a time, and begins without any.
type world struct {
	*testing.T
	client versioned.Interface
	core   kubernetes.Interface
	// answers names a cluster whose agent announces itself when it is probed.
	answers wire.ClusterName
}

func newWorld(t *testing.T) *world {
	t.Helper()
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
	requests *kit.Requests
	stop     func()
	engine   atomic.Pointer[delivery.Engine] // see world.hub; may be nil

	mu        sync.Mutex
	changed   []wire.ClusterName
	probed    []wire.ClusterName
	resumed   []wire.ClusterName
	gained    []wire.ClusterName
	lost      []wire.ClusterName
	deleted   []string                 // works that were released, as CLUSTER/NAME/UID
	announced map[wire.ClusterName]int // see world.hub
	busy      int                      // requests under way, but for lists and watches
	busiest   int
}

// start runs a fleet until the test ends, and returns when it knows all ManagedClusters.
func (w *world) start(change ...func(*clusters.Config)) *fleet {
	w.Helper()
	f := &fleet{w: w, events: record.NewFakeRecorder(10_000), registry: prometheus.NewRegistry(), announced: map[wire.ClusterName]int{}}
	config := plane.REST()
	f.requests = kit.CountRequests(config)
	kit.Intercept(config, f.roundTrip)
	client, core := versioned.NewForConfigOrDie(config), kubernetes.NewForConfigOrDie(config)
	logger := kit.Logger(w)
	informers := controller.NewInformers(controller.InformersConfig{Client: client, Logger: logger})
	cache, err := works.NewCache(informers, nil)
	kit.NoError(w, err)
	c := clusters.Config{
		Informers: informers, Client: client, Works: cache, Namespaces: core.CoreV1().Namespaces(), AutoRegister: true, Recorder: f.events,
		Registerer: f.registry, Logger: logger, UnreachableGrace: time.Millisecond,
	}
	for _, set := range change {
		set(&c)
	}
	if f.Clusters, err = clusters.New(c); err != nil {
		w.Fatal(err)
	}
	f.stop = kit.Run(w, "fleet", func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return informers.Run(ctx) })
		group.Go(func() error { return f.Run(ctx, f) })
		return group.Wait()
	})
	kit.Eventually(w, "the fleet is synced", func() error { return f.Ready(w.Context()) })
	f.Observe(delivery.ConnectionChanged{Up: true})
	return f
}

// ClusterChanged implements [clusters.Listener].
func (f *fleet) ClusterChanged(wire.ClusterName) {}

// AcceptanceChanged implements [clusters.Listener].
func (f *fleet) AcceptanceChanged(name wire.ClusterName) {
	f.note(func() { f.changed = append(f.changed, name) })
}

// ProbeCluster implements [clusters.Listener].
func (f *fleet) ProbeCluster(name wire.ClusterName) {
	f.note(func() { f.probed = append(f.probed, name) })
	if name == f.w.answers {
		f.says(string(name), "a", true)
	}
	if engine := f.engine.Load(); engine != nil {
		engine.ProbeCluster(name)
	}
}

// PauseEnded implements [clusters.Listener].
func (f *fleet) PauseEnded(name wire.ClusterName) {
	f.note(func() { f.resumed = append(f.resumed, name) })
}

// ClusterGained implements [clusters.Listener].
func (f *fleet) ClusterGained(name wire.ClusterName) {
	f.note(func() { f.gained = append(f.gained, name) })
}

// ClusterLost implements [clusters.Listener].
func (f *fleet) ClusterLost(name wire.ClusterName) {
	f.note(func() { f.lost = append(f.lost, name) })
}

// WorkRemoved implements [clusters.Listener].
func (f *fleet) WorkRemoved(last *workv1.ManifestWork) {
	f.note(func() { f.deleted = append(f.deleted, last.Namespace+"/"+last.Name+"/"+string(last.UID)) })
}

// direct reports whether a request is one that a reconcile makes.
func direct(r kit.Request) bool { return r.Verb != "list" && r.Verb != "watch" }

func (f *fleet) roundTrip(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	if verb, _ := kube.Describe(r); verb == "watch" || verb == "list" {
		return next.RoundTrip(r)
	}
	f.note(func() {
		f.busy++
		f.busiest = max(f.busiest, f.busy)
	})
	defer f.note(func() { f.busy-- })
	return next.RoundTrip(r)
}

// note changes what is written down.
func (f *fleet) note(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// await waits until what is written down is as wanted.
func (f *fleet) await(what string, want func() bool) {
	f.w.Helper()
	kit.True(f.w, what, func() (ok bool) {
		f.note(func() { ok = want() })
		return ok
	})
}

// requested counts the requests about a cluster by verb and resource; the empty name is of
// creations.
func (f *fleet) requested(name string) map[string]int {
	return f.requests.Counts(kit.Named(name), direct)
}

// awaitCall waits until calls, which is f.changed or f.probed, has a cluster, and drops it from
// there.
func (f *fleet) awaitCall(calls *[]wire.ClusterName, what, name string) {
	f.w.Helper()
	f.await(what+" of "+name, func() bool {
		i := slices.Index(*calls, wire.ClusterName(name))
		if i >= 0 {
			*calls = slices.Delete(*calls, i, i+1)
		}
		return i >= 0
	})
}

// awaitChanged waits until AcceptanceChanged was called for a cluster.
func (f *fleet) awaitChanged(name string) {
	f.w.Helper()
	f.awaitCall(&f.changed, "AcceptanceChanged", name)
}

// awaitProbed waits until the agent of a cluster was probed.
func (f *fleet) awaitProbed(name string) { f.w.Helper(); f.awaitCall(&f.probed, "probe", name) }

// awaitEvents waits for the next events, each as its type and reason.
func (f *fleet) awaitEvents(want ...string) {
	f.w.Helper()
	for _, text := range want {
		if got := kit.Receive(f.w, "event "+text, f.events.Events); !strings.HasPrefix(got, text+" ") {
			f.w.Errorf("event %q, want %s", got, text)
		}
	}
}

// says has the agent of a cluster announce a session, or its end.
func (f *fleet) says(name, session string, present bool) {
	f.Observe(delivery.ClusterHeard{Cluster: wire.ClusterName(name), Presence: &wire.Presence{Agent: name + "-agent", Cluster: wire.ClusterName(name), Session: session, Present: present}})
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
	kit.NoError(w, err)
	return cluster
}

func (w *world) create(name string, change ...func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
	w.Helper()
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, set := range change {
		set(cluster)
	}
	created, err := w.client.ClusterV1().ManagedClusters().Create(w.Context(), cluster, metav1.CreateOptions{})
	kit.NoError(w, err)
	return created
}

// update changes a cluster until it meets no other change.
func (w *world) update(name string, change func(*clusterv1.ManagedCluster)) {
	w.Helper()
	kit.Eventually(w, "update "+name, func() error {
		cluster := w.get(name)
		change(cluster)
		_, err := w.client.ClusterV1().ManagedClusters().Update(w.Context(), cluster, metav1.UpdateOptions{})
		return err
	})
}

func (w *world) accept(name string, accept bool) {
	w.Helper()
	w.update(name, func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = accept })
}

func (w *world) delete(name string) {
	w.Helper()
	kit.NoError(w, w.client.ClusterV1().ManagedClusters().Delete(w.Context(), name, metav1.DeleteOptions{}))
}

// await watches a cluster until it is as wanted; nil stands for one that does not exist.
func (w *world) await(name, what string, want func(*clusterv1.ManagedCluster) bool) *clusterv1.ManagedCluster {
	w.Helper()
	return kit.Await(w, w.client.ClusterV1().ManagedClusters(), name, what, want)
}

// awaitAll waits until there are so many clusters, and all are as wanted.
func (w *world) awaitAll(count int, what string, want func(*clusterv1.ManagedCluster) bool) {
	w.Helper()
	kit.Within(w, 2*kit.Patience, "all clusters are "+what, func() error {
		list, err := w.client.ClusterV1().ManagedClusters().List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		as := 0
		for i := range list.Items {
			if want(&list.Items[i]) {
				as++
			}
		}
		if as != count {
			return fmt.Errorf("%d are, want %d", as, count)
		}
		return nil
	})
}

// is tells of a cluster with a condition of this status and reason, and with taints that go with
// it.
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
	available    = is(clusterv1.ManagedClusterConditionAvailable, metav1.ConditionTrue, clusterv1.ReasonAvailable)
	disconnected = is(clusterv1.ManagedClusterConditionAvailable, metav1.ConditionUnknown, clusterv1.ReasonDisconnected)
	silent       = is(clusterv1.ManagedClusterConditionAvailable, metav1.ConditionUnknown, clusterv1.ReasonSilent)
	missing      = is(clusterv1.ManagedClusterConditionAvailable, metav1.ConditionUnknown, clusterv1.ReasonMissing)
	notSeen      = is(clusterv1.ManagedClusterConditionAvailable, metav1.ConditionUnknown, clusterv1.ReasonNotSeen)
	isAccepted   = is(clusterv1.ManagedClusterConditionHubAccepted, metav1.ConditionTrue, clusterv1.ReasonAccepted)
	notAccepted  = is(clusterv1.ManagedClusterConditionHubAccepted, metav1.ConditionFalse, clusterv1.ReasonNotAccepted)
	joined       = is(clusterv1.ManagedClusterConditionJoined, metav1.ConditionTrue, clusterv1.ReasonJoined)
)

func gone(cluster *clusterv1.ManagedCluster) bool { return cluster == nil }
