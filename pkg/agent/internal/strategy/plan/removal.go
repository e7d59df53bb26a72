package plan

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/ownership"
)

// Removal is an object that has to be removed. That is the one with a reference to the owner, whatever UID was recorded: an
// agent that was killed when it had created an object again has not recorded the new one.
type Removal struct {
	Ref object.Ref
	// Orphan keeps the object: only the reference to the owner is removed, and with the last
	// reference to a work the agent's label.
	Orphan bool
	// OwnedOnly leaves an orphan alone that has no reference to the owner, and so keeps the agent's
	// label on it.
	OwnedOnly bool
}

// RemovalStep is the next action for a [Removal].
type RemovalStep string

const (
	// LookUp the object: it is not known well enough.
	LookUp RemovalStep = "LookUp"
	// Forget it: it does not exist, or the work does not own it.
	Forget RemovalStep = "Forget"
	// DropOwner removes the reference to the owner from an object that stays: another work owns it
	// too, or it is an orphan.
	DropOwner RemovalStep = "DropOwner"
	// Delete it.
	Delete RemovalStep = "Delete"
	// Await its deletion, which has begun.
	Await RemovalStep = "Await"
)

// NextRemoval returns the next step of a removal. Complete reports that live was just read, so that
// Absent means that the object does not exist. Owner is the uid of the AppliedManifestWork.
func NextRemoval(r Removal, live object.Live, complete bool, owner types.UID) RemovalStep {
	if live.State != object.Present {
		if complete && live.State == object.Absent {
			return Forget
		}
		return LookUp
	}
	var owned, shared bool
	for _, ref := range live.Object.GetOwnerReferences() {
		switch {
		case ref.UID == owner:
			owned = true
		case ownership.IsWork(ref):
			shared = true
		}
	}
	_, labelled := live.Object.GetLabels()[object.AgentLabel]
	switch {
	case r.Orphan && (owned || labelled && !shared && !r.OwnedOnly):
		return DropOwner
	case !owned:
		return Forget
	case shared:
		return DropOwner
	case live.Object.GetDeletionTimestamp() != nil:
		return Await
	default:
		return Delete
	}
}
