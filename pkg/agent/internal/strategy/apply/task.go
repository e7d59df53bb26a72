package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/ownership"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/redaction"
)

// task is one manifest being applied. One goroutine owns it.
type task struct {
	applier         *Applier
	m               *strategy.Manifest
	state           plan.State
	detectConflicts bool // the object is read before it is repaired
	requests        requests
}

// begin plans the first step of manifest i from memory.
func (a *Applier) begin(i int, m *strategy.Manifest, options Options) (*task, plan.Step) {
	t := &task{
		applier: a,
		m:       m,
		state: plan.State{
			Owner:     options.Owner,
			AgentHash: a.config.AgentHash,
			Force:     m.Force,
		},
	}
	t.requests = requests{rest: a.config.Client, ref: m.Ref, manager: m.Manager()}
	if m.Strategy == workv1.UpdateStrategyTypeReadOnly {
		return t, plan.Step{}
	}
	t.state.Live = a.live(i, m, options)
	if options.Previous != nil {
		t.state.Previous = options.Previous(m.Ref)
	}
	if options.FieldsDigest != nil {
		t.state.FieldsDigest = options.FieldsDigest(m.Ref)
	}
	a.mu.Lock()
	t.state.Normalized = a.normalized[t.key()]
	a.mu.Unlock()
	step := plan.Next(m, t.state)
	t.detectConflicts = options.DetectConflicts && plan.IsRepair(step, m, t.state)
	if t.detectConflicts {
		step = plan.Step{Verb: plan.Read}
	}
	return t, step
}

func (t *task) key() normalizedKey {
	return normalizedKey{ref: t.m.Ref, owner: t.state.Owner.UID}
}

// kept is the outcome if there is nothing to do.
func (t *task) kept() Outcome {
	if t.m.Strategy == workv1.UpdateStrategyTypeReadOnly {
		return Outcome{Action: Observed}
	}
	return Outcome{Action: Unchanged, Live: withoutManagedFields(t.state.Live.Object),
		FieldsDigest: plan.KeptDigest(t.m, t.state), Requests: t.requests.count}
}

func (t *task) failed(err error) Outcome {
	outcome := Outcome{Err: redaction.WithoutValues(err, t.isSecret()), Requests: t.requests.count}
	if t.state.Live.State == object.Present {
		outcome.Live = withoutManagedFields(t.state.Live.Object)
	}
	return outcome
}

// run carries out steps until none is left.
func (t *task) run(ctx context.Context, step plan.Step) Outcome {
	for writes := 0; ; {
		var outcome *Outcome
		err := step.Err
		switch {
		case err != nil:
		case step.Verb == plan.Keep:
			return t.kept()
		case step.Verb == plan.Read:
			err = t.read(ctx)
		case step.Verb == plan.Recreate:
			err = t.recreate(ctx, step.Object)
		default:
			writes++
			outcome, err = t.write(ctx, step, writes < maxAttempts)
		}
		switch {
		case err != nil:
			return t.failed(err)
		case outcome != nil:
			return *outcome
		}
		if step = plan.Next(t.m, t.state); step.Verb == plan.Read && t.state.Complete {
			return t.failed(fmt.Errorf("apply %s: read again without need", t.m.Ref))
		}
	}
}

// read reads the whole object.
func (t *task) read(ctx context.Context) error {
	live, err := t.requests.get(ctx)
	if err != nil {
		return err
	}
	t.state.Live, t.state.Complete = live, true
	t.applier.learn(t.m.Ref, live.Object)
	return nil
}

// write carries out a write. It returns neither an outcome nor an error if the next step has to be
// planned. Without retry, a failed write is an error.
func (t *task) write(ctx context.Context, step plan.Step, retry bool) (*Outcome, error) {
	if step.Verb == plan.MigrateManagedFields {
		answer, err := t.requests.migrateManagedFields(ctx, t.state.Live.Object, plan.ManagersToMigrate(t.m, t.state))
		if err != nil {
			return t.recover(ctx, step, err, retry)
		}
		if t.state.Live.Object = answer; len(plan.ManagersToMigrate(t.m, t.state)) > 0 {
			return nil, fmt.Errorf("apply %s: the API server has not migrated the agent's managedFields to server-side apply", t.m.Ref)
		}
		return nil, nil
	}
	answer, err := t.requests.write(ctx, step.Verb, step.Object, t.state.Force)
	if err != nil {
		return t.recover(ctx, step, err, retry)
	}
	outcome := t.written(ctx, step, answer)
	return &outcome, nil
}

// recover handles a failed write. It returns the error if nothing can be done about it.
func (t *task) recover(ctx context.Context, step plan.Step, err error, retry bool) (*Outcome, error) {
	if object.IsNotServed(err) {
		t.applier.config.NotServed(t.m.Ref.GroupVersion())
	}
	if !retry {
		return nil, err
	}
	failure := plan.Failure{Step: step, Err: err}
	for {
		var recovery plan.Recovery
		switch t.state, recovery = plan.Recover(t.m, t.state, failure); recovery {
		case plan.Reread:
			if err := t.read(ctx); err != nil {
				return nil, err
			}
			failure.Reread = true
		case plan.Replan:
			return nil, nil
		case plan.Accept:
			t.remember(plan.Normalize(t.m, t.state.Live.Object))
			outcome := t.kept()
			return &outcome, nil
		default:
			return nil, err
		}
	}
}

// recreate deletes the object, because the API server refuses to update it, or because it is the Job of a hook's former run. It
// returns nil if the next step has to be planned.
func (t *task) recreate(ctx context.Context, replacement *unstructured.Unstructured) error {
	live, propagation := t.state.Live.Object, metav1.DeletePropagationBackground
	refusal := error(&plan.FormerRunError{Job: t.m.Ref})
	if t.state.Refused != nil {
		refusal = t.state.Refused.Err
	} else if state, _ := plan.StateOfJob(live); state == plan.JobRunning {
		propagation = metav1.DeletePropagationForeground // two runs of a hook do not overlap
	}
	t.state.Refused = nil
	// The object is not deleted for a manifest that the API server would refuse to create. It
	// checks whether the name exists after everything else.
	if err := t.requests.tryCreate(ctx, replacement); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("%w; nor can the object be recreated: %w", refusal, err)
	}
	left, err := t.requests.delete(ctx, live.GetUID(), live.GetResourceVersion(), propagation)
	switch {
	case apierrors.IsConflict(err):
		return t.read(ctx)
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("%w; deleting the object to recreate it: %w", refusal, err)
	}
	t.applier.learn(t.m.Ref, left)
	if left != nil {
		t.state.Live.Object = left
		if t.m.Hook != "" {
			return refusal
		}
		return plan.AwaitingDeletion(t.m, left)
	}
	t.state.Live = object.Live{State: object.Absent}
	return nil
}

// written is the outcome of a write that succeeded.
func (t *task) written(ctx context.Context, step plan.Step, answer *unstructured.Unstructured) Outcome {
	if t.m.Strategy != workv1.UpdateStrategyTypeCreateOnly && t.m.Ignored == nil {
		t.remember(plan.Normalize(t.m, answer))
	}
	outcome := Outcome{Action: Updated, Differences: step.Differences, Blind: step.Verb == plan.Apply && t.state.Live.State == object.Unknown}
	if step.Verb == plan.Create || step.Verb == plan.Apply && t.state.Live.State != object.Present {
		outcome.Action = Created
	}
	if t.detectConflicts && outcome.Action == Updated {
		outcome.ConflictingManagers = ownership.ConflictingManagers(t.state.Live.Object, step.Differences, t.m.Manager())
	}
	if step.Verb == plan.Apply {
		if after := plan.AfterApply(t.m, t.state, answer); after.Verb != plan.Keep {
			var err error
			if answer, err = t.requests.write(ctx, after.Verb, after.Object, false); err != nil {
				return t.failed(err)
			}
		}
	}
	outcome.Live, outcome.Requests = t.applier.learn(t.m.Ref, answer), t.requests.count
	outcome.FieldsDigest = plan.FieldsDigest(t.m, answer)
	outcome.Validated = step.Verb != plan.PatchMetadata
	outcome.Warnings = t.warnings()
	return outcome
}

// warnings returns what the API server warned of. Of warnings about a Secret, whose texts may come
// from anybody's webhook, it returns those about fields.
func (t *task) warnings() []string {
	if !t.isSecret() {
		return t.requests.warnings
	}
	return slices.DeleteFunc(slices.Clone(t.requests.warnings), func(text string) bool {
		return !strings.HasPrefix(text, "unknown field ") && !strings.HasPrefix(text, "duplicate field ")
	})
}

func (t *task) isSecret() bool { return t.m.Ref.Resource == "secrets" && t.m.Ref.Group == "" }

// remember keeps the normalized fields of the object for later calls; nil deletes them.
func (t *task) remember(normalized *plan.NormalizedFields) {
	t.applier.mu.Lock()
	defer t.applier.mu.Unlock()
	if normalized == nil {
		delete(t.applier.normalized, t.key())
		return
	}
	t.applier.normalized[t.key()] = normalized
}
