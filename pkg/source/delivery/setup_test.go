package delivery_test

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
)

var topics = wire.Topics{
	SourceEvents: "sources/hub1/clusters/+/sourceevents",
	AgentEvents:  "sources/hub1/clusters/+/agentevents",
}

// fakeStore is a WorkStore in a map. It removes deleted works like a hub does.
type fakeStore struct {
	mu       sync.Mutex
	works    map[types.UID]*workv1.ManifestWork
	version  int
	engine   *delivery.Engine
	updates  []*wire.Status
	refused  []metav1.Condition
	outdated []wire.Generation
	fail     error // of the next UpdateStatus
	hang     bool  // UpdateStatus ends with its context
	lists    int   // calls of ListCluster
	unknown  delivery.UnknownAction
	amend    string // name of the work whose status is stored with another condition
}

func (s *fakeStore) Get(uid types.UID) (delivery.StoredWork, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	work, ok := s.works[uid]
	return delivery.StoredWork{Work: work}, ok
}

func (s *fakeStore) ListCluster(cluster wire.ClusterName) iter.Seq[*workv1.ManifestWork] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	var found []*workv1.ManifestWork
	for _, uid := range slices.Sorted(maps.Keys(s.works)) {
		if work := s.works[uid]; work.Namespace == string(cluster) {
			found = append(found, work)
		}
	}
	return slices.Values(found)
}

func (s *fakeStore) Clusters() iter.Seq[wire.ClusterName] {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make(map[wire.ClusterName]bool)
	for _, work := range s.works {
		names[wire.ClusterName(work.Namespace)] = true
	}
	return maps.Keys(names)
}

func (s *fakeStore) UpdateStatus(ctx context.Context, status *wire.Status) error {
	s.mu.Lock()
	if s.hang {
		s.mu.Unlock()
		<-ctx.Done()
		return ctx.Err()
	}
	if err := s.fail; err != nil {
		s.fail = nil
		s.mu.Unlock()
		return err
	}
	s.updates = append(s.updates, status)
	work, ok := s.works[status.UID]
	s.mu.Unlock()
	if !ok {
		return nil
	}
	next := work.DeepCopy()
	next.Status = status.Status
	if work.Name == s.amend {
		next.Status = workv1.ManifestWorkStatus{Conditions: []metav1.Condition{{Type: "StatusStored", Status: metav1.ConditionFalse}}}
	}
	if equality.Semantic.DeepEqual(work.Status, next.Status) {
		return nil
	}
	if work.DeletionTimestamp != nil && meta.IsStatusConditionTrue(status.Status.Conditions, workv1.WorkDeleted) {
		s.remove(next)
		return nil
	}
	s.put(next)
	return nil
}

func (s *fakeStore) Content(work *workv1.ManifestWork) *workv1.ManifestWork { return work }

func (s *fakeStore) Unknown(wire.SpecVersion) delivery.UnknownAction { return s.unknown }

func (s *fakeStore) WriteDelivery(context.Context, types.UID) error { return nil }

func (s *fakeStore) SetCondition(_ context.Context, uid types.UID, c metav1.Condition) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = append(s.refused, c)
	return nil
}

// reportedAhead returns the generations that AgentAhead was called with since the last time.
func (s *fakeStore) reportedAhead() []wire.Generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	reported := s.outdated
	s.outdated = nil
	return reported
}

func (s *fakeStore) AgentAhead(_ types.UID, held wire.Generation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outdated = append(s.outdated, held)
	return false
}

// put stores work and notifies the engine.
func (s *fakeStore) put(work *workv1.ManifestWork) *workv1.ManifestWork {
	s.mu.Lock()
	s.version++
	work.ResourceVersion = strconv.Itoa(s.version)
	s.works[work.UID] = work
	s.mu.Unlock()
	s.engine.WorkChanged(work.UID)
	return work
}

// remove removes work and notifies the engine.
func (s *fakeStore) remove(work *workv1.ManifestWork) {
	s.mu.Lock()
	delete(s.works, work.UID)
	s.mu.Unlock()
	s.engine.WorkRemoved(work)
}

func (s *fakeStore) get(uid types.UID) *workv1.ManifestWork {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.works[uid]
}

// change stores a changed copy of the work with uid.
func (s *fakeStore) change(uid types.UID, f func(*workv1.ManifestWork)) *workv1.ManifestWork {
	next := s.get(uid).DeepCopy()
	f(next)
	return s.put(next)
}

// bump changes the spec of w.
func bump(w *workv1.ManifestWork) {
	w.Generation++
	w.Spec = specOf(w.Name, w.Generation)
}

func doom(w *workv1.ManifestWork) {
	w.Generation++
	now := metav1.Now()
	w.DeletionTimestamp = &now
}

func specOf(name string, generation int64) workv1.ManifestWorkSpec {
	manifest := workv1.Manifest{}
	manifest.Raw = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"n":"` + strconv.FormatInt(generation, 10) + `"}}`)
	return workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{manifest}}}
}

func newWork(cluster, name string) *workv1.ManifestWork {
	w := &workv1.ManifestWork{}
	w.Name, w.Namespace, w.Generation = name, cluster, 1
	w.UID = types.UID("uid-" + cluster + "-" + name)
	w.Spec = specOf(name, 1)
	return w
}

// tap records what the source publishes, and may make it fail.
type tap struct {
	transport.Transport
	mu     sync.Mutex
	events []wire.Message
	topics []string
	fail   func(wire.Message) error

	discard bool // do not record

	compressed int // events
}

func (t *tap) Publish(ctx context.Context, topic string, e cloudevents.Event) error {
	m, err := wire.Decode(e)
	if err != nil {
		return err
	}
	t.mu.Lock()
	if t.fail != nil {
		if err := t.fail(m); err != nil {
			t.mu.Unlock()
			return err
		}
	}
	t.mu.Unlock()
	if err := t.Transport.Publish(ctx, topic, e); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.discard {
		return nil
	}
	if e.DataContentType() != "application/json" {
		t.compressed++
	}
	t.events = append(t.events, m)
	t.topics = append(t.topics, topic)
	return nil
}

// specs returns the spec events published for uid.
func (t *tap) specs(uid types.UID) []*wire.Spec {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found []*wire.Spec
	for _, m := range t.events {
		if s, ok := m.(*wire.Spec); ok && s.UID == uid {
			found = append(found, s)
		}
	}
	return found
}

// asks returns the status resync requests published.
func (t *tap) asks() []*wire.StatusResync {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found []*wire.StatusResync
	for _, m := range t.events {
		if r, ok := m.(*wire.StatusResync); ok {
			found = append(found, r)
		}
	}
	return found
}

// harness is a source, a broker and agents in a synctest bubble.
type harness struct {
	t        *testing.T
	broker   *memory.Broker
	store    *fakeStore
	tap      *tap
	engine   *delivery.Engine
	registry *prometheus.Registry
	running  sync.WaitGroup
	run      func(what string, run func(context.Context) error) // until the end of the test
}

// warmCompression makes the channels of package wire's compression outside of every bubble: those made
// in one bubble must not be used in the next.
func warmCompression(t *testing.T) {
	t.Helper()
	e := cloudevents.New()
	if err := errors.Join(e.SetData("application/json", []byte(`"`+strings.Repeat("n", 10_000)+`"`)), wire.Compress(&e)); err != nil {
		t.Fatal(err)
	}
	if plain, err := wire.PlainData(e); err != nil || len(plain) != 10_002 || len(e.Data()) == len(plain) {
		t.Fatalf("%d bytes after compression, %d without it: %v", len(e.Data()), len(plain), err)
	}
}

// withHarness runs test in its own bubble. The source hub1 does not run yet.
func withHarness(t *testing.T, config delivery.Config, test func(b *harness)) {
	t.Helper()
	warmCompression(t)
	synctest.Test(t, func(t *testing.T) {
		b := &harness{t: t, broker: memory.NewBroker(), store: &fakeStore{works: make(map[types.UID]*workv1.ManifestWork)},
			registry: prometheus.NewRegistry()}
		ctx, cancel := context.WithCancel(context.Background())
		b.run = func(what string, run func(context.Context) error) {
			b.running.Go(func() {
				if err := run(ctx); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			})
			synctest.Wait()
		}
		b.tap = &tap{Transport: b.broker.Client("hub1")}
		config.Source, config.Topics, config.Transport, config.Works = "hub1", cmp.Or(config.Topics, topics), b.tap, b.store
		config.Logger = cmp.Or(config.Logger, kit.Logger(t))
		config.Registerer = b.registry
		var err error
		if b.engine, err = delivery.New(config); err != nil {
			t.Fatal(err)
		}
		b.store.engine = b.engine
		defer b.running.Wait()
		defer cancel()
		test(b)
	})
}

// on returns an observer of the events of one type.
func on[E any](do func(E)) func(delivery.Event) {
	return func(event delivery.Event) {
		if event, ok := event.(E); ok {
			do(event)
		}
	}
}

// start runs the source and waits until it is idle.
func (b *harness) start() {
	b.run("Run", b.engine.Run)
}

// agent runs an agent for cluster, connected as cluster.
func (b *harness) agent(cluster wire.ClusterName, options ...func(*wirekit.AgentConfig)) *wirekit.Agent {
	config := wirekit.AgentConfig{Cluster: cluster, Source: "hub1", Topics: topics, Transport: b.broker.Client(string(cluster))}
	for _, option := range options {
		option(&config)
	}
	a := wirekit.NewAgent(config)
	b.run("agent", a.Run)
	return a
}

// holds checks that the agent holds this generation of a work; 0 for none.
func (b *harness) holds(a *wirekit.Agent, uid types.UID, generation wire.Generation) {
	b.t.Helper()
	synctest.Wait()
	held, ok := a.Holds()[uid]
	switch {
	case generation == 0 && ok:
		b.t.Fatalf("the agent still holds %s at generation %d", uid, held.Generation)
	case generation != 0 && !ok:
		b.t.Fatalf("the agent does not hold %s", uid)
	case generation != 0 && held.Generation != generation:
		b.t.Fatalf("the agent holds generation %d of %s, want %d", held.Generation, uid, generation)
	}
}

// published checks how many spec events went out for a work.
func (b *harness) published(uid types.UID, want int) []*wire.Spec {
	b.t.Helper()
	synctest.Wait()
	specs := b.tap.specs(uid)
	if len(specs) != want {
		b.t.Fatalf("%d spec events for %s, want %d", len(specs), uid, want)
	}
	return specs
}

// metric returns the sum of a metric over all samples that have the labels, each "name=value".
func (b *harness) metric(name string, labels ...string) float64 {
	b.t.Helper()
	return kit.Metric(b.t, b.registry, name, labels...)
}

var errBroken = errors.New("broken")

// slowTransport hangs on everything for the cluster slow until hang is closed.
type slowTransport struct {
	transport.Transport
	hang chan struct{}
}

func (s *slowTransport) Publish(ctx context.Context, topic string, e cloudevents.Event) error {
	if e.Extensions()["clustername"] == "slow" {
		select {
		case <-s.hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.Transport.Publish(ctx, topic, e)
}
