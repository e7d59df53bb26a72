package hub_test

import (
	"context"
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
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/world"
)

// accept sets whether the world's cluster is accepted, as an administrator does.
func (w *hubWorld) accept(accepted bool) {
	w.Helper()
	_, err := w.Client().ClusterV1().ManagedClusters().Patch(w.Context(), w.namespace, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"hubAcceptsClient":%v}}`, accepted), metav1.PatchOptions{})
	kit.NoError(w, err)
}

// managed waits until the world's cluster is as wanted.
func (w *hubWorld) managed(what string, want func(*clusterv1.ManagedCluster) bool) {
	w.Helper()
	kit.Await(w, w.Client().ClusterV1().ManagedClusters(), w.namespace, what, func(cluster *clusterv1.ManagedCluster) bool {
		return cluster != nil && want(cluster)
	})
}

// TestAcceptance: a cluster that shows itself is registered; it gets no works before it is
// accepted, then all, and no changes after it is refused, nor is anything taken from it.
func TestAcceptance(t *testing.T) {
	w := newWorld(t)
	w.startHub(func(c *hub.Config) {
		c.Controllers, c.AutoRegister = []string{hub.ControllerClusters}, true
	}).AwaitConnected()
	work := w.create("early")
	a := w.registerAgent(work.UID)
	if early := w.get("early"); len(early.Finalizers) > 0 {
		t.Errorf("its work has the finalizers %v", early.Finalizers)
	}
	// A work that nobody was sent can be deleted.
	w.create("never")
	w.Delete(w.works, "never")
	w.Gone(w.works, "never")

	w.accept(true)
	w.Applied(w.works, "early")
	w.create("late")
	w.Applied(w.works, "late")

	w.accept(false)
	w.managed("refused", func(c *clusterv1.ManagedCluster) bool {
		return meta.IsStatusConditionFalse(c.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted)
	})
	w.change("early", "2")
	// The agent asks for what it lacks; its question is not answered, so that nothing is taken from
	// it either. What it says is heard.
	a.Stop()
	b := w.startAgent(a.Holds())
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
	w.Applied(w.works, "early")
	for _, name := range []string{"early", "late"} {
		w.Delete(w.works, name)
		w.Gone(w.works, name)
	}
}

// TestTakeover: a leader that loses its API server without a word is followed by the other replica,
// and never do both speak.
func TestTakeover(t *testing.T) {
	w := newWorld(t)
	if o := hub.NewElection("x"); o.LeaseDuration+o.RetryPeriod > 5*time.Second {
		t.Errorf("a lease of %v, tried every %v, is not taken over within 5 s", o.LeaseDuration, o.RetryPeriod)
	}
	var cut atomic.Bool
	replica := func(identity string) *world.Hub {
		return w.NewHub(func(c *hub.Config) {
			c.Transport, c.Election = w.Memory.Client(identity), hub.NewElection("hub-"+w.namespace)
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
			if w.Memory.Connected("first") && w.Memory.Connected("second") {
				t.Fatal("two replicas are connected")
			}
			return w.Memory.Connected(identity)
		})
	}
	first, ended := replica("first"), make(chan error, 1)
	kit.Run(t, "the first hub", func(ctx context.Context) error { ended <- first.Run(ctx); return nil })
	connected("first")
	replica("second").Start()
	w.startAgent(nil).AwaitConnected(t)
	w.create("before")
	w.Applied(w.works, "before")
	cut.Store(true)
	lost := time.Now()
	connected("second")
	t.Logf("taken over after %v", time.Since(lost).Round(time.Millisecond))
	if err := kit.Receive(t, "the end of the first hub", ended); err == nil {
		t.Error("the leader that lost its API server ends well")
	}
	w.create("after")
	w.Applied(w.works, "after")
}
