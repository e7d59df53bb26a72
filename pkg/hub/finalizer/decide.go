package finalizer

import (
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub/works"
)

// step is what a change of a work calls for; its parts are done in this order.
type step struct {
	// gone: the link is told that this work is no more.
	gone *workv1.ManifestWork
	// changed: the link is told to look at the work with this UID.
	changed types.UID
	// finalizer: the hub's finalizer has to be put on the work.
	finalizer bool
}

// decide plans for a work that was before and is after: before is nil when it is
// new, after when it was removed. They may be two works of one name.
func decide(before, after *workv1.ManifestWork, addressable bool) step {
	var s step
	shown := after != nil && works.Visible(after, addressable)
	if before != nil && works.Visible(before, addressable) && (!shown || after.UID != before.UID) {
		s.gone = before
	}
	if shown {
		s.changed = after.UID
	}
	s.finalizer = after != nil && works.NeedsFinalizer(after, addressable)
	return s
}
