package reconcile

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/workwire/workwire/pkg/agent/internal/executor"
	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
	"github.com/workwire/workwire/pkg/agent/policy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// parallelReads is the number of manifests of a work whose reading is authorized at a time.
const parallelReads = 8

// authorizeReads adds to rec.withheld whether the work's executor may get each object. Objects that
// it may not get are not looked at.
func (r *Reconciler) authorizeReads(ctx context.Context, rec *reconciliation) {
	if rec.account == nil && rec.accountErr == nil {
		return
	}
	if rec.withheld == nil {
		rec.withheld = make([]error, len(rec.manifests))
	}
	rechecks := make([]time.Duration, len(rec.manifests))
	var group sync.WaitGroup
	turns := make(chan struct{}, parallelReads)
	for i := range rec.manifests {
		ref := rec.manifests[i].Ref
		switch {
		case ref == object.Ref{} || rec.withheld[i] != nil:
		case rec.accountErr != nil:
			rec.withheld[i] = rec.accountErr
		default:
			turns <- struct{}{}
			group.Go(func() {
				rechecks[i], rec.withheld[i] = r.Executors.MayRead(ctx, *rec.account, ref)
				<-turns
			})
		}
	}
	group.Wait()
	for i, recheck := range rechecks {
		if denied(rec.withheld[i]) {
			recheck = max(recheck, time.Millisecond)
		}
		rec.requeueWithin(recheck)
	}
}

// withholds returns why nothing of the object of manifest i may be reported, nil if it may.
func (rec *reconciliation) withholds(i int) error {
	if rec.withheld == nil {
		return nil
	}
	return rec.withheld[i]
}

// withheldPresence returns the presence of an object that is withheld for err. While the executor's
// rights are not known, what was reported before stays, unless another spec was in force then.
func (rec *reconciliation) withheldPresence(err error) (condition.Presence, error) {
	switch {
	case rec.accountErr != nil, denied(err), policy.Refused(err):
		return condition.Forbidden, nil // Applied says why
	case rec.changed:
		return condition.Undecided, err
	default:
		return condition.Unreadable, err
	}
}

// permits returns the function that authorizes each manifest, nil if every manifest may be applied. A
// denial is checked again at the time that comes with it. A permission is not: it is checked before
// each write, and the executor's watches report changes.
func (r *Reconciler) permits(rec *reconciliation) func(context.Context, *strategy.Manifest) (apply.Clients, error) {
	if rec.withheld == nil {
		return nil
	}
	var mu sync.Mutex // guards rec.requeueAfter
	return func(ctx context.Context, m *strategy.Manifest) (apply.Clients, error) {
		if err := rec.withheld[m.Meta.Ordinal]; policy.Refused(err) {
			return apply.Clients{}, err
		}
		if rec.account == nil {
			return apply.Clients{}, rec.accountErr
		}
		clients, recheck, err := r.authorize(ctx, rec, m)
		if denied(err) {
			mu.Lock()
			defer mu.Unlock()
			rec.requeueWithin(max(recheck, time.Millisecond))
		}
		return clients, err
	}
}

// authorize decides whether the work's executor may apply m. It returns the clients for m, and the
// time after which to ask again.
func (r *Reconciler) authorize(ctx context.Context, rec *reconciliation, m *strategy.Manifest) (apply.Clients, time.Duration, error) {
	withheld := &rec.withheld[m.Meta.Ordinal]
	if *withheld != nil { // a manifest of a lower rank may have given the right
		recheck, err := r.Executors.MayRead(ctx, *rec.account, m.Ref)
		if *withheld = err; err != nil {
			return apply.Clients{}, recheck, err
		}
	}
	clients, err := r.Executors.Clients(ctx, *rec.account, m)
	if err != nil {
		return apply.Clients{}, 0, err
	}
	if (m.RecreateOnImmutable || m.Hook != "") && !m.Owned {
		// Creating an object again requires deleting it.
		reviewed := *m
		reviewed.Owned, m = true, &reviewed
	}
	recheck, err := r.Executors.Check(ctx, *rec.account, m)
	if denial, ok := errors.AsType[*executor.DeniedError](err); ok && denial.Verb == "get" {
		*withheld = err // the right was taken away meanwhile
	}
	return clients, recheck, err
}

// noteRefusals replaces the errors of requests as the executor by those to report.
func (r *Reconciler) noteRefusals(rec *reconciliation) {
	if rec.account == nil {
		return
	}
	for i := range rec.outcomes {
		outcome := &rec.outcomes[i]
		outcome.Err = r.Executors.Refused(*rec.account, rec.manifests[i].Ref, outcome.Err)
		if denial, ok := errors.AsType[*executor.DeniedError](outcome.Err); ok {
			rec.requeueWithin(denial.RetryAfter())
		}
	}
}

// deniedRead is an object that the executor may get and not write, as it was read at a time.
type deniedRead struct {
	at   time.Time
	live object.Live
	err  error
}

// readDenied reads the objects that the executor may get and not write: applying has not looked at
// them, and the agent's watches select only what it has written. It reads each once in a
// SyncInterval.
func (r *Reconciler) readDenied(ctx context.Context, rec *reconciliation, now time.Time) {
	before, reads := rec.history().deniedReads, map[int]deniedRead{}
	for i := range rec.outcomes {
		m, o, outcome := &rec.manifests[i], &rec.observed[i], &rec.outcomes[i]
		if !denied(outcome.Err) || rec.withholds(i) != nil || outcome.Live != nil || rec.untouched(i) {
			continue
		}
		read, known := before[i]
		if !known || rec.changed || now.Sub(read.at) >= r.SyncInterval {
			read = deniedRead{at: now}
			read.live, read.err = r.read(ctx, rec, m.Ref)
		}
		reads[i] = read
		rec.requeueWithin(read.at.Add(r.SyncInterval).Sub(now))
		o.live, o.err, o.watched, o.conditions = read.live, read.err, false, nil
		if outcome.Live = o.live.Object; outcome.Live != nil && len(m.ConditionRules) > 0 {
			o.conditions = r.evaluate(ctx, rec, m, outcome.Live)
		}
	}
	if rec.history().deniedReads = reads; len(reads) == 0 {
		rec.history().deniedReads = nil
	}
}

// reader returns the client that reads objects for a work: as its executor, if it has one that the
// agent may impersonate.
func (r *Reconciler) reader(ctx context.Context, rec *reconciliation) (dynamic.Interface, error) {
	if rec.account == nil {
		return r.Client, nil
	}
	client, err := r.Executors.Client(ctx, *rec.account)
	if err != nil {
		return nil, err
	}
	return dynamic.New(client), nil
}

// removingPresence returns the function that reports the presence of the objects of a work that is
// being deleted, and the object if it is present. It sets recheck to the time after which the executor's rights may have changed.
// After a failure it does not ask for rights again: the deletion must not wait for each.
func (r *Reconciler) removingPresence(ctx context.Context, work *inbox.Entry, recheck *time.Duration) func(object.Ref) (condition.Presence, *unstructured.Unstructured) {
	account, accountErr := executor.AccountOf(work.Spec.Executor)
	rules, failed := r.Policy.Get(time.Now()), false
	return func(ref object.Ref) (condition.Presence, *unstructured.Unstructured) {
		switch refusal := rules.RefuseObject(ref); {
		case refusal != nil, accountErr != nil:
			return condition.Forbidden, nil
		case failed:
			return condition.Unresolved, nil // as reported before
		case account != nil:
			again, err := r.Executors.MayRead(ctx, *account, ref)
			*recheck = sooner(*recheck, again)
			if denied(err) {
				return condition.Forbidden, nil
			}
			if failed = err != nil; failed {
				return condition.Unresolved, nil
			}
		}
		live := r.Objects.Get(ref)
		switch live.State {
		case object.Present:
			return condition.Present, live.Object
		case object.Absent:
			return condition.Missing, nil
		default:
			return condition.Unresolved, nil
		}
	}
}

// restrictRemovals leaves orphans alone that the work does not own, unless its executor may patch
// them: their label may be there for another work. Deleting what the work owns needs no right. Without the manifests of a work,
// its executor is not known either.
func (r *Reconciler) restrictRemovals(ctx context.Context, entries []plan.Removal, spec *workv1.ManifestWorkSpec) {
	unknown := spec != nil && len(spec.Workload.Manifests) == 0
	if spec == nil || spec.Executor == nil && !unknown {
		return
	}
	account, err := executor.AccountOf(spec.Executor)
	for i := range entries {
		if !entries[i].Orphan || entries[i].Later {
			continue
		}
		entries[i].OwnedOnly = err != nil || unknown
		if !entries[i].OwnedOnly {
			_, denial := r.Executors.MayPatch(ctx, *account, entries[i].Ref)
			entries[i].OwnedOnly = denial != nil
		}
	}
}

// consultPolicy sets what the policy of the cluster's owner refuses: nothing of it is looked at or changed.
func (r *Reconciler) consultPolicy(rec *reconciliation) {
	rec.policy = r.Policy.Get(time.Now())
	if rec.policy == nil {
		return
	}
	if rec.accountErr == nil {
		rec.refusal = rec.policy.RefuseWork(policy.Work{Executor: rec.account, Sealed: rec.work.Sealed})
	}
	rec.withheld = make([]error, len(rec.manifests))
	for i := range rec.manifests {
		ref := rec.manifests[i].Ref
		if ref == (object.Ref{}) {
			continue
		}
		if rec.withheld[i] = rec.refusal; rec.refusal == nil {
			rec.withheld[i] = rec.policy.RefuseObject(ref)
		}
		if refused, ok := errors.AsType[*policy.RefusedError](rec.withheld[i]); ok {
			r.metrics.refused.WithLabelValues(refused.Rule).Inc()
		}
	}
}

// followed returns the objects to watch: those of rec.tracked that the policy does not refuse.
func (rec *reconciliation) followed() []object.Ref {
	if rec.policy == nil {
		return rec.tracked
	}
	refused := map[object.Ref]bool{}
	for i, err := range rec.withheld {
		if policy.Refused(err) {
			refused[rec.manifests[i].Ref] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(rec.tracked), func(ref object.Ref) bool { return refused[ref] })
}

// releaseRefused lets objects stay that the policy refuses: only the work's mark is taken off them.
func (r *Reconciler) releaseRefused(entries []plan.Removal) {
	rules := r.Policy.Get(time.Now())
	for i := range entries {
		if rules.RefuseObject(entries[i].Ref) != nil {
			entries[i].Orphan, entries[i].OwnedOnly = true, true
		}
	}
}

// unmoved reports whether err needs no backoff: the denial of an executor has a retry time of its own, and
// what a policy refuses waits for another policy.
func unmoved(err error) bool { return denied(err) || policy.Refused(err) }

// denied reports whether err is the denial of an executor, which has a retry time of its own.
func denied(err error) bool {
	var denial *executor.DeniedError
	return errors.As(err, &denial)
}
