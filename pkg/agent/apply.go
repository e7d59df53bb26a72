package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/applied"
	"github.com/workwire/workwire/pkg/agent/condition"
	"github.com/workwire/workwire/pkg/agent/conditionrules"
	"github.com/workwire/workwire/pkg/agent/inbox"
	"github.com/workwire/workwire/pkg/agent/object"
	"github.com/workwire/workwire/pkg/agent/strategy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// under is a work being applied: what one pass knows of it. The worker that does
// the pass owns it.
type under struct {
	logger    *slog.Logger
	name      string // of the record
	entry     *inbox.Entry
	memory    *memory
	changed   bool                      // the spec is another than at the last pass
	previous  workv1.ManifestWorkStatus // as reported last, or as the record has it
	manifests []strategy.Manifest
	earlier   *earlier
	sights    []sight
	complete  completion
	resting   bool // repairs are held back
	outcomes  []strategy.Outcome
	record    *workv1.AppliedManifestWork // as it is now; nil: not known
	again     time.Duration               // when to look again; 0: when something changes
}

// leave says whether a manifest is not to be applied in this pass.
func (u *under) leave(i int) bool { return u.resting || u.complete.work || u.complete.manifests[i] }

// seen gives the object of a manifest as a watch showed it when the pass began.
func (u *under) seen(i int) (object.Live, bool) { return u.sights[i].live, u.sights[i].watched }

// lookAgain brings the next look forward to within d; 0 says nothing.
func (u *under) lookAgain(d time.Duration) {
	if d > 0 && (u.again == 0 || d < u.again) {
		u.again = d
	}
}

// apply makes the cluster hold what the work's spec declares, and reports what
// it holds.
func (a *Agent) apply(ctx context.Context, logger *slog.Logger, name string, entry *inbox.Entry) (time.Duration, error) {
	a.news.begin(name)
	known, _ := a.records.Get(name)
	u := a.take(ctx, logger, name, entry, known)
	again, err := a.applyAs(ctx, u, known)
	if u.missed(a.news.end(name)) {
		a.queue.Add(name)
	}
	return again, err
}

// applyAs is apply for a work of which the record is known, nil if there is none.
func (a *Agent) applyAs(ctx context.Context, u *under, known *workv1.AppliedManifestWork) (time.Duration, error) {
	logger, name, entry := u.logger, u.name, u.entry
	wanted := refsOf(u.manifests)
	var dropped []applied.Resource
	if known != nil {
		dropped = a.dropped(u, known, wanted)
	}
	following := slices.Clone(wanted)
	for _, resource := range dropped {
		following = append(following, resource.Ref)
	}
	a.objects.Follow(name, following)
	a.waiting.set(name, unknownKinds(u.manifests))
	if u.complete.work && known == nil {
		// Its record was deleted by hand, and its objects with it: what is complete
		// does not come back.
		u.outcomes = make([]strategy.Outcome, len(u.manifests))
		for i := range u.outcomes {
			u.outcomes[i].Action = strategy.Left
		}
		a.remember(u, nil, nil)
		a.report(entry, a.statusOf(ctx, u))
		return u.again, nil
	}
	intended := following
	if u.complete.work {
		intended = nil // nothing is about to be applied
	}
	record, err := a.records.Ensure(ctx, known, a.hubHash(entry.Source), applied.Work{
		Name: entry.Meta.Name, UID: entry.UID, Source: entry.Source, Labels: entry.Meta.Labels,
	}, intended)
	if err != nil {
		a.reportUnrecorded(ctx, u, err)
		return 0, err
	}
	if record.DeletionTimestamp != nil {
		// Somebody deleted the record by hand. What it names goes with it, and is
		// applied anew under a new one.
		if _, err := a.clear(ctx, logger, name, record, &entry.Spec); err != nil {
			return 0, err
		}
		u.memory.spec, u.memory.applied = nil, nil
		return a.config.SyncInterval, nil
	}
	u.record = record
	err = a.applyTo(ctx, u, dropped)
	u.lookAgain(a.unwatched(following))
	return u.again, err
}

// take makes out what the pass is about: the manifests, what is seen of their
// objects, and what is not to be touched.
func (a *Agent) take(ctx context.Context, logger *slog.Logger, name string, entry *inbox.Entry, known *workv1.AppliedManifestWork) *under {
	memory := a.works.of(name)
	u := &under{
		logger: logger, name: name, entry: entry, memory: memory,
		changed: memory.spec != entry, previous: a.previous(logger, entry, known),
	}
	if rest := time.Until(memory.rest); !u.changed && rest > 0 {
		u.resting = true
		u.lookAgain(rest)
	}
	u.manifests = a.parse(ctx, entry)
	u.earlier = newEarlier(memory, entry, u.manifests, func(spec *inbox.Entry) []strategy.Manifest { return a.parse(ctx, spec) })
	was := condition.WasComplete(&u.previous)
	u.sights = a.look(ctx, u, was)
	for i := range u.sights {
		u.sights[i].evaluate(ctx, a.rules, &u.manifests[i])
	}
	u.complete = completed(u.manifests, u.sights, was)
	return u
}

// applyTo does what a pass is for, once there is a record.
func (a *Agent) applyTo(ctx context.Context, u *under, dropped []applied.Resource) error {
	memory, record := u.memory, u.record
	u.outcomes = a.applier.Apply(ctx, u.manifests, strategy.Pass{
		Owner:     strategy.Owner(record.Name, record.UID),
		Previous:  u.earlier.manifest,
		Seen:      u.seen,
		Leave:     u.leave,
		Permit:    a.permits(u),
		Contested: memory.contested() && !u.changed,
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	removals := make([]strategy.RemoveOutcome, len(dropped))
	if !u.complete.work {
		removals = a.applier.Remove(ctx, a.entriesOf(dropped, &u.entry.Spec), record.UID)
	}
	a.remember(u, dropped, removals)
	status := a.statusOf(ctx, u)
	if ctx.Err() != nil {
		return ctx.Err() // what the rules gave may be cut short
	}
	a.report(u.entry, status)
	transitions, err := applied.EncodeTransitions(&status, record.Status.Transitions)
	if err != nil {
		return err
	}
	if record.Status.EvictionStartTime != nil {
		if record, err = a.records.SetEviction(ctx, record, nil); err != nil {
			return err
		}
	}
	record, err = a.records.UpdateStatus(ctx, record, applied.Status{
		Resources: resourcesOf(u, record, dropped, removals), Transitions: transitions,
	})
	if err == nil {
		u.record = record
	}
	return errors.Join(err, failureOf(u), removalFailure(removals))
}

// previous gives the status that the work has had: the last one reported, or,
// after a restart, what its record says.
func (a *Agent) previous(logger *slog.Logger, entry *inbox.Entry, known *workv1.AppliedManifestWork) workv1.ManifestWorkStatus {
	if last, ok := a.outbox.Last(entry.Key); ok {
		return last.Status
	}
	if known == nil || known.Annotations[applied.UIDAnnotation] != string(entry.UID) {
		return workv1.ManifestWorkStatus{}
	}
	status, err := applied.DecodeTransitions(known.Status.Transitions)
	if err != nil {
		logger.Warn("transition times and completion of before the restart are not known", "appliedManifestWork", known.Name, "error", err)
		return workv1.ManifestWorkStatus{}
	}
	return *status
}

// parse reads the work's manifests.
func (a *Agent) parse(ctx context.Context, entry *inbox.Entry) []strategy.Manifest {
	manifests := strategy.Parse(&entry.Spec, func(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
		return a.mapper.RESTMapping(ctx, kind)
	})
	for i := range manifests {
		if manifests[i].Err == nil {
			manifests[i].Err = conditionrules.Validate(manifests[i].ConditionRules)
		}
	}
	return manifests
}

// remember keeps what the next pass has to know, and logs what was done.
func (a *Agent) remember(u *under, dropped []applied.Resource, removals []strategy.RemoveOutcome) {
	memory := u.memory
	if u.changed {
		memory.renew()
	}
	succeeded := make(map[object.Ref]*inbox.Entry, len(u.manifests))
	healed, all := false, true
	for i := range u.manifests {
		ref, outcome := u.manifests[i].Ref, &u.outcomes[i]
		a.metrics.manifests.WithLabelValues(outcome.Action.String()).Inc()
		if outcome.Err != nil {
			u.logger.Warn("a manifest was not applied", "object", ref, "manifest", i, "error", outcome.Err)
		}
		if outcome.Err != nil || outcome.Action == strategy.Left {
			before := u.earlier.spec(ref)
			if before != nil && succeeded[ref] == nil {
				succeeded[ref] = before
			}
			all = all && before == u.entry
			continue
		}
		if outcome.Action == strategy.Created || outcome.Action == strategy.Updated {
			repair := !u.changed && u.earlier.spec(ref) != nil
			if repair {
				healed = true
				memory.fightOver(ref, outcome)
			}
			for _, other := range a.objects.Others(ref, u.name) {
				a.objectChanged(other, ref, outcome.Live.GetResourceVersion()) // no watch tells of what the agent itself has written
			}
			u.logger.Info("applied a manifest", "object", ref, "action", outcome.Action, "repair", repair, "differences", outcome.Differences)
		}
		succeeded[ref] = u.entry
	}
	if all {
		succeeded = nil
	}
	for i := range dropped {
		switch {
		case removals[i].Gone:
			memory.miss(dropped[i].Ref)
			u.logger.Info("removed an object", "object", dropped[i].Ref, "how", removals[i].Done)
		case removals[i].Err != nil:
			u.logger.Warn("an object was not removed", "object", dropped[i].Ref, "error", removals[i].Err)
		}
	}
	if healed {
		memory.heal(time.Now())
	}
	if !u.resting {
		memory.errs = faults(u.outcomes)
	}
	memory.spec, memory.applied = u.entry, succeeded
	u.lookAgain(memory.calm(time.Now()))
}

// faults gives the errors of outcomes, nil if there are none.
func faults(outcomes []strategy.Outcome) []error {
	var errs []error
	for i := range outcomes {
		if outcomes[i].Err != nil && errs == nil {
			errs = make([]error, len(outcomes))
		}
		if errs != nil {
			errs[i] = outcomes[i].Err
		}
	}
	return errs
}

// failureOf joins what has to be tried again.
func failureOf(u *under) error {
	var faults []error
	for i := range u.outcomes {
		if err := u.outcomes[i].Err; err != nil && !denied(err) {
			meta := u.manifests[i].Meta
			faults = append(faults, fmt.Errorf("manifest %d, %s %s/%s: %w", i, meta.Kind, meta.Namespace, meta.Name, err))
		}
	}
	return errors.Join(faults...)
}

func removalFailure(removals []strategy.RemoveOutcome) error {
	var faults []error
	for i := range removals {
		faults = append(faults, removals[i].Err)
	}
	return errors.Join(faults...)
}
