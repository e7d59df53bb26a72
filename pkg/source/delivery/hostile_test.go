package delivery_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// hears has the engine receive an event of the cluster hostile: text, compressed, about the n-th of its works.
func (b *harness) hears(eventType string, n int, text string) {
	b.t.Helper()
	e := cloudevents.New()
	e.SetID("1")
	e.SetType(eventType)
	e.SetSource("hostile-agent")
	for name, value := range map[string]string{
		"resourceid": fmt.Sprint("u", n), "clustername": "hostile", "originalsource": "hub1", "resourceversion": "1",
		"sequenceid": fmt.Sprint(n + 1), "statushash": "h",
	} {
		e.SetExtension(name, value)
	}
	kit.NoError(b.t, e.SetData("application/json", wirekit.Compressed(text)))
	delivery.Receive(b.engine, transport.Message{Topic: "sources/hub1/clusters/hostile/agentevents", Event: e, Ack: func() {}})
}

// TestHostileCluster: whatever a cluster that has works asks and reports, 15 times, compressed as well as can be,
// the source keeps little of it, and serves others.
func TestHostileCluster(t *testing.T) {
	const (
		times   = 15
		allowed = 64 << 20 // messages that are handled just then included
		works   = "io.open-cluster-management.works.v1alpha1.manifestbundles."
	)
	list := func(before string, items int, item func(i int) string, after string) string {
		var text strings.Builder
		text.WriteString(before)
		for i := range items {
			if i > 0 {
				text.WriteByte(',')
			}
			text.WriteString(item(i))
		}
		return text.String() + after
	}
	long := strings.Repeat("a", 60)
	for name, c := range map[string]struct {
		eventType string
		text      func(n int) string
	}{
		"empty entries": {works + "spec.resync_request", func(int) string {
			return list(`{"partial":true,"resourceVersions":[`, 300_000, func(int) string { return "{}" }, "]}")
		}},
		"new entries": {works + "spec.resync_request", func(n int) string {
			return list(`{"partial":true,"resourceVersions":[`, 10_000,
				func(i int) string {
					return fmt.Sprintf(`{"resourceID":"%.50s%d","resourceVersion":1}`, long, n*10_000+i)
				}, "]}")
		}},
		"long lists": {works + "spec.resync_request", func(n int) string {
			return list(`{"resourceVersions":[`, 10_000,
				func(i int) string {
					return fmt.Sprintf(`{"resourceID":"%.50s%d","resourceVersion":1}`, long, n*10_000+i)
				}, "]}")
		}},
		"long ids": {works + "spec.resync_request", func(n int) string {
			return fmt.Sprintf(`{"partial":true,"resourceVersions":[{"resourceID":"%s%d","resourceVersion":1}]}`, strings.Repeat("a", 1_000_000), n)
		}},
		"empty manifests": {works + "status.update_request", func(int) string {
			return list(`{"resourceStatus":[`, 300_000, func(int) string { return "{}" }, "]}")
		}},
		"long reasons": {works + "status.update_request", func(n int) string {
			return fmt.Sprintf(`{"conditions":[{"type":"DeletionHeld","status":"True","reason":"%s%d"}]}`, strings.Repeat("a", 1_000_000), n)
		}},
		"new works held": {works + "status.update_request", func(n int) string {
			return list(`{"conditions":[{"type":"DeletionHeld","status":"True","reason":"R"}],"resourceStatus":[`, 5_000,
				func(i int) string {
					return fmt.Sprintf(`{"resourceMeta":{"ordinal":%d,"name":"%s"},"conditions":[]}`, i, long)
				}, "]}")
		}},
		"deltas without a base": {"dev.workwire.v1alpha1.deltas.status.update_request", func(n int) string {
			return fmt.Sprintf(`{"base":"b","parts":[{"text":"%s%d"}]}`, strings.Repeat("a", 30_000), n)
		}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			withHarness(t, delivery.Config{Logger: slog.New(slog.DiscardHandler)}, func(b *harness) {
				b.tap.discard = true
				b.start()
				b.store.put(newWork("hostile", "w"))
				synctest.Wait()
				send := func(n int, text string) { b.hears(c.eventType, n, text) }
				send(0, `{"base":"b","parts":[{}],"resourceVersions":[]}`)
				synctest.Wait()
				before := liveHeap()
				most := int64(0)
				for n := range times {
					send(n, c.text(n))
					if n%5 == 4 {
						most = max(most, int64(liveHeap())-int64(before))
					}
				}
				synctest.Wait()
				most = max(most, int64(liveHeap())-int64(before))
				t.Logf("%d messages: %d KiB are kept", times, most>>10)
				if most > allowed {
					t.Errorf("%d messages: %d bytes are kept, want at most %d", times, most, allowed)
				}
				a := b.agent("other")
				b.holds(a, b.store.put(newWork("other", "w")).UID, 1)
			})
		})
	}
}

// TestLargeMessages: decoding a large message takes long, and what others have sent waits for it: of those that come at once, 8 MiB are decoded.
func TestLargeMessages(t *testing.T) {
	withHarness(t, delivery.Config{Logger: slog.New(slog.DiscardHandler)}, func(b *harness) {
		b.start()
		b.store.put(newWork("hostile", "w"))
		synctest.Wait()
		text := `{"conditions":[{"type":"C","message":"` + strings.Repeat("a", 1<<20-100) + `"}]}`
		for n := range 40 {
			b.hears("io.open-cluster-management.works.v1alpha1.manifestbundles.status.update_request", n, text)
		}
		if n := b.metric("workwire_source_received_total", "verdict=over_quota"); n < 28 || n > 32 {
			t.Errorf("%v of 40 messages of a megabyte were dropped", n)
		}
		a := b.agent("other")
		b.holds(a, b.store.put(newWork("other", "w")).UID, 1)
	})
}

// TestDeltasOfLargeStatus: a delta of 40 bytes makes the source work with the status that it is of, and costs as much.
func TestDeltasOfLargeStatus(t *testing.T) {
	const size = 64 << 10
	rates := quota.Clusters()
	rates[quota.Bytes].Burst = 32 * size
	withHarness(t, delivery.Config{Quota: &rates, Logger: slog.New(slog.DiscardHandler)}, func(b *harness) {
		b.start()
		work := newWork("hostile", "w")
		work.Status.Conditions = []metav1.Condition{{Type: "C", Message: strings.Repeat("a", size)}}
		hash, err := wire.StatusHash(&work.Status)
		kit.NoError(t, err)
		b.store.put(work)
		synctest.Wait()
		for range 100 {
			b.send("hostile", &wire.StatusDelta{Delta: wire.Delta{Base: hash, Parts: []wire.DeltaPart{{Count: 1}}}, Of: wire.Status{
				UID: work.UID, Generation: 1, Source: "hub1", Cluster: "hostile", Agent: "a", Action: wire.Update, Sequence: 1, Hash: "of another one",
			}})
		}
		if used, dropped := b.metric("workwire_source_received_total", "verdict=unknown_base"), b.metric("workwire_source_received_total", "verdict=over_quota"); used < 29 || used > 32 || used+dropped != 100 {
			t.Errorf("of 100 deltas of a large status %v were worked out, and %v dropped", used, dropped)
		}
		a := b.agent("other")
		b.holds(a, b.store.put(newWork("other", "w")).UID, 1)
	})
}
