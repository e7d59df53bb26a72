package revisions

import (
	"strconv"

	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
)

// Limits of the number of earlier templates.
const (
	DefaultLimit = 10
	MaxLimit     = 100
)

// Plan is what the hub stores when the template of a set has changed.
type Plan struct {
	// Number of the revision that the template is now.
	Number int64
	// Existing is the stored revision of the template; nil if it must be created. It must be
	// numbered again if its Revision is not Number.
	Existing *Revision
	// Delete lists the revisions that are more than the limit, the oldest first.
	Delete []Revision
}

// Decide returns what to store for the template with this hash, given the stored revisions in the
// order of their numbers. Of the others, the limit newest stay.
func Decide(stored []Revision, hash string, limit int) Plan {
	var p Plan
	var last int64
	others := make([]Revision, 0, len(stored))
	for i := range stored {
		last = max(last, stored[i].Revision)
		if stored[i].Labels[workwirev1alpha1.TemplateHashLabelKey] == hash && p.Existing == nil {
			p.Existing = &stored[i]
		} else {
			others = append(others, stored[i])
		}
	}
	p.Number = last + 1
	if p.Existing != nil && p.Existing.Revision == last {
		p.Number = last
	}
	p.Delete = others[:max(0, len(others)-limit)]
	return p
}

// Limit returns the number of earlier templates that the annotations of a set ask for. ok is false
// if the value is not a number from 0 to MaxLimit; the limit is then DefaultLimit.
func Limit(annotations map[string]string) (limit int, ok bool) {
	text, set := annotations[workwirev1alpha1.RevisionHistoryLimitAnnotationKey]
	if !set {
		return DefaultLimit, true
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 0 || limit > MaxLimit {
		return DefaultLimit, false
	}
	return limit, true
}
