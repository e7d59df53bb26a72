package hub_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/runtime/leader"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/world"
)

const source = wire.SourceID("hub1")

// topics have no broadcasts: all tests share an API, and their hubs one source id.
var topics = wire.Topics{
	SourceEvents: "sources/hub1/clusters/+/sourceevents",
	AgentEvents:  "sources/hub1/clusters/+/agentevents",
}

var plane *controlplane.Plane

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Hub: &plane}) }

// hubWorld is a world with one cluster, whose agent the test scripts.
type hubWorld struct {
	*world.World
	namespace string // of the cluster at the hub
	works     workclientv1.ManifestWorkInterface
}

// newWorld returns a world with a broker in memory.
func newWorld(t testing.TB) *hubWorld {
	t.Helper()
	return newWorldOn(t, nil)
}

// newWorldOn returns a world with the broker that start starts.
func newWorldOn(t testing.TB, start func(*world.World)) *hubWorld {
	t.Helper()
	w := world.New(t, world.Options{
		Hub: plane, Source: source, Topics: topics, Clusters: []wire.ClusterName{wire.ClusterName(kit.Unique("cluster"))}, Memory: start == nil,
	})
	if start != nil {
		start(w)
	}
	return &hubWorld{World: w, namespace: string(w.Clusters[0]), works: w.Works(0)}
}

// replica is a hub whose requests are counted.
type replica struct {
	*world.Hub
	requests *kit.Requests
}

// startHub starts a hub. Hubs of several tests run at a time, on one API: none but those of a test about
// that looks after more than works. A machine may be slow: only tests about that have works that are
// pending for long.
func (w *hubWorld) startHub(change ...func(*hub.Config)) *replica {
	w.Helper()
	r := &replica{}
	usual := func(c *hub.Config) { c.PendingDelay, c.Controllers = time.Hour, []string{} }
	count := func(c *hub.Config) { r.requests = kit.CountRequests(c.REST) }
	r.Hub = w.StartHub(append(append([]func(*hub.Config){usual}, change...), count)...)
	return r
}

// electing makes a hub one of the replicas of the world, which exclude each other.
func (w *hubWorld) electing(identity string) func(*hub.Config) {
	return func(c *hub.Config) {
		c.Election = leader.NewOptions("hub")
		c.Election.Namespace, c.Election.Identity = w.namespace, identity
		c.Election.LeaseDuration, c.Election.RenewDeadline, c.Election.RetryPeriod = 15*time.Second, 10*time.Second, time.Second
	}
}

// requestCounts counts the hub's requests about a work by verb and resource.
func (r *replica) requestCounts(namespace, name string) map[string]int {
	return r.requests.Counts(kit.On("manifestworks", "manifestworks/status"), kit.InNamespace(namespace), kit.Named(name))
}

func manifest(name, value string) workv1.Manifest { return world.ConfigMap("default", name, value) }

// create creates a work with a ConfigMap of its name.
func (w *hubWorld) create(name string, change ...func(*workv1.ManifestWork)) *workv1.ManifestWork {
	w.Helper()
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: name}}
	work.Spec.Workload.Manifests = []workv1.Manifest{manifest(name, "1")}
	for _, f := range change {
		f(work)
	}
	return w.Create(w.works, work)
}

// update changes a work.
func (w *hubWorld) update(name string, change func(*workv1.ManifestWork)) *workv1.ManifestWork {
	w.Helper()
	return w.Change(w.works, name, change)
}

// change gives a work another spec.
func (w *hubWorld) change(name, value string) *workv1.ManifestWork {
	w.Helper()
	return w.update(name, func(work *workv1.ManifestWork) {
		work.Spec.Workload.Manifests = []workv1.Manifest{manifest(name, value)}
	})
}

func (w *hubWorld) get(name string) *workv1.ManifestWork {
	w.Helper()
	work, err := w.works.Get(w.Context(), name, metav1.GetOptions{})
	kit.NoError(w, err)
	return work
}

// await watches the work until it is as wanted; nil stands for a work that is gone.
func (w *hubWorld) await(name, what string, want func(*workv1.ManifestWork) bool) *workv1.ManifestWork {
	w.Helper()
	return kit.Await(w, w.works, name, what, want)
}

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
func (w *hubWorld) awaitReady(r *replica) *replica {
	w.Helper()
	kit.Eventually(w, "the hub is ready", func() error {
		var errs []error
		for _, check := range r.Checks() {
			errs = append(errs, check.Func(w.Context()))
		}
		return errors.Join(errs...)
	})
	return r
}
