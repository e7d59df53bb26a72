package finalizer

import (
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub/works"
)

// step is the plan for one watch event, in the order in which it is carried out.
type step struct {
	// removed is the work that the publisher must be told is gone; nil for none.
	removed *workv1.ManifestWork
	// changed is the UID of the work that the publisher must look at; empty for none.
	changed types.UID
	// finalizer is whether the work needs the hub's finalizer.
	finalizer bool
}

// decide plans for a work that changed from before to after: before is nil for a new work, after for one
// that was removed. They may be two different works of one name.
func decide(before, after *workv1.ManifestWork, addressable bool) step {
	var s step
	visible := after != nil && works.Visible(after, addressable)
	if before != nil && works.Visible(before, addressable) && (!visible || after.UID != before.UID) {
		s.removed = before
	}
	if visible {
		s.changed = after.UID
	}
	s.finalizer = after != nil && works.NeedsFinalizer(after, addressable)
	return s
}
