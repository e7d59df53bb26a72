package leader

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestLeaseOfOthers(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	held := func(renewed time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("other"), LeaseDurationSeconds: ptr.To[int32](4), RenewTime: ptr.To(metav1.NewMicroTime(start.Add(renewed))),
		}}
	}
	for _, c := range []struct {
		name  string
		lease *coordinationv1.Lease
		now   time.Duration // since it was first seen, which is at start
		want  bool
	}{
		{"none", nil, 0, true},
		{"released", &coordinationv1.Lease{}, 0, true},
		{"held", held(0), 0, false},
		{"held, by a clock behind ours", held(-time.Hour), 3 * time.Second, false},
		{"not renewed since it was seen", held(-time.Hour), 4 * time.Second, true},
		{"not renewed, by a clock ahead of ours", held(time.Hour), 4 * time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := (observation{}).observe(c.lease, start).ended(start.Add(c.now)); got != c.want {
				t.Errorf("ended: %t, want %t", got, c.want)
			}
		})
	}
}
