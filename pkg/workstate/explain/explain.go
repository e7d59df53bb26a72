// Package explain tells how far the newest spec of a ManifestWork has got, hop by hop, with what package
// workstate says of it. It is pure.
//
//	e := explain.Explain(workstate.Facts{Now: time.Now(), Work: work, Cluster: cluster, Presence: lease})
//	for _, hop := range e.Hops { ... }
//	if e.Blocker != nil { fmt.Println(e.Blocker.Message, e.Blocker.Do) }
package explain

import (
	"slices"

	"github.com/workwire/workwire/pkg/workstate"
)

// Explanation says how far the newest generation of a work has got.
type Explanation struct {
	// Cluster and Name identify the work, Generation is that of its newest spec.
	Cluster    string `json:"cluster"`
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
	// Observed is the generation that the agent's newest status is about; 0 if there is none.
	Observed int64 `json:"observedGeneration"`
	// State sums it up.
	State State `json:"state"`
	// Hops are the steps of the way, in order.
	Hops []Hop `json:"hops"`
	// Blocker is what keeps the work from going on; nil if nothing does.
	Blocker *workstate.Blocker `json:"blocker,omitempty"`
	// Notes are further remarks, each a sentence.
	Notes []string `json:"notes,omitempty"`
}

// Readiness says whether the objects of the newest spec are ready. Those of a work that is being deleted are not, also once they are gone.
func (e *Explanation) Readiness() Progress {
	if last := e.Hops[len(e.Hops)-1]; last.Name == "ready" {
		return last.Progress
	}
	return Waiting
}

// State is a summary of a work.
type State string

// States.
const (
	// Ready: the newest spec is applied and its objects are ready.
	Ready State = "Ready"
	// Warned: the newest spec is applied, and ready as far as anybody watches that, but something in it is not as somebody wrote it.
	Warned State = "Warned"
	// Applied: the newest spec is applied, and nobody watches whether its objects are ready.
	Applied State = "Applied"
	// Progressing: the newest spec is on its way, and nothing is known to block it.
	Progressing State = "Progressing"
	// Blocked: the newest spec does not go on without an action, or before somebody is back.
	Blocked State = "Blocked"
	// Deleting: the work is being deleted, and nothing is known to block it.
	Deleting State = "Deleting"
)

// NeedsAttention reports whether a work in a state for a cause, which may be empty, has not got as far as it should by now. What
// waits for a time, or for others that are not blocked, has.
func (s State) NeedsAttention(cause workstate.Cause) bool {
	switch cause {
	case workstate.Staged, workstate.RolloutWaits, workstate.WaitsForWave, workstate.WaitsForHook, workstate.WaitsForWork:
		return s == Blocked
	}
	return s != Ready && s != Applied
}

// Explain explains the newest generation of a work.
func Explain(f workstate.Facts) Explanation {
	w, s := f.Work, f.State()
	e := Explanation{Cluster: w.Namespace, Name: w.Name, Generation: w.Generation, Observed: workstate.Observed(w), State: Ready, Blocker: s.Blocker}
	var cause workstate.Cause
	if s.Blocker != nil {
		cause = s.Blocker.Cause
	}
	e.Hops = hops(w, cause)
	switch {
	case s.Blocker != nil && s.Blocker.Cause == workstate.Warning:
		e.State = Warned
	case s.Blocker != nil && waits(*s.Blocker) && !slices.ContainsFunc(s.Blocker.Others, func(b workstate.Blocker) bool { return !waits(b) }):
		e.State = Progressing
	case s.Blocker != nil:
		e.State = Blocked
	case s.Phase == workstate.PhaseDeleting:
		e.State = Deleting
	case s.Phase == workstate.PhaseApplied:
		e.State = Applied
	case s.Phase != workstate.PhaseReady || !settled(e.Hops):
		e.State = Progressing
	}
	e.Notes = notes(&f, &e)
	return e
}

// waits reports whether a cause usually ends by itself.
func waits(b workstate.Blocker) bool {
	switch b.Cause {
	case workstate.NotAnswered, workstate.NotReady, workstate.RolloutWaits, workstate.WaitsForWave, workstate.WaitsForHook, workstate.WaitsForWork,
		workstate.Staged:
		return true
	}
	return false
}
