// Package parts runs several hubs of one API on one broker, each with a part of the clusters, and moves
// a cluster with a real agent between them.
package parts

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/brokertest"
	"github.com/workwire/workwire/pkg/agent"
	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

const (
	source   = "hub1"
	password = "secret"
	cluster  = "cluster1"
)

// The hub API is also the cluster of the agent.
var plane *controlplane.Plane

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Hub: &plane}) }

var topics = wire.Topics{
	SourceEvents: "sources/" + source + "/clusters/+/sourceevents", AgentEvents: "sources/" + source + "/clusters/+/agentevents",
	SourceBroadcast: "sources/+/sourcebroadcast", AgentBroadcast: "clusters/+/agentbroadcast",
}

// world has a broker, an agent and the names of what hubs and agent write.
type world struct {
	*testing.T
	client versioned.Interface
	core   kubernetes.Interface
	broker *brokertest.Running
	leases string // the namespace of the Leases
	target string // the namespace of the ConfigMaps
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{
		T: t, client: versioned.NewForConfigOrDie(plane.REST()), core: kubernetes.NewForConfigOrDie(plane.REST()),
		broker: brokertest.Start(t, broker.Config{Users: []broker.User{
			{Username: source, Password: password, Role: acl.Source}, {Username: cluster, Password: password, Role: acl.Agent},
		}}),
		leases: plane.Namespace(t, "leases"), target: plane.Namespace(t, "target"),
	}
}

func (w *world) transport(user, clientID string) transport.Transport {
	w.Helper()
	tr, err := mqtt.New(mqtt.Config{ClientID: clientID, Logger: kit.Logger(w).With("client", clientID), Broker: config.Config{
		BrokerHost: w.broker.Addr, Username: user, Password: password, Topics: topics,
	}})
	kit.NoError(w, err)
	return tr
}

// running is a hub that runs.
type running struct {
	name    string
	log     *kit.Log
	metrics *prometheus.Registry
	stop    func()
}

// hub starts a hub, with this selector unless it is empty.
func (w *world) hub(name, selector string, change ...func(*hub.Config)) *running {
	w.Helper()
	r, h := w.newHub(name, selector, change...)
	r.stop = kit.Run(w, "hub "+r.name, h.Run)
	return r
}

func (w *world) newHub(name, selector string, change ...func(*hub.Config)) (*running, *hub.Hub) {
	w.Helper()
	r := &running{name: hub.SharedLease(source) + name, log: &kit.Log{}, metrics: prometheus.NewRegistry()}
	c := hub.Config{
		REST: plane.REST(), Source: source, Topics: topics, Election: hub.NewElection(r.name), Transport: w.transport(source, source+"-hub"+name),
		InstanceInterval: 300 * time.Millisecond, Registerer: r.metrics, Logger: r.log.Logger(),
	}
	c.Election.Namespace = w.leases
	if selector != "" {
		var err error
		c.ClusterSelector, err = labels.Parse(selector)
		kit.NoError(w, err)
	}
	for _, set := range change {
		set(&c)
	}
	h, err := hub.New(c)
	kit.NoError(w, err)
	w.Cleanup(func() {
		if w.Failed() {
			w.Logf("hub %s:\n%s", r.name, r.log)
		}
	})
	return r, h
}

func (w *world) agent() {
	w.Helper()
	a, err := agent.New(agent.Config{
		Cluster: cluster, ClientID: cluster + "-agent", AgentID: cluster, BrokerHost: w.broker.Addr, Topics: topics,
		Kube: plane.REST(), Transport: w.transport(cluster, cluster+"-agent"), Logger: kit.Logger(w),
	})
	kit.NoError(w, err)
	kit.Run(w, "agent", a.Run)
}

// label has the cluster selected by shard=value.
func (w *world) label(value string) {
	w.Helper()
	_, err := w.client.ClusterV1().ManagedClusters().Patch(w.Context(), cluster, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{"shard":%q}}}`, value), metav1.PatchOptions{})
	kit.NoError(w, err)
}

// awaitHolder waits until a hub holds the cluster.
func (w *world) awaitHolder(r *running) {
	w.Helper()
	kit.Await(w, w.client.ClusterV1().ManagedClusters(), cluster, "held by "+r.name, func(c *clusterv1.ManagedCluster) bool {
		return c != nil && c.Annotations[clusterv1.HubAnnotationKey] == r.name
	})
}

// put creates or updates a work with one ConfigMap of its name.
func (w *world) put(name, value string) {
	w.Helper()
	works := w.client.WorkV1().ManifestWorks(cluster)
	kit.Eventually(w, "put "+name, func() error {
		work, err := works.Get(w.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			work = &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: name}}
		} else if err != nil {
			return err
		}
		work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q},"data":{"k":%q}}`, name, w.target, value)}}}
		if work.UID == "" {
			_, err = works.Create(w.Context(), work, metav1.CreateOptions{})
		} else {
			_, err = works.Update(w.Context(), work, metav1.UpdateOptions{})
		}
		return err
	})
}

func (w *world) delete(name string) {
	w.Helper()
	kit.NoError(w, w.client.WorkV1().ManifestWorks(cluster).Delete(w.Context(), name, metav1.DeleteOptions{}))
}

// settled waits until the works, and no others, are there and applied at their generations, and the
// cluster has their ConfigMaps. It returns the UIDs of these.
func (w *world) settled(want map[string]string) map[string]types.UID {
	w.Helper()
	var uids map[string]types.UID
	kit.Eventually(w, fmt.Sprint("the cluster has ", want), func() error {
		works, err := w.client.WorkV1().ManifestWorks(cluster).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(works.Items) != len(want) {
			return fmt.Errorf("the hub has %d works", len(works.Items))
		}
		for _, work := range works.Items {
			c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkAvailable)
			if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != work.Generation {
				return fmt.Errorf("%s of generation %d has %+v", work.Name, work.Generation, work.Status.Conditions)
			}
		}
		list, err := w.core.CoreV1().ConfigMaps(w.target).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		got := map[string]string{}
		uids = map[string]types.UID{}
		for _, c := range list.Items {
			if c.Name != "kube-root-ca.crt" {
				got[c.Name], uids[c.Name] = c.Data["k"], c.UID
			}
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("the cluster has %v", got)
		}
		return nil
	})
	return uids
}

// awaitLeases waits until workctl finds these Leases of the hub that serves the cluster.
func (w *world) awaitLeases(presence, leader string) {
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
func (w *world) managed(shard string) (end func()) {
	w.Helper()
	_, err := w.core.CoreV1().Namespaces().Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		kit.NoError(w, err)
	}
	clusters := w.client.ClusterV1().ManagedClusters()
	_, err = clusters.Create(w.Context(), &clusterv1.ManagedCluster{
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
	w := newWorld(t)
	w.agent()
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
	a.stop()
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
	b.log.Await(t, "running the controllers that hubs share")
	if lines := append(a.log.Lines("another program publishes"), b.log.Lines("another program publishes")...); len(lines) > 0 {
		t.Errorf("the hubs take each other for a fault:\n%s", strings.Join(lines, "\n"))
	}

	w.awaitLeases(clusterv1.HubPresenceLease(b.name), b.name)

	// A hub for all clusters waits for those with a selector, which know that they are alone.
	whole := w.hub("", "")
	whole.log.Await(t, `standing by.*holder=\S*-b/`)
	if kit.Metric(t, whole.metrics, "workwire_source_connected") != 0 {
		t.Error("a hub without a selector does not stand by")
	}

	// Back to one hub: it ignores what hubs with a selector have written.
	b.stop()
	whole.log.Await(t, "caches synced")
	w.awaitLeases(clusterv1.HubPresenceLeaseName, whole.name)
	w.put("changes", "whole")
	want["changes"] = "whole"
	w.settled(want)
}

// TestFromOneHub puts two hubs in the place of one: they wait until it has ended, and lose nothing.
func TestFromOneHub(t *testing.T) {
	w := newWorld(t)
	w.agent()
	whole := w.hub("", "")
	whole.log.Await(t, "caches synced")
	a, _ := w.hub("-a", "shard=a"), w.hub("-b", "shard notin (a)")
	defer w.managed("")()
	want := map[string]string{"stays": "1", "goes": "1"}
	for name, value := range want {
		w.put(name, value)
	}
	before := w.settled(want)
	a.log.Await(t, "a hub without --cluster-selector runs under the same source id")
	w.delete("goes")
	delete(want, "goes")
	whole.stop()
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
	w := newWorld(t)
	ended := make(chan error, 2)
	var hubs []*running
	for _, name := range []string{"a", "b"} {
		r, h := w.newHub("-"+name, "shard="+name)
		kit.Run(t, "hub "+r.name, func(ctx context.Context) error { ended <- h.Run(ctx); return nil })
		r.log.Await(t, "caches synced")
		hubs = append(hubs, r)
	}
	hubs[1].log.Await(t, `standing by.*holder=\S*-a/`)
	leases := w.core.CoordinationV1().Leases(w.leases)
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
	w := newWorld(t)
	w.agent()
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
	b.log.Await(t, "caches synced")

	slow.Lock()
	w.put("second", "1")
	want["second"] = "1"
	before := w.settled(want)
	w.label("b")
	w.awaitHolder(b)
	b.log.Await(t, "cache is not known to be current, reading it anew.*manifestworks")
	if len(b.log.Lines("cluster gained")) > 0 {
		t.Error("the hub serves the cluster before it has read its works")
	}
	slow.Unlock()
	b.log.Await(t, "cluster gained")
	w.put("first", "2")
	want["first"] = "2"
	if after := w.settled(want); !maps.Equal(after, before) {
		t.Errorf("objects were deleted and created again on the way: %v, were %v", after, before)
	}
}
