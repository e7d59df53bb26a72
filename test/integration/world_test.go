// Package integration runs hubs, brokers and agents together: real API servers,
// the real broker of the project and Mosquitto, in all that happens to them.
package integration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/brokertest"
	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/leader"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit/controlplane"
)

// The hub API serves as the cluster of second agents as well: all that they need
// is namespaces and ConfigMaps.
var hubPlane, spokePlane *controlplane.Plane

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	planes := []struct {
		role  controlplane.Role
		plane **controlplane.Plane
	}{{controlplane.Hub, &hubPlane}, {controlplane.Spoke, &spokePlane}}
	for _, p := range planes {
		plane, err := controlplane.Start(p.role)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() {
			if err := plane.Stop(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}()
		if err := crds.Install(context.Background(), plane.REST(), append(crds.Hub(), crds.Spoke()...)...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		*p.plane = plane
	}
	return m.Run()
}

const (
	wait     = 60 * time.Second
	password = "secret"
)

// brokers are the brokers that every test runs on.
var brokers = map[string]func(testing.TB, []broker.User) *brokertest.Running{
	"work-broker": func(t testing.TB, users []broker.User) *brokertest.Running {
		return brokertest.Start(t, broker.Config{Users: users})
	},
	"mosquitto": brokertest.StartMosquitto,
}

// onBothBrokers runs test on each broker.
func onBothBrokers(t *testing.T, test func(w *world)) {
	t.Parallel()
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newWorld(t, start))
		})
	}
}

var worlds atomic.Int64

// world is a broker with one source and two clusters, by names of its own.
type world struct {
	*testing.T
	ctx      context.Context
	broker   *brokertest.Running
	source   wire.SourceID // of the hub
	sdk      wire.SourceID // another source
	clusters [2]wire.ClusterName
	targets  [2]string // namespaces for objects, on the cluster of each
	logger   *slog.Logger
}

func newWorld(t *testing.T, start func(testing.TB, []broker.User) *brokertest.Running) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	n := worlds.Add(1)
	w := &world{T: t, ctx: ctx, source: wire.SourceID(fmt.Sprintf("hub-%d", n)), sdk: wire.SourceID(fmt.Sprintf("sdk-%d", n)),
		logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	users := []broker.User{
		{Username: string(w.source), Password: password, Role: acl.Source},
		{Username: string(w.sdk), Password: password, Role: acl.Source},
	}
	for i := range w.clusters {
		w.clusters[i] = wire.ClusterName(hubPlane.Namespace(t, "cluster"))
		users = append(users, broker.User{Username: string(w.clusters[i]), Password: password, Role: acl.Agent})
		w.targets[i] = w.plane(i).Namespace(t, "target")
	}
	w.broker = start(t, users)
	return w
}

func (w *world) plane(i int) *controlplane.Plane {
	if i == 0 {
		return spokePlane
	}
	return hubPlane
}

func (w *world) link(user, clientID string, topics wire.Topics) transport.Transport {
	w.Helper()
	link, err := mqtt.New(mqtt.Config{ClientID: clientID, Logger: w.logger.With("client", clientID), Broker: config.Config{
		BrokerHost: w.broker.Addr, Username: user, Password: password, Topics: topics,
	}})
	if err != nil {
		w.Fatal(err)
	}
	return link
}

func topicsOf(source string) wire.Topics {
	return wire.Topics{
		SourceEvents: "sources/" + source + "/clusters/+/sourceevents", AgentEvents: "sources/" + source + "/clusters/+/agentevents",
		SourceBroadcast: "sources/+/sourcebroadcast", AgentBroadcast: "clusters/+/agentbroadcast",
	}
}

// hub starts the hub and returns what ends it.
func (w *world) hub() (stop func()) {
	w.Helper()
	election := leader.NewOptions(string(w.source))
	election.Disabled = true
	h, err := hub.New(hub.Config{
		REST: hubPlane.REST(), Source: w.source, Topics: topicsOf(string(w.source)), Election: election, Logger: w.logger,
		Transport: w.link(string(w.source), string(w.source)+"-hub", topicsOf(string(w.source))),
	})
	if err != nil {
		w.Fatal(err)
	}
	return w.run("hub", h.Run)
}

// agent starts the agent of a cluster, for the sources that topics name, and
// returns what ends it.
func (w *world) agent(i int, topics wire.Topics) (stop func()) {
	w.Helper()
	name := w.clusters[i]
	a, err := agent.New(agent.Config{
		Cluster: name, ClientID: string(name) + "-agent", AgentID: string(name), BrokerHost: w.broker.Addr, Topics: topics,
		Transport: w.link(string(name), string(name)+"-agent", topics), Kube: w.plane(i).REST(), Logger: w.logger,
	})
	if err != nil {
		w.Fatal(err)
	}
	return w.run("agent of "+string(name), a.Run)
}

func (w *world) run(what string, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				w.Errorf("%s ended with %v", what, err)
			}
		case <-time.After(wait):
			w.Errorf("%s does not end", what)
		}
	})
	w.Cleanup(stop)
	return stop
}

// works are the works of a cluster at the hub.
func (w *world) works(i int) workclientv1.ManifestWorkInterface {
	return workclient.NewForConfigOrDie(hubPlane.REST()).WorkV1().ManifestWorks(string(w.clusters[i]))
}

// work makes a work of a ConfigMap for each name, in the cluster's namespace for
// objects, with value in each.
func (w *world) work(i int, name, value string, configMaps ...string) *workv1.ManifestWork {
	w.Helper()
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: string(w.clusters[i]), Name: name}}
	for _, c := range configMaps {
		w.add(work, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: %s}, data: {k: %q}}", c, w.targets[i], value))
	}
	return work
}

func (w *world) add(work *workv1.ManifestWork, manifest string) {
	w.Helper()
	data, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		w.Fatal(err)
	}
	work.Spec.Workload.Manifests = append(work.Spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: data}})
}

func (w *world) create(works workclientv1.ManifestWorkInterface, work *workv1.ManifestWork) {
	w.Helper()
	if _, err := works.Create(w.ctx, work, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) update(works workclientv1.ManifestWorkInterface, wanted *workv1.ManifestWork) {
	w.Helper()
	w.eventually("update "+wanted.Name, func() error {
		work, err := works.Get(w.ctx, wanted.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		work.Spec = wanted.Spec
		_, err = works.Update(w.ctx, work, metav1.UpdateOptions{})
		return err
	})
}

func (w *world) delete(works workclientv1.ManifestWorkInterface, name string) {
	w.Helper()
	if err := works.Delete(w.ctx, name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// applied waits until the works are applied and available at their generations.
func (w *world) applied(works workclientv1.ManifestWorkInterface, names ...string) {
	w.Helper()
	for _, name := range names {
		w.eventually(name+" is applied", func() error {
			work, err := works.Get(w.ctx, name, metav1.GetOptions{})
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
		w.eventually(name+" is gone", func() error {
			work, err := works.Get(w.ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(err, fmt.Errorf("it has %+v", work.Status.Conditions))
		})
	}
}

// holds waits until a cluster's namespace for objects has just these ConfigMaps.
func (w *world) holds(i int, want map[string]string) {
	w.Helper()
	client := kubernetes.NewForConfigOrDie(w.plane(i).REST())
	w.eventually(fmt.Sprintf("cluster %d holds %d ConfigMaps", i, len(want)), func() error {
		list, err := client.CoreV1().ConfigMaps(w.targets[i]).List(w.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		got := map[string]string{}
		for _, c := range list.Items {
			if c.Name != "kube-root-ca.crt" {
				got[c.Name] = c.Data["k"]
			}
		}
		for name, value := range want {
			if got[name] != value {
				return fmt.Errorf("%s is %q, want %q", name, got[name], value)
			}
		}
		if len(got) != len(want) {
			return fmt.Errorf("it holds %v", got)
		}
		return nil
	})
}

// noRecords waits until no AppliedManifestWork of a cluster's agent is left.
func (w *world) noRecords(i int) {
	w.Helper()
	client := workclient.NewForConfigOrDie(w.plane(i).REST())
	w.eventually("no AppliedManifestWork is left", func() error {
		list, err := client.WorkV1().AppliedManifestWorks().List(w.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var left []string
		for _, record := range list.Items {
			if record.Spec.AgentID == string(w.clusters[i]) {
				left = append(left, record.Name)
			}
		}
		if len(left) > 0 {
			return errors.New(strings.Join(left, ", "))
		}
		return nil
	})
}

func (w *world) eventually(what string, check func() error) {
	w.Helper()
	deadline := time.Now().Add(wait)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("%s: not within %v: %v", what, wait, err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-w.ctx.Done():
			w.Fatal(w.ctx.Err())
		}
	}
}
