package strategy

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/object"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// task is one manifest being applied. One goroutine owns it.
type task struct {
	applier   *Applier
	m         *Manifest
	situation Situation
	force     bool
	contested bool // the object is read before it is repaired
	requests  requests
	refused   *unstructured.Unstructured // the body of an update that was refused
	refusal   error
}

// begin plans the first step of manifest i from memory.
func (a *Applier) begin(i int, m *Manifest, pass Pass) (*task, Step) {
	t := &task{
		applier: a,
		m:       m,
		force:   m.Force,
		situation: Situation{
			Owner:        pass.Owner,
			AgentHash:    a.config.AgentHash,
			FieldManager: a.config.FieldManager,
		},
	}
	t.requests = requests{rest: a.config.Client, ref: m.Ref, manager: t.situation.manager(m)}
	if m.Strategy == workv1.UpdateStrategyTypeReadOnly {
		return t, Step{}
	}
	t.situation.Live = a.live(i, m, pass)
	if pass.Previous != nil {
		t.situation.Previous = pass.Previous(m.Ref)
	}
	a.mu.Lock()
	t.situation.Settled = a.settled[t.key()]
	a.mu.Unlock()
	step := Plan(m, t.situation)
	t.contested = pass.Contested && repairs(step, m, t.situation)
	if t.contested {
		step = Step{Verb: Read}
	}
	return t, step
}

// repairs says whether a step undoes what others did to an object, rather than
// follow a change of the manifest.
func repairs(step Step, m *Manifest, s Situation) bool {
	return len(step.Differences) > 0 && s.Live.State == object.Present && s.Previous != nil && sameWrite(m, s.Previous)
}

func (t *task) key() settledKey {
	return settledKey{ref: t.m.Ref, owner: t.situation.Owner.UID}
}

// kept is the outcome when nothing is left to do.
func (t *task) kept() Outcome {
	if t.m.Strategy == workv1.UpdateStrategyTypeReadOnly {
		return Outcome{Action: Observed}
	}
	return Outcome{Action: Unchanged, Live: withoutManagedFields(t.situation.Live.Object), Requests: t.requests.count}
}

// run carries out steps until none is left.
func (t *task) run(ctx context.Context, step Step) Outcome {
	for writes := 0; ; {
		switch {
		case step.Err != nil:
			return t.failed(step.Err)
		case step.Verb == Keep:
			return t.kept()
		case step.Verb == Read:
			if err := t.read(ctx); err != nil {
				return t.failed(err)
			}
		default:
			writes++
			outcome, err := t.try(ctx, step, writes < maxAttempts)
			if err != nil {
				return t.failed(err)
			}
			if outcome != nil {
				return *outcome
			}
		}
		if step = Plan(t.m, t.situation); step.Verb == Read && t.situation.Complete {
			return t.failed(fmt.Errorf("apply %s: reading it changed nothing", t.m.Ref))
		}
		if t.refusal != nil && step.Err == nil && (step.Verb != Update || equalBodies(step.Object, t.refused)) {
			if err := t.giveUp(ctx, t.refusal); err != nil {
				return t.failed(err)
			}
			step = Plan(t.m, t.situation)
		}
	}
}

// try carries out a write. It gives neither an outcome nor an error if the next
// step is to be planned; not so the last time.
func (t *task) try(ctx context.Context, step Step, again bool) (*Outcome, error) {
	if step.Verb == Claim {
		answer, err := t.requests.claim(ctx, t.situation.Live.Object, claimable(t.m, t.situation))
		switch {
		case err == nil:
			if t.situation.Live.Object = answer; len(claimable(t.m, t.situation)) > 0 {
				return nil, fmt.Errorf("apply %s: the fields that the agent wrote before stay those of an update", t.m.Ref)
			}
			return nil, nil
		case !again:
			return nil, err
		default:
			return t.mend(ctx, step, err)
		}
	}
	answer, err := t.requests.write(ctx, step.Verb, step.Object, t.force)
	switch {
	case err == nil:
		outcome := t.written(ctx, step, answer)
		return &outcome, nil
	case !again:
		return nil, err
	default:
		return t.mend(ctx, step, err)
	}
}

// read takes over the whole object.
func (t *task) read(ctx context.Context) error {
	live, err := t.requests.get(ctx)
	if err != nil {
		return err
	}
	t.situation.Live, t.situation.Complete = live, true
	t.applier.config.Cache.Learn(t.m.Ref, withoutManagedFields(live.Object))
	return nil
}

// mend makes of a refused write what the next step can be planned from. It
// gives the error if nothing can be done about it.
func (t *task) mend(ctx context.Context, step Step, err error) (*Outcome, error) {
	switch {
	case isNoSuchResource(err):
		t.applier.config.NotServed(t.m.Ref.GroupVersion())
		return nil, err
	case step.Verb == Create && apierrors.IsAlreadyExists(err),
		step.Verb != Create && step.Verb != Apply && (apierrors.IsConflict(err) || apierrors.IsNotFound(err)):
		return nil, t.read(ctx)
	case step.Verb == Update && apierrors.IsInvalid(err) && t.refusal == nil:
		return t.refuse(ctx, step, err)
	case step.Verb == Update && apierrors.IsInvalid(err):
		return nil, t.giveUp(ctx, err)
	case step.Verb == Apply && !t.force && isConflictWith(err, append(t.situation.managers(t.m), t.situation.FieldManager)):
		return nil, t.yield(ctx, err)
	case step.Verb == Apply && step.Object.GetUID() != "" && t.m.Desired.GetResourceVersion() == "" && apierrors.IsConflict(err):
		return nil, t.renew(ctx, step, err)
	default:
		return nil, err
	}
}

// yield is for an apply that conflicts with what was written under names that we
// use: under another strategy, or for another work. That one keeps its fields.
func (t *task) yield(ctx context.Context, conflict error) error {
	if err := t.read(ctx); err != nil {
		return err
	}
	switch {
	case t.situation.Live.State != object.Present, len(claimable(t.m, t.situation)) > 0 && !shared(t.situation.Live.Object, t.situation.Owner):
		return nil // to be planned anew
	case shared(t.situation.Live.Object, t.situation.Owner), !isConflictWith(conflict, t.situation.managers(t.m)):
		return conflict
	default:
		t.force = true
		return nil
	}
}

// renew is for an apply that was made for the object as it was read, and conflicts.
// Without an error it is to be planned anew, for the object as it is.
func (t *task) renew(ctx context.Context, step Step, conflict error) error {
	if err := t.read(ctx); err != nil {
		return err
	}
	live := t.situation.Live
	if live.State == object.Present && live.Object.GetUID() == step.Object.GetUID() &&
		live.Object.GetResourceVersion() == step.Object.GetResourceVersion() {
		return conflict
	}
	return nil
}

// giveUp is for an update that the API server refuses whatever is done about it.
// Without an error it is to be planned anew.
func (t *task) giveUp(ctx context.Context, refusal error) error {
	if !t.m.recreate || !isImmutable(refusal) {
		return refusal
	}
	t.refused, t.refusal, t.situation.Refused = nil, nil, false
	return t.recreate(ctx, refusal)
}

// refuse handles an update that the API server finds invalid.
func (t *task) refuse(ctx context.Context, step Step, err error) (*Outcome, error) {
	if !t.situation.Complete {
		if readErr := t.read(ctx); readErr != nil {
			return nil, readErr
		}
	}
	live := t.situation.Live
	if isImmutable(err) && live.State == object.Present && live.Object.GetAnnotations()[object.HashAnnotation] == t.m.Hash {
		// This very manifest was applied, and nobody can have changed such fields
		// since: the API server made them so.
		t.remember(settle(t.m, live.Object))
		outcome := t.kept()
		return &outcome, nil
	}
	t.refused, t.refusal, t.situation.Refused = step.Object, err, true
	return nil, nil // to be planned anew
}

// written is the outcome of a write that succeeded.
func (t *task) written(ctx context.Context, step Step, answer *unstructured.Unstructured) Outcome {
	if t.m.Strategy != workv1.UpdateStrategyTypeCreateOnly && t.m.ignore == nil {
		t.remember(settle(t.m, answer))
	}
	action := Created
	if step.Verb == Update || step.Verb == Mark || step.Verb == Apply && t.situation.Live.State == object.Present {
		action = Updated
	}
	var rivals []string
	if t.contested && action == Updated {
		rivals = Rivals(t.situation.Live.Object, step.Differences, t.situation.manager(t.m))
	}
	if step.Verb == Apply && !t.m.Owned {
		// Apply leaves a reference that was set under another strategy.
		if refs, ours := withOwner(answer.GetOwnerReferences(), t.situation.Owner, false); ours {
			without, err := t.requests.write(ctx, Mark, markBody(answer, refs, t.situation.AgentHash), false)
			if err != nil {
				return t.failed(err)
			}
			answer = without
		}
	}
	live := withoutManagedFields(answer)
	t.applier.config.Cache.Learn(t.m.Ref, live)
	return Outcome{Action: action, Live: live, Differences: step.Differences, Rivals: rivals, Requests: t.requests.count}
}

func (t *task) failed(err error) Outcome {
	outcome := Outcome{Err: err, Requests: t.requests.count}
	if t.situation.Live.State == object.Present {
		outcome.Live = withoutManagedFields(t.situation.Live.Object)
	}
	return outcome
}

func (t *task) remember(settled *Settled) {
	t.applier.mu.Lock()
	defer t.applier.mu.Unlock()
	if settled == nil {
		delete(t.applier.settled, t.key())
		return
	}
	t.applier.settled[t.key()] = settled
}
