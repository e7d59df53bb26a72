package session

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/outbox"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// TestDeltasOfLargeSpec: a delta of some bytes makes the agent work with the spec that it is of, and costs its source as much.
func TestDeltasOfLargeSpec(t *testing.T) {
	const megabyte = 1 << 20
	broker, registry, logger := memory.NewBroker(), prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	publisher := broker.Client("agent")
	out, err := outbox.New(outbox.Config{Agent: "agent", Publisher: publisher, Topic: func(wire.SourceID) (string, error) { return "t", nil }, Done: func(inbox.Key) {}})
	kit.NoError(t, err)
	s, err := New(Config{
		Cluster: "c", ClientID: "agent", Transport: publisher, Outbox: out, Registerer: registry, Logger: logger, RetryInterval: time.Minute,
		Inbox:      inbox.New(inbox.Config{Changed: func(inbox.Key) {}}),
		Superseded: func(inbox.Key) {}, SourceAnswered: func() {}, DryRun: func(*wire.DryRun, error) {},
		Quotas: quota.New[wire.SourceID](quota.Config{
			Rates: quota.Rates{quota.Messages: {PerSecond: 1_000, Burst: 1_000}, quota.Bytes: {PerSecond: 1, Burst: 8 * megabyte}},
		}),
	})
	kit.NoError(t, err)
	receive := func(m wire.Message) cloudevents.Event {
		event, err := wire.Encode(m, time.Now())
		kit.NoError(t, err)
		s.receive(t.Context(), transport.Message{Topic: "sources/s/clusters/c/sourceevents", Event: event, Ack: func() {}})
		return event
	}
	spec := &wire.Spec{UID: "u", Generation: 1, Source: "s", SourceIdentity: "i", Cluster: "c", Action: wire.Create, Meta: metav1.ObjectMeta{Name: "w", Generation: 1}}
	spec.Bundle = &wire.Bundle{Manifests: []workv1.Manifest{{}}}
	spec.Bundle.Manifests[0].Raw = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":"` + strings.Repeat("a", megabyte/4) + `"}}`)
	d := &wire.SpecDelta{Of: *spec, Delta: wire.Delta{Base: wire.ContentHashOf(receive(spec)), Parts: []wire.DeltaPart{{Count: 1}}}}
	d.Of.Action, d.Of.Bundle, d.Of.Generation, d.Of.ContentHash = wire.Update, nil, 2, strings.Repeat("0", 64)
	for range 100 {
		receive(d)
	}
	count := func(verdict string) float64 {
		return kit.Metric(t, registry, "workwire_agent_specs_received_total", "verdict="+verdict)
	}
	if used, dropped := count(unknownBase), count(overQuota); used < 28 || used > 31 || used+dropped != 100 {
		t.Errorf("of 100 deltas of a quarter of a megabyte %v were worked out, and %v dropped", used, dropped)
	}
}
