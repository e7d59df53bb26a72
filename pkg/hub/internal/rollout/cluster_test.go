package rollout_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
)

// workFrom parses conditions "Applied=True@3:2m Progressing=False@2:1m": status, generation and age
// of the transition; the work is of generation 3, and got its template an hour ago.
func workFrom(t *testing.T, text string) *workv1.ManifestWork {
	t.Helper()
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{
		Generation:        3,
		CreationTimestamp: metav1.NewTime(now.Add(-999 * time.Hour)),
		Annotations:       map[string]string{workv1alpha1.RolledOutAtAnnotationKey: now.Add(-time.Hour).Format(time.RFC3339)},
	}}
	for _, field := range strings.Fields(text) {
		name, rest, _ := strings.Cut(field, "=")
		status, rest, _ := strings.Cut(rest, "@")
		generation, ago, _ := strings.Cut(rest, ":")
		duration, err := time.ParseDuration(ago)
		if err != nil {
			t.Fatal(err)
		}
		work.Status.Conditions = append(work.Status.Conditions, metav1.Condition{
			Type: name, Status: metav1.ConditionStatus(status), ObservedGeneration: int64(generation[0] - '0'),
			LastTransitionTime: metav1.NewTime(now.Add(-duration)),
		})
	}
	return work
}

func TestStatusOf(t *testing.T) {
	tests := map[string]struct {
		conditions string
		want       rollout.Status
		since      string // ago
	}{
		"no answer":                    {"", rollout.Progressing, "1h"},
		"answer to the spec before":    {"Applied=True@2:2h Available=True@2:2h", rollout.Progressing, "1h"},
		"old Applied, new Available":   {"Applied=True@2:2h Available=True@3:5m", rollout.Progressing, "1h"},
		"Applied only":                 {"Applied=True@3:5m", rollout.Progressing, "1h"},
		"Applied and Available":        {"Applied=True@3:5m Available=True@3:4m", rollout.Succeeded, "4m"},
		"Available before Applied":     {"Applied=True@3:5m Available=True@3:40m", rollout.Succeeded, "5m"},
		"since the change at most":     {"Applied=True@3:5h Available=True@3:4h", rollout.Succeeded, "1h"},
		"times from the future":        {"Applied=True@3:-5h Available=True@3:4m", rollout.Succeeded, "4m"},
		"only times from the future":   {"Applied=True@3:-5h Available=True@3:-5m", rollout.Succeeded, "1h"},
		"a clock that is ahead":        {"Applied=True@3:-3s Available=True@3:-3s Ready=True@3:0s Delivered=True@3:0s", rollout.Succeeded, "0s"},
		"a clock years ahead":          {"Applied=True@3:-99999h Available=True@3:-99999h Ready=True@3:10m Delivered=True@3:20m", rollout.Succeeded, "10m"},
		"ready as before":              {"Applied=True@3:-3s Available=True@3:-3s Ready=True@3:9h Delivered=True@3:20m", rollout.Succeeded, "20m"},
		"the hub has yet to say so":    {"Applied=True@3:-3s Available=True@3:-3s Ready=True@2:10m Delivered=True@2:20m", rollout.Succeeded, "1h"},
		"ahead, and not Applied":       {"Applied=False@3:-3s Ready=False@3:2m Delivered=True@3:1m", rollout.Failed, "1m"},
		"in time, whatever the hub":    {"Applied=True@3:5m Available=True@3:5m Ready=True@3:1m Delivered=True@3:1m", rollout.Succeeded, "5m"},
		"answered late, as before":     {"Applied=True@3:5h Available=True@3:5h Delivered=True@3:2m", rollout.Succeeded, "2m"},
		"answered long before":         {"Applied=True@3:5h Available=True@3:5h Delivered=True@3:9h", rollout.Succeeded, "1h"},
		"late, and not Applied":        {"Applied=False@3:5h Delivered=True@3:2m", rollout.Failed, "1h"},
		"not Applied":                  {"Applied=False@3:5m", rollout.Failed, "5m"},
		"not Applied before neither":   {"Applied=False@3:5h", rollout.Failed, "1h"},
		"not Applied but Available":    {"Applied=False@3:5m Available=True@3:4m", rollout.Failed, "5m"},
		"not Applied, older answer":    {"Applied=False@2:5m", rollout.Progressing, "1h"},
		"Applied unknown":              {"Applied=Unknown@3:5m Available=True@3:5m", rollout.Progressing, "1h"},
		"not Available":                {"Applied=True@3:50m Available=False@3:4m", rollout.Progressing, "4m"},
		"Available unknown":            {"Applied=True@3:50m Available=Unknown@3:40m", rollout.Progressing, "40m"},
		"rule: progressing":            {"Applied=True@3:5m Available=True@3:5m Progressing=True@3:3m", rollout.Progressing, "3m"},
		"rule: as before":              {"Applied=True@3:5m Available=True@3:5m Progressing=True@3:3h", rollout.Progressing, "1h"},
		"rule: progressing unknown":    {"Applied=True@3:5m Available=True@3:5m Progressing=Unknown@3:3m", rollout.Progressing, "3m"},
		"rule: done":                   {"Applied=True@3:5m Available=True@3:5m Progressing=False@3:3m", rollout.Succeeded, "3m"},
		"rule: done, and degraded":     {"Applied=True@3:5m Available=True@3:5m Progressing=False@3:3m Degraded=True@3:1m", rollout.Succeeded, "3m"},
		"rule: done but not available": {"Applied=True@3:5m Available=False@3:5m Progressing=False@3:3m", rollout.Succeeded, "3m"},
		"rule: not yet evaluated":      {"Applied=True@3:5m Available=True@3:5m Progressing=False@2:3m", rollout.Progressing, "1h"},
		"rule: but not applied":        {"Applied=False@3:5m Available=True@3:5m Progressing=False@3:3m", rollout.Failed, "5m"},
		"rule: nothing but it":         {"Progressing=False@3:3m", rollout.Progressing, "1h"},
		"rules: failed":                {"Applied=True@3:5m Available=True@3:5m Progressing=True@3:3m Degraded=True@3:2m", rollout.Failed, "2m"},
		"rules: unknown and degraded":  {"Applied=True@3:5m Available=True@3:5m Progressing=Unknown@3:3m Degraded=True@3:2m", rollout.Progressing, "3m"},
		"rules: not degraded":          {"Applied=True@3:5m Available=True@3:5m Progressing=True@3:3m Degraded=False@3:2m", rollout.Progressing, "3m"},
		"rules: degraded before":       {"Applied=True@3:5m Available=True@3:5m Progressing=True@3:3m Degraded=True@2:2m", rollout.Progressing, "1h"},
		"rule: only degraded":          {"Applied=True@3:5m Available=True@3:5m Degraded=True@3:2m", rollout.Failed, "2m"},
		"rule: only degraded, not so":  {"Applied=True@3:5m Available=True@3:5m Degraded=False@3:2m", rollout.Succeeded, "5m"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := rollout.StatusOf(workFrom(t, test.conditions), true, now)
			ago, err := time.ParseDuration(test.since)
			if err != nil {
				t.Fatal(err)
			}
			if got.Status != test.want || !got.Since.Equal(now.Add(-ago)) {
				t.Errorf("%s: %s since %s ago, want %s since %s", test.conditions, got.Status, now.Sub(got.Since), test.want, test.since)
			}
		})
	}
}

func TestStatusOfWorkWithoutTemplate(t *testing.T) {
	const fine = "Applied=True@3:5m Available=True@3:4m"
	deleting := workFrom(t, fine)
	deleting.DeletionTimestamp = &metav1.Time{Time: now}
	for name, got := range map[string]rollout.Cluster{
		"no work":          rollout.StatusOf(nil, true, now),
		"another template": rollout.StatusOf(workFrom(t, fine), false, now),
		"work that goes":   rollout.StatusOf(deleting, true, now),
	} {
		if got != (rollout.Cluster{}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestWhenTheTemplateWasGiven(t *testing.T) {
	work := workFrom(t, "")
	work.Annotations = nil
	if got := rollout.StatusOf(work, true, now); !got.Since.IsZero() {
		t.Errorf("not known when: since %s", got.Since)
	}
	work.Annotations = map[string]string{workv1alpha1.RolledOutAtAnnotationKey: "yesterday"}
	if got := rollout.StatusOf(work, true, now); !got.Since.IsZero() {
		t.Errorf("annotation that is no time: since %s", got.Since)
	}
	work.Generation = 1
	if got := rollout.StatusOf(work, true, now); !got.Since.Equal(work.CreationTimestamp.Time) {
		t.Errorf("never changed: since %s", got.Since)
	}
}

func TestStatusNames(t *testing.T) {
	want := []string{"ToApply", "Progressing", "Succeeded", "Failed", "TimeOut", "Skip", "Status(?)"}
	for i, name := range want {
		if got := rollout.Status(i).String(); got != name {
			t.Errorf("status %d is %s, want %s", i, got, name)
		}
	}
}
