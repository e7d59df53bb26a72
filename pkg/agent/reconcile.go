package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/applied"
	"github.com/workwire/workwire/pkg/agent/inbox"
	"github.com/workwire/workwire/pkg/agent/kinds"
	"github.com/workwire/workwire/pkg/agent/object"
	"github.com/workwire/workwire/pkg/agent/strategy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// runWorkers brings names from the queue up to date until ctx ends.
func (a *Agent) runWorkers(ctx context.Context) {
	var workers sync.WaitGroup
	for range a.config.Workers {
		workers.Go(func() {
			for {
				name, stopped := a.queue.Get()
				if stopped {
					return
				}
				a.pass(ctx, name)
				a.queue.Done(name)
			}
		})
	}
	<-ctx.Done()
	a.queue.ShutDown()
	workers.Wait()
}

// pass brings all works that go by name up to date, the oldest first, and queues
// name again where it has to be looked at later.
func (a *Agent) pass(ctx context.Context, name string) {
	start, result := time.Now(), "ok"
	defer func() { a.metrics.passes.WithLabelValues(result).Observe(time.Since(start).Seconds()) }()
	keys := a.holders.of(name)
	if len(keys) == 0 {
		a.release(name)
		return
	}
	for _, key := range keys {
		// In this order: a work that was finished before it was looked up may have
		// been forgotten, and come back under the same UID, in between.
		finished := a.finished(key)
		entry, held := a.inbox.Get(key)
		if !held {
			a.holders.drop(name, key)
			continue
		}
		if entry.Deleting != nil && finished {
			continue // its source is being told
		}
		logger := a.config.Logger.With("work", entry.Meta.Name, "uid", key.UID, "source", key.Source)
		again, err := a.bring(ctx, logger, name, entry)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			result = "error"
			logger.Warn("the work is not as it should be and is tried again", "retry", a.queue.NumRequeues(name)+1, "error", err)
			a.queue.AddRateLimited(name)
			if again > 0 {
				a.queue.AddAfter(name, again) // what fails must not hold up what is polled
			}
		case again > 0:
			a.queue.AddAfter(name, again)
		default:
			a.queue.Forget(name)
		}
		if _, held := a.inbox.Get(key); !held && entry.Deleting == nil {
			a.outbox.Forget(key) // another work has taken the name meanwhile
		}
		if entry.Deleting != nil && !a.finished(key) {
			return // a later work of that name waits until this one is gone
		}
	}
}

// release forgets all about a name that no work goes by.
func (a *Agent) release(name string) {
	a.works.drop(name)
	a.waiting.set(name, nil)
	a.objects.Follow(name, nil)
	a.queue.Forget(name)
}

// finished reports whether the last status of a deleted work has been made.
func (a *Agent) finished(key inbox.Key) bool {
	last, ok := a.outbox.Last(key)
	return ok && last.Final
}

// bring brings one work up to date. It returns when to look again, 0 for when
// something changes.
func (a *Agent) bring(ctx context.Context, logger *slog.Logger, name string, entry *inbox.Entry) (time.Duration, error) {
	switch {
	case entry.Deleting != nil:
		return a.remove(ctx, logger, name, entry)
	case entry.Good():
		return a.apply(ctx, logger, name, entry)
	case entry.Refusal != nil:
		a.report(entry, workv1.ManifestWorkStatus{})
		return 0, nil
	default:
		return 0, nil // known by its record only; its source is being asked
	}
}

// apply makes the cluster hold what the work's spec declares, and reports what
// it holds.
func (a *Agent) apply(ctx context.Context, logger *slog.Logger, name string, entry *inbox.Entry) (time.Duration, error) {
	memory := a.works.of(name)
	changed := memory.spec != entry
	if rest := time.Until(memory.rest); !changed && rest > 0 {
		return rest, nil
	}
	manifests := a.parse(ctx, entry)
	wanted := refsOf(manifests)
	known, exists := a.records.Get(name)
	var dropped []applied.Resource
	if exists {
		dropped = a.dropped(logger, known, manifests, wanted, memory)
	}
	intended := slices.Clone(wanted)
	for _, resource := range dropped {
		intended = append(intended, resource.Ref)
	}
	a.objects.Follow(name, intended)
	a.waiting.set(name, unknownKinds(manifests))

	record, err := a.records.Ensure(ctx, a.hubHash(entry.Source), applied.Work{
		Name: entry.Meta.Name, UID: entry.UID, Source: entry.Source, Labels: entry.Meta.Labels,
	}, intended)
	if err != nil {
		a.reportUnrecorded(entry, manifests, err)
		return 0, err
	}
	if record.DeletionTimestamp != nil {
		// Somebody deleted the record by hand. What it names goes with it, and is
		// applied anew under a new one.
		if _, err := a.clear(ctx, logger, name, record); err != nil {
			return 0, err
		}
		memory.spec, memory.applied = nil, nil
		return a.config.SyncInterval, nil
	}
	if err := a.guardExecutor(entry, manifests); err != nil {
		logger.Warn("the work names an executor and is not applied", "error", err)
	}
	outcomes := a.applier.Apply(ctx, manifests, strategy.Pass{
		Owner: strategy.Owner(record.Name, record.UID), Previous: func(ref object.Ref) *strategy.Manifest { return memory.applied[ref] },
	})
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	unread, poll := a.look(ctx, manifests, outcomes)
	removals := a.applier.Remove(ctx, entriesOf(dropped), record.UID)
	a.remember(logger, memory, entry, changed, manifests, outcomes, dropped, removals)
	a.report(entry, a.statusOf(entry, manifests, outcomes, unread))
	_, err = a.records.Record(ctx, record, applied.Contents{Resources: resourcesOf(record, manifests, outcomes, dropped, removals)})
	again := a.lookAgain(intended)
	if poll {
		again = a.config.SyncInterval
	}
	return again, errors.Join(err, failureOf(manifests, outcomes), removalFailure(removals))
}

// parse reads the work's manifests.
func (a *Agent) parse(ctx context.Context, entry *inbox.Entry) []strategy.Manifest {
	return strategy.Parse(&entry.Spec, func(kind schema.GroupVersionKind) (kinds.Mapping, error) {
		return a.kinds.Resolve(ctx, kind)
	})
}

// guardExecutor makes every manifest of a work with an executor fail: applying
// them with the agent's own rights, unchecked, would give away more than asked.
func (a *Agent) guardExecutor(entry *inbox.Entry, manifests []strategy.Manifest) error {
	if entry.Spec.Executor == nil {
		return nil
	}
	err := errors.New("this version of the agent does not check executors: remove the work's executor to apply it with the agent's rights")
	for i := range manifests {
		manifests[i].Err = err
	}
	return err
}

// dropped gives the objects that the record names and the manifests do not. An
// object that an unresolved manifest may be about is none of them: a kind that
// can not be looked up just now is no reason to delete.
func (a *Agent) dropped(logger *slog.Logger, record *workv1.AppliedManifestWork, manifests []strategy.Manifest, wanted []object.Ref, memory *memory) []applied.Resource {
	resources, err := applied.Resources(record)
	if err != nil {
		logger.Warn("what was about to be applied is not known", "appliedManifestWork", record.Name, "error", err)
	}
	return slices.DeleteFunc(applied.Dropped(resources, wanted), func(r applied.Resource) bool {
		if _, gone := memory.gone[r.Ref]; gone && r.UID == "" {
			return true
		}
		return slices.ContainsFunc(manifests, func(m strategy.Manifest) bool {
			return m.Ref == object.Ref{} && m.Meta.Group == r.Group && m.Meta.Name == r.Name
		})
	})
}

// remember keeps what the next pass has to know, and logs what was done.
func (a *Agent) remember(logger *slog.Logger, memory *memory, entry *inbox.Entry, changed bool,
	manifests []strategy.Manifest, outcomes []strategy.Outcome, dropped []applied.Resource, removals []strategy.RemoveOutcome,
) {
	healed := false
	succeeded := make(map[object.Ref]*strategy.Manifest, len(manifests))
	for i := range manifests {
		ref, outcome := manifests[i].Ref, &outcomes[i]
		a.metrics.manifests.WithLabelValues(outcome.Action.String()).Inc()
		if outcome.Err != nil {
			if before := memory.applied[ref]; before != nil {
				succeeded[ref] = before
			}
			logger.Warn("a manifest was not applied", "object", ref, "manifest", i, "error", outcome.Err)
			continue
		}
		succeeded[ref] = &manifests[i]
		if outcome.Action == strategy.Created || outcome.Action == strategy.Updated {
			healed = healed || !changed && memory.applied[ref] != nil
			logger.Info("applied a manifest", "object", ref, "action", outcome.Action, "repair", !changed, "differences", outcome.Differences)
		}
	}
	gone := map[object.Ref]struct{}{}
	for i := range dropped {
		switch {
		case removals[i].Gone:
			gone[dropped[i].Ref] = struct{}{}
			logger.Info("removed an object", "object", dropped[i].Ref)
		case removals[i].Err != nil:
			logger.Warn("an object was not removed", "object", dropped[i].Ref, "error", removals[i].Err)
		}
	}
	if changed {
		memory.healed, memory.rest = 0, time.Time{}
	} else {
		for ref := range memory.gone {
			gone[ref] = struct{}{}
		}
	}
	if healed {
		memory.heal(time.Now())
	}
	memory.spec, memory.applied, memory.gone = entry, succeeded, gone
}

// look reads the objects that the agent does not write, ReadOnly ones, where no
// watch has them in memory. It fills in outcomes and returns why objects could not
// be read, by index, and whether they have to be read again from time to time.
func (a *Agent) look(ctx context.Context, manifests []strategy.Manifest, outcomes []strategy.Outcome) (unread map[int]error, poll bool) {
	for i := range manifests {
		if outcomes[i].Action != strategy.Observed {
			continue
		}
		poll = true
		ref := manifests[i].Ref
		if live := a.objects.Get(ref); live.State == object.Present {
			outcomes[i].Live = live.Object
			continue
		}
		live, err := a.client.Resource(ref.GroupVersionResource).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case err == nil:
			live.SetManagedFields(nil)
			outcomes[i].Live = live
		case !apierrors.IsNotFound(err):
			if unread == nil {
				unread = map[int]error{}
			}
			unread[i] = err
		}
	}
	return unread, poll
}

// lookAgain says when to look at objects again that no watch tells of.
func (a *Agent) lookAgain(refs []object.Ref) time.Duration {
	for _, ref := range refs {
		if !a.objects.Watched(ref.GroupVersionResource) {
			return a.config.SyncInterval
		}
	}
	return 0
}

func refsOf(manifests []strategy.Manifest) []object.Ref {
	refs := make([]object.Ref, 0, len(manifests))
	for i := range manifests {
		if ref := manifests[i].Ref; ref != (object.Ref{}) && !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	return refs
}

func unknownKinds(manifests []strategy.Manifest) []schema.GroupKind {
	var unknown []schema.GroupKind
	for i := range manifests {
		var err *kinds.UnknownKindError
		if errors.As(manifests[i].Err, &err) {
			unknown = append(unknown, err.Kind.GroupKind())
		}
	}
	return unknown
}

func entriesOf(resources []applied.Resource) []strategy.Entry {
	entries := make([]strategy.Entry, len(resources))
	for i, r := range resources {
		entries[i] = strategy.Entry{Ref: r.Ref, UID: r.UID}
	}
	return entries
}

// resourcesOf lists what the record is to name after a pass: the objects that
// exist, what could not be looked at, and what is still to be removed.
func resourcesOf(record *workv1.AppliedManifestWork, manifests []strategy.Manifest, outcomes []strategy.Outcome,
	dropped []applied.Resource, removals []strategy.RemoveOutcome,
) []applied.Resource {
	known, _ := applied.Resources(record) // what is unreadable was reported when it was read
	var resources []applied.Resource
	for i := range manifests {
		m := &manifests[i]
		if live := outcomes[i].Live; live != nil {
			resources = append(resources, applied.Resource{Ref: m.Ref, UID: live.GetUID()})
			continue
		}
		if outcomes[i].Err == nil {
			continue
		}
		for _, r := range known {
			same := applied.Same(r.Ref, m.Ref) || m.Ref == object.Ref{} && m.Meta.Group == r.Group && m.Meta.Name == r.Name
			if same && r.UID != "" && !apierrors.IsNotFound(outcomes[i].Err) {
				resources = append(resources, r)
			}
		}
	}
	for i := range dropped {
		if !removals[i].Gone && dropped[i].UID != "" {
			resources = append(resources, dropped[i])
		}
	}
	return slices.CompactFunc(resources, func(a, b applied.Resource) bool { return a == b })
}

// failureOf joins what has to be tried again.
func failureOf(manifests []strategy.Manifest, outcomes []strategy.Outcome) error {
	var faults []error
	for i := range outcomes {
		if outcomes[i].Err != nil {
			faults = append(faults, fmt.Errorf("manifest %d, %s %s/%s: %w", i,
				manifests[i].Meta.Kind, manifests[i].Meta.Namespace, manifests[i].Meta.Name, outcomes[i].Err))
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
