package plan

import (
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/order"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/ownership"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
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
	// Later leaves the object as it is for now. Others may wait for it all the same.
	Later bool
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
	// Hold it until objects of higher places are gone, see [HoldRemovals].
	Hold RemovalStep = "Hold"
)

// NextRemoval returns the next step of a removal. Owner is the uid of the AppliedManifestWork. Complete reports that live was just read:
// else an object that does not seem to exist, or to be the work's, may be so by a write of the agent that got no answer, and that no watch has shown.
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
	case !owned && !complete:
		return LookUp
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

// HoldRemovals returns the next steps of the removals of a work, so that the highest place goes first: steps, those of [NextRemoval],
// with Hold for what waits until all that is to be deleted at a higher place is gone. An orphan neither waits nor is waited for,
// and what the work does not own alone is not waited for. A place is nil if it is not known. If the work has an order, all wait for an object that
// could not be read and whose place is not known: it may have the highest one.
func HoldRemovals(removals []Removal, steps []RemovalStep, places []*order.Item, ordered bool) []RemovalStep {
	top := order.Item{Hook: workv1.HookBefore, Wave: math.MinInt}
	for i, step := range steps {
		switch {
		case step == LookUp && ordered && !removals[i].Orphan && places[i] == nil:
			top = order.Item{Hook: workv1.HookAfter, Wave: math.MaxInt}
		case (step == Delete || step == Await) && order.Compare(*places[i], top) > 0:
			top = *places[i]
		}
	}
	steps = slices.Clone(steps)
	for i, step := range steps {
		if (step == Delete || step == DropOwner && !removals[i].Orphan) && order.Compare(*places[i], top) < 0 {
			steps[i] = Hold
		}
	}
	return steps
}
