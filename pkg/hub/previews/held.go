package previews

import (
	"fmt"
	"time"

	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
)

// Subject is what clusters would get.
type Subject struct {
	// Namespace and Name are those of the set.
	Namespace, Name string
	// Revision is the number of its template, 0 while that is not stored.
	Revision int64
	// Template is the hash of its template.
	Template string
	// Overrides is the [OverridesHash] of its WorkOverrides.
	Overrides string
}

// Demanded reports whether a set with these annotations waits for previews.
func Demanded(annotations map[string]string) bool {
	_, demanded := annotations[workv1alpha1.PreviewAnnotationKey]
	return demanded
}

// Held returns why clusters must not get a template yet, with what to do; empty if they may. It is empty for a set that does not
// demand previews. Otherwise a preview of this very template, and of its WorkOverrides, must have been recorded that some cluster
// has answered and none has refused, and it must be within the limit of the set or approved. What cannot be read holds.
func Held(annotations map[string]string, of Subject) string {
	if !Demanded(annotations) {
		return ""
	}
	if value := annotations[workv1alpha1.PreviewAnnotationKey]; value != workv1alpha1.PreviewRequired {
		return fmt.Sprintf("the annotation %s is %.100q, and holds the template: the one known value is %s", workv1alpha1.PreviewAnnotationKey, value, workv1alpha1.PreviewRequired)
	}
	preview := fmt.Sprintf("workctl diff set %s -n %s --record", of.Name, of.Namespace)
	record, err := RecordOf(annotations)
	switch {
	case err != nil:
		return fmt.Sprintf("%.200s; preview again: %s", err, preview)
	case record == nil:
		return "waits for its preview: " + preview
	case record.Template != of.Template:
		return fmt.Sprintf("waits for its preview, the one of %s is of another template: %s", stamp(record), preview)
	case record.Overrides != of.Overrides:
		return fmt.Sprintf("waits for its preview, the one of %s is of other WorkOverrides: %s", stamp(record), preview)
	case record.Refused > 0:
		return fmt.Sprintf("the preview of %s says that %d of %d clusters refuse it: mend that, and preview again: %s", stamp(record), record.Refused, record.Answered, preview)
	case record.Answered == 0:
		return fmt.Sprintf("at the preview of %s no cluster has answered: preview again: %s", stamp(record), preview)
	}
	return unapproved(annotations, of, record)
}

// unapproved returns why a preview without refusals does not suffice, empty if it does.
func unapproved(annotations map[string]string, of Subject, record *Record) string {
	text, limited := annotations[workv1alpha1.PreviewLimitAnnotationKey]
	limit, err := ParseLimit(text)
	if limited && err != nil {
		return fmt.Sprintf("annotation %s: %v", workv1alpha1.PreviewLimitAnnotationKey, err)
	}
	if limited && record.Failed == 0 && limit.allows(record) {
		return ""
	}
	approvals, err := workwirev1alpha1.ApprovalsOf(annotations)
	if err != nil {
		return fmt.Sprintf("%.200s", err)
	}
	if of.Revision != 0 && approvals.Of(of.Revision, workwirev1alpha1.PreviewStage) != nil {
		return ""
	}
	why := fmt.Sprintf("the preview of %s changes at most %d objects of a cluster and deletes %d", stamp(record), record.Changed, record.Deleted)
	switch {
	case limited && record.Failed > 0:
		why += fmt.Sprintf(", and says nothing of %d clusters", record.Failed)
	case limited:
		why += fmt.Sprintf(", more than %s", text)
	}
	approve := fmt.Sprintf("workctl rollout approve %s -n %s --stage=%s", of.Name, of.Namespace, workwirev1alpha1.PreviewStage)
	if of.Revision != 0 { // so that nobody approves a template that has come meanwhile
		approve += fmt.Sprintf(" --to-revision=%d", of.Revision)
	}
	return why + ": approve it: " + approve
}

// stamp returns the time of a record.
func stamp(r *Record) string { return r.Time.UTC().Format(time.RFC3339) }
