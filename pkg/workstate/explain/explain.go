// Package explain tells how far the newest spec of a ManifestWork has got, hop by hop, with what package
// workstate says of it. It is pure.
//
//	e := explain.Explain(workstate.Facts{Now: time.Now(), Work: work, Cluster: cluster, Presence: lease})
//	for _, hop := range e.Hops { ... }
//	if e.Blocker != nil { fmt.Println(e.Blocker.Message, e.Blocker.Do) }
package explain

import "github.com/workwire/workwire/pkg/workstate"

// Explanation says how far the newest generation of a work has got.
type Explanation struct {
	// Cluster and Name identify the work, Generation is that of its newest spec.
	Cluster    string `json:"cluster"`
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
	// Observed is the generation that the agent's newest status is about; 0 if there is none.
	Observed int64 `json:"observedGeneration"`
	// Word sums it up: [workstate.State.Word].
	Word string `json:"state"`
	// Hops are the steps of the way, in order.
	Hops []Hop `json:"hops"`
	// State says what is the matter; of it, the JSON has the blocker.
	workstate.State
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

// Explain explains the newest generation of a work.
func Explain(f workstate.Facts) Explanation {
	w, s := f.Work, f.State()
	noCluster := s.Blocker != nil && s.Blocker.Cause == workstate.ClusterNotFound
	e := Explanation{Cluster: w.Namespace, Name: w.Name, Generation: w.Generation, Observed: workstate.Observed(w), Word: s.Word(), Hops: hops(w, noCluster), State: s}
	e.Notes = notes(&f, &e)
	return e
}
