package clusters_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/client/clientset/versioned/scheme"
	"github.com/workwire/workwire/pkg/hub/internal/clusters"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

func TestRegistration(t *testing.T) {
	w := newWorld(t)
	name := w.unique("reg")
	f := w.start()
	before := time.Now().Truncate(time.Second)
	f.says(name, "a", true)
	cluster := w.await(name, "available", available)
	if cluster.Spec.HubAcceptsClient || !notAccepted(cluster) || !joined(cluster) || len(cluster.Spec.Taints) > 0 {
		t.Errorf("registered as %+v, %+v", cluster.Spec, cluster.Status.Conditions)
	}
	seen, err := time.Parse(time.RFC3339, cluster.Annotations[clusterv1.LastSeenAnnotationKey])
	if err != nil || seen.Before(before) || seen.After(time.Now()) {
		t.Errorf("last seen %v, %v", seen, err)
	}
	if cluster.Annotations[clusters.AnnouncesAnnotationKey] != "true" {
		t.Errorf("annotations %v", cluster.Annotations)
	}
	namespace, err := w.core.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
	kit.NoError(t, err)
	if namespace.Labels["cluster.open-cluster-management.io/managedCluster"] != name {
		t.Errorf("labels of the namespace %v", namespace.Labels)
	}
	f.awaitEvents("Normal Registered", "Normal Available")
	if f.accepted(name) || f.accepted("unknown") {
		t.Error("accepted, and nobody said so")
	}
	// Making the cluster, its namespace, and its conditions.
	f.settle()
	if got := f.requested(name); !maps.Equal(got, map[string]int{"patch managedclusters/status": 1}) {
		t.Errorf("requests about the cluster %v", got)
	}
	if got := f.requested(""); !maps.Equal(got, map[string]int{"create managedclusters": 1, "create namespaces": 1}) {
		t.Errorf("creations %v", got)
	}

	w.accept(name, true)
	f.awaitChanged(name)
	if !f.accepted(name) {
		t.Error("not accepted, though an administrator said so")
	}
	w.await(name, "accepted", isAccepted)
	f.awaitEvents("Normal Accepted")
	w.accept(name, false)
	f.awaitChanged(name)
	if f.accepted(name) {
		t.Error("still accepted")
	}
	w.await(name, "not accepted any more", notAccepted)
	f.awaitEvents("Normal NotAccepted")
}

// A ManagedCluster that is deleted comes back when its agent is heard again, and is the
// administrator's to accept.
func TestDeleted(t *testing.T) {
	w := newWorld(t)
	f := w.start(func(c *clusters.Config) { c.AutoAccept = true })
	f.says("del", "a", true)
	first := w.await("del", "available", available)
	f.awaitChanged("del")
	if !f.accepted("del") || !isAccepted(first) {
		t.Error("not accepted by --auto-accept")
	}
	w.update("del", func(c *clusterv1.ManagedCluster) { c.Finalizers = []string{"example.com/hold"} })
	w.delete("del")
	f.awaitChanged("del")
	if f.accepted("del") {
		t.Error("accepted while it is being deleted")
	}
	w.update("del", func(c *clusterv1.ManagedCluster) { c.Finalizers = nil })
	w.await("del", "gone", gone)
	f.awaitUnregistered(1)
	f.says("del", "a", false) // only the broker says so
	f.says("other", "a", true)
	w.await("other", "available", available)
	w.await("del", "gone still", gone)

	f.Observe(delivery.ClusterHeard{Cluster: "del"})
	again := w.await("del", "available again", available)
	if again.UID == first.UID || again.Spec.HubAcceptsClient || f.accepted("del") {
		t.Errorf("registered again as %+v", again.Spec)
	}
}

// awaitUnregistered waits until the fleet knows n clusters without a ManagedCluster.
func (f *fleet) awaitUnregistered(n float64) {
	f.w.Helper()
	kit.True(f.w, fmt.Sprint(n, " clusters are not registered"), func() bool { return f.metric("workwire_hub_clusters", "state=unregistered") == n })
}

// metric is the value of one of the fleet's metrics.
func (f *fleet) metric(name string, labels ...string) float64 {
	f.w.Helper()
	return kit.Gather(f.w, f.registry).Sum(name, labels...)
}

func TestWithoutRegistration(t *testing.T) {
	w := newWorld(t)
	name := w.unique("man")
	f := w.start(func(c *clusters.Config) { c.AutoRegister = false })
	f.says(name, "a", true)
	if !f.accepted(name) {
		t.Error("not accepted, though there is nothing to accept")
	}
	w.create(name)
	f.awaitChanged(name)
	if f.accepted(name) {
		t.Error("accepted, though its ManagedCluster says no")
	}
	cluster := w.await(name, "available", available)
	if !notAccepted(cluster) || !joined(cluster) {
		t.Errorf("conditions %+v", cluster.Status.Conditions)
	}
	if _, err := w.core.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("namespace: %v", err)
	}
	w.accept(name, true)
	f.awaitChanged(name)
	if !f.accepted(name) {
		t.Error("not accepted")
	}
	kit.Eventually(t, "an accepted cluster has its namespace", func() error {
		_, err := w.core.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
		return err
	})
	w.delete(name)
	w.await(name, "gone", gone)
	f.awaitUnregistered(1)
	if !f.accepted(name) {
		t.Error("not accepted without a ManagedCluster")
	}
	f.says(name, "b", true)
	w.create("last")
	w.await("last", "not seen", notSeen)
	w.await(name, "gone still", gone)
}

// A change of presence costs one request for the conditions and one for the taints, messages cost
// none, and what is not the hub's stays.
func TestPresenceIsWritten(t *testing.T) {
	w := newWorld(t)
	name := w.unique("pres")
	w.create(name, func(c *clusterv1.ManagedCluster) {
		c.Labels = map[string]string{"env": "prod"}
		c.Annotations = map[string]string{"example.com/a": "b"}
		c.Spec.HubAcceptsClient = true
		c.Spec.Taints = []clusterv1.Taint{{Key: "gpu", Value: "yes", Effect: clusterv1.TaintEffectPreferNoSelect}}
	})
	patch := `{"status":{"conditions":[{"type":"Other","status":"True","reason":"R","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}],
		"version":{"kubernetes":"v1.2.3"},"clusterClaims":[{"name":"region","value":"west"}]}}`
	if _, err := w.client.ClusterV1().ManagedClusters().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	f := w.start()
	w.await(name, "not seen", notSeen)
	for round := range 3 {
		session := fmt.Sprint("s", round)
		f.says(name, session, true)
		cluster := w.await(name, "available", available)
		for range 1000 {
			f.Observe(delivery.ClusterHeard{Cluster: wire.ClusterName(name)})
		}
		check := func() {
			t.Helper()
			other := meta.FindStatusCondition(cluster.Status.Conditions, "Other")
			if other == nil || other.Status != metav1.ConditionTrue || len(cluster.Status.ClusterClaims) != 1 || cluster.Status.Version.Kubernetes != "v1.2.3" ||
				cluster.Labels["env"] != "prod" || cluster.Annotations["example.com/a"] != "b" || len(cluster.Spec.Taints) == 0 ||
				cluster.Spec.Taints[0] != (clusterv1.Taint{Key: "gpu", Value: "yes", Effect: clusterv1.TaintEffectPreferNoSelect}) {
				t.Errorf("what is not the hub's: %+v", cluster)
			}
		}
		check()
		f.says(name, "old", false)
		f.says(name, session, false)
		cluster = w.await(name, "disconnected", disconnected)
		check()
		if len(cluster.Spec.Taints) != 2 || cluster.Spec.Taints[1].TimeAdded.IsZero() || cluster.Spec.Taints[1].Effect != clusterv1.TaintEffectNoSelect {
			t.Errorf("taints %+v", cluster.Spec.Taints)
		}
	}
	f.settle()
	// It was found as not seen before.
	want := map[string]int{"patch managedclusters/status": 1 + 3*2, "patch managedclusters": 1 + 3*2, "get namespaces": 1}
	if got := f.requested(name); !maps.Equal(got, want) {
		t.Errorf("requests %v, want %v", got, want)
	}
	f.awaitEvents("Normal Accepted", "Normal Available", "Warning Unavailable", "Normal Available", "Warning Unavailable")
	if got := f.metric("workwire_hub_presence_changes_total", "to=disconnected"); got != 3 {
		t.Errorf("%v changes to disconnected", got)
	}
	if got := f.metric("workwire_hub_clusters", "state=disconnected"); got != 1 {
		t.Errorf("%v clusters are disconnected", got)
	}
	if got := f.metric("workwire_hub_clusters_accepted"); got != 1 {
		t.Errorf("%v clusters are accepted", got)
	}
	if problems, err := testutil.GatherAndLint(f.registry); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", problems, err)
	}
}

// An agent that announces nothing counts as present while it speaks, and is asked before it is
// given up.
func TestSilence(t *testing.T) {
	w := newWorld(t)
	f := w.start(func(c *clusters.Config) { c.Silence = 400 * time.Millisecond })
	f.Observe(delivery.ConnectionChanged{Up: true})
	cluster := f.speaks("ocm")
	if cluster.Annotations[clusters.AnnouncesAnnotationKey] != "" {
		t.Errorf("annotations %v", cluster.Annotations)
	}
	f.probedAfterMessage("ocm")
	f.probedAfterMessage("ocm")
	w.await("ocm", "silent", silent)
	f.speaks("ocm")
}

// probedAfterMessage has an agent send a message, and waits until it is probed. On a busy machine it
// may be given up before it is probed; then it sends another one.
func (f *fleet) probedAfterMessage(name string) {
	f.w.Helper()
	f.note(func() { f.probed = nil })
	f.Observe(delivery.ClusterHeard{Cluster: wire.ClusterName(name)})
	kit.True(f.w, "probe of "+name, func() (probed bool) {
		f.note(func() { probed = slices.Contains(f.probed, wire.ClusterName(name)) })
		if !probed && silent(f.w.get(name)) {
			f.Observe(delivery.ClusterHeard{Cluster: wire.ClusterName(name)})
		}
		return probed
	})
}

// speaks has an agent send messages until its cluster is available.
func (f *fleet) speaks(name string) *clusterv1.ManagedCluster {
	f.w.Helper()
	stop := kit.Run(f.w, "the messages of "+name, func(ctx context.Context) error {
		for ctx.Err() == nil {
			f.Observe(delivery.ClusterHeard{Cluster: wire.ClusterName(name)})
			time.Sleep(10 * time.Millisecond)
		}
		return nil
	})
	defer stop()
	return f.w.await(name, "available", available)
}

// A hub that starts takes clusters for what is stored, and who does not show within
// 1.5 keepalives is missing.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	short := func(c *clusters.Config) { c.KeepAlive = time.Second }
	first := w.start(short)
	first.Observe(delivery.ConnectionChanged{Up: true})
	for _, name := range []string{"shows", "hides", "left"} {
		first.says(name, "a", true)
	}
	first.says("left", "a", false)
	first.Observe(delivery.ClusterHeard{Cluster: "ocm"})
	for _, name := range []string{"shows", "hides", "ocm"} {
		w.await(name, "available", available)
	}
	before := w.await("left", "disconnected", disconnected)
	first.stop()

	w.answers = "shows"
	began := time.Now()
	second := w.start(short)
	if after := w.get("left"); after.ResourceVersion != before.ResourceVersion {
		t.Error("a start changed what has not changed")
	}
	for _, name := range []string{"shows", "hides", "left", "ocm"} {
		second.awaitProbed(name)
	}
	w.await("hides", "missing", missing)
	if took := time.Since(began); took < 1500*time.Millisecond {
		t.Errorf("given up after %s", took)
	}
	for _, name := range []string{"shows", "ocm"} {
		if cluster := w.get(name); !available(cluster) {
			t.Errorf("%s: %+v", name, cluster.Status.Conditions)
		}
	}
	w.await("left", "disconnected", disconnected)
	for _, name := range []string{"shows", "ocm", "left"} {
		if got := second.requested(name); len(got) > 0 {
			t.Errorf("%s: requests %v for nothing", name, got)
		}
	}
	second.says("hides", "b", true)
	w.await("hides", "available", available)
}

// A ManagedCluster made by hand has its agent asked, if there is one.
func TestMadeByHand(t *testing.T) {
	w := newWorld(t)
	f := w.start()
	f.Observe(delivery.ConnectionChanged{Up: true})
	w.create("hand")
	f.awaitProbed("hand")
	w.await("hand", "not seen", notSeen)
	f.says("hand", "a", true)
	w.await("hand", "available", available)
	if _, err := w.core.CoreV1().Namespaces().Get(t.Context(), "hand", metav1.GetOptions{}); err != nil {
		t.Errorf("namespace: %v", err)
	}
}

// Many clusters that come, go and come back at once are written a few at a time, and once for all
// that has happened meanwhile.
func TestManyAtOnce(t *testing.T) {
	const count, workers = 60, 8
	w := newWorld(t)
	many := w.unique("many")
	f := w.start()
	everyone := func(session string, present bool) {
		for i := range count {
			f.says(fmt.Sprint(many, "-", i), session, present)
		}
	}
	await := func(what string, want func(*clusterv1.ManagedCluster) bool) {
		t.Helper()
		began := time.Now()
		w.awaitAll(count, what, want)
		t.Logf("%d clusters %s after %s", count, what, time.Since(began))
	}
	everyone("a", true)
	await("available", available)
	everyone("a", false)
	await("disconnected", disconnected)
	everyone("b", true)
	await("available again", available)
	f.settle()
	for i := range count {
		want := map[string]int{"patch managedclusters/status": 3, "patch managedclusters": 2}
		if got := f.requested(fmt.Sprint(many, "-", i)); !maps.Equal(got, want) {
			t.Fatalf("requests %v, want %v", got, want)
		}
	}
	// Now they flap, while nothing can be written.
	open := make(chan struct{})
	f.requests.Fail(func(r kit.Request) error {
		if r.Writes() {
			select {
			case <-open:
			case <-t.Context().Done():
			}
		}
		return nil
	})
	everyone("b", false)
	f.await("the first writes", func() bool { return f.busy == workers })
	for round := range 10 {
		everyone(fmt.Sprint("c", round), true)
		everyone(fmt.Sprint("c", round), false)
	}
	everyone("d", true)
	close(open)
	f.requests.Fail(nil)
	await("available in the end", available)
	f.settle()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busiest > workers {
		t.Errorf("%d requests at a time, with %d workers", f.busiest, workers)
	}
	if requests, most := len(f.requests.All(direct)), 2*count+count+5*count+4*4; requests > most {
		t.Errorf("%d requests, want at most %d", requests, most)
	}
}

// What fails is tried again, and one cluster's failures do not hold up another.
func TestFailures(t *testing.T) {
	w := newWorld(t)
	f := w.start()
	var failures atomic.Int32
	f.requests.Fail(func(r kit.Request) error {
		if strings.HasPrefix(r.Resource, "managedclusters") && r.Name == "sick" && failures.Add(1) <= 5 {
			return errors.New("the network is down")
		}
		return nil
	})
	f.says("sick", "a", true)
	f.says("well", "a", true)
	w.await("well", "available", available)
	w.await("sick", "available", available)
	f.says("sick", "a", false)
	w.await("sick", "disconnected", disconnected)
	if n := f.metric("workwire_hub_cluster_writes_total", "result=failed"); n != 5 {
		t.Errorf("%v failures counted", n)
	}
}

// A write that meets another one is made again upon that.
func TestConflict(t *testing.T) {
	w := newWorld(t)
	f := w.start()
	f.says("conf", "a", true)
	w.await("conf", "available", available)
	f.settle()
	var once sync.Once
	f.requests.Fail(func(r kit.Request) error {
		if direct(r) {
			once.Do(func() {
				w.update("conf", func(c *clusterv1.ManagedCluster) {
					c.Spec.HubAcceptsClient = true
					c.Spec.Taints = []clusterv1.Taint{{Key: "gpu", Effect: clusterv1.TaintEffectNoSelect}}
				})
			})
		}
		return nil
	})
	f.says("conf", "a", false)
	w.await("conf", "disconnected", disconnected)
	cluster := w.await("conf", "accepted", isAccepted)
	if len(cluster.Spec.Taints) != 2 || !cluster.Spec.HubAcceptsClient {
		t.Errorf("spec %+v", cluster.Spec)
	}
}

// A cluster that is deleted just when it is to be written is not created again by that.
func TestDeletedMeanwhile(t *testing.T) {
	w := newWorld(t)
	f := w.start(func(c *clusters.Config) { c.AutoAccept = true })
	f.says("mean", "a", true)
	first := w.await("mean", "available", available)
	f.settle()
	var once sync.Once
	f.requests.Fail(func(r kit.Request) error {
		if r.Verb == "patch" {
			once.Do(func() { w.delete("mean") })
		}
		return nil
	})
	f.says("mean", "a", false)
	f.awaitUnregistered(1)
	f.settle()
	w.await("mean", "gone", gone)
	f.says("mean", "b", true)
	if again := w.await("mean", "available", available); again.UID == first.UID || again.Spec.HubAcceptsClient {
		t.Errorf("registered again as %+v", again.Spec)
	}
}

// A namespace that is being deleted is waited for.
func TestNamespaceBeingDeleted(t *testing.T) {
	w := newWorld(t)
	name := w.unique("nsd")
	namespaces := w.core.CoreV1().Namespaces()
	namespace, err := namespaces.Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"example.com/hold"}},
	}, metav1.CreateOptions{})
	kit.NoError(t, err)
	kit.NoError(t, namespaces.Delete(t.Context(), name, metav1.DeleteOptions{}))
	f := w.start()
	f.says(name, "a", true)
	kit.True(t, "a look at the namespace", func() bool { return f.requested(name)["get namespaces"] > 0 })
	if joined(w.get(name)) {
		t.Error("joined without a namespace")
	}
	release(t, namespaces, name)
	kit.Eventually(t, "the namespace is made again", func() error {
		made, err := namespaces.Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && made.UID == namespace.UID {
			err = errors.New("it is still the one before")
		}
		return err
	})
	w.await(name, "available", available)
	w.await(name, "joined", joined)
}

// release lets a deleted namespace go.
func release(t *testing.T, namespaces corev1client.NamespaceInterface, name string) {
	t.Helper()
	for {
		namespace, err := namespaces.Get(t.Context(), name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && namespace.DeletionTimestamp == nil:
			return
		case err == nil && len(namespace.Finalizers) > 0:
			namespace.Finalizers = nil
			_, err = namespaces.Update(t.Context(), namespace, metav1.UpdateOptions{})
		case err == nil:
			namespace.Spec.Finalizers = nil
			_, err = namespaces.Finalize(t.Context(), namespace, metav1.UpdateOptions{})
		}
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
}

// Names that are no name of a namespace are never registered.
func TestInvalidNames(t *testing.T) {
	w := newWorld(t)
	f := w.start()
	for _, name := range []wire.ClusterName{"", "-a", "a-", "A", "a.b", "a/b", wire.ClusterName(strings.Repeat("a", 64))} {
		f.Observe(delivery.ClusterHeard{Cluster: name})
		f.Observe(delivery.ClusterHeard{Cluster: name, Presence: &wire.Presence{Cluster: name, Session: "s", Present: true}})
		if f.Accepted(name) {
			t.Errorf("%q is accepted", name)
		}
	}
	if n := f.metric("workwire_hub_clusters_ignored_total", "reason=invalid_name"); n != 14 {
		t.Errorf("%v counted", n)
	}
	f.says("valid", "a", true)
	w.await("valid", "available", available)
	if got := f.requested(""); got["create managedclusters"] != 1 {
		t.Errorf("requests %v", got)
	}
}

// Events are on the hub's API, where kubectl describe finds them.
func TestEvents(t *testing.T) {
	w := newWorld(t)
	broadcaster := record.NewBroadcaster(record.WithContext(t.Context()))
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: w.core.CoreV1().Events("")})
	defer broadcaster.Shutdown()
	f := w.start(func(c *clusters.Config) {
		c.Recorder = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "work-hub"})
	})
	f.says("evt", "a", true)
	cluster := w.await("evt", "available", available)
	kit.Eventually(t, "the events are there", func() error {
		events, err := w.core.CoreV1().Events("").List(t.Context(), metav1.ListOptions{
			FieldSelector: "involvedObject.kind=ManagedCluster,involvedObject.uid=" + string(cluster.UID),
		})
		if err != nil {
			return err
		}
		reasons := sets.New[string]()
		for _, event := range events.Items {
			reasons.Insert(event.Reason)
		}
		if !reasons.HasAll("Registered", "Available") {
			return fmt.Errorf("there are %v", reasons)
		}
		return nil
	})
}

func TestReadyTellsWhatIsMissing(t *testing.T) {
	w := newWorld(t)
	denied := plane.REST()
	denied.Impersonate.UserName = "nobody"
	client := versioned.NewForConfigOrDie(denied)
	informers := controller.NewInformers(controller.InformersConfig{Client: client, Logger: slog.New(slog.DiscardHandler)})
	cache, err := works.NewCache(informers, nil)
	kit.NoError(t, err)
	c, err := clusters.New(clusters.Config{Informers: informers, Client: client, Works: cache, Namespaces: w.core.CoreV1().Namespaces(), Recorder: &record.FakeRecorder{},
		Logger: slog.New(slog.DiscardHandler)})
	kit.NoError(t, err)
	kit.Run(t, "informers", informers.Run)
	stop := kit.Run(t, "clusters", func(ctx context.Context) error { return c.Run(ctx, &fleet{w: w}) })
	kit.True(t, "Ready names the missing rights", func() bool {
		err := c.Ready(t.Context())
		return err != nil && strings.Contains(err.Error(), "grant get, list and watch")
	})
	if c.Accepted("any") {
		t.Error("accepted, and nothing is known")
	}
	stop()
	if c.HasSynced() {
		t.Error("synced without having read anything")
	}
	if err := w.start().Ready(t.Context()); err != nil {
		t.Errorf("ready: %v", err)
	}
}

func TestNewTellsEveryFault(t *testing.T) {
	_, err := clusters.New(clusters.Config{AutoRegister: true})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"Informers", "Client", "Works", "Namespaces", "Recorder"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not tell of %s", err, want)
		}
	}
	registry := prometheus.NewRegistry()
	w := newWorld(t)
	informers := controller.NewInformers(controller.InformersConfig{Client: w.client})
	cache, err := works.NewCache(informers, nil)
	kit.NoError(t, err)
	config := clusters.Config{Informers: informers, Client: w.client, Works: cache, Namespaces: w.core.CoreV1().Namespaces(), Recorder: &record.FakeRecorder{}, Registerer: registry}
	if _, err := clusters.New(config); err != nil {
		t.Error(err)
	}
	if _, err := clusters.New(config); err == nil {
		t.Error("registered twice")
	}
}
