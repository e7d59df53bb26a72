package v1

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ApplyAtAnnotationKey annotates a ManifestWork with when its agent applies a new spec, which it has before: START, or START/END, as
// RFC 3339, or ApplyAtHeld for not before the annotation has a time. After END the spec is no longer applied if it was not before.
const (
	ApplyAtAnnotationKey = "workwire.dev/apply-at"
	ApplyAtHeld          = "Held"
)

// ApplyAt is when a spec is applied.
//
// +k8s:deepcopy-gen=false
type ApplyAt struct {
	// Start is when it is; zero: it is held.
	Start time.Time
	// End is from when on it is not any more; zero: never.
	End time.Time
}

// ApplyAtOf returns what [ApplyAtAnnotationKey] of a work says; nil without it.
func ApplyAtOf(work metav1.Object) (*ApplyAt, error) {
	text, ok := work.GetAnnotations()[ApplyAtAnnotationKey]
	if !ok {
		return nil, nil
	}
	if text == ApplyAtHeld {
		return &ApplyAt{}, nil
	}
	invalid := fmt.Errorf("annotation %s is %.80q: must be a time such as 2026-11-28T22:00:00Z, two of them as START/END, or %s", ApplyAtAnnotationKey, text, ApplyAtHeld)
	start, end, bounded := strings.Cut(text, "/")
	var at ApplyAt
	var err error
	if at.Start, err = time.Parse(time.RFC3339, start); err != nil || at.Start.IsZero() {
		return nil, invalid
	}
	if bounded {
		if at.End, err = time.Parse(time.RFC3339, end); err != nil {
			return nil, invalid
		}
		if !at.End.After(at.Start) {
			return nil, fmt.Errorf("annotation %s is %q: END must be after START", ApplyAtAnnotationKey, text)
		}
	}
	return &at, nil
}

// String returns the value of the annotation.
func (a ApplyAt) String() string {
	if a.Start.IsZero() {
		return ApplyAtHeld
	}
	text := a.Start.UTC().Format(time.RFC3339)
	if !a.End.IsZero() {
		text += "/" + a.End.UTC().Format(time.RFC3339)
	}
	return text
}
