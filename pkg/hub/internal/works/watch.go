package works

import (
	"cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/wire"
)

// workEdited handles a watch event: before is nil for a new work, after for one that was removed.
func (c *Controller) workEdited(before, after *workv1.ManifestWork) {
	latest := cmp.Or(after, before)
	cluster := wire.ClusterName(latest.Namespace)
	e := editOf(before, after, c.cfg.Addressable(cluster), !c.finalizers.HasSynced())
	if e.byHand {
		c.statuses.GiveWay()
	}
	switch {
	case e.removed != nil:
		c.engine.WorkRemoved(e.removed)
	case e.lost != nil:
		c.engine.WorkLost(e.lost)
	case e.forgotten != nil:
		c.engine.WorkForgotten(e.forgotten)
	}
	if e.statuses {
		c.engine.StatusesLost(cluster)
	}
	switch {
	case e.restored:
		c.engine.WorkRestored(after)
	case e.changed != "":
		c.engine.WorkChanged(e.changed)
	}
	if e.finalizer && c.cfg.Accepted(cluster) {
		c.finalizers.Add(controller.KeyOf(latest))
	}
}

// edit is what a watch event means, in the order in which it is acted on.
type edit struct {
	// removed is the work that the engine must be told is gone; nil for none.
	removed *workv1.ManifestWork
	// lost is a work that is gone although nobody was seen deleting it, nil for none: while the
	// hub's finalizer is there, only a backup that was restored, or somebody who writes to the store
	// past the API server, removes a work like that.
	lost *workv1.ManifestWork
	// forgotten is the work that somebody has marked as forgotten; nil for none.
	forgotten *workv1.ManifestWork
	// changed is the UID of the work that the engine must look at; empty for none.
	changed types.UID
	// restored: the API server went back in time (a backup was restored): the spec is not the one that had its
	// generation, or the generation is lower than before. The work may be from before the hub's finalizer, and changed empty.
	restored bool
	// statuses: the status may be an older one, as after the restore of a backup.
	statuses bool
	// finalizer is whether the work needs the hub's finalizer.
	finalizer bool
	// byHand: somebody has declared something else with the work, which is of no replica set, or deletes it.
	byHand bool
}

// editOf returns what it means that a work changed from before to after: before is nil for a new work, after
// for one that was removed. They may be two different works of one name. found: the work was there
// when the hub started, so that before says nothing.
func editOf(before, after *workv1.ManifestWork, addressable, found bool) edit {
	e := edit{finalizer: after != nil && needsFinalizer(after, addressable)}
	visible := after != nil && isVisible(after, addressable)
	same := before != nil && after != nil && before.UID == after.UID
	if before != nil && isVisible(before, addressable) && (!visible || !same) {
		switch {
		case same && workv1.IsForgotten(after):
			e.forgotten = before
		case same && e.finalizer: // somebody took the finalizer away: it is put back
			e.restored = goneBack(before, after)
		case !same && before.DeletionTimestamp == nil && HasFinalizer(before):
			e.lost = before
		default:
			e.removed = before
		}
	}
	if visible {
		e.changed = after.UID
		e.restored = same && goneBack(before, after) || !same && !found && reported(after)
		e.statuses = same && controller.Newer(before, after)
	}
	e.byHand = !found && !e.restored && after != nil && after.Labels[workv1.ReplicaSetLabelKey] == "" &&
		(!same || before.Generation != after.Generation || !before.DeletionTimestamp.Equal(after.DeletionTimestamp))
	return e
}

// goneBack reports whether after cannot come after before.
func goneBack(before, after *workv1.ManifestWork) bool {
	return after.Generation < before.Generation || after.Generation == before.Generation && !equalSpecs(before, after)
}

// reported reports whether an agent has reported the status of work. The hub publishes a work
// before that, and so has seen it: when it sees such a work for the first time, the work was
// deleted, and came back from a backup.
func reported(work *workv1.ManifestWork) bool {
	return meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied) != nil
}
