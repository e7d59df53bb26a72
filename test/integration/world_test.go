// Package integration runs hubs, brokers and agents together, on real API servers, and on both the
// project's broker and Mosquitto: a work's life while parts are away (life_test.go), duplicate and
// reordered events, an agent that moves to another broker, and the rotation of certificates.
package integration

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/brokertest"
	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/runtime/leader"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

// The hub API also serves as the cluster of second agents: they need no more than namespaces and
// ConfigMaps. Both control planes are the package's own: every hub here handles all works of its
// API server.
var hubPlane, spokePlane *controlplane.Plane

func TestMain(m *testing.M) {
	controlplane.Main(m, controlplane.Planes{Hub: &hubPlane, Spoke: &spokePlane})
}

const password = "secret"

// brokers are the brokers that every test runs on.
var brokers = map[string]func(testing.TB, []broker.User) *brokertest.Running{
	"work-broker": startBroker,
	"mosquitto":   brokertest.StartMosquitto,
}

func startBroker(t testing.TB, users []broker.User) *brokertest.Running {
	return brokertest.Start(t, broker.Config{Users: users})
}

// onBothBrokers runs test on each broker.
func onBothBrokers(t *testing.T, test func(w *world)) {
	t.Parallel()
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.broker = start(t, w.users)
			test(w)
		})
	}
}

// world has a broker, a hub, another source and two clusters, under names of its own.
type world struct {
	*testing.T
	broker   *brokertest.Running
	users    []broker.User
	source   wire.SourceID // of the hub
	sdk      wire.SourceID // another source
	clusters [2]wire.ClusterName
	targets  [2]string // namespaces for objects, on the cluster of each
}

// newWorld returns a world without a broker.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, source: wire.SourceID(kit.Unique("hub")), sdk: wire.SourceID(kit.Unique("sdk"))}
	w.users = []broker.User{
		{Username: string(w.source), Password: password, Role: acl.Source},
		{Username: string(w.sdk), Password: password, Role: acl.Source},
	}
	for i := range w.clusters {
		w.clusters[i] = wire.ClusterName(hubPlane.Namespace(t, "cluster"))
		w.users = append(w.users, broker.User{Username: string(w.clusters[i]), Password: password, Role: acl.Agent})
		w.targets[i] = w.plane(i).Namespace(t, "target")
	}
	return w
}

func (w *world) plane(i int) *controlplane.Plane {
	if i == 0 {
		return spokePlane
	}
	return hubPlane
}

func (w *world) transport(user, clientID string, topics wire.Topics) transport.Transport {
	w.Helper()
	tr, err := mqtt.New(mqtt.Config{ClientID: clientID, Logger: kit.Logger(w).With("client", clientID), Broker: config.Config{
		BrokerHost: w.broker.Addr, Username: user, Password: password, Topics: topics,
	}})
	kit.NoError(w, err)
	return tr
}

func topicsOf(source string) wire.Topics {
	return wire.Topics{
		SourceEvents: "sources/" + source + "/clusters/+/sourceevents", AgentEvents: "sources/" + source + "/clusters/+/agentevents",
		SourceBroadcast: "sources/+/sourcebroadcast", AgentBroadcast: "clusters/+/agentbroadcast",
	}
}

// hub starts the hub. stop ends it.
func (w *world) hub(change ...func(*hub.Config)) (stop func()) {
	w.Helper()
	election := leader.NewOptions(string(w.source))
	election.Disabled = true
	c := hub.Config{REST: hubPlane.REST(), Source: w.source, Topics: topicsOf(string(w.source)), Election: election, Logger: kit.Logger(w)}
	for _, set := range change {
		set(&c)
	}
	if c.Transport == nil {
		c.Transport = w.transport(string(w.source), string(w.source)+"-hub", c.Topics)
	}
	h, err := hub.New(c)
	kit.NoError(w, err)
	return kit.Run(w, "hub", h.Run)
}

// connectedHub is like hub, and waits until the hub is connected: it answers the first questions of agents that start then,
// and not those that they repeat, late.
func (w *world) connectedHub(metrics *prometheus.Registry, change ...func(*hub.Config)) (stop func()) {
	w.Helper()
	stop = w.hub(append(change, func(c *hub.Config) { c.Registerer = metrics })...)
	kit.True(w, "the hub is connected", func() bool { return kit.Metric(w, metrics, "workwire_source_connected") == 1 })
	return stop
}

// agent starts the agent of a cluster, for the sources that topics name. stop ends it.
func (w *world) agent(i int, topics wire.Topics, change ...func(*agent.Config)) (stop func()) {
	w.Helper()
	name := w.clusters[i]
	c := agent.Config{
		Cluster: name, ClientID: string(name) + "-agent", AgentID: string(name), BrokerHost: w.broker.Addr, Topics: topics,
		Kube: w.plane(i).REST(), Logger: kit.Logger(w),
	}
	for _, set := range change {
		set(&c)
	}
	if c.Transport == nil {
		c.Transport = w.transport(string(name), c.ClientID, topics)
	}
	a, err := agent.New(c)
	kit.NoError(w, err)
	return kit.Run(w, "agent of "+string(name), a.Run)
}

// works returns the client for a cluster's works at the hub.
func (w *world) works(i int) workclientv1.ManifestWorkInterface {
	return workclient.NewForConfigOrDie(hubPlane.REST()).WorkV1().ManifestWorks(string(w.clusters[i]))
}

// work returns a work with a ConfigMap for each name, in the cluster's namespace for objects, with
// value in each.
func (w *world) work(i int, name, value string, configMaps ...string) *workv1.ManifestWork {
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: string(w.clusters[i]), Name: name}}
	for _, c := range configMaps {
		work.Spec.Workload.Manifests = append(work.Spec.Workload.Manifests, configMap(w.targets[i], c, value))
	}
	return work
}

func configMap(namespace, name, value string) workv1.Manifest {
	return workv1.Manifest{RawExtension: runtime.RawExtension{Raw: fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q},"data":{"k":%q}}`, name, namespace, value)}}
}

func (w *world) create(works workclientv1.ManifestWorkInterface, work *workv1.ManifestWork) {
	w.Helper()
	if _, err := works.Create(w.Context(), work, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) update(works workclientv1.ManifestWorkInterface, wanted *workv1.ManifestWork) {
	w.Helper()
	kit.Eventually(w, "update "+wanted.Name, func() error {
		work, err := works.Get(w.Context(), wanted.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		work.Spec = wanted.Spec
		_, err = works.Update(w.Context(), work, metav1.UpdateOptions{})
		return err
	})
}

func (w *world) delete(works workclientv1.ManifestWorkInterface, name string) {
	w.Helper()
	kit.NoError(w, works.Delete(w.Context(), name, metav1.DeleteOptions{}))
}

// applied waits until the works are applied and available at their generations.
func (w *world) applied(works workclientv1.ManifestWorkInterface, names ...string) {
	w.Helper()
	for _, name := range names {
		kit.Eventually(w, name+" is applied", func() error {
			work, err := works.Get(w.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, kind := range []string{workv1.WorkApplied, workv1.WorkAvailable} {
				c := meta.FindStatusCondition(work.Status.Conditions, kind)
				if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != work.Generation {
					return fmt.Errorf("generation %d has %+v", work.Generation, work.Status.Conditions)
				}
			}
			return nil
		})
	}
}

func (w *world) gone(works workclientv1.ManifestWorkInterface, names ...string) {
	w.Helper()
	for _, name := range names {
		kit.Eventually(w, name+" is gone", func() error {
			work, err := works.Get(w.Context(), name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(err, fmt.Errorf("it has %+v", work.Status.Conditions))
		})
	}
}

// configMaps returns the ConfigMaps in a cluster's namespace for objects.
func (w *world) configMaps(i int) ([]corev1.ConfigMap, error) {
	list, err := kubernetes.NewForConfigOrDie(w.plane(i).REST()).CoreV1().ConfigMaps(w.targets[i]).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(c corev1.ConfigMap) bool { return c.Name == "kube-root-ca.crt" }), nil
}

// holds waits until a cluster's namespace for objects has exactly these ConfigMaps.
func (w *world) holds(i int, want map[string]string) {
	w.Helper()
	kit.Eventually(w, fmt.Sprintf("cluster %d holds %d ConfigMaps", i, len(want)), func() error {
		list, err := w.configMaps(i)
		if err != nil {
			return err
		}
		got := map[string]string{}
		for _, c := range list {
			got[c.Name] = c.Data["k"]
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("it holds %v, want %v", got, want)
		}
		return nil
	})
}

// noAppliedManifestWorks waits until none of a cluster's agent is left.
func (w *world) noAppliedManifestWorks(i int) {
	w.Helper()
	client := workclient.NewForConfigOrDie(w.plane(i).REST())
	kit.Eventually(w, "no AppliedManifestWork is left", func() error {
		list, err := client.WorkV1().AppliedManifestWorks().List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var left []string
		for _, applied := range list.Items {
			if applied.Spec.AgentID == string(w.clusters[i]) {
				left = append(left, applied.Name)
			}
		}
		if len(left) > 0 {
			return errors.New(strings.Join(left, ", "))
		}
		return nil
	})
}
