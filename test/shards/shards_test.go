// Package shards runs several hubs of one API on one broker, each with a shard of the clusters, and moves
// a cluster with a real agent between them.
package shards

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/workwire/workwire/broker"
	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/world"
)

const (
	source  = wire.SourceID("hub1")
	cluster = "cluster1"
)

// The hub API is also the cluster of the agent.
var plane *controlplane.Plane

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Hub: &plane}) }

// shards is a world with the names of what hubs and agent write.
type shards struct {
	*world.World
	client versioned.Interface
	leases string // the namespace of the Leases
}

func start(t *testing.T) *shards {
	t.Helper()
	w := world.New(t, world.Options{Hub: plane, Spokes: []*controlplane.Plane{plane}, Source: source, Clusters: []wire.ClusterName{cluster}})
	w.StartBroker(broker.Config{})
	return &shards{World: w, client: w.Client(), leases: plane.Namespace(t, "leases")}
}

// running is a hub that runs.
type running struct {
	*world.Hub
	name string
}

// hub starts a hub, with this selector unless it is empty.
func (w *shards) hub(name, selector string, change ...func(*hub.Config)) *running {
	w.Helper()
	r := w.newHub(name, selector, change...)
	r.Start()
	return r
}

func (w *shards) newHub(name, selector string, change ...func(*hub.Config)) *running {
	w.Helper()
	r := &running{name: hub.SharedLease(source) + name}
	r.Hub = w.NewHub(append([]func(*hub.Config){func(c *hub.Config) {
		c.Election, c.InstanceInterval, c.Transport = hub.NewElection(r.name), 300*time.Millisecond, w.Transport(string(source), string(source)+"-hub"+name, c.Topics)
		c.Election.Namespace = w.leases
		if selector != "" {
			var err error
			c.ClusterSelector, err = labels.Parse(selector)
			kit.NoError(w, err)
		}
	}}, change...)...)
	return r
}

// label has the cluster selected by shard=value.
func (w *shards) label(value string) {
	w.Helper()
	_, err := w.client.ClusterV1().ManagedClusters().Patch(w.Context(), cluster, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{"shard":%q}}}`, value), metav1.PatchOptions{})
	kit.NoError(w, err)
}

// awaitHolder waits until a hub holds the cluster.
func (w *shards) awaitHolder(r *running) {
	w.Helper()
	kit.Await(w, w.client.ClusterV1().ManagedClusters(), cluster, "held by "+r.name, func(c *clusterv1.ManagedCluster) bool {
		return c != nil && c.Annotations[clusterv1.HubAnnotationKey] == r.name
	})
}

// put creates or updates a work with one ConfigMap of its name.
func (w *shards) put(name, value string) { w.Helper(); w.Put(w.Works(0), w.Work(0, name, value, name)) }

func (w *shards) delete(name string) { w.Helper(); w.Delete(w.Works(0), name) }

// settled waits until the works, and no others, are there and applied at their generations, and the
// cluster has their ConfigMaps. It returns the UIDs of these.
func (w *shards) settled(want map[string]string) map[string]string {
	w.Helper()
	kit.Eventually(w, fmt.Sprintf("the hub has %d works", len(want)), func() error {
		works, err := w.Works(0).List(w.Context(), metav1.ListOptions{})
		if err == nil && len(works.Items) != len(want) {
			err = fmt.Errorf("it has %d", len(works.Items))
		}
		return err
	})
	w.Applied(w.Works(0), slices.Collect(maps.Keys(want))...)
	return w.Holds(0, want)
}

// awaitLeases waits until workctl finds these Leases of the hub that serves the cluster.
func (w *shards) awaitLeases(presence, leader string) {
	w.Helper()
	reader, err := fleet.NewReader(plane.REST())
	kit.NoError(w, err)
	kit.Eventually(w, "the Leases "+presence+" and "+leader, func() error {
		managed, err := w.client.ClusterV1().ManagedClusters().Get(w.Context(), cluster, metav1.GetOptions{})
		if err != nil {
			return err
		}
		p, l := reader.Leases(w.Context(), managed)
		if p == nil || l == nil || p.Name != presence || l.Name != leader {
			return fmt.Errorf("they are %v and %v", p, l)
		}
		return nil
	})
}

// managed has the cluster registered with this label. end deletes it with its works, while hub and
// agent run.
func (w *shards) managed(shard string) (end func()) {
	w.Helper()
	clusters := w.client.ClusterV1().ManagedClusters()
	_, err := clusters.Create(w.Context(), &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: cluster, Labels: map[string]string{"shard": shard}}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
	}, metav1.CreateOptions{})
	kit.NoError(w, err)
	return func() {
		works := w.client.WorkV1().ManifestWorks(cluster)
		kit.NoError(w, works.DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}))
		kit.Eventually(w, "all works are gone", func() error {
			left, err := works.List(context.Background(), metav1.ListOptions{})
			if err == nil && len(left.Items) > 0 {
				err = fmt.Errorf("%d works are left", len(left.Items))
			}
			return err
		})
		kit.NoError(w, clusters.Delete(context.Background(), cluster, metav1.DeleteOptions{}))
	}
}

// TestMove moves a cluster back and forth between two hubs while its works are created, changed and
// deleted: each change arrives, statuses are stored, and no object is deleted but those of the deleted
// works.
func TestMove(t *testing.T) {
	w := start(t)
	w.StartAgent(0)
	a, b := w.hub("-a", "shard=a"), w.hub("-b", "shard=b")
	defer w.managed("a")()
	hubs := map[string]*running{"a": a, "b": b}
	want := map[string]string{"stays": "0", "changes": "0", "goes": "0"}
	for name, value := range want {
		w.put(name, value)
	}
	before := w.settled(want)
	w.awaitHolder(a)

	for round, to := range []string{"b", "a", "b", "a"} {
		value := fmt.Sprint(round + 1)
		w.put("changes", value) // under way while the cluster moves
		w.label(to)
		w.put("new"+value, value)
		w.delete("goes")
		w.awaitHolder(hubs[to])
		want["changes"], want["new"+value] = value, value
		delete(want, "goes")
		w.settled(want)
		w.put("goes", value)
		want["goes"] = value
		w.settled(want)
	}

	// The hub that holds the cluster ends before it lets it go.
	a.Stop()
	w.label("b")
	w.awaitHolder(b)
	w.put("changes", "last")
	want["changes"] = "last"
	after := w.settled(want)
	for _, name := range []string{"stays", "changes"} {
		if after[name] != before[name] {
			t.Errorf("%s was deleted and created again on the way", name)
		}
	}
	b.Log.Await(t, "running the controllers that are about no single cluster")
	if lines := append(a.Log.Lines("another program publishes"), b.Log.Lines("another program publishes")...); len(lines) > 0 {
		t.Errorf("the hubs take each other for a fault:\n%s", strings.Join(lines, "\n"))
	}

	w.awaitLeases(clusterv1.HubPresenceLease(b.name), b.name)

	// A hub for all clusters waits for those with a selector, which know that they are alone.
	whole := w.hub("", "")
	whole.Log.Await(t, `standing by.*holder=\S*-b/`)
	if kit.Metric(t, whole.Metrics, "workwire_source_connected") != 0 {
		t.Error("a hub without a selector does not stand by")
	}

	// Back to one hub: it ignores what hubs with a selector have written.
	b.Stop()
	whole.Log.Await(t, "caches synced")
	w.awaitLeases(clusterv1.HubPresenceLeaseName, whole.name)
	w.put("changes", "whole")
	want["changes"] = "whole"
	w.settled(want)
}

// TestFromOneHub puts two hubs in the place of one: they wait until it has ended, and lose nothing.
func TestFromOneHub(t *testing.T) {
	w := start(t)
	w.StartAgent(0)
	whole := w.hub("", "")
	whole.Log.Await(t, "caches synced")
	a, _ := w.hub("-a", "shard=a"), w.hub("-b", "shard notin (a)")
	defer w.managed("")()
	want := map[string]string{"stays": "1", "goes": "1"}
	for name, value := range want {
		w.put(name, value)
	}
	before := w.settled(want)
	a.Log.Await(t, "a hub without --cluster-selector runs under the same source id")
	w.delete("goes")
	delete(want, "goes")
	whole.Stop()
	w.put("new", "1")
	want["new"] = "1"
	w.settled(want)
	w.label("a")
	w.awaitHolder(a)
	w.put("new", "2")
	want["new"] = "2"
	if after := w.settled(want); after["stays"] != before["stays"] {
		t.Error("an object was deleted and created again on the way")
	}
}

// TestWholeHubAfterAll: hubs with a selector end when one without leads all the same.
func TestWholeHubAfterAll(t *testing.T) {
	w := start(t)
	ended := make(chan error, 2)
	var hubs []*running
	for _, name := range []string{"a", "b"} {
		r := w.newHub("-"+name, "shard="+name)
		kit.Run(t, "hub "+r.name, func(ctx context.Context) error { ended <- r.Run(ctx); return nil })
		r.Log.Await(t, "caches synced")
		hubs = append(hubs, r)
	}
	hubs[1].Log.Await(t, `standing by.*holder=\S*-a/`)
	leases := kubernetes.NewForConfigOrDie(plane.REST()).CoordinationV1().Leases(w.leases)
	kit.Eventually(t, "another hub acquires the Lease", func() error {
		lease, err := leases.Get(t.Context(), hub.SharedLease(source), metav1.GetOptions{})
		if err != nil {
			return err
		}
		lease.Spec.HolderIdentity = ptr.To("host_1")
		_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		return err
	})
	reasons := fmt.Sprint(kit.Receive(t, "the end of a hub", ended), kit.Receive(t, "the end of the other hub", ended))
	for _, want := range []string{"leadership lost", "a hub without --cluster-selector runs under the same source id"} {
		if !strings.Contains(reasons, want) {
			t.Errorf("they ended with %s, want %s", reasons, want)
		}
	}
}

// late holds back watch events and lists of works while held is locked, but for lists of metadata.
type late struct {
	next http.RoundTripper
	held *sync.RWMutex
}

// RoundTrip implements [http.RoundTripper].
func (l late) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(r)
	if err == nil && strings.HasSuffix(r.URL.Path, "/manifestworks") && !strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
		response.Body = lateBody{response.Body, l.held}
	}
	return response, err
}

type lateBody struct {
	io.ReadCloser
	held *sync.RWMutex
}

func (b lateBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.held.RLock()
	defer b.held.RUnlock()
	return n, err
}

// TestMoveToALateHub moves a cluster to a hub whose watch of works is late: it does not know a work that
// the agent holds, and must not take it for a deleted one. The hub serves the cluster once it has read
// all works.
func TestMoveToALateHub(t *testing.T) {
	w := start(t)
	w.StartAgent(0)
	a := w.hub("-a", "shard=a")
	var slow sync.RWMutex
	b := w.hub("-b", "shard=b", func(c *hub.Config) {
		c.REST = rest.CopyConfig(c.REST)
		c.REST.Wrap(func(next http.RoundTripper) http.RoundTripper { return late{next, &slow} })
	})
	defer w.managed("a")()
	want := map[string]string{"first": "1"}
	w.put("first", "1")
	w.settled(want)
	w.awaitHolder(a)
	b.Log.Await(t, "caches synced")

	slow.Lock()
	w.put("second", "1")
	want["second"] = "1"
	before := w.settled(want)
	w.label("b")
	w.awaitHolder(b)
	b.Log.Await(t, "cache is not known to be current, reading it anew.*manifestworks")
	if len(b.Log.Lines("cluster gained")) > 0 {
		t.Error("the hub serves the cluster before it has read its works")
	}
	slow.Unlock()
	b.Log.Await(t, "cluster gained")
	w.put("first", "2")
	want["first"] = "2"
	if after := w.settled(want); !maps.Equal(after, before) {
		t.Errorf("objects were deleted and created again on the way: %v, were %v", after, before)
	}
}
