package delivery_test

import (
	"testing"
	"testing/synctest"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// TestUntrustedQuestions: a spec resync request or a digest that is unsigned, of another key, edited, replayed or
// from before the start is not answered, and counts as no message of its cluster. One that the agent signs is
// answered, also after the others, and on either topic.
func TestUntrustedQuestions(t *testing.T) {
	keys := newAgentKeys(t)
	messages := 0
	config := delivery.Config{TrustedAgents: keys.trusted, Observe: on(func(delivery.ClusterHeard) { messages++ })}
	withHarness(t, config, func(b *harness) {
		b.start()
		work := b.store.put(newWork("cluster1", "w"))
		synctest.Wait()
		question := func(m wire.Message, cluster wire.ClusterName, ahead time.Duration) cloudevents.Event {
			e, err := wire.Encode(m, time.Now())
			kit.NoError(t, err)
			if cluster != "" {
				kit.NoError(t, keys.signer(t, cluster, ahead).SignStatus(&e))
			}
			return e
		}
		all := &wire.SpecResync{Agent: "a", Cluster: "cluster1", Source: "hub1"}
		digest := &wire.Digest{Agent: "a", Cluster: "cluster1", Source: "hub1", Buckets: wire.NewBuckets(nil)}
		edited := question(all, "cluster1", 0)
		kit.NoError(t, edited.SetData("application/json", []byte(`{"resourceVersions":[{"resourceID":"u","resourceVersion":1}]}`)))
		replayed := question(all, "cluster1", 0)
		time.Sleep(10 * time.Second)
		b.deliver("cluster1", question(all, "cluster1", 0))
		b.deliver("cluster1", question(digest, "cluster1", 0))
		time.Sleep(time.Minute)
		answered, asked := len(b.tap.specs(work.UID)), len(b.tap.asks())
		if answered < 2 || messages != 2 {
			t.Fatalf("the signed ones: %d specs, %d messages", answered, messages)
		}
		for what, forged := range map[string]struct {
			kind  string
			event cloudevents.Event
		}{
			"unsigned":         {"spec_resync", question(all, "", 0)},
			"another cluster":  {"spec_resync", question(all, "cluster2", 0)},
			"a stranger":       {"spec_resync", question(all, "thief", 0)},
			"edited":           {"spec_resync", edited},
			"replayed":         {"spec_resync", replayed},
			"long ago":         {"spec_resync", question(all, "cluster1", -2*time.Hour)},
			"before the start": {"spec_resync", question(all, "cluster1", -5*time.Minute)},
			"a partial one": {"spec_resync", question(&wire.SpecResync{Agent: "a", Cluster: "cluster1", Source: "hub1", Partial: true,
				Versions: []wire.SpecVersion{{UID: types.UID("u"), Generation: 1}}}, "", 0)},
			"a digest": {"digest", question(digest, "", 0)},
		} {
			before := b.metric("workwire_source_received_total", "message="+forged.kind, "verdict=untrusted")
			b.deliver("cluster1", forged.event)
			time.Sleep(time.Minute)
			if got := b.metric("workwire_source_received_total", "message="+forged.kind, "verdict=untrusted"); got != before+1 {
				t.Errorf("%s: %v are counted as untrusted, want %v", what, got, before+1)
			}
			if len(b.tap.specs(work.UID)) != answered || len(b.tap.asks()) != asked || messages != 2 {
				t.Errorf("%s changes something: %d specs, %d questions, %d messages", what, len(b.tap.specs(work.UID)), len(b.tap.asks()), messages)
			}
		}
		b.deliver("cluster1", question(all, "cluster1", 0))
		time.Sleep(time.Minute)
		if len(b.tap.specs(work.UID)) <= answered || messages != 3 {
			t.Error("a signed one after those is not answered")
		}
	})
}
