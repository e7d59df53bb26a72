// Package leadership answers for a hub: does this process publish, for which clusters, and who says so?
//
//	question                                    who says so                                  file
//	does this replica publish?                  the Lease of its name                        leadership.go
//	for which clusters?                         the annotation workwire.dev/hub of each      shard.go
//	does it run the controllers that are        the Lease of the source id, for which        leadership.go
//	about no single cluster?                    hubs with a selector stand
//	does anybody publish now? (for readers)     the Lease of presence                        presence.go
//	does another program publish all the same?  announcements on the broker                  others.go
//
// Package runtime/leader has what all Leases share. A hub without a selector serves all clusters: its
// [Shard] is nil, and of the table only the first row, and the last two, apply to it.
package leadership

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/runtime/leader"
	"github.com/workwire/workwire/pkg/wire"
)

// errNoSelector ends a hub with a selector.
var errNoSelector = errors.New("a hub without --cluster-selector runs under the same source id: stop it, or give it a selector too")

// shardMark separates the name of a hub with a selector, in the identity of the holder of [SharedLease],
// from the identity of its replica. No host has it in its name.
const shardMark = "/"

// SharedLease returns the name of the Lease of a hub that serves all clusters of source. Of several hubs
// with a selector, the one that holds it runs the controllers that are about no single cluster; a hub
// without a selector stands by meanwhile.
func SharedLease(source wire.SourceID) string { return "work-hub-" + string(source) }

// Config configures a [Leadership]. All fields are required.
type Config struct {
	// ShardConfig has the clusters of the hub, all without a Selector; New sets Hub and Ended.
	ShardConfig
	// Election elects the leader among the replicas of this hub. Without one there is one replica, no
	// Selector, and no Lease.
	Election leader.Options
	// REST is how to reach the API server that holds the Leases.
	REST *rest.Config
	// Source is the source id of the hub, and Identity the object that events about it are about.
	Source   wire.SourceID
	Identity *corev1.ObjectReference
}

// Leadership knows what a hub is in charge of. Its methods are safe for concurrent use.
type Leadership struct {
	// Shard is the clusters that the hub serves; nil: all.
	Shard    *Shard
	cfg      Config
	presence *presence   // nil without an election
	leads    atomic.Bool // this replica holds the Lease of the hub
	global   atomic.Bool // and runs the controllers that are about no single cluster
	current  atomic.Bool // the caches hold all that was written before the term
}

// New returns the leadership of a hub. It does no I/O and starts nothing.
func New(cfg Config) (*Leadership, error) {
	l := &Leadership{cfg: cfg}
	if cfg.Election.Disabled {
		return l, nil
	}
	client, err := kubernetes.NewForConfig(cfg.REST)
	if err != nil {
		return nil, fmt.Errorf("client of the Kubernetes API: %w", err)
	}
	leases := client.CoordinationV1().Leases(cfg.Election.Namespace)
	if cfg.Selector != nil {
		cfg.Hub, cfg.Ended = cfg.Election.Name, leader.NewOthers(leases).Ended
		l.Shard = NewShard(cfg.ShardConfig)
	}
	l.presence = newPresence(leases, l.Shard.Name(), &cfg)
	return l, nil
}

// Term is what a hub does while it leads. Each function ends with its context.
type Term struct {
	// CatchUp waits until the caches of the hub hold all that was written before now. It reports false
	// when ctx ended before.
	CatchUp func(ctx context.Context) bool
	// Serve publishes to the clusters of the hub, and stores what they say.
	Serve func(ctx context.Context) error
	// Global runs the controllers that are about no single cluster. It returns at once if there are none.
	Global func(ctx context.Context) error
}

// Run waits until this replica leads and then runs t until ctx ends or leadership is lost, see
// [leader.Run]. It must be called once: a hub has one term at most.
func (l *Leadership) Run(ctx context.Context, t Term) error {
	return leader.Run(ctx, leader.Config{
		Options: l.cfg.Election, REST: l.cfg.REST, Logger: l.cfg.Logger, Leading: l.leads.Store,
	}, func(ctx context.Context) error { return l.lead(ctx, t) })
}

// lead runs the term.
func (l *Leadership) lead(ctx context.Context, t Term) error {
	if l.cfg.Election.Disabled {
		t.CatchUp = func(context.Context) bool { return true } // caches that are filled now hold it
	}
	if !t.CatchUp(ctx) {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	serve := func() error {
		l.current.Store(true)
		if l.presence != nil {
			group.Go(func() error { l.presence.run(ctx); return nil })
		}
		return t.Serve(ctx)
	}
	if l.Shard == nil {
		l.global.Store(true)
		group.Go(func() error { return t.Global(ctx) })
		group.Go(serve)
		return group.Wait()
	}
	alone, served := make(chan struct{}), make(chan struct{})
	group.Go(func() error { return l.runGlobal(ctx, t, func() { close(alone) }, served) })
	group.Go(func() error {
		defer close(served)
		select {
		case <-alone:
		case <-ctx.Done():
			return nil
		}
		if !t.CatchUp(ctx) { // with what a hub without a selector has written before it ended
			return nil
		}
		return serve()
	})
	return group.Wait()
}

// runGlobal stands for [SharedLease] and runs t.Global while this hub holds it, until term ends. It calls
// alone once it knows that no hub without a selector leads, and returns an error when one does after that. It
// keeps the Lease until served is closed: once it is released, a hub without a selector publishes.
func (l *Leadership) runGlobal(term context.Context, t Term, alone func(), served <-chan struct{}) error {
	ctx, fail := context.WithCancelCause(term)
	defer fail(nil)
	var mu sync.Mutex
	known := false
	seen := func(selects bool) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case selects && !known:
			known = true
			alone()
		case !selects && known:
			fail(errNoSelector)
		case !selects:
			l.cfg.Logger.Error("a hub without --cluster-selector runs under the same source id, waiting until it has ended", "lease", SharedLease(l.cfg.Source))
		}
	}
	election := l.cfg.Election
	election.Name, election.Identity = SharedLease(l.cfg.Source), l.cfg.Election.Name+shardMark+l.cfg.Election.Identity
	err := leader.Run(ctx, leader.Config{
		Options: election, REST: l.cfg.REST, Logger: l.cfg.Logger,
		Leading: func(leads bool) {
			if l.global.Store(leads); leads {
				seen(true)
			}
		},
		Standby: func(holder string) { seen(strings.Contains(holder, shardMark)) },
	}, func(ctx context.Context) error {
		if t.CatchUp(ctx) { // with what the hub before has written
			l.cfg.Logger.Info("running the controllers that are about no single cluster")
			if err := t.Global(ctx); err != nil {
				return err
			}
		}
		<-ctx.Done() // there may be no such controllers
		if term.Err() != nil {
			<-served
		}
		return nil
	})
	if errors.Is(context.Cause(ctx), errNoSelector) {
		return errNoSelector
	}
	return err
}

// Leads reports whether this replica leads.
func (l *Leadership) Leads() bool { return l.leads.Load() }

// LeadsGlobally reports whether it also runs the controllers that are about no single cluster.
func (l *Leadership) LeadsGlobally() bool { return l.Leads() && l.global.Load() }

// Ready returns why this replica, which leads, does not act yet; nil if it acts or does not lead.
func (l *Leadership) Ready() error {
	if l.leads.Load() && !l.current.Load() {
		return errors.New("the new leader has not seen yet everything that was written before its term")
	}
	return nil
}
