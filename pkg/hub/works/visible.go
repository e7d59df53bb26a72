package works

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// HasFinalizer reports whether work carries the hub's finalizer.
func HasFinalizer(work *workv1.ManifestWork) bool {
	return slices.Contains(work.Finalizers, workv1.ManifestWorkFinalizer)
}

// Visible reports whether work is delivered to its cluster. It is if it carries the hub's
// finalizer; if it no longer does but its cluster has reported on it, as after somebody removed the
// finalizer; and if nothing can be sent to its cluster (addressable is false), so that its status
// says so. A work that is being deleted without the finalizer is not visible.
func Visible(work *workv1.ManifestWork, addressable bool) bool {
	switch {
	case HasFinalizer(work):
		return true
	case work.DeletionTimestamp != nil:
		return false
	default:
		return slices.ContainsFunc(work.Status.Conditions, func(c metav1.Condition) bool { return c.Type != workv1.WorkDelivered }) || !addressable
	}
}

// NeedsFinalizer reports whether the hub must add its finalizer to work.
func NeedsFinalizer(work *workv1.ManifestWork, addressable bool) bool {
	return addressable && work.DeletionTimestamp == nil && !HasFinalizer(work)
}
