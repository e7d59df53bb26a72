package direct

import (
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/security/sourcekeys"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// TestAnswersOfOthers: of questions that are asked at once, each gets the answer of its own cluster, once.
func TestAnswersOfOthers(t *testing.T) {
	d := &diff{connection: connection{source: "hub1", verifier: newVerifier(&sourcekeys.Keys{}, time.Now())}, waiting: map[string]chan *wire.DryRunAnswer{}}
	a, doneA := d.expect("a", "1")
	b, doneB := d.expect("b", "2")
	answer := func(cluster wire.ClusterName, id, failure string) {
		t.Helper()
		event, err := wire.Encode(&wire.DryRunAnswer{ID: id, Agent: "agent", Cluster: cluster, Source: "hub1", Failure: failure}, time.Now())
		kit.NoError(t, err)
		d.received(mqtt.Received{Message: transport.Message{Topic: "sources/hub1/clusters/" + string(cluster) + "/agentevents", Event: event}})
	}
	answer("b", "1", "forged") // b has seen the question to a
	answer("a", "3", "of another run")
	answer("a", "1", "first")
	answer("a", "1", "second")
	answer("b", "2", "its own")
	for name, c := range map[string]chan *wire.DryRunAnswer{"first": a, "its own": b} {
		select {
		case got := <-c:
			if got.Failure != name {
				t.Errorf("%q, want %q", got.Failure, name)
			}
		default:
			t.Errorf("no answer, want %q", name)
		}
	}
	doneA()
	doneB()
	answer("a", "1", "late")
	if len(d.waiting) > 0 || len(a) > 0 {
		t.Errorf("%v, %d", d.waiting, len(a))
	}
}
