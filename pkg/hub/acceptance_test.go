package hub_test

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/test/kit"
)

// accept sets whether the world's cluster is accepted, as an administrator does.
func (w *world) accept(accepted bool) {
	w.t.Helper()
	_, err := w.client.ClusterV1().ManagedClusters().Patch(w.t.Context(), w.namespace, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"hubAcceptsClient":%v}}`, accepted), metav1.PatchOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

// managed waits until the world's cluster is as wanted.
func (w *world) managed(what string, want func(*clusterv1.ManagedCluster) bool) {
	w.t.Helper()
	kit.Await(w.t, w.client.ClusterV1().ManagedClusters(), w.namespace, what, func(cluster *clusterv1.ManagedCluster) bool {
		return cluster != nil && want(cluster)
	})
}

// TestAcceptance: a cluster that shows itself is registered; it gets no works before it is
// accepted, then all, and no changes after it is refused, nor is anything taken from it.
func TestAcceptance(t *testing.T) {
	w := newWorld(t)
	w.startHubWith(func(c *hub.Config) {
		c.Election, c.Controllers, c.AutoRegister = alone(), []string{hub.ControllerClusters}, true
	})
	w.awaitConnected()
	work := w.create("early")
	a := w.registerAgent(work.UID)
	if early := w.get("early"); len(early.Finalizers) > 0 {
		t.Errorf("its work has the finalizers %v", early.Finalizers)
	}
	// A work that nobody was sent can be deleted.
	w.create("never")
	w.delete("never")
	w.await("never", "gone", gone)

	w.accept(true)
	w.await("early", "applied", applied(work.Generation))
	late := w.create("late")
	w.await("late", "applied", applied(late.Generation))

	w.accept(false)
	w.managed("refused", func(c *clusterv1.ManagedCluster) bool {
		return meta.IsStatusConditionFalse(c.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted)
	})
	changed := w.update("early", func(work *workv1.ManifestWork) {
		work.Spec.Workload.Manifests = []workv1.Manifest{manifest("early", "2")}
	})
	// The agent asks for what it lacks; its question is not answered, so that nothing is taken from
	// it either. What it says is heard.
	a.Stop()
	b := w.startAgent(w.broker.Client(w.namespace), a.Holds())
	b.AwaitConnected(t)
	w.sendPresence(b, "2", false)
	w.sendPresence(b, "3", true)
	w.sendPresence(b, "3", false)
	w.managed("away", func(c *clusterv1.ManagedCluster) bool {
		return !meta.IsStatusConditionTrue(c.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
	})
	if specs := b.Specs(work.UID); len(specs) > 0 {
		t.Errorf("a cluster that is refused got %+v", specs)
	}
	w.accept(true)
	w.await("early", "applied", applied(changed.Generation))
	for _, name := range []string{"early", "late"} {
		w.delete(name)
		w.await(name, "gone", gone)
	}
}

// awaitConnected waits until the hub is connected.
func (w *world) awaitConnected() {
	w.t.Helper()
	kit.True(w.t, "the hub connects", func() bool { return w.broker.Connected("hub1-hub") })
}

// TestTakeover: a leader that loses its API server without a word is followed by the other replica,
// and never do both speak.
func TestTakeover(t *testing.T) {
	w := newWorld(t)
	if o := hub.NewElection("x"); o.LeaseDuration+o.RetryPeriod > 5*time.Second {
		t.Errorf("a lease of %v, tried every %v, is not taken over within 5 s", o.LeaseDuration, o.RetryPeriod)
	}
	var cut atomic.Bool
	replica := func(identity string) *replica {
		return w.startHubWith(func(c *hub.Config) {
			c.Transport, c.Election = w.broker.Client(identity), hub.NewElection("hub-"+w.namespace)
			c.Election.Namespace, c.Election.Identity = w.namespace, identity
			if identity != "first" {
				return
			}
			kit.Intercept(c.REST, func(next http.RoundTripper, request *http.Request) (*http.Response, error) {
				if cut.Load() {
					return nil, errors.New("the network is gone")
				}
				return next.RoundTrip(request)
			})
		})
	}
	connected := func(identity string) {
		t.Helper()
		kit.True(t, identity+" connects", func() bool {
			if w.broker.Connected("first") && w.broker.Connected("second") {
				t.Fatal("two replicas are connected")
			}
			return w.broker.Connected(identity)
		})
	}
	first := replica("first")
	connected("first")
	replica("second")
	w.startAgent(w.broker.Client(w.namespace), nil).AwaitConnected(t)
	before := w.create("before")
	w.await("before", "applied", applied(before.Generation))
	cut.Store(true)
	lost := time.Now()
	connected("second")
	t.Logf("taken over after %v", time.Since(lost).Round(time.Millisecond))
	if err := <-first.ended; err == nil {
		t.Error("the leader that lost its API server ends well")
	}
	after := w.create("after")
	w.await("after", "applied", applied(after.Generation))
}
