package replicaset

import (
	"slices"

	"github.com/workwire/workwire/pkg/hub/previews"
)

// heldByPreview returns why no cluster gets the template of a set yet, empty if clusters do. One that the set goes back to has
// proven itself.
func heldByPreview(in input) string {
	if in.revisions.Served != 0 || !previews.Demanded(in.set.Annotations) {
		return ""
	}
	of := previews.Subject{Namespace: in.set.Namespace, Name: in.set.Name, Revision: in.revisions.Own, Template: in.hash}
	if in.overriding != nil {
		of.Overrides = in.overriding.hash
	}
	return previews.Held(in.set.Annotations, of)
}

// waitsForPreview reports whether clusters would get the template if it were not held.
func waitsForPreview(in input, rollouts []placementRollout) bool {
	return in.held != "" && slices.ContainsFunc(rollouts, func(r placementRollout) bool { return len(r.decision.Start) > 0 })
}
