package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Failure is a write that failed.
type Failure struct {
	Step Step
	Err  error
	// Reread reports that the state was read after the failure.
	Reread bool
}

// Recovery is the reaction to a [Failure].
type Recovery int

const (
	// Fail the manifest with the error.
	Fail Recovery = iota
	// Reread the object and call [Recover] again.
	Reread
	// Replan from the state that [Recover] returned.
	Replan
	// Accept the live object: it differs only in what the API server made of the manifest.
	Accept
)

// Recover decides what follows a failed write. It returns the state to plan from.
func Recover(m *strategy.Manifest, s State, f Failure) (State, Recovery) {
	verb := f.Step.Verb
	switch {
	case verb == Create && apierrors.IsAlreadyExists(f.Err),
		verb != Create && verb != Apply && (apierrors.IsConflict(f.Err) || apierrors.IsNotFound(f.Err) && !object.IsNotServed(f.Err)):
		return s, afterReread(f, Replan)
	case verb == Update && apierrors.IsInvalid(f.Err):
		return recoverRefused(m, s, f)
	case verb == Apply && !s.Force && isConflictWith(f.Err, append(s.managers(m), workv1.DefaultFieldManager)):
		return recoverConflict(m, s, f)
	case verb == Apply && f.Step.Object.GetUID() != "" && m.Desired.GetResourceVersion() == "" && apierrors.IsConflict(f.Err):
		live := s.Live
		if f.Reread && live.State == object.Present && live.Object.GetUID() == f.Step.Object.GetUID() &&
			live.Object.GetResourceVersion() == f.Step.Object.GetResourceVersion() {
			return s, Fail // not for the object's version, which the body is for
		}
		return s, afterReread(f, Replan)
	}
	return s, Fail
}

func afterReread(f Failure, recovery Recovery) Recovery {
	if !f.Reread {
		return Reread
	}
	return recovery
}

// recoverRefused is for an update that the API server refused as invalid.
func recoverRefused(m *strategy.Manifest, s State, f Failure) (State, Recovery) {
	if !s.Complete {
		return s, Reread
	}
	if s.Refused == nil && IsImmutable(f.Err) && s.Live.State == object.Present && s.wasStored(m) {
		// This manifest was applied, and nobody can have changed immutable fields since: the API
		// server set them.
		return s, Accept
	}
	s.Refused = &Refusal{Object: f.Step.Object, Err: f.Err}
	return s, Replan
}

// recoverConflict is for an apply that conflicts with fields written under the agent's own
// managers: under another strategy, or for another work, which then keeps its fields.
func recoverConflict(m *strategy.Manifest, s State, f Failure) (State, Recovery) {
	switch {
	case !f.Reread:
		return s, Reread
	case s.Live.State != object.Present:
		return s, Replan
	case s.shared():
		return s, Fail
	case len(ManagersToMigrate(m, s)) > 0:
		return s, Replan
	case !isConflictWith(f.Err, s.managers(m)):
		return s, Fail
	}
	s.Force = true
	return s, Replan
}

// immutableTexts are the texts of API servers about fields that cannot be changed. A text matches
// if it contains all strings of one entry.
var immutableTexts = [][]string{
	{"immutable"},
	{"may not change"},     // Pod, Service
	{"may not be changed"}, // PriorityClass
	{"cannot change roleRef"},
	{"updates to", "are forbidden"}, // StatefulSet
}

// IsImmutable reports whether all causes of an error are changes of immutable fields.
func IsImmutable(err error) bool {
	causes := Causes(err)
	for _, cause := range causes {
		if !slices.ContainsFunc(immutableTexts, func(parts []string) bool {
			return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(cause.Message, part) })
		}) {
			return false
		}
	}
	return len(causes) > 0
}

// isConflictWith reports whether an apply was refused for fields of these managers only.
func isConflictWith(err error, managers []string) bool {
	causes := Causes(err)
	for _, cause := range causes {
		own := slices.ContainsFunc(managers, func(manager string) bool {
			return strings.HasPrefix(cause.Message, fmt.Sprintf("conflict with %q", manager))
		})
		if cause.Type != metav1.CauseTypeFieldManagerConflict || !own {
			return false
		}
	}
	return apierrors.IsConflict(err) && len(causes) > 0
}

// Causes returns those of an answer of the API server; nil if err is none.
func Causes(err error) []metav1.StatusCause {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	return status.Status().Details.Causes
}
