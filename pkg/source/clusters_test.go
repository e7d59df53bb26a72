package source_test

import (
	"context"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/wire"
)

// TestClusters: agents come and go, and so does the client's own connection.
func TestClusters(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.client()
		w.run(c)
		ctx, cancel := context.WithCancel(t.Context())
		seen := make(chan source.ClusterPresence, 100)
		w.running.Go(func() {
			for cluster := range c.Clusters().Watch(ctx) {
				seen <- cluster
			}
			close(seen)
		})
		next := func(want source.Presence, names ...wire.ClusterName) {
			t.Helper()
			for _, name := range names {
				synctest.Wait()
				select {
				case got := <-seen:
					if got.Name != name || got.Presence != want {
						t.Errorf("the watch yields %+v, want %s %s", got, name, want)
					}
					if now, ok := c.Clusters().Get(name); !ok || now != got {
						t.Errorf("Get returns %+v, the watch %+v", now, got)
					}
				default:
					t.Errorf("the watch does not yield %s", name)
				}
			}
		}
		if _, ok := c.Clusters().Get("cluster1"); ok {
			t.Error("it knows cluster1 before it was heard")
		}
		agent := w.agent("cluster1")
		next(source.PresenceUnknown, "cluster1") // it asks for its works
		announce := func(session string, present bool) {
			t.Helper()
			if err := agent.Send(ctx, &wire.Presence{Agent: "cluster1", Cluster: "cluster1", Source: "ops", Session: session, Present: present}); err != nil {
				t.Fatal(err)
			}
		}
		announce("1", true)
		next(source.PresenceConnected, "cluster1")
		w.agent("cluster2")
		next(source.PresenceUnknown, "cluster2")
		// Other messages change the time only.
		before, _ := c.Clusters().Get("cluster1")
		must(t)(c.ManifestWorks("cluster1").Create(ctx, configMap("a", "x"), metav1.CreateOptions{}))
		synctest.Wait()
		if after, _ := c.Clusters().Get("cluster1"); after.LastHeard.Before(before.LastHeard) || after.Presence != before.Presence || len(seen) != 0 {
			t.Errorf("after a status: %+v, before %+v; %d yielded", after, before, len(seen))
		}
		announce("1", false)
		next(source.PresenceDisconnected, "cluster1")
		announce("2", true)
		next(source.PresenceConnected, "cluster1")
		w.broker.Cut("ops")
		next(source.PresenceUnknown, "cluster1")
		w.broker.Restore("ops")
		synctest.Wait()
		announce("2", true) // a real agent does when the client asks for statuses
		next(source.PresenceConnected, "cluster1")

		// A reader that stops is forgotten; a new one begins with all.
		for cluster := range c.Clusters().Watch(ctx) {
			if cluster.Name != "cluster1" {
				t.Errorf("a new watch begins with %+v", cluster)
			}
			break
		}
		if list := c.Clusters().List(); len(list) != 2 || list[0].Name != "cluster1" || list[1].Presence != source.PresenceUnknown {
			t.Errorf("the clusters are %+v", list)
		}
		cancel()
		synctest.Wait()
		if _, open := <-seen; open {
			t.Error("the watch goes on after its context")
		}
	})
}
