package strategy

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent/object"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

const (
	defaultParallel = 16
	// maxAttempts bounds the writes for one manifest in one pass: after conflicts
	// with other writers, or when the object comes and goes meanwhile.
	maxAttempts = 4
)

// Cache is what is known of the cluster's objects without asking it.
type Cache interface {
	// Get gives an object as last seen.
	Get(object.Ref) object.Live
	// Learn takes over an object as the API server just gave it, without
	// managedFields, or nil if it has none of that name. It is shared: read only.
	Learn(object.Ref, *unstructured.Unstructured)
}

// Config configures [New].
type Config struct {
	// Client for the agent's cluster, made from a configuration that
	// dynamic.ConfigFor gave. Its rate limit and User-Agent apply. Required.
	Client rest.Interface
	// Cache of the cluster's objects. Required.
	Cache Cache
	// AgentHash is the value of the label object.AgentLabel on all that is applied.
	// Required.
	AgentHash string
	// FieldManager of writes for manifests that name none. Default: work-agent.
	FieldManager string
	// Parallel is the most objects that are worked on at a time, in all calls
	// together. Default: 16.
	Parallel int
	// NotServed is called when the API server says that it does not serve a group
	// and version, or not that resource of it: what is remembered of it is out of
	// date. Wire it to restmapper.Mapper.Forget. Nil: nobody is told.
	NotServed func(schema.GroupVersion)
}

// Applier applies and removes the objects of works. It is safe for concurrent
// use, but not for one object of one work at a time.
type Applier struct {
	config Config
	slots  chan struct{} // holds one token for each object being worked on

	mu      sync.Mutex
	settled map[settledKey]*Settled // of objects that the API server made otherwise; dropped by Remove
}

// settledKey is an object of a work.
type settledKey struct {
	ref   object.Ref
	owner types.UID
}

// New returns an applier.
func New(config Config) *Applier {
	if config.FieldManager == "" {
		config.FieldManager = workv1.DefaultFieldManager
	}
	if config.Parallel <= 0 {
		config.Parallel = defaultParallel
	}
	if config.NotServed == nil {
		config.NotServed = func(schema.GroupVersion) {}
	}
	return &Applier{
		config:  config,
		slots:   make(chan struct{}, config.Parallel),
		settled: map[settledKey]*Settled{},
	}
}

// Action is what became of a manifest.
type Action int

const (
	// Failed to be applied; Outcome.Err says why.
	Failed Action = iota
	// Unchanged means that the object is as it shall be: nothing was written.
	Unchanged
	// Created means that the object was made.
	Created
	// Updated means that the object was there and was written. The API server may
	// have found nothing to change; then its resourceVersion is as before.
	Updated
	// Observed means that the strategy is ReadOnly; the object was not looked at.
	Observed
	// Left means that the manifest was to be left alone, see Pass.Leave.
	Left
)

var actionNames = [...]string{"failed", "unchanged", "created", "updated", "observed", "left"}

// String gives the action in lower case, as for logs and metrics.
func (a Action) String() string {
	if a < 0 || int(a) >= len(actionNames) {
		return "?"
	}
	return actionNames[a]
}

// Outcome is what became of one manifest.
type Outcome struct {
	Action Action
	// Live is the object as it is now, without managedFields; nil if it is not
	// known, always so under ReadOnly. It is shared: read only.
	Live *unstructured.Unstructured
	// Differences are the JSON pointers of the fields that an update was for. Empty
	// if there were none but the manifest had changed, and for other actions.
	Differences []string
	// Rivals are the field managers other than the manifest's own that made the
	// Differences, sorted. Only with Pass.Contested.
	Rivals []string
	// Err says why the manifest could not be applied, in the API server's own words
	// where it was the one to refuse. Nil unless Action is Failed.
	Err error
	// Requests is the number of requests made.
	Requests int
}

// Pass is what [Applier.Apply] has to know besides the manifests.
type Pass struct {
	// Owner is what owned objects refer to; see [Owner]. Required.
	Owner metav1.OwnerReference
	// Previous gives the manifest that was last applied to an object for this work,
	// or nil if that is not known, as after a restart. It is called from the
	// goroutine of Apply only. Nil: not known for any.
	Previous func(object.Ref) *Manifest
	// Seen gives the object of a manifest, by index, where the caller has just asked the
	// Cache for it: that is not done again. Nil: for none.
	Seen func(int) (object.Live, bool)
	// Leave says which manifests, by index, are left alone whatever the cluster
	// holds: those that are complete. Nil: none. Called as Previous is.
	Leave func(int) bool
	// Permit is asked right before a manifest is applied, when those of lower ranks
	// have been, and by several goroutines at a time; an error of it is the
	// manifest's. Nil: all is permitted.
	Permit func(context.Context, *Manifest) error
	// Contested makes an object be read before it is repaired, so that
	// Outcome.Rivals names those who changed it: one more request a repair.
	Contested bool
}

// Apply makes the cluster hold what the manifests declare, rank after rank, those
// of one rank in parallel, and returns one outcome for each, in their order. One
// that fails stops no other.
//
// When ctx ends, manifests not yet begun fail with its cause. Apply returns when
// all that it started has ended.
func (a *Applier) Apply(ctx context.Context, manifests []Manifest, pass Pass) []Outcome {
	outcomes := make([]Outcome, len(manifests))
	for _, rank := range Ranks(manifests) {
		var group sync.WaitGroup
		var begun func() // the last one, which gets a goroutine when there is another
		for _, i := range rank {
			m := &manifests[i]
			if m.Err != nil {
				outcomes[i] = Outcome{Err: m.Err}
				continue
			}
			if pass.Leave != nil && pass.Leave(i) {
				outcomes[i] = Outcome{Action: Left, Live: a.live(i, m, pass).Object}
				continue
			}
			task, step := a.begin(i, m, pass)
			switch {
			case step.Err != nil:
				outcomes[i] = task.failed(step.Err)
				continue
			case step.Verb == Keep && pass.Permit == nil:
				outcomes[i] = task.kept()
				continue
			}
			if begun != nil { // it holds a slot: waiting for another before it runs could be for ever
				group.Go(begun)
				begun = nil
			}
			release, err := a.acquire(ctx)
			if err != nil {
				outcomes[i] = Outcome{Err: fmt.Errorf("apply %s: %w", m.Ref, err)}
				continue
			}
			begun = func() {
				defer release()
				if pass.Permit != nil {
					if err := pass.Permit(ctx, m); err != nil {
						outcomes[i] = task.failed(err)
						return
					}
				}
				outcomes[i] = task.run(ctx, step)
			}
		}
		if begun != nil {
			begun() // here, where the stack has grown already
		}
		group.Wait()
	}
	return outcomes
}

// live gives what is known of a manifest's object.
func (a *Applier) live(i int, m *Manifest, pass Pass) object.Live {
	if pass.Seen != nil {
		if live, ok := pass.Seen(i); ok {
			return live
		}
	}
	return a.config.Cache.Get(m.Ref)
}

// acquire waits for a slot; release gives it back.
func (a *Applier) acquire(ctx context.Context) (release func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case a.slots <- struct{}{}:
		return func() { <-a.slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
