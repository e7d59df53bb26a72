package applied

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/walltime"
)

func TestDecideEviction(t *testing.T) {
	const grace = time.Hour
	now := noon.Time
	since := func(ago time.Duration) *metav1.Time {
		at := metav1.NewTime(now.Add(-ago))
		return &at
	}
	for name, c := range map[string]struct {
		start  *metav1.Time
		change func(*workv1.AppliedManifestWork, *EvictionRule)
		want   Eviction
		left   time.Duration
	}{
		"first seen unmanaged":       {nil, nil, Mark, grace},
		"just marked":                {since(0), nil, Wait, grace},
		"half of its time":           {since(30 * time.Minute), nil, Wait, 30 * time.Minute},
		"a moment before":            {since(grace - time.Nanosecond), nil, Wait, time.Nanosecond},
		"due to the nanosecond":      {since(grace), nil, Evict, 0},
		"long past":                  {since(1000 * time.Hour), nil, Evict, 0},
		"marked by a clock ahead":    {since(-time.Minute), nil, Wait, grace + time.Minute},
		"nobody answered":            {nil, func(_ *workv1.AppliedManifestWork, e *EvictionRule) { e.Answered = false }, None, 0},
		"due, but nobody answered":   {since(2 * grace), func(_ *workv1.AppliedManifestWork, e *EvictionRule) { e.Answered = false }, None, 0},
		"another agent's":            {nil, func(r *workv1.AppliedManifestWork, _ *EvictionRule) { r.Spec.AgentID = "other" }, None, 0},
		"another agent's, due":       {since(2 * grace), func(r *workv1.AppliedManifestWork, _ *EvictionRule) { r.Spec.AgentID = "other" }, None, 0},
		"being deleted":              {since(2 * grace), func(r *workv1.AppliedManifestWork, _ *EvictionRule) { r.DeletionTimestamp = since(0) }, None, 0},
		"never":                      {nil, func(_ *workv1.AppliedManifestWork, e *EvictionRule) { e.Grace = NeverEvict }, None, 0},
		"never, marked before":       {since(2 * NeverEvict), func(_ *workv1.AppliedManifestWork, e *EvictionRule) { e.Grace = NeverEvict }, Clear, 0},
		"never, marked, no answer":   {since(0), func(_ *workv1.AppliedManifestWork, e *EvictionRule) { e.Grace, e.Answered = NeverEvict, false }, Clear, 0},
		"the longest grace there is": {since(NeverEvict - time.Second), func(_ *workv1.AppliedManifestWork, e *EvictionRule) { e.Grace = NeverEvict - 1 }, Wait, time.Second - 1},
		"no grace, first seen":       {nil, func(_ *workv1.AppliedManifestWork, e *EvictionRule) { e.Grace = 0 }, Mark, 0},
		"no grace, marked":           {since(0), func(_ *workv1.AppliedManifestWork, e *EvictionRule) { e.Grace = 0 }, Evict, 0},
		"less than no grace":         {nil, func(_ *workv1.AppliedManifestWork, e *EvictionRule) { e.Grace = -grace }, Mark, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := appliedManifestWork("")
			r.Spec.AgentID, r.Status.EvictionStartTime = "me", c.start
			rule := EvictionRule{AgentID: "me", Grace: grace, Answered: true, Now: now}
			if c.change != nil {
				c.change(r, &rule)
			}
			if got, left := DecideEviction(r, rule); got != c.want || left != c.left {
				t.Errorf("%v, %v left; want %v, %v", got, left, c.want, c.left)
			}
		})
	}
}

// TestEvictionOverClockSteps: no step of the clock makes a mark older than it is, and a mark by a clock
// that was not set is made again.
func TestEvictionOverClockSteps(t *testing.T) {
	created := metav1.NewTime(noon.Add(-time.Hour))
	at := func(t time.Time) *metav1.Time { return &metav1.Time{Time: t} }
	for name, c := range map[string]struct {
		mark         time.Time
		clock        time.Time     // when it was marked
		step, passes time.Duration // since
		want         Eviction
		left         time.Duration
	}{
		"no step":                          {noon.Time, noon.Time, 0, 59 * time.Minute, Wait, time.Minute},
		"an hour forward":                  {noon.Time, noon.Time, time.Hour, 3 * time.Second, Wait, time.Hour - 3*time.Second},
		"an hour forward, and the grace":   {noon.Time, noon.Time, time.Hour, time.Hour, Evict, 0},
		"an hour back":                     {noon.Time, noon.Time, -time.Hour, 3 * time.Second, Wait, 2*time.Hour - 3*time.Second},
		"the clock is set":                 {time.Unix(9, 0), time.Unix(9, 0), noon.Sub(time.Unix(9, 0)), 3 * time.Second, Mark, time.Hour},
		"marked in 1970, before a restart": {time.Unix(9, 0), noon.Time, 0, 3 * time.Second, Mark, time.Hour},
		"the clock is not set yet":         {time.Unix(9, 0), time.Unix(9, 0), 0, time.Minute, Wait, 59 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			now, elapsed := c.clock, time.Duration(0)
			clock := walltime.From(func() (time.Time, time.Duration) { return now, elapsed })
			now, elapsed = now.Add(c.step+c.passes), c.passes
			r := appliedManifestWork("")
			r.CreationTimestamp, r.Spec.AgentID, r.Status.EvictionStartTime = created, "me", at(c.mark)
			got, left := DecideEviction(r, EvictionRule{AgentID: "me", Grace: time.Hour, Answered: true, Now: now, Clock: clock})
			if got != c.want || left != c.left {
				t.Errorf("%v, %v left; want %v, %v", got, left, c.want, c.left)
			}
		})
	}
}

// TestEvictionOverTime lets a work come and go, and the agent restart, and wants the object to go
// only when a whole grace period has passed without a work.
func TestEvictionOverTime(t *testing.T) {
	r := appliedManifestWork("")
	r.Spec.AgentID = "me"
	now := noon.Time
	decide := func(want Eviction, answered bool) {
		t.Helper()
		got, left := DecideEviction(r, EvictionRule{AgentID: "me", Grace: time.Hour, Answered: answered, Now: now})
		if got != want {
			t.Fatalf("%v after %v, want %v", got, now.Sub(noon.Time), want)
		}
		switch got {
		case Mark:
			at := metav1.NewTime(now)
			r.Status.EvictionStartTime = &at
		case Wait:
			if due := r.Status.EvictionStartTime.Add(time.Hour); !now.Add(left).Equal(due) {
				t.Fatalf("%v left at %v, due at %v", left, now, due)
			}
		}
	}
	decide(Mark, true)
	now = now.Add(50 * time.Minute)
	decide(Wait, true)
	r.Status.EvictionStartTime = nil // its work is there again
	now = now.Add(50 * time.Minute)
	decide(Mark, true)
	now = now.Add(50 * time.Minute)
	decide(None, false) // the agent has restarted
	now = now.Add(50 * time.Minute)
	decide(None, false)
	decide(Evict, true)
}
