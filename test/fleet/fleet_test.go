// Package fleet runs the hub with as many clusters as a platform team has. Their agents are
// simulated, a line or two each, in one process: the hub, its API server and its Lease are real.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/world"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Hub: &plane}) }

const wait = 5 * time.Minute // a busy machine writes some 40,000 objects in that

// fleet is a hub's API and a broker in memory.
type fleet struct {
	*world.World
	client versioned.Interface
}

func newFleet(t testing.TB, source wire.SourceID) *fleet {
	t.Helper()
	w := world.New(t, world.Options{Hub: plane, Memory: true, Source: source, Topics: wire.Topics{
		SourceEvents: fmt.Sprintf("sources/%s/clusters/+/sourceevents", source), AgentEvents: fmt.Sprintf("sources/%s/clusters/+/agentevents", source),
	}})
	return &fleet{w, w.Client()}
}

// hub starts a hub and waits until it is connected. stop ends it.
func (w *fleet) hub(requests *kit.Requests, change ...func(*hub.Config)) (stop func()) {
	w.Helper()
	h := w.StartHub(append([]func(*hub.Config){func(c *hub.Config) {
		c.REST, c.PendingDelay = requests.Wrap(c.REST), time.Hour // requests are counted, and a machine may be slow
		c.Logger = slog.New(slog.NewTextHandler(w.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}}, change...)...)
	w.eventually("the hub connects", func() error {
		if !w.Memory.Connected(string(w.Source) + "-hub") {
			return errors.New("it is not connected")
		}
		return nil
	})
	return h.Stop
}

// bindAll lets the placements of a namespace choose from all clusters.
func (w *fleet) bindAll(namespace string) {
	w.Helper()
	binding := &clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Name: clusterv1beta2.GlobalSet}}
	binding.Spec.ClusterSet = clusterv1beta2.GlobalSet
	if _, err := w.client.ClusterV1beta2().ManagedClusterSetBindings(namespace).Create(w.Context(), binding, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *fleet) eventually(what string, check func() error) {
	w.Helper()
	kit.Within(w, wait, what, check)
}

// agents are the simulated agents of many clusters, on one connection. They answer a spec with the
// status that behave returns.
type agents struct {
	fleet     *fleet
	transport transport.Transport
	behave    func(*wire.Spec) *workv1.ManifestWorkStatus // nil: no answer

	specs    atomic.Int64 // received
	sequence atomic.Uint64
}

// agents starts simulated agents of all clusters.
func (w *fleet) agents(behave func(*wire.Spec) *workv1.ManifestWorkStatus) *agents {
	w.Helper()
	a := &agents{fleet: w, transport: w.Memory.Client("agents"), behave: behave}
	answers := make(chan *wire.Spec, 100_000)
	connected := make(chan struct{})
	connect := sync.OnceFunc(func() { close(connected) })
	kit.Run(w, "agents", func(ctx context.Context) error {
		var group errgroup.Group
		for range 8 {
			group.Go(func() error {
				for {
					select {
					case spec := <-answers:
						a.answer(ctx, spec)
					case <-ctx.Done():
						return nil
					}
				}
			})
		}
		group.Go(func() error {
			return a.transport.Run(ctx, transport.Handler{
				Subscriptions: []string{fmt.Sprintf("sources/%s/clusters/+/sourceevents", w.Source)},
				Connected:     func(context.Context, transport.Connection) { connect() },
				Received: func(_ context.Context, m transport.Message) {
					m.Ack()
					message, err := wire.Decode(m.Event)
					if err != nil {
						w.Error(err)
						return
					}
					if spec, ok := message.(*wire.Spec); ok {
						a.specs.Add(1)
						answers <- spec
					}
				},
			})
		})
		return group.Wait()
	})
	<-connected
	return a
}

func (a *agents) topic(cluster wire.ClusterName) string {
	return fmt.Sprintf("sources/%s/clusters/%s/agentevents", a.fleet.Source, cluster)
}

// announce publishes that the agents of the clusters are present.
func (a *agents) announce(clusters ...wire.ClusterName) {
	for _, cluster := range clusters {
		a.publish(a.fleet.Context(), cluster, &wire.Presence{
			Agent: string(cluster) + "-agent", Cluster: cluster, Source: a.fleet.Source, Session: "1", Present: true,
		})
	}
}

func (a *agents) answer(ctx context.Context, spec *wire.Spec) {
	status := a.behave(spec)
	if status == nil {
		return
	}
	a.publish(ctx, spec.Cluster, &wire.Status{
		UID: spec.UID, Generation: spec.Generation, Source: a.fleet.Source, Cluster: spec.Cluster, Agent: string(spec.Cluster) + "-agent",
		Action: wire.Update, Meta: spec.Meta, Sequence: wire.SequenceID(a.sequence.Add(1)), Status: *status,
	})
}

func (a *agents) publish(ctx context.Context, cluster wire.ClusterName, message wire.Message) {
	event, err := wire.Encode(message, time.Now())
	if err == nil {
		err = a.transport.Publish(ctx, a.topic(cluster), event)
	}
	if err != nil && ctx.Err() == nil {
		a.fleet.Error(err)
	}
}

// well returns the status of a work that is applied and available, or deleted if spec deletes it.
func well(spec *wire.Spec) *workv1.ManifestWorkStatus {
	now := metav1.NewTime(time.Now())
	condition := func(kind string, generation int64) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Simulated", ObservedGeneration: generation, LastTransitionTime: now}
	}
	status := &workv1.ManifestWorkStatus{}
	if spec.IsDeletion() {
		meta.SetStatusCondition(&status.Conditions, condition(workv1.WorkDeleted, 0))
		return status
	}
	meta.SetStatusCondition(&status.Conditions, condition(workv1.WorkApplied, int64(spec.Generation)))
	meta.SetStatusCondition(&status.Conditions, condition(workv1.WorkAvailable, int64(spec.Generation)))
	return status
}

// work returns a work of one ConfigMap.
func work(cluster wire.ClusterName, name string) *workv1.ManifestWork {
	return &workv1.ManifestWork{
		ObjectMeta: metav1.ObjectMeta{Namespace: string(cluster), Name: name},
		Spec: workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{
			Raw: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":%q},"data":{"k":"v"}}`, name)}}}}},
	}
}

// come announces clusters, waits until they are registered and available, and returns their names,
// which are the prefix and a number.
func (w *fleet) come(agents *agents, prefix string, clusters int) []wire.ClusterName {
	w.Helper()
	names := make([]wire.ClusterName, clusters)
	for i := range names {
		names[i] = wire.ClusterName(fmt.Sprintf("%s-%02d", prefix, i))
	}
	agents.announce(names...)
	w.eventually("all clusters are registered and available", func() error {
		list, err := w.client.ClusterV1().ManagedClusters().List(w.Context(), metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		there := 0
		for i := range list.Items {
			c := &list.Items[i]
			if strings.HasPrefix(c.Name, prefix+"-") && c.Spec.HubAcceptsClient && meta.IsStatusConditionTrue(c.Status.Conditions, "ManagedClusterConditionAvailable") {
				there++
			}
		}
		if there < clusters {
			return fmt.Errorf("%d are", there)
		}
		return nil
	})
	return names
}

// give creates that many works for each cluster.
func (w *fleet) give(names []wire.ClusterName, each int) {
	w.Helper()
	var group errgroup.Group
	group.SetLimit(32)
	for _, name := range names {
		group.Go(func() error {
			for i := range each {
				_, err := w.client.WorkV1().ManifestWorks(string(name)).Create(w.Context(), work(name, fmt.Sprintf("work-%d", i)), metav1.CreateOptions{})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	kit.NoError(w, group.Wait())
}

// TestManyClusters registers two hundred clusters with ten works each, all of which are
// published and reported with two requests for each work. A restarted hub publishes only what has
// changed. make bench has thousands.
func TestManyClusters(t *testing.T) {
	const clusters, each = 100, 6
	w := newFleet(t, "fleet")
	var requests kit.Requests
	stop := w.hub(&requests, func(c *hub.Config) { c.AutoRegister, c.AutoAccept = true, true })
	agents := w.agents(well)
	start := time.Now()
	names := w.come(agents, "fleet", clusters)
	t.Logf("%d clusters registered in %v, with %v", clusters, time.Since(start).Round(time.Millisecond), requests.TakeCounts())

	start = time.Now()
	w.give(names, each)
	created := time.Since(start)
	w.eventually("all statuses are stored", func() error { return w.reported(clusters * each) })
	counts := requests.TakeCounts()
	t.Logf("%d works: created in %v, all reported %v later, with %v", clusters*each, created.Round(time.Millisecond),
		(time.Since(start) - created).Round(time.Millisecond), counts)
	if n := agents.specs.Load(); n < clusters*each {
		t.Errorf("%d specs were received", n)
	}
	// A patch follows an update that meets a newer version.
	counts["update manifestworks/status"] += counts["patch manifestworks/status"]
	for kind, most := range map[string]int{"patch manifestworks": clusters * each, "update manifestworks/status": clusters * each, "get manifestworks": 0} {
		if counts[kind] > most+most/100 {
			t.Errorf("%d times %s for %d works", counts[kind], kind, clusters*each)
		}
	}

	stop()
	published := agents.specs.Load()
	requests.TakeCounts()
	w.hub(&requests, func(c *hub.Config) { c.AutoRegister, c.AutoAccept = true, true })
	// A new work is published after all that a restart publishes.
	if _, err := w.client.WorkV1().ManifestWorks(string(names[0])).Create(w.Context(), work(names[0], "last"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the new hub publishes the new work", func() error { return w.reported(clusters*each + 1) })
	if n := agents.specs.Load() - published; n != 1 {
		t.Errorf("the new hub published %d specs, 1 of which is new", n)
	}
	counts = requests.TakeCounts()
	if n := counts["patch manifestworks"] + counts["update manifestworks/status"] + counts["patch manifestworks/status"]; n > 2 {
		t.Errorf("the new hub wrote %d times to works: %v", n, counts)
	}
}

// reported checks that at least that many works of the fleet have a status.
func (w *fleet) reported(want int) error {
	list, err := w.client.WorkV1().ManifestWorks("").List(w.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	have := 0
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Namespace, "fleet-") && meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, workv1.WorkApplied) {
			have++
		}
	}
	if have < want {
		return fmt.Errorf("%d of %d are", have, want)
	}
	return nil
}
