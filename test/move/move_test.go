// Package move moves an agent from one broker to another, as docs/brokers.md says to.
package move

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/brokertest"
	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/pkg/agent"
	"github.com/workwire/workwire/pkg/agent/applied"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/leader"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var hubPlane, spokePlane *controlplane.Plane

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	for _, p := range []struct {
		role  controlplane.Role
		plane **controlplane.Plane
	}{{controlplane.Hub, &hubPlane}, {controlplane.Spoke, &spokePlane}} {
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
	grace    = 3 * time.Second // of eviction
	names    = 3               // ConfigMaps
)

// fleet is a hub, one cluster, and two brokers that take the same users.
type fleet struct {
	*testing.T
	ctx      context.Context
	brokers  [2]*brokertest.Running
	source   wire.SourceID
	cluster  string
	target   string // namespace of the objects on the cluster
	stateDir string
	logger   *slog.Logger
}

func newFleet(t *testing.T, name string) *fleet {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	f := &fleet{T: t, ctx: ctx, source: wire.SourceID("hub-" + name), cluster: hubPlane.Namespace(t, "cluster"),
		target: spokePlane.Namespace(t, "target"), stateDir: t.TempDir(), logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	users := []broker.User{
		{Username: string(f.source), Password: password, Role: acl.Source},
		{Username: f.cluster, Password: password, Role: acl.Agent},
	}
	f.brokers[0] = brokertest.Start(t, broker.Config{Users: users})
	f.brokers[1] = brokertest.StartMosquitto(t, users)
	return f
}

func (f *fleet) topics() wire.Topics {
	s := string(f.source)
	return wire.Topics{SourceEvents: "sources/" + s + "/clusters/+/sourceevents", AgentEvents: "sources/" + s + "/clusters/+/agentevents"}
}

func (f *fleet) link(i int, user, clientID string) transport.Transport {
	f.Helper()
	link, err := mqtt.New(mqtt.Config{ClientID: clientID, Logger: f.logger.With("client", clientID), Broker: config.Config{
		BrokerHost: f.brokers[i].Addr, Username: user, Password: password, Topics: f.topics(),
	}})
	if err != nil {
		f.Fatal(err)
	}
	return link
}

// hub runs the hub at broker i.
func (f *fleet) hub(i int) (stop func()) {
	f.Helper()
	election := leader.NewOptions(string(f.source))
	election.Disabled = true
	h, err := hub.New(hub.Config{
		REST: hubPlane.REST(), Source: f.source, Topics: f.topics(), Election: election, Logger: f.logger,
		Transport: f.link(i, string(f.source), string(f.source)+"-hub"),
	})
	if err != nil {
		f.Fatal(err)
	}
	return f.run("hub", h.Run)
}

// agent runs the agent at broker i. With an empty id it is that of the broker's address.
func (f *fleet) agent(i int, id string, keepState bool) (stop func()) {
	f.Helper()
	config := agent.Config{
		Cluster: wire.ClusterName(f.cluster), ClientID: f.cluster + "-agent", AgentID: id, BrokerHost: f.brokers[i].Addr, Topics: f.topics(),
		Transport: f.link(i, f.cluster, f.cluster+"-agent"), Kube: spokePlane.REST(), Logger: f.logger,
		EvictionGrace: grace, SyncInterval: time.Second,
	}
	if keepState {
		config.StateDir = f.stateDir
	}
	a, err := agent.New(config)
	if err != nil {
		f.Fatal(err)
	}
	stop = f.run("agent", a.Run)
	f.eventually("the agent is connected", func() error { return errors.Join(a.Ready(), a.Connected()) })
	return stop
}

func (f *fleet) run(what string, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(f.ctx)
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				f.Errorf("%s ended with %v", what, err)
			}
		case <-time.After(wait):
			f.Errorf("%s does not end", what)
		}
	})
	f.Cleanup(stop)
	return stop
}

// put makes or changes the work "web" of three ConfigMaps, and waits until it is applied.
func (f *fleet) put(value string) {
	f.Helper()
	works := workclient.NewForConfigOrDie(hubPlane.REST()).WorkV1().ManifestWorks(f.cluster)
	var spec workv1.ManifestWorkSpec
	for i := range names {
		spec.Workload.Manifests = append(spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c%d","namespace":%q},"data":{"k":%q}}`, i, f.target, value)}})
	}
	f.eventually("put the work", func() error {
		work, err := works.Get(f.ctx, "web", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err := works.Create(f.ctx, &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: spec}, metav1.CreateOptions{})
			return err
		}
		if err != nil || equality.Semantic.DeepEqual(work.Spec, spec) {
			return err
		}
		work.Spec = spec
		_, err = works.Update(f.ctx, work, metav1.UpdateOptions{})
		return err
	})
	f.eventually("the work is applied", func() error {
		work, err := works.Get(f.ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied); c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != work.Generation {
			return fmt.Errorf("generation %d has %+v", work.Generation, work.Status.Conditions)
		}
		return nil
	})
}

func (f *fleet) delete() {
	f.Helper()
	works := workclient.NewForConfigOrDie(hubPlane.REST()).WorkV1().ManifestWorks(f.cluster)
	if err := works.Delete(f.ctx, "web", metav1.DeleteOptions{}); err != nil {
		f.Fatal(err)
	}
	f.eventually("the work is gone", func() error {
		_, err := works.Get(f.ctx, "web", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
}

// objects are the ConfigMaps on the cluster, by name: their UIDs and values.
func (f *fleet) objects() map[string]string {
	f.Helper()
	list, err := kubernetes.NewForConfigOrDie(spokePlane.REST()).CoreV1().ConfigMaps(f.target).List(f.ctx, metav1.ListOptions{})
	if err != nil {
		f.Fatal(err)
	}
	out := map[string]string{}
	for _, c := range list.Items {
		if c.Name != "kube-root-ca.crt" {
			out[c.Name] = string(c.UID) + " " + c.Data["k"]
		}
	}
	return out
}

// records are the AppliedManifestWorks of the work, of whatever agent.
func (f *fleet) records() []workv1.AppliedManifestWork {
	f.Helper()
	list, err := workclient.NewForConfigOrDie(spokePlane.REST()).WorkV1().AppliedManifestWorks().List(f.ctx, metav1.ListOptions{})
	if err != nil {
		f.Fatal(err)
	}
	var out []workv1.AppliedManifestWork
	for _, record := range list.Items {
		if record.Labels[workv1.OriginalSourceLabelKey] == string(f.source) {
			out = append(out, record)
		}
	}
	return out
}

// awaitRecord waits until the record named after broker i is the only one.
func (f *fleet) awaitRecord(i int) {
	f.Helper()
	want := applied.HubHash(f.brokers[i].Addr, "") + "-web"
	f.eventually("one record is left", func() error {
		var got []string
		for _, record := range f.records() {
			got = append(got, record.Name)
		}
		if len(got) != 1 || got[0] != want {
			return fmt.Errorf("%s, want %s", strings.Join(got, ", "), want)
		}
		return nil
	})
}

// owned fails unless the one record that is left owns every object, and nothing else does: what
// an object's owners do not keep is garbage to a cluster.
func (f *fleet) owned() {
	f.Helper()
	record := f.records()[0]
	list, err := kubernetes.NewForConfigOrDie(spokePlane.REST()).CoreV1().ConfigMaps(f.target).List(f.ctx, metav1.ListOptions{})
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range list.Items {
		if owners := c.OwnerReferences; c.Name != "kube-root-ca.crt" && (len(owners) != 1 || owners[0].UID != record.UID) {
			f.Errorf("%s belongs to %+v, want %s", c.Name, owners, record.Name)
		}
	}
}

// sameObjects fails when an object was replaced, removed or changed since before.
func (f *fleet) sameObjects(before map[string]string) {
	f.Helper()
	if now := f.objects(); !equality.Semantic.DeepEqual(now, before) {
		f.Errorf("the objects are %v, were %v", now, before)
	}
}

func (f *fleet) eventually(what string, check func() error) {
	f.Helper()
	deadline := time.Now().Add(wait)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			f.Fatalf("%s: not within %v: %v", what, wait, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestMove moves an agent to a broker of another address, and the hub after it. The agent has the same id on
// both, so that the records under the old address's hash are its own: it makes records under
// the new one, over the same objects, and evicts the old ones after the grace period, which
// removes no object.
func TestMove(t *testing.T) {
	t.Parallel()
	for name, keepState := range map[string]bool{"memory": false, "state": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, "move-"+name)
			stopHub, stopAgent := f.hub(0), f.agent(0, f.cluster, keepState)
			f.put("one")
			f.awaitRecord(0)
			before := f.objects()
			if len(before) != names {
				t.Fatalf("the objects are %v", before)
			}
			stopAgent()
			stopAgent = f.agent(1, f.cluster, keepState)
			f.sameObjects(before) // nobody is there to say what the works are
			stopHub()
			f.hub(1)
			f.awaitRecord(1)
			f.owned()
			f.sameObjects(before)
			f.put("two")
			for object, is := range f.objects() {
				if uid, _, _ := strings.Cut(before[object], " "); is != uid+" two" {
					t.Errorf("%s is %q, was %q", object, is, before[object])
				}
			}
			stopAgent()
			f.agent(1, f.cluster, keepState) // nothing of the move is left to be found
			f.delete()
			if left := f.objects(); len(left) > 0 {
				t.Errorf("the deletion left %v", left)
			}
			if left := f.records(); len(left) > 0 {
				t.Errorf("the deletion left records: %v", left)
			}
		})
	}
}

// TestMoveWithAnotherID shows why the id has to stay: without one, it is a hash of the broker's
// address. The record under the old address is then another agent's, and stays for ever; it
// keeps the objects when the work is deleted. It goes when that id comes back.
func TestMoveWithAnotherID(t *testing.T) {
	t.Parallel()
	for name, cured := range map[string]bool{"cured": true, "not-cured": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, name)
			stopHub, stopAgent := f.hub(0), f.agent(0, "", false)
			f.put("one")
			stopAgent()
			stopHub()
			f.hub(1)
			stopAgent = f.agent(1, "", false)
			f.put("two")
			if got := len(f.records()); got != 2 {
				t.Errorf("%d records, want the old one and the new one", got)
			}
			left := names
			if cured {
				stopAgent()
				f.agent(1, applied.HubHash(f.brokers[0].Addr, ""), false)
				f.awaitRecord(1)
				left = 0
			}
			f.delete()
			if got := f.objects(); len(got) != left {
				t.Errorf("the deletion left %v, want %d objects", got, left)
			}
		})
	}
}
