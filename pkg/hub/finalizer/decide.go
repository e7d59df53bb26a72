package finalizer

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub/controller"
	"github.com/workwire/workwire/pkg/hub/works"
)

// step is the plan for one watch event, in the order in which it is carried out.
type step struct {
	// removed is the work that the publisher must be told is gone; nil for none.
	removed *workv1.ManifestWork
	// lost is a work that is gone although nobody was seen deleting it, nil for none: while the
	// hub's finalizer is there, only a backup that was restored, or somebody who writes to the store
	// past the API server, removes a work like that.
	lost *workv1.ManifestWork
	// changed is the UID of the work that the publisher must look at; empty for none.
	changed types.UID
	// restored: the API server went back in time (a backup was restored): the spec of changed is
	// not the one that had its generation, or the generation is lower than before.
	restored bool
	// statuses: the status may be an older one, as after the restore of a backup.
	statuses bool
	// finalizer is whether the work needs the hub's finalizer.
	finalizer bool
}

// decide plans for a work that changed from before to after: before is nil for a new work, after
// for one that was removed. They may be two different works of one name. found: the work was there
// when the hub started, so that before says nothing.
func decide(before, after *workv1.ManifestWork, addressable, found bool) step {
	var s step
	visible := after != nil && works.Visible(after, addressable)
	same := before != nil && after != nil && before.UID == after.UID
	if before != nil && works.Visible(before, addressable) && (!visible || !same) {
		if !same && before.DeletionTimestamp == nil && slices.Contains(before.Finalizers, workv1.ManifestWorkFinalizer) {
			s.lost = before
		} else {
			s.removed = before
		}
	}
	if visible {
		s.changed = after.UID
		s.restored = same && goneBack(before, after) || !same && !found && reported(after)
		s.statuses = same && controller.Newer(before, after)
	}
	s.finalizer = after != nil && works.NeedsFinalizer(after, addressable)
	return s
}

// goneBack reports whether after cannot come after before.
func goneBack(before, after *workv1.ManifestWork) bool {
	return after.Generation < before.Generation || after.Generation == before.Generation && !works.EqualSpecs(before, after)
}

// reported reports whether an agent has reported the status of work. The hub publishes a work
// before that, and so has seen it: when it sees such a work for the first time, the work was
// deleted, and came back from a backup.
func reported(work *workv1.ManifestWork) bool {
	return meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied) != nil
}
