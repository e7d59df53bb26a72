package apply

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
)

// RemovalOutcome is the result of one [plan.Removal].
type RemovalOutcome struct {
	// Step is the last step: Forget, DropOwner, Delete or Await.
	Step plan.RemovalStep
	// Gone reports that nothing is left to do. Otherwise the object still exists: it is being
	// deleted, or Err is set.
	Gone bool
	// Err is nil unless a request failed.
	Err error
}

// Remove removes objects as [plan.NextRemoval] decides, in parallel, and returns one outcome for
// each, in their order. Owner is the uid of the AppliedManifestWork whose objects they are. Objects
// are deleted in the background, guarded by uid and resourceVersion. A removal that is neither Gone
// nor failed must be passed to Remove again when its object changes, until it is Gone.
func (a *Applier) Remove(ctx context.Context, removals []plan.Removal, owner types.UID) []RemovalOutcome {
	outcomes := make([]RemovalOutcome, len(removals))
	var group sync.WaitGroup
	turns := make(chan struct{}, parallelPerCall)
	for i, removal := range removals {
		live := a.config.Cache.Get(removal.Ref)
		step := plan.NextRemoval(removal, live, false, owner)
		if step == plan.Forget || step == plan.Await {
			outcomes[i] = RemovalOutcome{Step: step, Gone: step == plan.Forget}
			continue
		}
		release, err := a.acquire(ctx, turns)
		if err != nil {
			outcomes[i] = RemovalOutcome{Step: step, Err: fmt.Errorf("remove %s: %w", removal.Ref, err)}
			continue
		}
		group.Go(func() {
			defer release()
			outcomes[i] = a.remove(ctx, removal, live, owner)
		})
	}
	group.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, removal := range removals {
		if outcomes[i].Gone {
			delete(a.normalized, normalizedKey{ref: removal.Ref, owner: owner})
		}
	}
	return outcomes
}

// remove carries out the steps of one removal.
func (a *Applier) remove(ctx context.Context, removal plan.Removal, live object.Live, owner types.UID) RemovalOutcome {
	r := &requests{rest: a.config.Client, ref: removal.Ref, manager: a.config.FieldManager}
	complete := false
	for attempt := 1; ; attempt++ {
		step := plan.NextRemoval(removal, live, complete, owner)
		gone := step != plan.Await
		var err error
		switch step {
		case plan.DropOwner:
			err = a.dropOwner(ctx, r, live, owner)
		case plan.Delete:
			gone, err = a.delete(ctx, r, live, attempt < maxAttempts)
		}
		switch {
		case apierrors.IsNotFound(err):
			a.learn(removal.Ref, nil)
			return RemovalOutcome{Step: plan.Forget, Gone: true}
		case step != plan.LookUp && err == nil:
			return RemovalOutcome{Step: step, Gone: gone}
		case err != nil && (!apierrors.IsConflict(err) || attempt >= maxAttempts):
			return RemovalOutcome{Step: step, Err: fmt.Errorf("remove %s: %w", removal.Ref, err)}
		}
		// The object is not known, or not as it was believed to be.
		if live, err = r.get(ctx); err != nil {
			return RemovalOutcome{Step: step, Err: fmt.Errorf("remove %s: read it: %w", removal.Ref, err)}
		}
		complete = true
		a.learn(removal.Ref, live.Object)
	}
}

// dropOwner removes the owner reference from the live object, and the agent's label if no other
// work owns it.
func (a *Applier) dropOwner(ctx context.Context, r *requests, live object.Live, owner types.UID) error {
	body := plan.ReleasePatch(live.Object, owner, a.config.AgentHash)
	if body == nil {
		return nil
	}
	answer, err := r.write(ctx, plan.PatchMetadata, body, false)
	if err == nil {
		a.learn(r.ref, answer)
	}
	return err
}

// delete deletes the live object. If guarded, it checks the resourceVersion, so that no other work
// has become an owner meanwhile. An object that changes too fast for that is deleted without the
// check.
func (a *Applier) delete(ctx context.Context, r *requests, live object.Live, guarded bool) (gone bool, err error) {
	resourceVersion := ""
	if guarded {
		resourceVersion = live.Object.GetResourceVersion()
	}
	left, err := r.delete(ctx, live.Object.GetUID(), resourceVersion, metav1.DeletePropagationBackground)
	if err != nil {
		return false, err
	}
	a.learn(r.ref, left)
	return left == nil, nil
}
