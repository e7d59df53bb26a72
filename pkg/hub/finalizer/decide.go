package finalizer

import (
	"bytes"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
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
	// restored: the API server went back in time (a backup was restored): the spec of changed is
	// not the one that had its generation, or the generation is lower than before.
	restored bool
	// finalizer is whether the work needs the hub's finalizer.
	finalizer bool
}

// decide plans for a work that changed from before to after: before is nil for a new work, after
// for one that was removed. They may be two different works of one name.
func decide(before, after *workv1.ManifestWork, addressable bool) step {
	var s step
	visible := after != nil && works.Visible(after, addressable)
	if before != nil && works.Visible(before, addressable) && (!visible || after.UID != before.UID) {
		s.removed = before
	}
	if visible {
		s.changed = after.UID
		s.restored = before != nil && before.UID == after.UID &&
			(after.Generation < before.Generation || after.Generation == before.Generation && !equalSpecs(&before.Spec, &after.Spec))
	}
	s.finalizer = after != nil && works.NeedsFinalizer(after, addressable)
	return s
}

// equalSpecs compares manifests byte by byte: an API server that changes them changes the
// generation.
func equalSpecs(a, b *workv1.ManifestWorkSpec) bool {
	return slices.EqualFunc(a.Workload.Manifests, b.Workload.Manifests, func(a, b workv1.Manifest) bool { return bytes.Equal(a.Raw, b.Raw) }) &&
		apiequality.Semantic.DeepEqual(a.DeleteOption, b.DeleteOption) &&
		apiequality.Semantic.DeepEqual(a.ManifestConfigs, b.ManifestConfigs) && apiequality.Semantic.DeepEqual(a.Executor, b.Executor)
}
