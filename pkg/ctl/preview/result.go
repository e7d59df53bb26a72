package preview

import (
	"slices"

	"github.com/workwire/workwire/pkg/wire"
)

// State is how much is known of what a template changes on a cluster.
type State string

// States of a result.
const (
	// Answered: the agent has answered.
	Answered State = "Answered"
	// Failed: it could not be found out; the message says why.
	Failed State = "Failed"
	// Away: the cluster is away.
	Away State = "Away"
	// NotAccepted: the hub does not accept the cluster, which gets no work.
	NotAccepted State = "NotAccepted"
	// NotAsked: others were chosen.
	NotAsked State = "NotAsked"
)

// Result is what the template would change on one cluster. A cluster that several placements select has one for each.
type Result struct {
	Cluster   string `json:"cluster"`
	Placement string `json:"placement"`
	// Work is the name of the work.
	Work  string `json:"work"`
	State State  `json:"state"`
	// Message is why there is no answer.
	Message string `json:"message,omitempty"`
	// Generation is that of the work that the agent holds, 0 if it holds none.
	Generation int64 `json:"generation,omitempty"`
	// Objects are those of the answer.
	Objects []wire.DryRunObject `json:"objects,omitempty"`

	asked bool
}

// rank orders what becomes of objects: deletions first, then refusals. A result of a later version is a refusal.
func rank(o *wire.DryRunObject) int {
	order := []wire.DryRunResult{
		wire.DryRunRemoved, wire.DryRunRecreated, wire.DryRunDenied, wire.DryRunRefused, wire.DryRunInvalid, wire.DryRunConflict,
		wire.DryRunChanged, wire.DryRunCreated, wire.DryRunUnknown, wire.DryRunKept, wire.DryRunReadOnly, wire.DryRunUnchanged,
	}
	if i := slices.Index(order, o.Result); i >= 0 {
		return i
	}
	return slices.Index(order, wire.DryRunConflict)
}

// counts are how many objects of a cluster would be changed, deleted and refused.
type counts struct{ changed, deleted, refused int }

// count counts objects. What cannot be told counts as the worst that it can be.
func count(objects []wire.DryRunObject) (n counts) {
	for i := range objects {
		switch o := &objects[i]; o.Result {
		case wire.DryRunUnchanged, wire.DryRunReadOnly, wire.DryRunKept:
		case wire.DryRunRemoved, wire.DryRunRecreated:
			n.deleted++
		case wire.DryRunCreated, wire.DryRunChanged:
			n.changed++
		case wire.DryRunUnknown:
			if o.Resource != "" { // the new template drops it
				n.deleted++
			} else {
				n.changed++
			}
		default:
			n.refused++
		}
	}
	return n
}
