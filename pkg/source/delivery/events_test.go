package delivery

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

var testTopics = wire.Topics{SourceEvents: "sources/hub1/clusters/+/sourceevents", AgentEvents: "sources/hub1/clusters/+/agentevents"}

// TestCallersDoNotObserve: who calls the Engine may hold locks that observers wait for, so it passes on no events. Nor
// does it keep changes of works that it does not publish.
func TestCallersDoNotObserve(t *testing.T) {
	work, observed := testWork("w", 1), 0
	e, err := New(Config{
		Source: "hub1", Transport: memory.NewBroker().Client("hub1"), Works: one{work}, Topics: testTopics, TracerProvider: noop.NewTracerProvider(),
		Observe: func(Event) { observed++ },
	})
	kit.NoError(t, err)
	e.step(&connected{})
	e.WorkChanged(work.UID)
	e.SetCluster(keyOf(work).cluster, ClusterElsewhere)
	if observed != 0 {
		t.Errorf("a caller has had %d events observed", observed)
	}
	if e.passOn(); observed == 0 {
		t.Error("nothing is to be observed")
	}
	k := workKey{uid: work.UID, cluster: keyOf(work).cluster}
	e.changes.Take(k)
	if e.WorkChanged(work.UID); e.changes.Get(k) != nil {
		t.Error("the change of a work is kept that another program publishes")
	}
}

// TestReaders: what the metrics count of each event, and which record it leaves in the audit log.
func TestReaders(t *testing.T) {
	began, ended, status := time.Unix(1000, 0), time.Unix(1001, 0), &wire.Status{UID: "u"}
	for name, c := range map[string]struct {
		event   Event
		metric  string // with its labels
		labels  []string
		verdict string // of the record; empty: none
	}{
		"a publish that begins":    {event: Publication{Began: began}},
		"a publish":                {Publication{Began: began, Ended: ended, Action: wire.Create}, "published_total", []string{"action=create_request", "result=ok"}, "sent"},
		"a deletion":               {Publication{Began: began, Ended: ended, deletion: true, Action: wire.Delete}, "published_total", []string{"result=ok"}, "deletion"},
		"a repeated publish":       {Publication{Began: began, Ended: ended, repeated: true}, "republished_total", nil, "sent"},
		"a refused publish":        {Publication{Began: began, Ended: ended, Err: errors.New("x"), Refused: workv1.ReasonTooLarge}, "published_total", []string{"result=refused"}, "refused"},
		"a publish that failed":    {Publication{Began: began, Ended: ended, Err: errors.New("x")}, "published_total", []string{"result=failed"}, ""},
		"a status":                 {Received{Kind: "status", verdict: accepted, Status: status}, "received_total", []string{"message=status", "verdict=accepted"}, "accepted"},
		"a forged status":          {Received{Kind: "status", verdict: untrusted, reason: signing.Invalid, Status: status}, "untrusted_statuses_total", []string{"reason=invalid"}, "untrusted"},
		"a forged question":        {Received{Kind: "digest", verdict: untrusted, reason: signing.Invalid}, "received_total", []string{"message=digest", "verdict=untrusted"}, "untrusted"},
		"a question":               {Received{Kind: "digest", verdict: accepted}, "received_total", []string{"message=digest"}, ""},
		"one of another cluster":   {Received{Kind: "presence", verdict: wrongCluster}, "received_total", []string{"verdict=wrong_cluster"}, "wrong_cluster"},
		"one over the quota":       {Received{Kind: "unknown", verdict: overQuota}, "received_total", []string{"verdict=over_quota"}, "over_quota"},
		"one of another source":    {Received{Kind: "unknown", verdict: foreign}, "received_total", []string{"verdict=foreign"}, ""},
		"noise":                    {Received{Kind: "unknown", verdict: undecodable}, "received_total", []string{"verdict=undecodable"}, "undecodable"},
		"noise of another program": {Received{Kind: instance, verdict: undecodable}, "received_total", []string{"message=instance"}, ""},
		"a message":                {event: ClusterHeard{}},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			e, err := New(Config{Source: "hub1", Transport: memory.NewBroker().Client("hub1"), Works: one{testWork("w", 1)}, Registerer: registry, Topics: testTopics})
			kit.NoError(t, err)
			e.observe(c.event)
			if c.metric != "" && kit.Metric(t, registry, "workwire_source_"+c.metric, c.labels...) != 1 {
				t.Errorf("%s %v does not count it", c.metric, c.labels)
			}
			record, ok := auditRecord(c.event)
			if ok != (c.verdict != "") || ok && record.Verdict != c.verdict {
				t.Errorf("the record %+v %v, want the verdict %q", record, ok, c.verdict)
			}
		})
	}
}
