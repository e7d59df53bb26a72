package hub_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/runtime/leader"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Hub: &plane}) }

// world is what a test plays in: a hub's API, which all tests share, a broker, and a namespace.
type world struct {
	t         testing.TB
	broker    *memory.Broker
	client    versioned.Interface
	namespace string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	client, err := versioned.NewForConfig(plane.REST())
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, broker: memory.NewBroker(), client: client, namespace: plane.Namespace(t, "cluster")}
}

// replica is a running hub.
type replica struct {
	*hub.Hub
	registry *prometheus.Registry
	stop     func()
	ended    chan error

	requests *kit.Requests
}

// electing are options for replicas of one world that exclude each other.
func (w *world) electing(identity string) leader.Options {
	o := leader.NewOptions("hub")
	o.Namespace, o.Identity = w.namespace, identity
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = 15*time.Second, 10*time.Second, time.Second
	return o
}

// startHub runs a hub until the test ends.
func (w *world) startHub(election leader.Options) *replica {
	w.t.Helper()
	return w.startHubWith(func(c *hub.Config) { c.Election = election })
}

// startHubWith runs a hub whose usual configuration is changed.
func (w *world) startHubWith(change func(*hub.Config)) *replica {
	w.t.Helper()
	r := &replica{registry: prometheus.NewRegistry(), ended: make(chan error, 1)}
	config := hub.Config{
		REST: plane.REST(), Source: source, Topics: topics, Transport: w.broker.Client("hub1-hub"), Election: alone(),
		// Hubs of several tests run at a time, on one API: none but those of a test about that
		// looks after more than works.
		// A machine may be slow: only tests about that have works that are pending for long.
		PendingDelay: time.Hour,
		Controllers:  []string{}, Registerer: r.registry, Logger: kit.Logger(w.t),
	}
	change(&config)
	r.requests = kit.CountRequests(config.REST)
	var err error
	r.Hub, err = hub.New(config)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		err := r.Run(ctx)
		if err != nil && ctx.Err() == nil {
			w.t.Logf("hub: %v", err)
		}
		r.ended <- err
	}()
	r.stop = sync.OnceFunc(func() { cancel(); <-finished })
	w.t.Cleanup(r.stop)
	return r
}

// alone is the election of a hub without replicas.
func alone() leader.Options { return leader.Options{Disabled: true} }

// requestCounts counts the hub's requests about a work by verb and resource.
func (r *replica) requestCounts(namespace, name string) map[string]int {
	return r.requests.Counts(kit.On("manifestworks", "manifestworks/status"), kit.InNamespace(namespace), kit.Named(name))
}

func manifest(name, value string) workv1.Manifest {
	return workv1.Manifest{RawExtension: runtime.RawExtension{Raw: fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default"},"data":{"value":%q}}`, name, value)}}
}

func (w *world) create(name string, change ...func(*workv1.ManifestWork)) *workv1.ManifestWork {
	w.t.Helper()
	work := &workv1.ManifestWork{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{manifest(name, "1")}}},
	}
	for _, f := range change {
		f(work)
	}
	created, err := w.client.WorkV1().ManifestWorks(w.namespace).Create(w.t.Context(), work, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return created
}

// update changes a work until it meets no other change.
func (w *world) update(name string, change func(*workv1.ManifestWork)) *workv1.ManifestWork {
	w.t.Helper()
	for {
		work := w.get(name)
		change(work)
		updated, err := w.client.WorkV1().ManifestWorks(w.namespace).Update(w.t.Context(), work, metav1.UpdateOptions{})
		if err == nil {
			return updated
		}
		if !apierrors.IsConflict(err) {
			w.t.Fatal(err)
		}
	}
}

func (w *world) get(name string) *workv1.ManifestWork {
	w.t.Helper()
	work, err := w.client.WorkV1().ManifestWorks(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return work
}

func (w *world) delete(name string) {
	w.t.Helper()
	if err := w.client.WorkV1().ManifestWorks(w.namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// await watches the work until it is as wanted; nil stands for a work that is gone.
func (w *world) await(name, what string, want func(*workv1.ManifestWork) bool) *workv1.ManifestWork {
	w.t.Helper()
	return kit.Await(w.t, w.client.WorkV1().ManifestWorks(w.namespace), name, what, want)
}

// applied tells of a work whose stored status says so at this generation.
func applied(generation int64) func(*workv1.ManifestWork) bool {
	return func(work *workv1.ManifestWork) bool {
		if work == nil {
			return false
		}
		c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
		return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == generation
	}
}

func gone(work *workv1.ManifestWork) bool { return work == nil }

// awaitCheck waits until a check of the hub fails with an error that contains text.
func awaitCheck(t *testing.T, r *replica, name, text string) {
	t.Helper()
	kit.Eventually(t, "check "+name+" fails with "+text, func() error {
		for _, check := range r.Checks() {
			if check.Name != name {
				continue
			}
			err := check.Func(t.Context())
			if err != nil && strings.Contains(err.Error(), text) {
				return nil
			}
			return fmt.Errorf("it returns %w", err)
		}
		return errors.New("there is no such check")
	})
}

// awaitReady waits until all checks of the hub pass.
func (w *world) awaitReady(r *replica) {
	w.t.Helper()
	kit.Eventually(w.t, "the hub is ready", func() error {
		var errs []error
		for _, check := range r.Checks() {
			errs = append(errs, check.Func(w.t.Context()))
		}
		return errors.Join(errs...)
	})
}
