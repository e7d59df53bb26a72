package dryrun

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent/internal/applied"
	"github.com/workwire/workwire/pkg/agent/internal/budget"
	"github.com/workwire/workwire/pkg/agent/internal/conditionrules"
	"github.com/workwire/workwire/pkg/agent/internal/executor"
	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/ownership"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
	"github.com/workwire/workwire/pkg/agent/policy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// examination is one question being answered. One goroutine owns it.
type examination struct {
	*Runner
	held      *inbox.Entry                // the work as the agent holds it, nil if it holds none
	known     *workv1.AppliedManifestWork // its record, nil if it has none
	account   *executor.Account           // of the new spec
	policy    *policy.Policy
	refusal   error // why policy refuses the whole spec; nil: it does not
	owner     metav1.OwnerReference
	spec      workv1.ManifestWorkSpec
	manifests []strategy.Manifest
	previous  map[object.Ref]*strategy.Manifest // of the held spec
	makes     made
	complete  conditionrules.Completion // as last reported
}

func (r *Runner) examination(ctx context.Context, question *wire.DryRun, b *budget.Budget) (*examination, error) {
	e := &examination{Runner: r, spec: question.Bundle.WorkSpec(), previous: map[object.Ref]*strategy.Manifest{}}
	var err error
	if e.account, err = executor.AccountOf(e.spec.Executor); err != nil {
		return nil, err
	}
	e.policy = r.config.Policy.Get(time.Now())
	e.refusal = e.policy.RefuseWork(policy.Work{Executor: e.account, Sealed: question.Sealed})
	name := r.config.AppliedName(question.Source, question.Work)
	if e.known, err = r.config.Applied.Current(ctx, name); err != nil {
		return nil, fmt.Errorf("read the AppliedManifestWork %s: %w", name, err)
	}
	e.owner = ownership.Reference(name, types.UID(question.ID)) // it would get another UID
	if e.known != nil {
		e.owner.UID = e.known.UID
	}
	e.manifests = r.parse(ctx, b, &e.spec)
	e.makes = madeBy(e.manifests)
	isComplete := func(workv1.ManifestResourceMeta) bool { return false }
	if held, ok := r.config.Inbox.ByName(question.Source, question.Work); ok {
		e.held, isComplete = held, r.config.Complete(held.Key)
		before := r.parse(ctx, b.Again(), &held.Spec)
		for i := range before {
			if m := &before[i]; m.Err == nil {
				e.previous[m.Ref] = m
			}
		}
	}
	e.complete = conditionrules.Completed(e.manifests, func(i int) bool { return isComplete(e.manifests[i].Meta) })
	return e, nil
}

func (r *Runner) parse(ctx context.Context, b *budget.Budget, spec *workv1.ManifestWorkSpec) []strategy.Manifest {
	return strategy.Parse(b, spec, func(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
		return r.config.RESTMapper.RESTMapping(ctx, kind)
	})
}

// generation returns that of the held work.
func (e *examination) generation() wire.Generation {
	if e.held == nil {
		return 0
	}
	return wire.Generation(e.held.Meta.Generation)
}

// examine returns what would become of the objects of the manifests, and of those that the work would
// drop, and the names of all for the audit log.
func (e *examination) examine(ctx context.Context) (objects []wire.DryRunObject, names []string) {
	for i := range e.manifests {
		objects, names = append(objects, e.manifest(ctx, i)), append(names, nameOf(e.manifests[i].Ref))
	}
	dropped, droppedNames := e.dropped(ctx)
	return append(objects, dropped...), append(names, droppedNames...)
}

// nameOf returns the name of an object, empty for one whose resource is not known.
func nameOf(ref object.Ref) string {
	if ref == (object.Ref{}) {
		return ""
	}
	return ref.String()
}

// manifest tries one manifest.
func (e *examination) manifest(ctx context.Context, i int) wire.DryRunObject {
	m := &e.manifests[i]
	if m.Err != nil {
		return failed(identified(m), m, m.Err, e.makes)
	}
	if err := cmp.Or(e.refusal, e.policy.RefuseObject(m.Ref)); err != nil {
		return failed(identified(m), m, err, e.makes)
	}
	clients, err := e.clients(ctx, m)
	if err != nil {
		return failed(identified(m), m, e.refused(m, err), e.makes)
	}
	if e.complete.Of(i) {
		o := identified(m)
		o.Result, o.Message = wire.DryRunUnchanged, "it is complete: what changes in its manifest is not applied"
		return o
	}
	before, err := read(ctx, clients.Client, m.Ref)
	if err != nil {
		return failed(identified(m), m, e.refused(m, err), e.makes)
	}
	if m.Hook != "" && before.State == object.Present {
		return e.hook(m)
	}
	tried := *m
	tried.RecreateOnImmutable = false // to delete is no dry run
	migrated := e.migrates(m, before)
	tried.Force = tried.Force || migrated
	outcome, err := e.try(ctx, &tried, before, clients)
	if err != nil {
		return failed(identified(m), m, err, e.makes)
	}
	outcome.Err = e.refused(m, outcome.Err)
	return decide(m, before.Object, outcome, e.makes, migrated)
}

// hook says what becomes of the Job of a hook, which runs once for each spec.
func (e *examination) hook(m *strategy.Manifest) wire.DryRunObject {
	o := identified(m)
	o.Result, o.Message = wire.DryRunRecreated, "the hook runs again, for the new spec"
	if e.held != nil && equality.Semantic.DeepEqual(e.held.Spec, e.spec) {
		o.Result, o.Message = wire.DryRunUnchanged, ""
	}
	return o
}

// clients returns the clients for a manifest, if the executor of the work may do what it needs.
func (e *examination) clients(ctx context.Context, m *strategy.Manifest) (apply.Clients, error) {
	clients := apply.Clients{Client: writer{e.config.Client}}
	if e.account == nil {
		return clients, nil
	}
	if _, err := e.config.Executors.MayRead(ctx, *e.account, m.Ref); err != nil {
		return clients, err
	}
	if m.Strategy != workv1.UpdateStrategyTypeReadOnly {
		if _, err := e.config.Executors.Check(ctx, *e.account, m); err != nil {
			return clients, err
		}
	}
	as, err := e.config.Executors.Clients(ctx, *e.account, m)
	if err != nil {
		return clients, err
	}
	if as.Client != nil {
		clients.Client = writer{as.Client}
	}
	if as.Creator != nil {
		clients.Creator = func(ctx context.Context) (rest.Interface, error) {
			client, err := as.Creator(ctx)
			return writer{client}, err
		}
	}
	return clients, nil
}

// refused returns the error to report for one of a request.
func (e *examination) refused(m *strategy.Manifest, err error) error {
	if e.account == nil {
		return err
	}
	return e.config.Executors.Refused(*e.account, m.Ref, err)
}

// migrates reports whether fields that the agent wrote otherwise would become fields of its
// server-side apply, which takes a write of its own: a dry run after it would not see it.
func (e *examination) migrates(m *strategy.Manifest, before object.Live) bool {
	return m.Strategy == workv1.UpdateStrategyTypeServerSideApply && before.State == object.Present && !ownership.Shared(before.Object, e.owner) &&
		len(plan.ManagersToMigrate(m, plan.State{Live: before, Previous: e.previous[m.Ref], Owner: e.owner})) > 0
}

// try applies a manifest, with all writes as dry runs and nothing remembered.
func (e *examination) try(ctx context.Context, m *strategy.Manifest, before object.Live, clients apply.Clients) (*apply.Outcome, error) {
	applier, err := apply.New(apply.Config{Client: clients.Client, Cache: seen{before}, AgentHash: e.config.AgentHash})
	if err != nil {
		return nil, err
	}
	outcomes := applier.Apply(ctx, []strategy.Manifest{*m}, apply.Options{
		Owner:     e.owner,
		Previous:  func(ref object.Ref) *strategy.Manifest { return e.previous[ref] },
		Authorize: func(context.Context, *strategy.Manifest) (apply.Clients, error) { return clients, nil },
	})
	return &outcomes[0], nil
}

// seen is a cache that holds one object, and learns nothing.
type seen struct{ live object.Live }

func (s seen) Get(object.Ref) object.Live                 { return s.live }
func (seen) Learn(object.Ref, *unstructured.Unstructured) {}

func read(ctx context.Context, client rest.Interface, ref object.Ref) (object.Live, error) {
	return object.Found(dynamic.New(client).Resource(ref.GroupVersionResource).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{}))
}

// dropped returns what would become of the objects that the work has and the manifests do not, and their
// names for the audit log.
func (e *examination) dropped(ctx context.Context) (objects []wire.DryRunObject, names []string) {
	if e.known == nil || e.complete.Work {
		return nil, nil
	}
	var wanted []object.Ref
	unresolved := false
	for i := range e.manifests {
		wanted = append(wanted, e.manifests[i].Ref)
		unresolved = unresolved || e.manifests[i].Ref == (object.Ref{})
	}
	resources, err := applied.Resources(e.known)
	if err != nil {
		return []wire.DryRunObject{{Kind: "AppliedManifestWork", Name: e.known.Name, Result: wire.DryRunUnknown, Message: condition.Shorten(err.Error(), maxMessage)}}, []string{""}
	}
	for _, res := range applied.Dropped(resources, wanted) {
		o := wire.DryRunObject{APIVersion: res.GroupVersion().String(), Resource: res.Resource, Namespace: res.Namespace, Name: res.Ref.Name}
		if unresolved {
			o.Result, o.Message = wire.DryRunUnknown, "it may be the object of a manifest whose kind is not known here"
			objects, names = append(objects, o), append(names, nameOf(res.Ref))
			continue
		}
		if o, ok := e.removal(ctx, o, res); ok {
			objects, names = append(objects, o), append(names, nameOf(res.Ref))
		}
	}
	return objects, names
}

// removal says what becomes of an object that the work would drop, if its executor may read that.
func (e *examination) removal(ctx context.Context, o wire.DryRunObject, res applied.Resource) (wire.DryRunObject, bool) {
	if err := cmp.Or(e.refusal, e.policy.RefuseObject(res.Ref)); err != nil {
		o.Result, o.Message = wire.DryRunKept, condition.Shorten(err.Error(), maxMessage)
		return o, true
	}
	if e.account != nil {
		if _, err := e.config.Executors.MayRead(ctx, *e.account, res.Ref); err != nil {
			denied := failed(o, &strategy.Manifest{Ref: res.Ref}, err, e.makes)
			if denied.Result == wire.DryRunDenied {
				denied.Message = "the work drops it, and what becomes of it is not told: " + denied.Message
			}
			return denied, true
		}
	}
	live, err := read(ctx, e.config.Client, res.Ref)
	if err != nil {
		o.Result, o.Message = wire.DryRunUnknown, condition.Shorten(err.Error(), maxMessage)
		return o, true
	}
	id := strategy.MetaOf(res.Ref)
	if live.Object != nil {
		id.Kind = live.Object.GetKind()
		o.Kind, o.Resource = id.Kind, ""
	}
	orphan := !strategy.Owned(id, e.spec.DeleteOption)
	step := plan.NextRemoval(plan.Removal{Ref: res.Ref, Orphan: orphan}, live, true, e.owner.UID)
	return decideRemoval(o, step, orphan)
}
