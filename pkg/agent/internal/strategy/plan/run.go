package plan

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/ownership"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// planRun is for the Job of a hook: a Job of another run is deleted, one of this run is left alone.
func planRun(m *strategy.Manifest, s *State) Step {
	switch live := s.Live.Object; {
	case s.Live.State != object.Present:
		return planCreate(m, s)
	case live.GetAnnotations()[workv1.HookSpecAnnotationKey] == m.Run:
		return planAdopt(m, s)
	case s.shared():
		return Step{Err: fmt.Errorf("%s is the hook of another work too, or an object of it: give the hook another name", m.Ref)}
	case !s.made():
		return Step{Err: fmt.Errorf("%s exists, and this work has not made it: delete it, or give the hook another name", m.Ref)}
	case live.GetDeletionTimestamp() != nil:
		return Step{Err: &FormerRunError{Job: m.Ref}}
	}
	return Step{Verb: Recreate, Object: newObject(m, s)}
}

// made reports whether this work has made the live object, or adopted it. The object is not shared. The agent's label does not tell:
// an object that another work orphans has it too.
func (s *State) made() bool {
	live := s.Live.Object
	of, named := live.GetAnnotations()[workv1.HookOfAnnotationKey]
	switch {
	case slices.ContainsFunc(live.GetOwnerReferences(), ownership.IsWork):
		return true
	case live.GetLabels()[object.AgentLabel] != s.AgentHash:
		return false
	case named:
		return of == s.Owner.Name
	default:
		return s.Previous != nil && s.Previous.Strategy != workv1.UpdateStrategyTypeReadOnly || s.FieldsDigest != ""
	}
}

// FormerRunError says that the Job of a hook is not created yet, because that of its former run still exists.
type FormerRunError struct{ Job object.Ref }

func (e *FormerRunError) Error() string {
	return fmt.Sprintf("%s is of the hook's former run, and is being deleted", e.Job)
}

// JobState is what a Job has come to.
type JobState int

// States of a Job.
const (
	JobRunning JobState = iota
	JobComplete
	JobFailed
)

// StateOfJob returns what a Job has come to, and what it says of a failure.
func StateOfJob(job *unstructured.Unstructured) (JobState, string) {
	conditions, _, _ := unstructured.NestedSlice(job.Object, "status", "conditions")
	state, message := JobRunning, ""
	for _, c := range slices.Backward(conditions) {
		c, _ := c.(map[string]any)
		if c["status"] != "True" {
			continue
		}
		switch c["type"] {
		case "Complete":
			state = JobComplete
		case "Failed":
			message, _ = c["message"].(string)
			return JobFailed, message
		}
	}
	return state, message
}
