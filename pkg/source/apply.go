package source

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// errBeingDeleted: the work of the name must be gone first.
var errBeingDeleted = errors.New("a work of this name is being deleted")

// Apply creates a work, or changes the one of its namespace and name, and returns a copy of what is
// stored.
//
//   - The spec becomes that of work. Labels, annotations and finalizers of work are set, and owner
//     references by their UID. Those that work does not have are left alone, since they may be others';
//     remove them with Update or Patch.
//   - If that changes nothing, nothing is stored and published, and generation and resourceVersion stay.
//   - It is one step: a change by another writer comes before or after it, and neither is lost. A
//     resourceVersion in work must be that of the stored work; the error is Conflict otherwise. The status
//     of work is ignored.
//   - If the work of this name is being deleted, Apply waits until it is gone and creates the new one. It
//     returns a [WaitError] if ctx ends before, so call it with a deadline.
//
// Other errors are those of Create and Update.
func (c *Client) Apply(ctx context.Context, work *workv1.ManifestWork) (*workv1.ManifestWork, error) {
	if work == nil {
		return nil, errNoWork()
	}
	if work.Namespace == "" || work.Name == "" {
		return nil, apierrors.NewBadRequest("a work to apply needs a namespace, the name of its cluster, and a name")
	}
	for {
		if err := c.waitReady(ctx); err != nil {
			return nil, err
		}
		stored, err := c.applyOnce(ctx, work)
		if !errors.Is(err, errBeingDeleted) {
			return stored, err
		}
		if _, err := c.WaitFor(ctx, work.Namespace, work.Name, Deleted); err != nil {
			return nil, fmt.Errorf("apply: %w: %w", errBeingDeleted, err)
		}
	}
}

// applyOnce creates or changes a work, or returns errBeingDeleted.
func (c *Client) applyOnce(ctx context.Context, given *workv1.ManifestWork) (*workv1.ManifestWork, error) {
	given = given.DeepCopy() // the update may run after ctx has ended, when given is the caller's again
	var result *workv1.ManifestWork
	cause := trace.SpanContextFromContext(ctx)
	made, err := c.memory.update(ctx, func(v *view) (*change, error) {
		old, ok := v.get(c.uid(given.Namespace, given.Name))
		switch {
		case ok && old.work.DeletionTimestamp != nil:
			return nil, errBeingDeleted
		case ok:
			next, changed, err := c.replacement(old, mergeApplied(old.work, given))
			if result = next; err != nil || !changed {
				return nil, err
			}
			return &change{old: old, new: old.with(next), cause: cause}, nil
		case given.ResourceVersion != "":
			return nil, apierrors.NewConflict(worksResource, given.Name,
				fmt.Errorf("resourceVersion %s is required, and there is no such work", given.ResourceVersion))
		}
		next, err := c.newWork(given.Namespace, given)
		if err != nil {
			return nil, err
		}
		next.Generation = int64(v.floor) + 1
		return &change{new: &storedWork{work: next, firstGeneration: wire.Generation(next.Generation)}, cause: cause}, nil
	})
	if err != nil {
		return nil, err // the writer may still set result
	}
	return resultOf(made, result), nil
}

// mergeApplied returns old as given wants it; it shares memory with neither.
func mergeApplied(old, given *workv1.ManifestWork) *workv1.ManifestWork {
	wanted := &workv1.ManifestWork{ObjectMeta: *old.ObjectMeta.DeepCopy(), Spec: *given.Spec.DeepCopy()}
	if given.ResourceVersion != "" {
		wanted.ResourceVersion = given.ResourceVersion
	}
	if given.UID != "" {
		wanted.UID = given.UID
	}
	wanted.Labels = withEntries(wanted.Labels, given.Labels)
	wanted.Annotations = withEntries(wanted.Annotations, given.Annotations)
	for _, finalizer := range given.Finalizers {
		if !slices.Contains(wanted.Finalizers, finalizer) {
			wanted.Finalizers = append(wanted.Finalizers, finalizer)
		}
	}
	for _, owner := range given.DeepCopy().OwnerReferences {
		i := slices.IndexFunc(wanted.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == owner.UID })
		if i < 0 {
			wanted.OwnerReferences = append(wanted.OwnerReferences, owner)
		} else {
			wanted.OwnerReferences[i] = owner
		}
	}
	return wanted
}

// withEntries returns entries with those of more set. It may change entries.
func withEntries(entries, more map[string]string) map[string]string {
	if entries == nil && len(more) > 0 {
		entries = make(map[string]string, len(more))
	}
	maps.Copy(entries, more)
	return entries
}
