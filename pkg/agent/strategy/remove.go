package strategy

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/object"
)

// Entry is an object that has to go.
type Entry struct {
	Ref object.Ref
	// UID that was recorded when the object was applied. Empty: not known, so that
	// any object of that name which refers to the owner is meant.
	UID types.UID
	// Orphan keeps the object: only the reference to the owner is taken off it, and
	// with the last reference to a work the agent's label.
	Orphan bool
}

// Removal is what is to be done, or was done, about an [Entry].
type Removal int

const (
	// LookUp the object: what is known does not say enough.
	LookUp Removal = iota
	// Forget it: it is gone, or it is not ours to delete.
	Forget
	// DropOwner takes our owner reference off an object that stays: another work's
	// too, or an orphan.
	DropOwner
	// Delete it.
	Delete
	// Await its end: it is being deleted.
	Await
)

var removalNames = [...]string{"LookUp", "Forget", "DropOwner", "Delete", "Await"}

// String gives the removal's name.
func (r Removal) String() string {
	if r < 0 || int(r) >= len(removalNames) {
		return "?"
	}
	return removalNames[r]
}

// DecideRemoval says what to do about an object, given what is known of it.
// Complete says that live was just read, so that Absent means gone. Owner is the
// uid of the AppliedManifestWork.
func DecideRemoval(entry Entry, live object.Live, complete bool, owner types.UID) Removal {
	if live.State != object.Present {
		if complete && live.State == object.Absent {
			return Forget
		}
		return LookUp
	}
	var ours, others bool
	for _, ref := range live.Object.GetOwnerReferences() {
		switch {
		case ref.UID == owner:
			ours = true
		case isApplied(ref):
			others = true
		}
	}
	_, labelled := live.Object.GetLabels()[object.AgentLabel]
	switch {
	case entry.Orphan && (ours || labelled && !others):
		return DropOwner
	case !ours:
		return Forget
	case others:
		return DropOwner
	case entry.UID != "" && entry.UID != live.Object.GetUID():
		return Forget
	case live.Object.GetDeletionTimestamp() != nil:
		return Await
	default:
		return Delete
	}
}

// RemoveOutcome is what became of one [Entry].
type RemoveOutcome struct {
	// Done is the last thing done: Forget, DropOwner, Delete or Await.
	Done Removal
	// Gone says that nothing is left to do. Otherwise the object still exists: it is
	// being deleted, or Err says what failed.
	Gone bool
	// Err is nil unless a request failed.
	Err error
	// Requests is the number of requests made.
	Requests int
}

// Remove removes objects as [DecideRemoval] says, in parallel, and returns one
// outcome for each, in their order. Owner is the uid of the AppliedManifestWork
// whose objects they are. Deletion is in the background and guarded by uid and
// resourceVersion. What Remove gives as neither Gone nor failed has to be given
// to it again when it has changed, until it is gone.
func (a *Applier) Remove(ctx context.Context, entries []Entry, owner types.UID) []RemoveOutcome {
	outcomes := make([]RemoveOutcome, len(entries))
	var group sync.WaitGroup
	for i, entry := range entries {
		live := a.config.Cache.Get(entry.Ref)
		next := DecideRemoval(entry, live, false, owner)
		switch next {
		case Forget:
			outcomes[i] = RemoveOutcome{Done: next, Gone: true}
			continue
		case Await:
			outcomes[i] = RemoveOutcome{Done: next}
			continue
		}
		release, err := a.acquire(ctx)
		if err != nil {
			outcomes[i] = RemoveOutcome{Done: next, Err: fmt.Errorf("remove %s: %w", entry.Ref, err)}
			continue
		}
		group.Go(func() {
			defer release()
			outcomes[i] = a.remove(ctx, entry, live, owner)
		})
	}
	group.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, entry := range entries {
		if outcomes[i].Gone {
			delete(a.settled, settledKey{ref: entry.Ref, owner: owner})
		}
	}
	return outcomes
}

// remove does what is decided about one object until that is done.
func (a *Applier) remove(ctx context.Context, entry Entry, live object.Live, owner types.UID) RemoveOutcome {
	r := &requests{rest: a.config.Client, ref: entry.Ref, manager: a.config.FieldManager}
	complete := false
	for attempt := 1; ; attempt++ {
		next := DecideRemoval(entry, live, complete, owner)
		outcome := RemoveOutcome{Done: next, Gone: true}
		var err error
		switch next {
		case LookUp:
		case Forget:
		case Await:
			outcome.Gone = false
		case DropOwner:
			err = a.dropOwner(ctx, r, live, owner)
		case Delete:
			outcome.Gone, err = a.delete(ctx, r, live, attempt < maxAttempts)
		}
		outcome.Requests = r.count
		switch {
		case apierrors.IsNotFound(err):
			a.config.Cache.Learn(entry.Ref, nil)
			return RemoveOutcome{Done: Forget, Gone: true, Requests: r.count}
		case next != LookUp && err == nil:
			return outcome
		case err != nil && (!apierrors.IsConflict(err) || attempt >= maxAttempts):
			outcome.Gone, outcome.Err = false, fmt.Errorf("remove %s: %w", entry.Ref, err)
			return outcome
		}
		// Not known, or not as it was believed to be.
		if live, err = r.get(ctx); err != nil {
			return RemoveOutcome{Done: next, Err: fmt.Errorf("remove %s: read it: %w", entry.Ref, err), Requests: r.count}
		}
		complete = true
		a.config.Cache.Learn(entry.Ref, withoutManagedFields(live.Object))
	}
}

// dropOwner takes the owner reference off the object that live is, and the label
// by which we watch it where no work is left that it belongs to.
func (a *Applier) dropOwner(ctx context.Context, r *requests, live object.Live, owner types.UID) error {
	var kept []metav1.OwnerReference
	shared := false
	for _, ref := range live.Object.GetOwnerReferences() {
		if ref.UID != owner {
			kept = append(kept, ref)
			shared = shared || isApplied(ref)
		}
	}
	label := live.Object.GetLabels()[object.AgentLabel]
	body := markBody(live.Object, kept, nil)
	if shared || label != a.config.AgentHash {
		if len(kept) == len(live.Object.GetOwnerReferences()) {
			return nil // labelled by another agent, and not ours
		}
		unstructured.RemoveNestedField(body.Object, "metadata", "labels")
	}
	answer, err := r.write(ctx, Mark, body, false)
	if err == nil {
		a.config.Cache.Learn(r.ref, withoutManagedFields(answer))
	}
	return err
}

// delete deletes the object that live is. The guard by resourceVersion sees to it
// that no other work has taken a share in it meanwhile; it is left off where the
// object changes too fast for that.
func (a *Applier) delete(ctx context.Context, r *requests, live object.Live, guarded bool) (gone bool, err error) {
	resourceVersion := ""
	if guarded {
		resourceVersion = live.Object.GetResourceVersion()
	}
	left, err := r.delete(ctx, live.Object.GetUID(), resourceVersion)
	if err != nil {
		return false, err
	}
	a.config.Cache.Learn(r.ref, withoutManagedFields(left))
	return left == nil, nil
}
