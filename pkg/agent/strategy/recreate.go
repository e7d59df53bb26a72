package strategy

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/object"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// mayRecreate reads the annotation of a manifest that allows to delete its object
// and to create it anew.
func mayRecreate(desired *unstructured.Unstructured) (bool, error) {
	value, ok := desired.GetAnnotations()[workv1.RecreateAnnotationKey]
	if ok && value != workv1.RecreateOnImmutable {
		return false, fmt.Errorf("annotation %s is %q: it must be %s, or absent", workv1.RecreateAnnotationKey, value, workv1.RecreateOnImmutable)
	}
	return ok, nil
}

// recreate deletes the object, which has just been read, because the API server
// refuses the update: its fields are immutable. It gives an error if there is
// nothing more to be done now; otherwise the object is gone, or not as it was read,
// and is to be planned anew.
func (t *task) recreate(ctx context.Context, refusal error) error {
	live := t.situation.Live.Object
	switch {
	case shared(live, t.situation.Owner):
		return fmt.Errorf("%w; the object is another work's too, so it is not created anew", refusal)
	case live.GetDeletionTimestamp() != nil:
		return awaiting(t.m, live)
	}
	// The object is not given up for a manifest that makes none. The API server
	// looks for an object of that name after all else.
	anew := t.situation
	anew.Live, anew.Complete = object.Live{State: object.Absent}, true
	if err := t.requests.tryCreate(ctx, planCreate(t.m, anew).Object); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("%w; nor can the object be created anew: %w", refusal, err)
	}
	left, err := t.requests.delete(ctx, live.GetUID(), live.GetResourceVersion())
	switch {
	case apierrors.IsConflict(err):
		return t.read(ctx)
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("%w; deleting the object to create it anew: %w", refusal, err)
	}
	t.applier.config.Cache.Learn(t.m.Ref, withoutManagedFields(left))
	if left != nil {
		t.situation.Live.Object = left
		return awaiting(t.m, left)
	}
	t.situation = anew
	return nil
}

// awaiting says what an object that is to be created anew waits for.
func awaiting(m *Manifest, live *unstructured.Unstructured) error {
	holder := "is ending gracefully"
	if at := live.GetDeletionTimestamp(); at != nil {
		holder += ", by " + at.UTC().Format(time.RFC3339)
	}
	if finalizers := live.GetFinalizers(); len(finalizers) > 0 {
		holder = "is held by its finalizers " + strings.Join(finalizers, ", ")
	}
	return fmt.Errorf("%s is being deleted, to be created anew for a change of immutable fields, but %s", m.Ref, holder)
}
