// Package fleet runs the hub with as many clusters as a platform team has. Their
// agents are simulated, a line or two each, in one process: the hub, its API
// server and its Lease are real.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/kube"
	"github.com/workwire/workwire/pkg/leader"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) {
	controlplane.Main(m, controlplane.Hub, func(p *controlplane.Plane) error {
		plane = p
		return install.CRDs(context.Background(), p.REST(), crds.Hub()...)
	})
}

const wait = 5 * time.Minute // a busy machine writes some 40,000 objects in that

// world is a hub's API and a broker.
type world struct {
	testing.TB
	ctx    context.Context
	broker *memory.Broker
	source wire.SourceID
	client versioned.Interface
}

func newWorld(t testing.TB, source wire.SourceID) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return &world{TB: t, ctx: ctx, broker: memory.NewBroker(), source: source, client: versioned.NewForConfigOrDie(unlimited(plane.REST()))}
}

func unlimited(config *rest.Config) *rest.Config {
	config.QPS = -1
	return config
}

func (w *world) topics() wire.Topics {
	return wire.Topics{
		SourceEvents: fmt.Sprintf("sources/%s/clusters/+/sourceevents", w.source),
		AgentEvents:  fmt.Sprintf("sources/%s/clusters/+/agentevents", w.source),
	}
}

// requests counts what the hub asks of its API server, by verb and resource.
type requests struct {
	mu     sync.Mutex
	counts map[string]int
}

func (r *requests) count(config *rest.Config) *rest.Config {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			verb, resource := kube.Describe(request)
			r.mu.Lock()
			if r.counts == nil {
				r.counts = map[string]int{}
			}
			r.counts[verb+" "+resource]++
			r.mu.Unlock()
			return next.RoundTrip(request)
		})
	})
	return config
}

// take gives the counts since the last call.
func (r *requests) take() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := r.counts
	r.counts = nil
	return counts
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// hub starts a hub, waits until it is at work, and returns what ends it.
func (w *world) hub(requests *requests, change ...func(*hub.Config)) (stop func()) {
	w.Helper()
	id := string(w.source) + "-hub"
	config := hub.Config{
		REST: requests.count(unlimited(plane.REST())), Source: w.source, Topics: w.topics(), Transport: w.broker.Client(id),
		Election: leader.Options{Disabled: true}, Logger: slog.New(slog.NewTextHandler(w.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	for _, c := range change {
		c(&config)
	}
	h, err := hub.New(config)
	if err != nil {
		w.Fatal(err)
	}
	stop = w.run(h.Run)
	w.eventually("the hub connects", func() error {
		if !w.broker.Connected(id) {
			return errors.New("it is not connected")
		}
		return nil
	})
	return stop
}

func (w *world) run(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
	})
	w.Cleanup(stop)
	return stop
}

func (w *world) eventually(what string, check func() error) {
	w.Helper()
	for deadline := time.Now().Add(wait); ; <-time.After(time.Second) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("%s: not within %v: %v", what, wait, err)
		}
	}
}

// agents are the simulated agents of many clusters, on one connection. Each
// answers a spec with a status, as behave says.
type agents struct {
	world  *world
	link   transport.Transport
	behave func(*wire.Spec) *workv1.ManifestWorkStatus // nil: no answer

	specs    atomic.Int64 // received
	sequence atomic.Uint64

	mu   sync.Mutex
	held map[types.UID]wire.Generation // guarded by mu
}

// agents starts simulated agents of all clusters.
func (w *world) agents(behave func(*wire.Spec) *workv1.ManifestWorkStatus) *agents {
	w.Helper()
	a := &agents{world: w, link: w.broker.Client("agents"), behave: behave, held: map[types.UID]wire.Generation{}}
	answers := make(chan *wire.Spec, 100_000)
	connected := make(chan struct{})
	connect := sync.OnceFunc(func() { close(connected) })
	w.run(func(ctx context.Context) error {
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
			return a.link.Run(ctx, transport.Handler{
				Subscriptions: []string{fmt.Sprintf("sources/%s/clusters/+/sourceevents", w.source)},
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
						a.mu.Lock()
						a.held[spec.UID] = spec.Generation
						a.mu.Unlock()
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
	return fmt.Sprintf("sources/%s/clusters/%s/agentevents", a.world.source, cluster)
}

// announce tells the hub that the clusters are there.
func (a *agents) announce(clusters ...wire.ClusterName) {
	for _, cluster := range clusters {
		a.publish(a.world.ctx, cluster, &wire.Presence{
			Agent: string(cluster) + "-agent", Cluster: cluster, Source: a.world.source, Session: "1", Present: true,
		})
	}
}

func (a *agents) answer(ctx context.Context, spec *wire.Spec) {
	status := a.behave(spec)
	if status == nil {
		return
	}
	a.publish(ctx, spec.Cluster, &wire.Status{
		UID: spec.UID, Generation: spec.Generation, Source: a.world.source, Cluster: spec.Cluster, Agent: string(spec.Cluster) + "-agent",
		Action: wire.Update, Meta: spec.Meta, Sequence: wire.SequenceID(a.sequence.Add(1)), Status: *status,
	})
}

func (a *agents) publish(ctx context.Context, cluster wire.ClusterName, message wire.Message) {
	event, err := wire.Encode(message, time.Now())
	if err == nil {
		err = a.link.Publish(ctx, a.topic(cluster), event)
	}
	if err != nil && ctx.Err() == nil {
		a.world.Error(err)
	}
}

// well is the status of a work that is as it should be; of one that is deleted,
// that it is gone.
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

// work makes a work of one ConfigMap.
func work(cluster wire.ClusterName, name string) *workv1.ManifestWork {
	return &workv1.ManifestWork{
		ObjectMeta: metav1.ObjectMeta{Namespace: string(cluster), Name: name},
		Spec: workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{
			Raw: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":%q},"data":{"k":"v"}}`, name)}}}}},
	}
}

// come lets clusters register by themselves, and gives their names.
func (w *world) come(agents *agents, clusters int) []wire.ClusterName {
	w.Helper()
	names := make([]wire.ClusterName, clusters)
	for i := range names {
		names[i] = wire.ClusterName(fmt.Sprintf("fleet-%04d", i))
	}
	agents.announce(names...)
	w.eventually("all clusters are registered and there", func() error {
		list, err := w.client.ClusterV1().ManagedClusters().List(w.ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		there := 0
		for i := range list.Items {
			c := &list.Items[i]
			if strings.HasPrefix(c.Name, "fleet-") && c.Spec.HubAcceptsClient && meta.IsStatusConditionTrue(c.Status.Conditions, "ManagedClusterConditionAvailable") {
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

// give creates so many works for each cluster.
func (w *world) give(names []wire.ClusterName, each int) {
	w.Helper()
	var group errgroup.Group
	group.SetLimit(32)
	for _, name := range names {
		group.Go(func() error {
			for i := range each {
				_, err := w.client.WorkV1().ManifestWorks(string(name)).Create(w.ctx, work(name, fmt.Sprintf("work-%d", i)), metav1.CreateOptions{})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		w.Fatal(err)
	}
}

// TestThousandClusters: a thousand clusters register by themselves and get ten
// works each, all of which are published and reported, at two requests a work. A
// hub that starts anew publishes nothing that has not changed.
func TestThousandClusters(t *testing.T) {
	const clusters, each = 1000, 10
	w := newWorld(t, "fleet")
	var asked requests
	stop := w.hub(&asked, func(c *hub.Config) { c.AutoRegister, c.AutoAccept = true, true })
	agents := w.agents(well)
	start := time.Now()
	names := w.come(agents, clusters)
	t.Logf("%d clusters registered in %v, with %v", clusters, time.Since(start).Round(time.Millisecond), asked.take())

	start = time.Now()
	w.give(names, each)
	created := time.Since(start)
	w.eventually("all statuses are stored", func() error { return w.reported(clusters * each) })
	counts := asked.take()
	t.Logf("%d works: created in %v, all reported %v later, with %v", clusters*each, created.Round(time.Millisecond),
		(time.Since(start) - created).Round(time.Millisecond), counts)
	if n := agents.specs.Load(); n < clusters*each {
		t.Errorf("%d specs were received", n)
	}
	for kind, most := range map[string]int{"patch manifestworks": clusters * each, "patch manifestworks/status": clusters * each, "get manifestworks": 0} {
		if counts[kind] > most+most/100 {
			t.Errorf("%d times %s for %d works", counts[kind], kind, clusters*each)
		}
	}

	stop()
	published := agents.specs.Load()
	asked.take()
	w.hub(&asked, func(c *hub.Config) { c.AutoRegister, c.AutoAccept = true, true })
	// A new work comes after all that a start has to say.
	if _, err := w.client.WorkV1().ManifestWorks(string(names[0])).Create(w.ctx, work(names[0], "last"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the new hub publishes the new work", func() error { return w.reported(clusters*each + 1) })
	if n := agents.specs.Load() - published; n != 1 {
		t.Errorf("the new hub published %d specs, 1 of which is new", n)
	}
	counts = asked.take()
	if n := counts["patch manifestworks"] + counts["patch manifestworks/status"]; n > 2 {
		t.Errorf("the new hub wrote %d times to works: %v", n, counts)
	}
}

// reported checks that so many works of the fleet have a status, and no fewer.
func (w *world) reported(want int) error {
	list, err := w.client.WorkV1().ManifestWorks("").List(w.ctx, metav1.ListOptions{ResourceVersion: "0"})
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
