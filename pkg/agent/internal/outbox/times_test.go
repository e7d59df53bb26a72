package outbox

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

func TestNextTimes(t *testing.T) {
	second := func(n int) time.Time { return time.Date(2026, 1, 1, 0, 0, n, 0, time.UTC) }
	applied := metav1.Condition{Type: workv1.WorkApplied, Status: metav1.ConditionTrue, ObservedGeneration: 2}
	failed := metav1.Condition{Type: workv1.WorkApplied, Status: metav1.ConditionFalse, ObservedGeneration: 2}
	progressing := func(status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: workv1.WorkProgressing, Status: status}
	}
	degraded := metav1.Condition{Type: workv1.WorkDegraded, Status: metav1.ConditionTrue}
	type step struct {
		at         int
		generation wire.Generation
		conditions []metav1.Condition
		received   int // 0: before the agent started
		want       [3]int
	}
	status := func(at int, conditions ...metav1.Condition) step {
		return step{at: at, generation: 2, received: 1, conditions: conditions}
	}
	wants := func(s step, received, applied, ready int) step { s.want = [3]int{received, applied, ready}; return s }
	for name, steps := range map[string][]step{
		"applied":                {wants(status(2, applied), 1, 2, 0), wants(status(3, applied), 1, 2, 0)},
		"fails first, and later": {wants(status(2, failed), 1, 0, 0), wants(status(3, applied), 1, 3, 0), wants(status(4, failed), 1, 3, 0)},
		"ready, not, and again": {wants(status(2, applied, progressing("True")), 1, 2, 0), wants(status(3, applied, progressing("False")), 1, 2, 3),
			wants(status(4, applied, progressing("False")), 1, 2, 3), wants(status(5, applied, progressing("False"), degraded), 1, 2, 0),
			wants(status(6, applied, progressing("False")), 1, 2, 6)},
		"of a generation before": {wants(step{at: 2, generation: 3, received: 2, conditions: []metav1.Condition{applied}}, 2, 0, 0)},
		"a newer generation": {wants(status(2, applied, progressing("False")), 1, 2, 2),
			wants(step{at: 4, generation: 3, received: 3, conditions: []metav1.Condition{{Type: workv1.WorkApplied, Status: "True", ObservedGeneration: 3}}}, 3, 4, 0)},
		"after a restart": {wants(step{at: 2, generation: 2, conditions: []metav1.Condition{applied, progressing("False")}}, 0, 0, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			var times wire.Times
			var generation wire.Generation
			for i, s := range steps {
				in := &Status{Generation: s.generation, Status: workv1.ManifestWorkStatus{Conditions: s.conditions}}
				if s.received > 0 {
					in.Received = second(s.received)
				}
				times = nextTimes(times, generation, in, second(s.at))
				generation = s.generation
				for j, got := range []metav1.MicroTime{times.Received, times.Applied, times.Ready} {
					if want := s.want[j]; want == 0 && !got.IsZero() || want > 0 && !got.Time.Equal(second(want)) {
						t.Errorf("step %d: time %d is %v, want second %d", i, j, got, want)
					}
				}
			}
		})
	}
}
