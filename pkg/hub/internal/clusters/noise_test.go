package clusters

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/runtime/quota"
)

func TestNoiseCondition(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	over := noise{reported: true, Noise: quota.Noise{Resource: quota.WrittenBytes, Since: now.Add(-time.Minute)}}
	quiet := noise{reported: true}
	for _, c := range []struct {
		name    string
		noise   noise
		stored  metav1.ConditionStatus // "": none
		heard   time.Duration          // ago; 0: not in this process
		want    metav1.ConditionStatus // "": what is stored stays
		requeue time.Duration
	}{
		{name: "never over it"},
		{name: "never over it, known", noise: quiet, heard: time.Second},
		{name: "over it", noise: over, heard: time.Second, want: metav1.ConditionTrue},
		{name: "no longer", noise: quiet, stored: metav1.ConditionTrue, heard: time.Second, want: metav1.ConditionFalse},
		{name: "after a restart, not connected", stored: metav1.ConditionTrue},
		{name: "after a restart, just connected", stored: metav1.ConditionTrue, heard: time.Minute, requeue: 9 * time.Minute},
		{name: "after a restart, quiet for long", stored: metav1.ConditionTrue, heard: 10 * time.Minute, want: metav1.ConditionFalse},
		{name: "quiet already", noise: quiet, stored: metav1.ConditionFalse, heard: time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := view{stored: &clusterv1.ManagedCluster{}, noise: c.noise}
			if c.heard > 0 {
				v.held.heard = now.Add(-c.heard)
			}
			if c.stored != "" {
				v.stored.Status.Conditions = []metav1.Condition{{Type: clusterv1.ManagedClusterConditionNoisy, Status: c.stored}}
			}
			got, requeue := noiseCondition(v, now)
			if requeue != c.requeue || (got == nil) != (c.want == "") || got != nil && got.Status != c.want {
				t.Fatalf("condition %v, requeue after %v; want %q, %v", got, requeue, c.want, c.requeue)
			}
			if c.want == metav1.ConditionTrue && !strings.Contains(got.Message, "more bytes of statuses than its quota") {
				t.Error(got.Message)
			}
		})
	}
}
