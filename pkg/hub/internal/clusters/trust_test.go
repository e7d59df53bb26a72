package clusters

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
)

// TestTrustCondition: a ManagedCluster says since when and why statuses are refused, once, and that none
// is any more.
func TestTrustCondition(t *testing.T) {
	refused := func(reason signing.Reason) untrusted {
		return untrusted{reported: true, Untrusted: delivery.Untrusted{Since: start, Reason: reason}}
	}
	ended := untrusted{reported: true}
	testAlarm(t, []alarmStep[untrusted]{
		{name: "nothing is known", heard: start},
		{name: "refused", is: refused(signing.Unsigned), condition: "False Unsigned", event: "Warning StatusesRefused", heard: start},
		{name: "for another reason", is: refused(signing.UnknownKey), condition: "False UnknownKey", heard: start},
		{name: "changed on the way", is: refused(signing.Invalid), condition: "False InvalidSignature", heard: start},
		{name: "a wrong clock", is: refused(signing.Expired), condition: "False Expired", heard: start},
		{name: "after a restart, the agent is away"},
		{name: "after a restart", heard: start, due: untrustedMemory},
		{name: "none any more", is: ended, condition: "True Signed", event: "Normal StatusesTrusted", heard: start},
		{name: "still none", is: ended, heard: start},
		{name: "refused again", is: refused(signing.WrongCluster), condition: "False WrongCluster", event: "Warning StatusesRefused", heard: start},
		{name: "long after a restart", condition: "True Signed", event: "Normal StatusesTrusted", heard: start.Add(-untrustedMemory)},
	}, func(v view, is untrusted) (*metav1.Condition, time.Duration) {
		v.untrusted = is
		return trustCondition(v, start)
	})
}

// alarmStep is what is known of a cluster, and the condition, event and time that follow from it. The
// conditions of the steps before are stored.
type alarmStep[T any] struct {
	name             string
	is               T
	condition, event string
	heard            time.Time
	due              time.Duration
}

// testAlarm tests a condition that is False since a time, and says since when.
func testAlarm[T any](t *testing.T, steps []alarmStep[T], decide func(v view, is T) (*metav1.Condition, time.Duration)) {
	t.Helper()
	cluster := &clusterv1.ManagedCluster{}
	for _, step := range steps {
		c, due := decide(view{stored: cluster, held: heldView{heard: step.heard}}, step.is)
		var got, events string
		before := cluster.Status.Conditions
		if c != nil {
			got = string(c.Status) + " " + c.Reason
			cluster = cluster.DeepCopy()
			cluster.Status.Conditions = []metav1.Condition{*c}
			if c.Status == metav1.ConditionFalse && !strings.Contains(c.Message, start.UTC().Format(time.RFC3339)) {
				t.Errorf("%s: the message does not say since when: %s", step.name, c.Message)
			}
		}
		for _, e := range eventsFor(before, cluster.Status.Conditions) {
			events += e.kind + " " + e.reason
		}
		if got != step.condition || events != step.event || due != step.due {
			t.Errorf("%s: condition %q, event %q and due in %s, want %q, %q and %s", step.name, got, events, due, step.condition, step.event, step.due)
		}
	}
}

// TestClustersWithoutKeyAreNotRegistered: if statuses must be signed, a cluster that nobody made a key
// for is not there, unless it has a ManagedCluster.
func TestClustersWithoutKeyAreNotRegistered(t *testing.T) {
	p := registering
	p.registers = func(name wire.ClusterName) bool { return name == "known" }
	x := newTestIndex(p)
	x.see("managed", managed("managed", "1", "1"))
	for _, name := range []wire.ClusterName{"known", "invented", "managed"} {
		x.messageReceived(name, says("s", true), start)
		x.messageReceived(name, nil, start)
		v, is := x.view(name)
		if want := name != "invented"; is != want {
			t.Errorf("%s: known %v, want %v", name, is, want)
		}
		if registers := decide(name, v, p, start).register != nil; registers != (name == "known") {
			t.Errorf("%s: registered: %v", name, registers)
		}
	}
}
