package previews

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/test/kit"
)

// good is a record of three clusters, of which one is away.
var good = Record{
	Template: "h", Time: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)), By: "ann",
	Clusters: 3, Asked: 3, Answered: 2, Away: 1, Changed: 2, Deleted: 1,
}

func annotated(t testing.TB, limit string, change func(*Record)) map[string]string {
	t.Helper()
	r := good
	change(&r)
	value, err := r.Value()
	kit.NoError(t, err)
	a := map[string]string{workv1alpha1.PreviewAnnotationKey: workv1alpha1.PreviewRequired, workv1alpha1.PreviewedAnnotationKey: value}
	if limit != "" {
		a[workv1alpha1.PreviewLimitAnnotationKey] = limit
	}
	return a
}

// TestHeld: which record, limit and approval let clusters have a template.
func TestHeld(t *testing.T) {
	const (
		again    = "workctl diff set till -n shops --record"
		over     = "the preview of 2026-01-02T03:04:05Z changes at most 2 objects of a cluster and deletes 1"
		approve  = ": approve it: workctl rollout approve till -n shops --stage=preview --to-revision=4"
		approved = `[{"revision":4,"stage":"preview","time":"2026-01-02T03:04:05Z"}]`
	)
	same := func(*Record) {}
	for name, c := range map[string]struct {
		limit     string
		record    func(*Record)
		approvals string
		change    func(annotations map[string]string, of *Subject)
		want      string
	}{
		"within the limit":   {limit: "changed=2,deleted=1", record: same},
		"one limit":          {limit: "deleted=1", record: same},
		"more changed":       {limit: "changed=1,deleted=1", record: same, want: over + ", more than changed=1,deleted=1" + approve},
		"more deleted":       {limit: "deleted=0", record: same, want: over + ", more than deleted=0" + approve},
		"no change allowed":  {limit: "changed=0", record: same, want: over + ", more than changed=0" + approve},
		"no limit":           {record: same, want: over + approve},
		"approved":           {record: same, approvals: approved},
		"more, and approved": {limit: "deleted=0", record: same, approvals: approved},
		"another revision is approved": {record: same, want: over + approve,
			approvals: `[{"revision":3,"stage":"preview","time":null},{"revision":4,"stage":"canary","time":null}]`},
		"the revision has no number": {record: same, want: over + strings.TrimSuffix(approve, " --to-revision=4"), approvals: strings.ReplaceAll(approved, "4", "0"),
			change: func(_ map[string]string, of *Subject) { of.Revision = 0 }},
		"a refusal": {limit: "changed=9", record: func(r *Record) { r.Refused = 1 }, approvals: approved,
			want: "the preview of 2026-01-02T03:04:05Z says that 1 of 2 clusters refuse it: mend that, and preview again: " + again},
		"nobody has answered": {limit: "changed=9", record: func(r *Record) { r.Answered, r.Away = 0, 3 }, approvals: approved,
			want: "at the preview of 2026-01-02T03:04:05Z no cluster has answered: preview again: " + again},
		"a failure":               {limit: "changed=9", record: func(r *Record) { r.Failed = 2 }, want: over + ", and says nothing of 2 clusters" + approve},
		"a failure, and approved": {limit: "changed=9", record: func(r *Record) { r.Failed = 2 }, approvals: approved},
		"another template": {limit: "changed=9", record: func(r *Record) { r.Template = "g" }, approvals: approved,
			want: "waits for its preview, the one of 2026-01-02T03:04:05Z is of another template: " + again},
		"other overrides": {limit: "changed=9", record: func(r *Record) { r.Overrides = "o" }, approvals: approved,
			want: "waits for its preview, the one of 2026-01-02T03:04:05Z is of other WorkOverrides: " + again},
		"the same overrides": {limit: "changed=9", record: func(r *Record) { r.Overrides = "o" }, change: func(_ map[string]string, of *Subject) { of.Overrides = "o" }},
		"no record": {limit: "changed=9", record: same, approvals: approved, want: "waits for its preview: " + again,
			change: func(a map[string]string, _ *Subject) { delete(a, workv1alpha1.PreviewedAnnotationKey) }},
		"not demanded": {record: same, change: func(a map[string]string, _ *Subject) { delete(a, workv1alpha1.PreviewAnnotationKey) }},
		"demanded otherwise": {limit: "changed=9", record: same, approvals: approved,
			change: func(a map[string]string, _ *Subject) { a[workv1alpha1.PreviewAnnotationKey] = "required" },
			want:   `the annotation workwire.dev/preview is "required", and holds the template: the one known value is Required`},
		"no limit at all": {limit: "all", record: same, approvals: approved,
			want: `annotation workwire.dev/preview-limit: "all" must be such as changed=5,deleted=0, each with a number from 0 to 100000`},
		"an empty limit": {record: same, approvals: approved, change: func(a map[string]string, _ *Subject) { a[workv1alpha1.PreviewLimitAnnotationKey] = "" },
			want: `annotation workwire.dev/preview-limit: "" must be such as changed=5,deleted=0, each with a number from 0 to 100000`},
		"no approvals": {record: same, approvals: "yes", want: "annotation workwire.dev/approvals: invalid character 'y' looking for beginning of value"},
		"no JSON": {limit: "changed=9", record: same, change: func(a map[string]string, _ *Subject) { a[workv1alpha1.PreviewedAnnotationKey] = "[]" },
			want: "annotation workwire.dev/previewed: json: cannot unmarshal array into Go value of type previews.Record; preview again: " + again},
	} {
		annotations, of := annotated(t, c.limit, c.record), Subject{Namespace: "shops", Name: "till", Revision: 4, Template: "h"}
		if c.approvals != "" {
			annotations[workwirev1alpha1.ApprovalsAnnotationKey] = c.approvals
		}
		if c.change != nil {
			c.change(annotations, &of)
		}
		if got := Held(annotations, of); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

func TestParseLimit(t *testing.T) {
	for text, want := range map[string]Limit{
		"changed=5,deleted=0": {5, 0}, "deleted=3,changed=0": {0, 3}, "changed=0": {0, -1}, "deleted=100000": {-1, 100000},
	} {
		if got, err := ParseLimit(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "5", "changed", "changed=", "changed=x", "changed=-1", "changed=-0", "changed=+1", "changed=05", "changed=1.5", "changed=100001", "changed=99999999999999999999",
		"changed=1,", ",changed=1", "changed=1,changed=1", "changed=0,changed=1", "changed=1, deleted=0", " changed=1", "Changed=1", "changed=1;deleted=0", "changed=1=1", "refused=0",
	} {
		if limit, err := ParseLimit(text); err == nil {
			t.Errorf("%q: %v", text, limit)
		}
	}
}

func TestRecordOf(t *testing.T) {
	got, err := RecordOf(annotated(t, "", func(*Record) {}))
	if err != nil || !got.Time.Equal(&good.Time) {
		t.Fatalf("%+v, %v", got, err)
	}
	if got.Time = good.Time; *got != good {
		t.Errorf("%+v", got)
	}
	for name, change := range map[string]func(*Record){
		"all have answered, and refuse": func(r *Record) { r.Answered, r.Refused, r.Away = 3, 3, 0 },
		"as long as can be": func(r *Record) {
			r.By = strings.Repeat("a", maxRecord-len(annotated(t, "", func(r *Record) { r.By = "" })[workv1alpha1.PreviewedAnnotationKey])-len(`"by":"",`))
		},
	} {
		if _, err := RecordOf(annotated(t, "", change)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(*Record){
		"no template":      func(r *Record) { r.Template = "" },
		"a negative one":   func(r *Record) { r.Deleted = -1 },
		"more asked":       func(r *Record) { r.Asked = 4 },
		"more answered":    func(r *Record) { r.Answered = 4 },
		"more refused":     func(r *Record) { r.Refused = 3 },
		"one that is long": func(r *Record) { r.By = strings.Repeat("a", maxRecord) },
	} {
		if _, err := RecordOf(annotated(t, "", change)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestOverridesHash(t *testing.T) {
	override := func(uid string, generation int64) *workwirev1alpha1.WorkOverride {
		return &workwirev1alpha1.WorkOverride{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Generation: generation}}
	}
	a, b := override("a", 1), override("b", 1)
	seen, list := map[string]bool{}, []*workwirev1alpha1.WorkOverride{b, a}
	_ = OverridesHash(list)
	for _, list := range [][]*workwirev1alpha1.WorkOverride{nil, {a}, {b}, {a, b}, {a, override("b", 2)}} {
		seen[OverridesHash(list)] = true
	}
	if list[0] != b || len(seen) != 5 || !seen[""] || OverridesHash([]*workwirev1alpha1.WorkOverride{b, a}) != OverridesHash([]*workwirev1alpha1.WorkOverride{a, b}) {
		t.Errorf("%v", seen)
	}
}

// FuzzHeld: whatever is in the annotations, what lets a template pass is a record of it without refusals, and either a limit that it
// keeps or an approval.
func FuzzHeld(f *testing.F) {
	value, err := good.Value()
	kit.NoError(f, err)
	f.Add("Required", "changed=2,deleted=1", value, "")
	f.Add("Required", "", value, `[{"revision":4,"stage":"preview"}]`)
	f.Add("required", "deleted=-0", `{"template":"h","asked":-1}`, "[null]")
	f.Fuzz(func(t *testing.T, demand, limit, record, approvals string) {
		annotations := map[string]string{
			workv1alpha1.PreviewAnnotationKey: demand, workv1alpha1.PreviewLimitAnnotationKey: limit,
			workv1alpha1.PreviewedAnnotationKey: record, workwirev1alpha1.ApprovalsAnnotationKey: approvals,
		}
		why := Held(annotations, Subject{Namespace: "shops", Name: "till", Revision: 4, Template: "h"})
		if why != "" {
			if len(why) > 2048 {
				t.Errorf("a message of %d bytes", len(why))
			}
			return
		}
		r, err := RecordOf(annotations)
		if err != nil || r == nil || demand != workv1alpha1.PreviewRequired || r.Template != "h" || r.Refused != 0 || r.Answered <= 0 || r.Asked > r.Clusters {
			t.Fatalf("it passes by %q, %+v, %v", demand, r, err)
		}
		l, err := ParseLimit(limit)
		approved, errApprovals := workwirev1alpha1.ApprovalsOf(annotations)
		byLimit := err == nil && r.Failed == 0 && l.allows(r)
		if err != nil || !byLimit && (errApprovals != nil || approved.Of(4, workwirev1alpha1.PreviewStage) == nil) {
			t.Fatalf("it passes by %+v, limit %q, approvals %q", r, limit, approvals)
		}
		if l.Changed >= 0 && !strings.Contains(limit, fmt.Sprint("changed=", l.Changed)) {
			t.Errorf("%q is %+v", limit, l)
		}
	})
}
