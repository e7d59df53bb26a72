// Package apply makes the cluster hold what the manifests of a work declare: it carries out what
// package plan decides.
//
// [Applier.Apply] takes each manifest from step to step until nothing is left to do, and returns
// one [Outcome] for each, also for those that failed. [Applier.Remove] does the same for objects
// that have to be removed. A new object costs one POST, which carries label and owner reference; a
// known object that holds what its manifest declares costs no request.
//
//	manifests := strategy.Parse(budget, &work.Spec, func(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
//		return mapper.RESTMapping(ctx, kind)
//	})
//	applier, err := apply.New(apply.Config{Client: client, Cache: objects, AgentHash: object.AgentHash(id)})
//	outcomes := applier.Apply(ctx, manifests, apply.Options{Owner: owner, Previous: lastApplied})
package apply

import (
	"context"
	"fmt"
	"maps"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/slots"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
	"github.com/workwire/workwire/pkg/runtime/required"
)

const (
	// parallel is the number of objects that all calls together work on at a time, besides those
	// whose requests take long.
	parallel = 16
	// parallelPerCall is the number of objects that one call works on at a time. A work of many
	// objects whose requests hang leaves room for others.
	parallelPerCall = parallel / 2
	// maxAttempts bounds the writes for one manifest in one call: after conflicts with other
	// writers, or when the object is created and deleted meanwhile.
	maxAttempts = 4
)

// Cache holds what is known of the cluster's objects without a request.
type Cache interface {
	// Get returns an object as last seen.
	Get(object.Ref) object.Live
	// Learn stores an object as the API server just returned it, without managedFields, or nil if
	// it does not exist. The object is shared and must not be changed.
	Learn(object.Ref, *unstructured.Unstructured)
}

// Config configures [New].
type Config struct {
	// Client for the agent's cluster, made from a configuration that dynamic.ConfigFor returned.
	// Its rate limit and User-Agent apply. Required.
	Client rest.Interface
	// Cache of the cluster's objects. Required.
	Cache Cache
	// AgentHash is the value of the label object.AgentLabel on all applied objects. Required.
	AgentHash string
	// NotServed is called when the API server answers that it does not serve a group and version,
	// or a resource of it: what is cached of it is out of date. Pass restmapper.Mapper.Forget.
	// Optional.
	NotServed func(schema.GroupVersion)
}

// Applier applies and removes the objects of works. It is safe for concurrent use, but only one
// call at a time may be about the same object of the same work.
type Applier struct {
	config Config
	slots  *slots.Pool // of objects being worked on

	mu         sync.Mutex
	normalized map[normalizedKey]*plan.NormalizedFields // Remove deletes from it
}

// normalizedKey is an object of a work.
type normalizedKey struct {
	ref   object.Ref
	owner types.UID
}

// New returns an applier.
func New(cfg Config) (*Applier, error) {
	if err := required.Fields(cfg, "Client", "Cache", "AgentHash"); err != nil {
		return nil, fmt.Errorf("create the applier: %w", err)
	}
	if cfg.NotServed == nil {
		cfg.NotServed = func(schema.GroupVersion) {}
	}
	return &Applier{
		config:     cfg,
		slots:      slots.New(parallel),
		normalized: map[normalizedKey]*plan.NormalizedFields{},
	}, nil
}

// Action is the result of applying a manifest.
type Action int

const (
	// Failed to be applied; Outcome.Err is the reason.
	Failed Action = iota
	// Unchanged means that the object already was as declared: nothing was written.
	Unchanged
	// Created means that the object was created.
	Created
	// Updated means that the object existed and was written. The API server may have found nothing
	// to change; then its resourceVersion is as before.
	Updated
	// Observed means that the strategy is ReadOnly; no request was made.
	Observed
	// Left means that the manifest was skipped, see Options.Skip.
	Left
)

var actionNames = [...]string{"failed", "unchanged", "created", "updated", "observed", "left"}

// String returns the action in lower case, for logs and metrics.
func (a Action) String() string { return actionNames[a] }

// Outcome is the result for one manifest.
type Outcome struct {
	Action Action
	// Live is the current object without managedFields; nil if it is not known, and under ReadOnly.
	// It is shared and must not be changed.
	Live *unstructured.Unstructured
	// Differences are the JSON pointers of the fields that an update corrected. Empty if only the
	// manifest had changed, and for other actions.
	Differences []string
	// ConflictingManagers are the field managers, sorted, that made the Differences, except for the
	// manifest's own. Only with Options.DetectConflicts.
	ConflictingManagers []string
	// Blind reports that the object was written without knowing whether it was there: server-side apply of what is not watched.
	Blind bool
	// FieldsDigest is what to return from Options.FieldsDigest after a restart. Empty if it is not
	// known, and under ReadOnly.
	FieldsDigest string
	// HeldBack reports of a manifest that was skipped that its object exists, and that it is known to have changed since it
	// was applied.
	HeldBack bool
	// Validated reports whether the API server has validated the manifest in a write; Warnings are
	// what it warned of, such as unknown fields and deprecated versions. About a Secret, only field
	// names are told.
	Validated bool
	Warnings  []string
	// Err is the reason why the manifest could not be applied, in the API server's own words if it
	// refused. Nil unless Action is Failed.
	Err error
	// Requests is the number of requests made.
	Requests int
}

// Options are the arguments of [Applier.Apply] besides the manifests. Functions may be nil unless
// stated otherwise.
type Options struct {
	// Owner is the owner reference of owned objects; see [ownership.Reference]. Required.
	Owner metav1.OwnerReference
	// Previous returns the manifest that was last applied to an object for this work, or nil if it
	// is not known, for example after a restart. Apply calls it from its own goroutine only.
	Previous func(object.Ref) *strategy.Manifest
	// FieldsDigest returns what Outcome.FieldsDigest was when an object was last applied for this
	// work, those of several manifests separated by commas; empty if it is not known. It is called
	// like Previous.
	FieldsDigest func(object.Ref) string
	// Live returns the object of a manifest, by index, if the caller has just looked it up in the
	// Cache, so that Apply does not do so again.
	Live func(int) (object.Live, bool)
	// Skip reports whether a manifest, by index, is not to be applied, whatever the cluster holds. It is called like Previous.
	Skip func(int) bool
	// Authorize is called right before a manifest is applied, after those of lower ranks, and by
	// several goroutines at a time. It returns the clients for the manifest. Its error is the
	// manifest's; then no request is made.
	Authorize func(context.Context, *strategy.Manifest) (Clients, error)
	// DetectConflicts makes Apply read an object before it repairs it, so that
	// Outcome.ConflictingManagers names those who changed it: one more request for each repair.
	DetectConflicts bool
}

// Clients make the requests for one manifest.
type Clients struct {
	// Client makes all requests that Creator does not make. Nil: the applier's.
	Client rest.Interface
	// Creator returns the client that creates the object. Nil: Client does.
	Creator func(context.Context) (rest.Interface, error)
}

// Apply makes the cluster hold what the manifests declare, rank after rank, those of one rank in
// parallel. It returns one outcome for each manifest, in their order. A manifest that fails does
// not stop the others.
//
// When ctx ends, manifests that have not been started fail with its cause. Apply returns after
// everything that it started has ended.
func (a *Applier) Apply(ctx context.Context, manifests []strategy.Manifest, options Options) []Outcome {
	outcomes := make([]Outcome, len(manifests))
	turns := make(chan struct{}, parallelPerCall)
	for _, rank := range strategy.Ranks(manifests) {
		var group sync.WaitGroup
		var last func() // gets a goroutine when there is another after it
		for _, i := range rank {
			outcome, run := a.prepare(ctx, i, &manifests[i], options)
			if run == nil {
				outcomes[i] = outcome
				continue
			}
			if last != nil { // it holds a slot, so it must run before waiting for another
				group.Go(last)
				last = nil
			}
			release, err := a.acquire(ctx, turns)
			if err != nil {
				outcomes[i] = Outcome{Err: fmt.Errorf("apply %s: %w", manifests[i].Ref, err)}
				continue
			}
			last = func() {
				defer release()
				outcomes[i] = run()
			}
		}
		if last != nil {
			last() // here, where the stack has grown already
		}
		group.Wait()
	}
	return outcomes
}

// prepare returns the outcome of manifest i if no request is needed, otherwise the function that
// applies it.
func (a *Applier) prepare(ctx context.Context, i int, m *strategy.Manifest, options Options) (Outcome, func() Outcome) {
	if m.Err != nil {
		return Outcome{Err: m.Err}, nil
	}
	if options.Skip != nil && options.Skip(i) {
		outcome := Outcome{Action: Left, Live: a.live(i, m, options).Object}
		outcome.HeldBack = outcome.Live != nil && options.Previous != nil && plan.Changed(m, options.Previous(m.Ref))
		return outcome, nil
	}
	t, step := a.begin(i, m, options)
	switch {
	case options.Authorize != nil:
		return Outcome{}, func() Outcome {
			clients, err := options.Authorize(ctx, m)
			if err != nil {
				return t.failed(err)
			}
			t.requests.use(clients)
			return t.run(ctx, step)
		}
	case step.Err != nil:
		return t.failed(step.Err), nil
	case step.Verb == plan.Keep:
		return t.kept(), nil
	}
	return Outcome{}, func() Outcome { return t.run(ctx, step) }
}

// live returns the object of manifest i from memory.
func (a *Applier) live(i int, m *strategy.Manifest, options Options) object.Live {
	if options.Live != nil {
		if live, ok := options.Live(i); ok {
			return live
		}
	}
	return a.config.Cache.Get(m.Ref)
}

// acquire waits for one of the call's turns and for a slot; release frees both.
func (a *Applier) acquire(ctx context.Context, turns chan struct{}) (release func(), err error) {
	select {
	case turns <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	free, err := a.slots.Acquire(ctx)
	if err != nil {
		<-turns
		return nil, err
	}
	return func() { free(); <-turns }, nil
}

// learn stores an object, or that it does not exist, in the cache. It returns the object as stored.
func (a *Applier) learn(ref object.Ref, live *unstructured.Unstructured) *unstructured.Unstructured {
	live = withoutManagedFields(live)
	a.config.Cache.Learn(ref, live)
	return live
}

// withoutManagedFields returns the object without managedFields, sharing the rest; nil for nil.
func withoutManagedFields(obj *unstructured.Unstructured) *unstructured.Unstructured {
	if obj == nil {
		return nil
	}
	metadata, ok := obj.Object["metadata"].(map[string]any)
	if !ok || metadata["managedFields"] == nil {
		return obj
	}
	content := maps.Clone(obj.Object)
	slim := maps.Clone(metadata)
	delete(slim, "managedFields")
	content["metadata"] = slim
	return &unstructured.Unstructured{Object: content}
}
