package works

import (
	"slices"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// HasFinalizer reports whether work carries the hub's finalizer.
func HasFinalizer(work *workv1.ManifestWork) bool {
	return slices.Contains(work.Finalizers, workv1.ManifestWorkFinalizer)
}

// Visible reports whether work is to be shown to its cluster: when it carries
// the hub's finalizer; when it does not any more although its cluster has
// reported on it, as after somebody took the finalizer away; and when it can not
// be sent at all (addressable is false), so that it is told so and never waits
// for an agent. A work that is being deleted without the finalizer is done with.
func Visible(work *workv1.ManifestWork, addressable bool) bool {
	switch {
	case HasFinalizer(work):
		return true
	case work.DeletionTimestamp != nil:
		return false
	default:
		return len(work.Status.Conditions) > 0 || !addressable
	}
}

// NeedsFinalizer reports whether the hub has to put its finalizer on work.
func NeedsFinalizer(work *workv1.ManifestWork, addressable bool) bool {
	return addressable && work.DeletionTimestamp == nil && !HasFinalizer(work)
}
