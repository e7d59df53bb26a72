package apply

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/order"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// RemovalOutcome is the result of one [plan.Removal].
type RemovalOutcome struct {
	// Step is the last step: Forget, DropOwner, Delete, Await or Hold; LookUp if the object could not be read.
	Step plan.RemovalStep
	// Gone reports that nothing is left to do. Otherwise the object still exists: it is being
	// deleted, it is held, or Err is set.
	Gone bool
	// Err is nil unless a request failed.
	Err error
}

// Remove removes objects of a work as [plan.NextRemoval] and [plan.HoldRemovals] decide, those of one place in parallel, and returns
// one outcome for each, in their order. Owner is the uid of the AppliedManifestWork whose objects they are, ordered reports
// whether it has an order. Objects are deleted in the background, guarded by uid and resourceVersion. Removals must be passed to
// Remove again when an object changes or a failure is to be tried again, until all are Gone.
func (a *Applier) Remove(ctx context.Context, removals []plan.Removal, ordered bool, owner types.UID) []RemovalOutcome {
	n := len(removals)
	r := &removing{Applier: a, removals: removals, owner: owner, turns: make(chan struct{}, parallelPerCall),
		lives: make([]object.Live, n), steps: make([]plan.RemovalStep, n), places: make([]*order.Item, n), outcomes: make([]RemovalOutcome, n)}
	for i := range removals {
		r.found(i, a.config.Cache.Get(removals[i].Ref), false)
	}
	r.each(ctx, func(i int) bool { return r.steps[i] == plan.LookUp }, r.lookUp)
	var next []plan.RemovalStep
	for again := true; again; {
		next = plan.HoldRemovals(removals, r.steps, r.places, ordered)
		again = r.each(ctx, func(i int) bool { return next[i] == plan.Delete || next[i] == plan.DropOwner }, r.remove)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, removal := range removals {
		if r.outcomes[i].Step == "" {
			r.outcomes[i] = RemovalOutcome{Step: next[i], Gone: next[i] == plan.Forget}
		}
		if r.outcomes[i].Gone {
			delete(a.normalized, normalizedKey{ref: removal.Ref, owner: owner})
		}
	}
	return r.outcomes
}

// removing is one call of Remove, with what is known of each object.
type removing struct {
	*Applier
	removals []plan.Removal
	owner    types.UID
	turns    chan struct{}
	lives    []object.Live
	steps    []plan.RemovalStep
	places   []*order.Item    // nil: not known
	outcomes []RemovalOutcome // without a Step: not tried yet
}

// found notes what is known of object i.
func (r *removing) found(i int, live object.Live, complete bool) {
	r.lives[i], r.steps[i] = live, plan.NextRemoval(r.removals[i], live, complete, r.owner)
	if live.Object != nil {
		r.places[i] = new(strategy.PlaceOf(live.Object))
	}
}

// each does something for those of the objects not tried yet that are due, in parallel, and reports whether there are any.
func (r *removing) each(ctx context.Context, due func(int) bool, do func(context.Context, *requests, int)) (found bool) {
	var group sync.WaitGroup
	defer group.Wait()
	for i, removal := range r.removals {
		if removal.Later || r.outcomes[i].Step != "" || !due(i) {
			continue
		}
		found = true
		release, err := r.acquire(ctx, r.turns)
		if err != nil {
			r.outcomes[i] = RemovalOutcome{Step: r.steps[i], Err: fmt.Errorf("remove %s: %w", removal.Ref, err)}
			continue
		}
		group.Go(func() {
			defer release()
			do(ctx, &requests{rest: r.config.Client, ref: removal.Ref, manager: workv1.DefaultFieldManager}, i)
		})
	}
	return found
}

// lookUp reads object i.
func (r *removing) lookUp(ctx context.Context, requests *requests, i int) {
	live, err := requests.get(ctx)
	if err != nil {
		r.outcomes[i] = RemovalOutcome{Step: plan.LookUp, Err: fmt.Errorf("remove %s: read it: %w", requests.ref, err)}
		return
	}
	r.learnLeft(requests.ref, live.Object)
	r.found(i, live, true)
}

// remove carries out the steps for object i, which is known.
func (r *removing) remove(ctx context.Context, requests *requests, i int) {
	for attempt := 1; r.outcomes[i].Step == ""; attempt++ {
		step, gone := r.steps[i], r.steps[i] != plan.Await
		var err error
		switch step {
		case plan.DropOwner:
			err = r.dropOwner(ctx, requests, r.lives[i], r.owner)
		case plan.Delete:
			gone, err = r.delete(ctx, requests, r.lives[i], attempt < maxAttempts)
		}
		if apierrors.IsNotFound(err) {
			r.learn(requests.ref, nil)
			step, gone, err = plan.Forget, true, nil
		}
		switch {
		case err == nil:
			r.outcomes[i] = RemovalOutcome{Step: step, Gone: gone}
		case apierrors.IsConflict(err) && attempt < maxAttempts: // it is not as it was believed to be
			r.lookUp(ctx, requests, i)
		default:
			r.outcomes[i] = RemovalOutcome{Step: step, Err: fmt.Errorf("remove %s: %w", requests.ref, err)}
		}
	}
	if r.outcomes[i].Gone {
		r.steps[i] = plan.Forget
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
	a.learnLeft(r.ref, left)
	return left == nil, nil
}

// learnLeft stores an object that is being removed, unless it has lost the agent's label: its watch would not tell when it is gone.
func (a *Applier) learnLeft(ref object.Ref, left *unstructured.Unstructured) {
	if left != nil && left.GetLabels()[object.AgentLabel] != a.config.AgentHash {
		left = nil
	}
	a.learn(ref, left)
}
