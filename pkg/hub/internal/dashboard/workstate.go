package dashboard

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/pkg/workstate"
)

// state is how something is, as one word of the pages and of the filters in URLs.
type state = workstate.Phase

// workStates are all states of works in the order of their ranks.
var workStates = workstate.Phases()

// workRow is a work in lists.
type workRow struct {
	Namespace, Name string
	State           state
	Since           time.Time // since when it is in State, zero if that is not known
	Why             string    // what keeps it from being ready, "" if it is
	Cause           string    // of Why in one word, "" if there is none
	Generation      int64
	Observed        int64 // the generation that the cluster has answered for, 0 if none
	Paused          bool
	ReplicaSet      string // namespace.name, "" if it is of none
	Labels          map[string]string
}

// rowOf returns the row of a work.
func rowOf(work *workv1.ManifestWork) workRow {
	if phase := workstate.PhaseOf(work); phase != workstate.PhaseReady && phase != workstate.PhaseApplied {
		work = works.UnpackStatus(work) // its manifests tell why
	}
	s := workstate.Of(work, nil)
	row := workRow{
		Namespace: work.Namespace, Name: work.Name, Generation: work.Generation, Observed: workstate.Observed(work), Labels: work.Labels,
		Paused: workv1.IsPaused(work), ReplicaSet: work.Labels[workv1.ReplicaSetLabelKey],
		State: s.Phase, Since: s.Since, Why: s.Why(),
	}
	if s.Blocker != nil {
		row.Cause = string(s.Blocker.Cause)
	}
	return row
}

// text returns the message of a condition, or its reason.
func text(c *metav1.Condition) string { return cmp.Or(c.Message, c.Reason) }
