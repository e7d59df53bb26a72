package executor

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

const (
	// settleFor is how long a change of RBAC is let settle before followers are
	// told: the API server's authorizer learns of it at about the same time, and
	// changes often come together.
	settleFor = 50 * time.Millisecond
	// sweepEvery is how often what is out of date is dropped.
	sweepEvery = time.Minute
	// touchedFor is how long it is remembered that something changed. No review
	// takes as long.
	touchedFor = 10 * time.Minute
)

// Config configures [New].
type Config[K comparable] struct {
	// Client for the agent's cluster, made from a configuration that
	// dynamic.ConfigFor gave. Its rate limit applies. It needs the rights to create
	// subjectaccessreviews, to impersonate serviceaccounts, and, for what is told at
	// once and for InMemory, to list and watch roles, clusterroles and their
	// bindings. Required.
	Client rest.Interface
	// InMemory answers from RBAC objects held in memory instead of by
	// SubjectAccessReviews, for clusters whose authorizer is RBAC only.
	InMemory bool
	// Changed is called with each follower of an account that an RBAC change
	// concerns. It must not block. Required.
	Changed func(K)
	// Logger; required.
	Logger *slog.Logger
}

// Executor answers what accounts may do. K identifies a follower. It is safe for
// concurrent use.
type Executor[K comparable] struct {
	config Config[K]
	client dynamic.Interface
	wake   chan struct{} // holds a token when pending is not empty

	mu        sync.Mutex
	run       context.Context // set while Run runs
	watches   sync.WaitGroup
	watch     *rbacWatch         // nil while nobody follows
	stop      context.CancelFunc // ends watch
	followed  map[Account]*followed[K]
	listeners map[matter]set[Account] // of the followed accounts
	pending   set[Account]            // followers to be told
	touched   map[matter]time.Time    // when a change last concerned it
	renewed   time.Time               // when a kind was first listed: anything may have changed
}

// followed is an account that somebody follows.
type followed[K comparable] struct {
	keys    set[K]
	matters set[matter] // its identity, and the roles that it is about to bind
	answers map[question]answer
}

// New returns an executor that watches once Run is called. Without, it answers
// all the same, and keeps answers until they are old.
func New[K comparable](config Config[K]) *Executor[K] {
	return &Executor[K]{
		config:    config,
		client:    dynamic.New(config.Client),
		wake:      make(chan struct{}, 1),
		followed:  map[Account]*followed[K]{},
		listeners: map[matter]set[Account]{},
		pending:   set[Account]{},
		touched:   map[matter]time.Time{},
	}
}

// Run watches RBAC objects, as long as somebody follows, until ctx ends, and
// returns when the watches have ended. It must be called once.
func (e *Executor[K]) Run(ctx context.Context) error {
	e.mu.Lock()
	e.run = ctx
	e.start()
	e.mu.Unlock()
	e.tell(ctx)
	e.mu.Lock()
	e.run = nil
	e.mu.Unlock()
	e.watches.Wait()
	return nil
}

// tell calls Changed for what is pending, and sweeps, until ctx ends.
func (e *Executor[K]) tell(ctx context.Context) {
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweep.C:
			e.sweep(time.Now())
		case <-e.wake:
			settled := time.NewTimer(settleFor)
			select {
			case <-ctx.Done():
				settled.Stop()
				return
			case <-settled.C:
			}
			for _, key := range e.takePending() {
				e.config.Changed(key)
			}
		}
	}
}

// takePending gives the keys to be told, once.
func (e *Executor[K]) takePending() []K {
	e.mu.Lock()
	defer e.mu.Unlock()
	var keys []K
	for account := range e.pending {
		if f := e.followed[account]; f != nil {
			for key := range f.keys {
				keys = append(keys, key)
			}
		}
	}
	clear(e.pending)
	return keys
}

// Follow replaces the account whose changes of permissions are reported to key: before, as of the
// previous call, by after; nil is none. Answers are kept for accounts that are followed. Calls for one
// key must not run at the same time.
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
	if len(e.followed) == 0 && e.watch != nil {
		e.stop()
		e.watch = nil
	}
	e.start()
}

// join makes key a follower of account. The caller holds mu.
func (e *Executor[K]) join(key K, account Account) {
	f := e.followed[account]
	if f == nil {
		f = &followed[K]{keys: set[K]{}, matters: set[matter]{}, answers: map[question]answer{}}
		e.followed[account] = f
		for _, m := range identity(account) {
			e.listen(account, f, m)
		}
	}
	f.keys[key] = struct{}{}
}

// listen makes changes of m concern account. The caller holds mu.
func (e *Executor[K]) listen(account Account, f *followed[K], m matter) {
	f.matters[m] = struct{}{}
	insert(e.listeners, m, account)
}

// leave undoes join. The caller holds mu.
func (e *Executor[K]) leave(key K, account Account) {
	f := e.followed[account]
	delete(f.keys, key)
	if len(f.keys) > 0 {
		return
	}
	for m := range f.matters {
		remove(e.listeners, m, account)
	}
	delete(e.followed, account)
	delete(e.pending, account)
}

// start begins to watch if Run runs and somebody follows. The caller holds mu.
func (e *Executor[K]) start() {
	if e.run == nil || e.watch != nil || len(e.followed) == 0 {
		return
	}
	ctx, stop := context.WithCancel(e.run)
	watch := newRBACWatch(e.client, e.config.Logger, e.changed)
	e.watch, e.stop = watch, stop
	e.watches.Go(func() { watch.run(ctx) })
}

// changed drops the answers that a change of RBAC concerns, and has the
// followers told.
func (e *Executor[K]) changed(concerned []matter, renewed bool) {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range concerned {
		e.touched[m] = now
		for account := range e.listeners[m] {
			clear(e.followed[account].answers)
			e.pending[account] = struct{}{}
		}
	}
	if renewed {
		e.renewed = now
		for account, f := range e.followed {
			if len(f.answers) > 0 {
				clear(f.answers)
				e.pending[account] = struct{}{}
			}
		}
	}
	if len(e.pending) > 0 {
		select {
		case e.wake <- struct{}{}:
		default: // it is awake
		}
	}
}

// sweep drops what is out of date.
func (e *Executor[K]) sweep(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for m, when := range e.touched {
		if now.Sub(when) > touchedFor {
			delete(e.touched, m)
		}
	}
	for account, f := range e.followed {
		binding := set[matter]{}
		for q, a := range f.answers {
			if !now.Before(a.until) {
				delete(f.answers, q)
				continue
			}
			binding[a.binds] = struct{}{}
		}
		for m := range f.matters {
			if _, needed := binding[m]; m.kind == role && !needed {
				delete(f.matters, m)
				remove(e.listeners, m, account)
			}
		}
	}
}
