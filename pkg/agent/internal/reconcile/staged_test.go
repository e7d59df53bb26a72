package reconcile

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

func TestStaged(t *testing.T) {
	now := time.Date(2026, 11, 28, 20, 0, 0, 0, time.UTC)
	for text, want := range map[string]struct {
		reason string
		wait   time.Duration
	}{
		"2026-11-28T22:00:00Z":                           {workv1.ReasonStaged, 2 * time.Hour},
		"2026-11-28T22:00:00+01:00/2026-11-29T00:00:00Z": {workv1.ReasonStaged, time.Hour},
		"2026-11-28T20:00:00Z/2026-11-28T21:00:00Z":      {},
		"2026-11-28T19:00:00Z":                           {},
		"2026-11-28T19:00:00Z/2026-11-28T20:00:00Z":      {reason: workv1.ReasonWindowMissed},
		"2026-11-28T21:00:00Z/2026-11-28T20:00:00Z":      {reason: workv1.ReasonInvalidApplyAt},
		"2026-11-28T21:00:00Z/":                          {reason: workv1.ReasonInvalidApplyAt},
		"22:00":                                          {reason: workv1.ReasonInvalidApplyAt},
		"":                                               {reason: workv1.ReasonInvalidApplyAt},
		"Held":                                           {reason: workv1.ReasonStaged},
	} {
		at, err := workv1.ApplyAtOf(&metav1.ObjectMeta{Annotations: map[string]string{workv1.ApplyAtAnnotationKey: text}})
		waiting, wait := staged(at, err, time.Time{}, now)
		reason := ""
		if waiting != nil {
			reason = waiting.Reason
		}
		if reason != want.reason || wait != want.wait {
			t.Errorf("%q: reason %q for %s, want %q for %s", text, reason, wait, want.reason, want.wait)
		}
	}
	window := &workv1.ApplyAt{Start: now.Add(-2 * time.Hour), End: now.Add(-time.Hour)}
	for received, over := range map[time.Time]bool{
		{}: false, window.Start.Add(-time.Hour): false, window.End.Add(-time.Second): false, window.End: true, now: true,
	} {
		waiting, wait := staged(window, nil, received, now)
		if waiting == nil || waiting.Reason != workv1.ReasonWindowMissed || wait != 0 || strings.Contains(waiting.Message, condition.WindowWasOver) != over {
			t.Errorf("received %s: %+v for %s", received, waiting, wait)
		}
	}
	if at, err := workv1.ApplyAtOf(&metav1.ObjectMeta{}); at != nil || err != nil {
		t.Errorf("without the annotation: %v, %v", at, err)
	}
}
