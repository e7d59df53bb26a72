package clusters_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/internal/clusters"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/leadership"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// heldBy returns whether a ManagedCluster is held by a hub, empty for none.
func heldBy(hub string) func(*clusterv1.ManagedCluster) bool {
	return func(c *clusterv1.ManagedCluster) bool {
		return c != nil && c.Annotations[clusterv1.HubAnnotationKey] == hub
	}
}

// assigned returns the change of a ManagedCluster to a label and a hub that holds it.
func assigned(value, hub string) func(*clusterv1.ManagedCluster) {
	return func(c *clusterv1.ManagedCluster) {
		c.Labels, c.Annotations[clusterv1.HubAnnotationKey] = map[string]string{"shard": value}, hub
	}
}

// TestGainAndLose: a hub with a shard registers a cluster and serves it, lets it go once nothing is under
// way, and claims it from a hub that has ended, not from one that runs. A cluster of another hub that is
// deleted is not accepted again.
func TestGainAndLose(t *testing.T) {
	w := newWorld(t)
	name := w.unique("shard")
	selector, err := labels.Parse("shard notin (a)")
	kit.NoError(t, err)
	var busy, ended, connected atomic.Bool
	var asked atomic.Int64
	var shard *leadership.Shard
	f := w.start(func(c *clusters.Config) {
		c.AutoAccept = true
		shard = leadership.NewShard(leadership.ShardConfig{
			Hub: "me", Selector: selector, Unregistered: true, ManagedClusters: c.Informers.ManagedClusters(), CatchUpWorks: c.Works.CatchUp,
			Busy: func(wire.ClusterName) bool { return busy.Load() }, Connected: connected.Load,
			Ended: func(_ context.Context, hub string) (bool, error) {
				asked.Add(1)
				return ended.Load() && hub == "other", nil
			},
			Recorder: c.Recorder, Logger: c.Logger,
		})
		c.Shard = shard
	})
	served := func(want bool) {
		t.Helper()
		kit.True(t, "whether the hub serves the cluster", func() bool { return f.accepted(name) == want && shard.Serves(wire.ClusterName(name)) == want })
	}
	f.says(name, "a", true)
	w.await(name, "claimed", heldBy("me"))
	f.awaitCall(&f.gained, "ClusterGained", name)
	served(true)
	f.says(name, "a", true) // as an agent that is probed
	w.await(name, "available", available)
	if got := f.metric("workwire_hub_clusters_by_hub", "hub=me"); got != 1 {
		t.Errorf("%v clusters are the hub's", got)
	}
	for i, now := range []bool{false, true, false} {
		connected.Store(now)
		if got := f.metric("workwire_hub_serving", "hub=me"); (got == 1) != now {
			t.Errorf("step %d: serving %v, connected %t", i, got, now)
		}
	}

	busy.Store(true)
	w.update(name, assigned("a", "me"))
	served(false)
	if !heldBy("me")(w.get(name)) {
		t.Error("let go while something is under way")
	}
	busy.Store(false)
	w.await(name, "let go", heldBy(""))
	f.awaitCall(&f.lost, "ClusterLost", name)

	w.update(name, assigned("b", "other"))
	kit.True(t, "the hub asks for the other one twice", func() bool { return asked.Load() >= 2 })
	if !heldBy("other")(w.get(name)) || f.accepted(name) {
		t.Error("claimed from a hub that runs")
	}
	ended.Store(true)
	w.await(name, "claimed", heldBy("me"))
	f.awaitCall(&f.gained, "ClusterGained", name)
	served(true)

	w.update(name, assigned("b", "")) // somebody has removed the annotation
	w.await(name, "claimed", heldBy("me"))
	f.awaitCall(&f.gained, "ClusterGained", name)
	served(true)

	w.update(name, assigned("a", "other"))
	served(false)
	first := w.get(name)
	w.delete(name)
	f.awaitUnregistered(1)
	f.says(name, "a", true)
	again := w.await(name, "registered again, and claimed", heldBy("me"))
	if again.UID == first.UID || again.Spec.HubAcceptsClient {
		t.Errorf("registered as %+v", again.Spec)
	}
}

// TestClaimedAgain: a cluster that moves away and back while the caches catch up with its claim is not served
// before they have caught up with the last claim: another hub may have served it in between.
func TestClaimedAgain(t *testing.T) {
	w := newWorld(t)
	name, marker := w.unique("again"), w.unique("marker")
	selector, err := labels.Parse("shard=b")
	kit.NoError(t, err)
	labelled := func(value string) func(*clusterv1.ManagedCluster) {
		return func(c *clusterv1.ManagedCluster) { c.Labels = map[string]string{"shard": value} }
	}
	back := sync.OnceFunc(func() { w.update(name, labelled("b")) })
	catchUps := make(chan chan struct{}) // each is closed when the caches have caught up
	var shard *leadership.Shard
	var cache *controller.Cache[*clusterv1.ManagedCluster]
	f := w.start(func(c *clusters.Config) {
		c.AutoRegister = false
		cache = c.Informers.ManagedClusters()
		c.Client = versioned.NewForConfigOrDie(kit.Intercept(plane.REST(), func(next http.RoundTripper, request *http.Request) (*http.Response, error) {
			if request.Method == http.MethodPatch && !shard.Serves(wire.ClusterName(name)) && heldBy("me")(w.get(name)) {
				back() // while the hub lets the cluster go
			}
			return next.RoundTrip(request)
		}))
		shard = leadership.NewShard(leadership.ShardConfig{
			Hub: "me", Selector: selector, ManagedClusters: cache,
			CatchUpWorks: func(ctx context.Context) bool {
				caughtUp := make(chan struct{})
				select {
				case catchUps <- caughtUp:
				case <-ctx.Done():
					return false
				}
				select {
				case <-caughtUp:
				case <-ctx.Done():
				}
				return ctx.Err() == nil
			},
			Busy: func(wire.ClusterName) bool { return false }, Connected: func() bool { return true },
			Ended:    func(context.Context, string) (bool, error) { return false, nil },
			Recorder: c.Recorder, Logger: c.Logger,
		})
		c.Shard = shard
	})
	w.create(name, labelled("b"))
	first := kit.Receive(t, "the hub catches up", catchUps)
	w.update(name, labelled("a"))
	f.awaitCall(&f.lost, "ClusterLost", name)
	w.create(marker, labelled("b")) // its watch event follows that of the label
	w.await(marker, "claimed", heldBy("me"))
	if shard.Serves(wire.ClusterName(name)) {
		t.Error("served before the caches have caught up, as the cluster was to be let go and was not")
	}
	w.update(name, labelled("a"))
	w.await(name, "let go", heldBy(""))
	w.update(name, labelled("b"))
	kit.True(t, "the hub knows that it has claimed the cluster again", func() bool {
		latest, _ := cache.Latest(types.NamespacedName{Name: name})
		return heldBy("me")(latest)
	})
	close(first)
	second := kit.Receive(t, "the hub catches up with the second claim", catchUps)
	if shard.Serves(wire.ClusterName(name)) {
		t.Error("served before the caches have caught up with the second claim")
	}
	close(second)
	f.awaitCall(&f.gained, "ClusterGained", name)
}
