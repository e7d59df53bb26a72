package reconcile

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
)

func TestRemovalWaits(t *testing.T) {
	now := time.Now()
	live := &unstructured.Unstructured{Object: map[string]any{}}
	deleted := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"deletionTimestamp": "2026-01-01T00:00:00Z"}}}
	refused := removal{backoff: backoff{failures: 4}.failed(now), outcome: apply.RemovalOutcome{Err: errors.New("no")}}
	for name, test := range map[string]struct {
		removal removal
		live    object.Live
		want    time.Duration
	}{
		"refused":                         {refused, object.Live{State: object.Present, Object: live}, 810 * time.Millisecond},
		"refused, not known":              {refused, object.Live{}, 810 * time.Millisecond},
		"refused, gone now":               {refused, object.Live{State: object.Absent}, 0},
		"refused, somebody else deletes":  {refused, object.Live{State: object.Present, Object: deleted}, 0},
		"finalizers":                      {removal{}, object.Live{State: object.Present, Object: deleted}, 0},
		"it exists again with another id": {removal{}, object.Live{State: object.Present, Object: live}, 0},
	} {
		if got := max(test.removal.waits(test.live, now), 0); got != test.want {
			t.Errorf("%s: waits %v, want %v", name, got, test.want)
		}
	}
}

func TestNoteRemoval(t *testing.T) {
	var h history
	ref, now := object.Ref{Name: "a"}, time.Now()
	no := apply.RemovalOutcome{Err: errors.New("no")}
	for i, step := range []struct {
		outcome  apply.RemovalOutcome
		first    bool
		failures int
	}{
		{no, true, 1}, {no, false, 2}, {no, false, 3},
		{apply.RemovalOutcome{}, true, 0}, {apply.RemovalOutcome{}, false, 0},
		{no, false, 1},
	} {
		if first := h.noteRemoval(ref, step.outcome, now); first != step.first || h.removals[ref].failures != step.failures {
			t.Errorf("step %d: first %t, %+v", i, first, h.removals[ref])
		}
	}
	if h.isZero() {
		t.Error("a history with a removal is zero")
	}
	if h.noteRemoval(ref, apply.RemovalOutcome{Gone: true}, now); !h.isZero() {
		t.Errorf("after the end: %+v", h)
	}
}

// TestRemovals: what waits is no error of this attempt, and what is gone is not pending.
func TestRemovals(t *testing.T) {
	no := apply.RemovalOutcome{Err: errors.New("no")}
	for name, test := range map[string]struct {
		outcomes []apply.RemovalOutcome
		waiting  []bool
		failed   bool
		pending  bool
	}{
		"nothing":         {},
		"gone":            {outcomes: []apply.RemovalOutcome{{Gone: true}}, waiting: []bool{false}},
		"deleted":         {outcomes: []apply.RemovalOutcome{{}}, waiting: []bool{false}, pending: true},
		"refused":         {outcomes: []apply.RemovalOutcome{{Gone: true}, no}, waiting: []bool{false, false}, failed: true, pending: true},
		"refused, before": {outcomes: []apply.RemovalOutcome{no}, waiting: []bool{true}, pending: true},
	} {
		r := removals{outcomes: test.outcomes, waiting: test.waiting}
		if (r.err() != nil) != test.failed || r.pending() != test.pending {
			t.Errorf("%s: %v, pending %t", name, r.err(), r.pending())
		}
	}
	for _, c := range [][3]time.Duration{{0, 0, 0}, {0, 2, 2}, {2, 0, 2}, {1, 2, 1}, {2, 1, 1}} {
		if got := sooner(c[0], c[1]); got != c[2] {
			t.Errorf("of %d and %d, %d is sooner", c[0], c[1], got)
		}
	}
}
