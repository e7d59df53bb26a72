// Package executor checks whether the executor of a work may get an object, and do what applying a
// manifest needs. An executor is a ServiceAccount of the cluster. The agent writes what may grant
// rights as the executor. All else it reads and writes as the executor if it may impersonate it, and
// otherwise with its own rights what the executor could read and write itself.
//
//	executors, err := executor.New(executor.Config[Key]{Client: client, Changed: queue.Add, Logger: logger})
//	go executors.Run(ctx)
//	account, err := executor.AccountOf(spec.Executor)   // nil: nothing is checked
//	executors.Follow(key, nil, account)                 // Changed is called when its rights change
//	recheck, err := executors.MayRead(ctx, *account, m.Ref)
//	recheck, err = executors.Check(ctx, *account, &m)   // nil: allowed; *DeniedError: denied
//	clients, err := executors.Clients(ctx, *account, &m)
//
// The API server decides, by SubjectAccessReviews and, for RBAC's own kinds, by a dry-run create as
// the executor, which it refuses if the executor would grant rights that it does not have.
// Decisions are cached until an RBAC object that affects the account changes, as watches report, or
// until they expire. With [Config.InMemory], RBAC is evaluated from the watched objects, and
// reviews are requested only while the watches do not work.
package executor

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/workwire/workwire/pkg/runtime/required"
)

const (
	// notifyDelay is the time between a change of RBAC and the notification of followers: the API
	// server's authorizer sees the change at about the same time, and changes often come together.
	notifyDelay = 50 * time.Millisecond
	// sweepInterval is the time between removals of expired entries.
	sweepInterval = time.Minute
	// changeRetention is how long the time of a change is kept. No review takes as long.
	changeRetention = 10 * time.Minute
)

// Config configures [New].
type Config[K comparable] struct {
	// Client for the agent's cluster, made from a configuration that dynamic.ConfigFor returned.
	// Its rate limit applies. It needs the rights to create subjectaccessreviews and to impersonate
	// serviceaccounts; and to list and watch roles, clusterroles and their bindings, for immediate
	// notification and for InMemory. Required.
	Client rest.Interface
	// InMemory evaluates watched RBAC objects instead of requesting SubjectAccessReviews, for
	// clusters whose only authorizer is RBAC.
	InMemory bool
	// Changed is called with each follower of an account that a change of RBAC affects. It must not
	// block. Required.
	Changed func(K)
	// Logger, default slog.Default().
	Logger *slog.Logger
}

// Executor decides what accounts may do. K identifies a follower. It is safe for concurrent use.
type Executor[K comparable] struct {
	config   Config[K]
	client   dynamic.Interface
	followed chan struct{} // holds a token when Run has to start or to stop the watch

	mu         sync.Mutex
	queue      workqueue.TypedDelayingInterface[Account] // of accounts to notify; nil unless Run runs
	watch      *rbacWatch                                // nil while nobody follows
	accounts   map[Account]*accountState[K]              // that somebody follows
	dependents map[dependency]sets.Set[Account]
	changedAt  map[dependency]time.Time
	syncedAt   time.Time // when a kind was first listed: anything may have changed before
}

// accountState is an account that somebody follows.
type accountState[K comparable] struct {
	followers    sets.Set[K]
	dependencies sets.Set[dependency] // its identity, and roles that it was asked to bind
	decisions    map[query]cachedDecision
	// impersonation is whether the agent may impersonate the account.
	impersonation impersonation
}

// New returns an executor. It watches RBAC while Run runs. Without Run it decides too, and caches
// decisions until they expire.
func New[K comparable](cfg Config[K]) (*Executor[K], error) {
	if err := required.Fields(cfg, "Client", "Changed"); err != nil {
		return nil, fmt.Errorf("create the executor: %w", err)
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	return &Executor[K]{
		config:     cfg,
		client:     dynamic.New(cfg.Client),
		followed:   make(chan struct{}, 1),
		accounts:   map[Account]*accountState[K]{},
		dependents: map[dependency]sets.Set[Account]{},
		changedAt:  map[dependency]time.Time{},
	}, nil
}

// Run watches RBAC objects while somebody follows an account. It returns after ctx has ended and
// the watches have stopped. It must be called once.
func (e *Executor[K]) Run(ctx context.Context) error {
	queue := workqueue.NewTypedDelayingQueue[Account]()
	e.mu.Lock()
	e.queue = queue
	e.mu.Unlock()
	var group sync.WaitGroup
	group.Go(func() { e.notify(queue) })
	group.Go(func() {
		wait.UntilWithContext(ctx, func(context.Context) { e.sweep(time.Now()) }, sweepInterval)
	})
	stop := func() {}
	for ctx.Err() == nil {
		switch watch, needed := e.nextWatch(); {
		case watch != nil:
			watching, end := context.WithCancel(ctx)
			stop = end
			group.Go(func() { watch.run(watching) })
		case !needed:
			stop()
		}
		select {
		case <-ctx.Done():
		case <-e.followed:
		}
	}
	stop()
	queue.ShutDown()
	group.Wait()
	return nil
}

// nextWatch returns a new watch if one has to be started, and whether one is needed.
func (e *Executor[K]) nextWatch() (watch *rbacWatch, needed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case len(e.accounts) == 0:
		e.watch = nil
		return nil, false
	case e.watch != nil:
		return nil, true
	}
	e.watch = newRBACWatch(e.client, e.config.Logger, e.changed)
	return e.watch, true
}

// notify calls Changed for the followers of queued accounts until the queue is shut down.
func (e *Executor[K]) notify(queue workqueue.TypedInterface[Account]) {
	for {
		account, shutdown := queue.Get()
		if shutdown {
			return
		}
		e.mu.Lock()
		var followers []K
		if state := e.accounts[account]; state != nil {
			followers = state.followers.UnsortedList()
		}
		e.mu.Unlock()
		for _, key := range followers {
			e.config.Changed(key)
		}
		queue.Done(account)
	}
}

// Follow replaces the account whose changes of rights are reported to key: before, as in the
// previous call for key, by after; nil is none. Decisions are cached for accounts that somebody
// follows. Calls for one key must not run at the same time.
func (e *Executor[K]) Follow(key K, before, after *Account) {
	if before == after || before != nil && after != nil && *before == *after {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if after != nil {
		e.join(key, *after)
	}
	if before != nil {
		e.leave(key, *before)
	}
	if needed := len(e.accounts) > 0; needed != (e.watch != nil) {
		select {
		case e.followed <- struct{}{}:
		default: // Run has not seen the last change yet
		}
	}
}

// join makes key a follower of account. The caller holds mu.
func (e *Executor[K]) join(key K, account Account) {
	state := e.accounts[account]
	if state == nil {
		state = &accountState[K]{followers: sets.New[K](), dependencies: sets.New[dependency](), decisions: map[query]cachedDecision{}}
		e.accounts[account] = state
		for _, d := range identity(account) {
			e.depend(account, state, d)
		}
	}
	state.followers.Insert(key)
}

// depend makes changes of d affect account. The caller holds mu.
func (e *Executor[K]) depend(account Account, state *accountState[K], d dependency) {
	state.dependencies.Insert(d)
	insert(e.dependents, d, account)
}

// leave undoes join. The caller holds mu.
func (e *Executor[K]) leave(key K, account Account) {
	state := e.accounts[account]
	if state.followers.Delete(key); len(state.followers) > 0 {
		return
	}
	for d := range state.dependencies {
		remove(e.dependents, d, account)
	}
	delete(e.accounts, account)
}

// changed drops the decisions that a change of RBAC affects, and notifies the followers. Synced
// means that a kind was listed for the first time.
func (e *Executor[K]) changed(affected []dependency, synced bool) {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	accounts := sets.New[Account]()
	for _, d := range affected {
		e.changedAt[d] = now
		for account := range e.dependents[d] {
			accounts.Insert(account)
		}
	}
	if synced {
		e.syncedAt = now
		for account, state := range e.accounts {
			if len(state.decisions) > 0 {
				accounts.Insert(account)
			}
		}
	}
	for account := range accounts {
		clear(e.accounts[account].decisions)
		e.queue.AddAfter(account, notifyDelay)
	}
}

// sweep drops expired entries.
func (e *Executor[K]) sweep(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.changedAt, func(_ dependency, when time.Time) bool { return now.Sub(when) > changeRetention })
	for account, state := range e.accounts {
		maps.DeleteFunc(state.decisions, func(_ query, d cachedDecision) bool { return !now.Before(d.until) })
		needed := sets.New[dependency]()
		for _, d := range state.decisions {
			needed.Insert(d.role)
		}
		for d := range state.dependencies {
			if d.kind == role && !needed.Has(d) {
				state.dependencies.Delete(d)
				remove(e.dependents, d, account)
			}
		}
	}
}
