package clusters

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/source/delivery"
)

// TestAlarms: a ManagedCluster says since when and why there is an alarm, once, and that it is over. The conditions of
// the steps before are stored.
func TestAlarms(t *testing.T) {
	type step struct {
		name             string
		is               finding
		condition, event string
		heard            time.Time
		due              time.Duration
	}
	differs, agrees := divergence(delivery.DivergenceChanged{Since: start}), divergence(delivery.DivergenceChanged{})
	refused := func(reason signing.Reason) finding {
		return distrust(delivery.TrustChanged{Untrusted: delivery.Untrusted{Since: start, Reason: reason}})
	}
	trusted := distrust(delivery.TrustChanged{})
	over, quiet := noise(delivery.NoiseChanged{Noise: quota.Noise{Resource: quota.WrittenBytes, Since: start}}), noise(delivery.NoiseChanged{})
	for a, steps := range map[alarm][]step{
		diverged: {
			{name: "nothing is known", heard: start},
			{name: "agrees", is: agrees, heard: start},
			{name: "differs", is: differs, condition: "False Diverged", event: "Warning WorksDiverged", heard: start},
			{name: "still differs", is: differs, condition: "False Diverged", heard: start},
			{name: "after a restart, the agent is away"},
			{name: "after a restart", heard: start, due: 5 * time.Minute},
			{name: "agrees again", is: agrees, condition: "True InSync", event: "Normal WorksInSync", heard: start},
			{name: "still agrees", is: agrees, heard: start},
			{name: "differs again", is: differs, condition: "False Diverged", event: "Warning WorksDiverged", heard: start},
			{name: "long after a restart", condition: "True InSync", event: "Normal WorksInSync", heard: start.Add(-5 * time.Minute)},
		},
		untrusted: {
			{name: "nothing is known", heard: start},
			{name: "refused", is: refused(signing.Unsigned), condition: "False Unsigned", event: "Warning StatusesRefused", heard: start},
			{name: "for another reason", is: refused(signing.UnknownKey), condition: "False UnknownKey", heard: start},
			{name: "changed on the way", is: refused(signing.Invalid), condition: "False InvalidSignature", heard: start},
			{name: "a wrong clock", is: refused(signing.Expired), condition: "False Expired", heard: start},
			{name: "after a restart, the agent is away"},
			{name: "after a restart", heard: start, due: 15 * time.Minute},
			{name: "none any more", is: trusted, condition: "True Signed", event: "Normal StatusesTrusted", heard: start},
			{name: "still none", is: trusted, heard: start},
			{name: "refused again", is: refused(signing.WrongCluster), condition: "False WrongCluster", event: "Warning StatusesRefused", heard: start},
			{name: "long after a restart", condition: "True Signed", event: "Normal StatusesTrusted", heard: start.Add(-15 * time.Minute)},
		},
		noisy: {
			{name: "nothing is known", heard: start},
			{name: "never over it", is: quiet, heard: start},
			{name: "over it", is: over, condition: "True OverQuota", event: "Warning OverQuota", heard: start},
			{name: "after a restart, the agent is away"},
			{name: "after a restart", heard: start.Add(-time.Minute), due: 9 * time.Minute},
			{name: "no longer", is: quiet, condition: "False WithinQuota", event: "Normal WithinQuota", heard: start},
			{name: "quiet already", is: quiet, heard: start},
			{name: "over it again", is: over, condition: "True OverQuota", event: "Warning OverQuota", heard: start},
			{name: "long after a restart", condition: "False WithinQuota", event: "Normal WithinQuota", heard: start.Add(-10 * time.Minute)},
		},
	} {
		cluster := &clusterv1.ManagedCluster{}
		for _, step := range steps {
			v := view{stored: cluster, held: heldView{heard: step.heard}}
			v.findings[a] = step.is
			c, due := v.conditionOf(a, start)
			var got, events string
			before := cluster.Status.Conditions
			if c != nil {
				got = string(c.Status) + " " + c.Reason
				cluster = cluster.DeepCopy()
				cluster.Status.Conditions = []metav1.Condition{*c}
				during := c.Status == alarms[a].during
				if during != hasAlarm(cluster) || during && !strings.Contains(c.Message, start.UTC().Format(time.RFC3339)) {
					t.Errorf("%s: the message does not say since when, or it is no alarm: %s", step.name, c.Message)
				}
				if during && a == noisy && !strings.Contains(c.Message, "more bytes of statuses than its quota") {
					t.Error(c.Message)
				}
			}
			for _, e := range eventsFor(before, cluster.Status.Conditions) {
				events += e.kind + " " + e.reason
			}
			if got != step.condition || events != step.event || due != step.due {
				t.Errorf("alarm %d, %s: condition %q, event %q and due in %s, want %q, %q and %s", a, step.name, got, events, due, step.condition, step.event, step.due)
			}
		}
	}
}
