package leader

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/workwire/workwire/test/kit"
)

func TestWait(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	held := func(renewed time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("other"), LeaseDurationSeconds: ptr.To[int32](15),
			RenewTime: ptr.To(metav1.NewMicroTime(start.Add(renewed))),
		}}
	}
	for _, c := range []struct {
		name  string
		lease *coordinationv1.Lease
		now   time.Duration // since it was first seen, which is at start
		want  time.Duration
	}{
		{"no lease", nil, 0, 0},
		{"released", &coordinationv1.Lease{}, 0, 0},
		{"our own", &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("me")}}, 0, 0},
		{"just renewed", held(0), 0, 15 * time.Second},
		{"renewed a while ago", held(-4 * time.Second), 0, 11 * time.Second},
		{"renewed, by a clock ahead of ours", held(time.Hour), 0, 15 * time.Second},
		{"expired long ago, or by a clock behind ours", held(-time.Hour), 0, 5 * time.Second},
		{"expired, and silent for long enough", held(-time.Hour), 5 * time.Second, 0},
		{"silent since seen", held(0), 15 * time.Second, 0},
		{"no times", &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("other")}}, 0, DefaultLeaseDuration},
		{"no times, silent for a while", &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("other")}}, time.Second, DefaultLeaseDuration - time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := observation{}.observe(c.lease, start)
			if got := s.wait(&Options{Identity: "me"}, 5*time.Second, start.Add(c.now)); got != c.want {
				t.Errorf("wait %s, want %s", got, c.want)
			}
		})
	}
}

func TestObserveKeepsTheTimeOfAnUnchangedLease(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "1"}}
	s := observation{}.observe(lease, start).observe(lease.DeepCopy(), start.Add(time.Second))
	if !s.since.Equal(start) {
		t.Errorf("since %s", s.since)
	}
	lease = lease.DeepCopy()
	lease.ResourceVersion = "2"
	if s = s.observe(lease, start.Add(2*time.Second)); !s.since.Equal(start.Add(2 * time.Second)) {
		t.Errorf("since %s after a change", s.since)
	}
	if s = s.observe(nil, start); s.lease != nil || s.holder() != "" {
		t.Errorf("after deletion: %+v", s)
	}
}

func TestAcquiredAndReleased(t *testing.T) {
	o := NewOptions("n")
	o.Namespace, o.Identity = "ns", "me"
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	first := observation{}.acquired(&o, now)
	if first.Namespace != "ns" || first.Name != "n" || *first.Spec.HolderIdentity != "me" || *first.Spec.LeaseTransitions != 0 ||
		*first.Spec.LeaseDurationSeconds != 15 || !first.Spec.AcquireTime.Equal(first.Spec.RenewTime) {
		t.Errorf("new lease: %+v", first)
	}
	renewed := observation{lease: first}.acquired(&o, now.Add(time.Second))
	if !renewed.Spec.AcquireTime.Equal(first.Spec.AcquireTime) || *renewed.Spec.LeaseTransitions != 0 ||
		!renewed.Spec.RenewTime.Equal(ptr.To(metav1.NewMicroTime(now.Add(time.Second)))) {
		t.Errorf("renewed lease: %+v", renewed.Spec)
	}
	free := observation{lease: renewed}.released(now)
	if free.Spec.HolderIdentity != nil || *free.Spec.LeaseDurationSeconds != 1 || !free.Spec.RenewTime.Time.Equal(now) || renewed.Spec.HolderIdentity == nil {
		t.Errorf("released lease: %+v", free.Spec)
	}
	o.Identity = "next"
	if taken := (observation{lease: free}).acquired(&o, now); *taken.Spec.LeaseTransitions != 1 || *taken.Spec.HolderIdentity != "next" {
		t.Errorf("taken lease: %+v", taken.Spec)
	}
}

// TestPersists: refusals with no longer gaps than a minute are one series.
func TestPersists(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var r refusal
	for _, c := range []struct {
		now  time.Duration
		want bool
	}{
		{0, false}, {time.Minute, false}, {2*time.Minute - time.Second, false}, {2 * time.Minute, true},
		{4 * time.Minute, false}, {5 * time.Minute, false}, {6 * time.Minute, true},
	} {
		if got := r.persists(start.Add(c.now), 2*time.Minute); got != c.want {
			t.Errorf("after %s: %t", c.now, got)
		}
	}
}

func TestPodNamespace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "namespace")
	if got := podNamespace(file); got != DefaultNamespace {
		t.Errorf("outside of a pod: %q", got)
	}
	kit.NoError(t, os.WriteFile(file, []byte("mine\n"), 0o600))
	if got := podNamespace(file); got != "mine" {
		t.Errorf("in a pod: %q", got)
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Options)
		want   []string
	}{
		{"defaults", func(*Options) {}, nil},
		{"disabled", func(o *Options) { *o = Options{Disabled: true} }, nil},
		{"names", func(o *Options) { o.Name, o.Namespace = "A_b", "x.y" },
			[]string{"--leader-election-namespace", "--leader-election-name"}},
		{"identity", func(o *Options) { o.Identity = "" }, []string{"identity"}},
		{"fraction", func(o *Options) { o.LeaseDuration = 15500 * time.Millisecond }, []string{"whole seconds"}},
		{"deadline", func(o *Options) { o.RenewDeadline = o.LeaseDuration }, []string{"--leader-election-renew-deadline"}},
		{"period", func(o *Options) { o.RetryPeriod = 6 * time.Second }, []string{"--leader-election-retry-period"}},
		{"zero", func(o *Options) { o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = 0, 0, 0 },
			[]string{"lease-duration", "renew-deadline", "retry-period"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := NewOptions("n")
			c.change(&o)
			errs := o.Validate()
			if len(errs) != len(c.want) {
				t.Fatalf("faults %v, want %d", errs, len(c.want))
			}
			for i, want := range c.want {
				if !strings.Contains(errs[i].Error(), want) {
					t.Errorf("fault %q, want %q", errs[i], want)
				}
			}
		})
	}
}
