package delivery_test

import (
	"testing"
	"testing/synctest"

	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
)

// TestServed: nothing is published to a cluster that another program serves, nothing that it says is
// answered or stored, and nothing is kept of its works. A cluster that is gained gets what it lacks.
func TestServed(t *testing.T) {
	withHarness(t, delivery.Config{Clusters: delivery.ClusterElsewhere}, func(b *harness) {
		b.start()
		a := b.agent("cluster1")
		uid := b.store.put(newWork("cluster1", "w")).UID
		gone := b.store.put(newWork("cluster1", "gone"))
		question := &wire.SpecResync{Agent: "a", Cluster: "cluster1", Source: "hub1", Versions: []wire.SpecVersion{{UID: "stray", Generation: 2}}}
		others := func() {
			t.Helper()
			b.store.remove(b.store.put(gone.DeepCopy()))
			b.send("cluster1", question)
			b.engine.ProbeCluster("cluster1")
			b.published("stray", 0)
			if kept, updates := delivery.KeptOf(b.engine), len(b.store.updates); kept.Works != 0 || b.engine.Busy("cluster1") {
				t.Errorf("kept %+v, busy %t, %d updates", kept, b.engine.Busy("cluster1"), updates)
			}
		}
		b.published(uid, 0)
		others()
		if b.metric("workwire_source_received_total", "verdict=not_served") == 0 || len(b.store.updates) > 0 {
			t.Errorf("what the cluster says counts: %d updates", len(b.store.updates))
		}

		busy := false
		b.tap.fail = func(wire.Message) error { busy = busy || b.engine.Busy("cluster1"); return nil }
		b.engine.SetCluster("cluster1", delivery.ClusterOpen)
		b.published(uid, 1)
		b.holds(a, uid, 1)
		if !busy || b.engine.Busy("cluster1") {
			t.Errorf("while it publishes, busy is %t", busy)
		}

		b.engine.SetCluster("cluster1", delivery.ClusterElsewhere)
		b.store.change(uid, bump)
		b.published(uid, 1)
		others()

		b.engine.SetCluster("cluster1", delivery.ClusterOpen)
		synctest.Wait()
		b.holds(a, uid, 2)
		b.send("cluster1", question) // now it is ours to answer
		b.published("stray", 1)
	})
}

// TestLostWhileAnswering: a cluster that is lost while its question is being answered leaves nothing.
func TestLostWhileAnswering(t *testing.T) {
	var engine *delivery.Engine
	lose := func(event delivery.UnknownWorks) { engine.SetCluster(event.Cluster, delivery.ClusterElsewhere) }
	withHarness(t, delivery.Config{Observe: on(lose)}, func(b *harness) {
		engine = b.engine
		b.start()
		b.store.put(newWork("cluster1", "w"))
		synctest.Wait()
		b.send("cluster1", &wire.SpecResync{Agent: "a", Cluster: "cluster1", Source: "hub1", Versions: []wire.SpecVersion{{UID: "stray", Generation: 2}}})
		b.published("stray", 0)
		if kept, pending := delivery.KeptOf(b.engine), b.metric("workwire_source_works_pending"); kept.Works != 0 || pending != 0 || b.engine.Busy("cluster1") {
			t.Errorf("kept %+v, %v pending", kept, pending)
		}
	})
}
