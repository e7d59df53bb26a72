package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/pkg/hub/internal/clusters"
	"github.com/workwire/workwire/pkg/runtime/leader"
	"github.com/workwire/workwire/pkg/wire"
)

// errWholeHub ends a hub with a selector.
var errWholeHub = errors.New("a hub without --cluster-selector runs under the same source id: stop it, or give it a selector too")

// SharedLease returns the name of the Lease of a hub that serves all clusters of source. Of several hubs
// with a selector, the one that holds it runs the controllers that are not about single clusters; a hub
// without a selector stands by meanwhile.
func SharedLease(source wire.SourceID) string { return "work-hub-" + string(source) }

// partMark separates the name of a hub with a selector, in the identity of the holder of [SharedLease],
// from the identity of its replica. No host has it in its name.
const partMark = "/"

// completePart reports every fault of the fields that a selector needs.
func (c *Config) completePart() error {
	if c.ClusterSelector == nil {
		return nil
	}
	var errs []error
	if c.Election.Disabled {
		errs = append(errs, errors.New("ClusterSelector needs an election"))
	}
	if !c.Election.Disabled && c.Election.Name == SharedLease(c.Source) {
		errs = append(errs, fmt.Errorf("with ClusterSelector, the Lease must not be %s, which is that of a hub without a selector", c.Election.Name))
	}
	if !slices.Contains(c.Controllers, ControllerClusters) {
		errs = append(errs, fmt.Errorf("ClusterSelector needs the controller %q", ControllerClusters))
	}
	if c.AutoRegister && !c.ClusterSelector.Matches(labels.Set{}) {
		errs = append(errs, errors.New("AutoRegister needs a ClusterSelector that selects clusters without labels: a new ManagedCluster has none"))
	}
	return errors.Join(errs...)
}

// part returns the part of the clusters that the hub serves, nil for all.
func (h *Hub) part() (*clusters.Part, error) {
	if h.cfg.ClusterSelector == nil {
		return nil, nil
	}
	client, err := kubernetes.NewForConfig(h.cfg.REST)
	if err != nil {
		return nil, fmt.Errorf("client of the Kubernetes API: %w", err)
	}
	others := leader.NewOthers(client.CoordinationV1().Leases(h.cfg.Election.Namespace))
	return &clusters.Part{
		Hub: h.cfg.Election.Name, Selector: h.cfg.ClusterSelector, Ended: others.Ended,
		Busy: func(cluster wire.ClusterName) bool {
			h.tellCluster(cluster) // the watch event may not have been handled yet
			return h.delivery.Busy(cluster)
		},
	}, nil
}

// serves returns the function that reports whether the hub serves a cluster; nil: it serves all.
func (h *Hub) serves() func(wire.ClusterName) bool {
	if h.cfg.ClusterSelector == nil {
		return nil
	}
	return h.clusters.Serves
}

// partName returns the name of the part of the clusters that the hub serves; empty: all.
func (h *Hub) partName() string {
	if h.cfg.ClusterSelector == nil {
		return ""
	}
	return h.cfg.Election.Name
}

// runShared stands for [SharedLease] and runs the shared controllers while it holds it, until ctx ends.
// It calls alone once it knows that no hub without a selector leads, and returns an error when one does
// after that.
func (h *Hub) runShared(ctx context.Context, alone func()) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var mu sync.Mutex
	known := false
	seen := func(part bool) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case part && !known:
			known = true
			alone()
		case !part && known:
			fail(errWholeHub)
		case !part:
			h.cfg.Logger.Error("a hub without --cluster-selector runs under the same source id, waiting until it has ended", "lease", SharedLease(h.cfg.Source))
		}
	}
	election := h.cfg.Election
	election.Name, election.Identity = SharedLease(h.cfg.Source), h.cfg.Election.Name+partMark+h.cfg.Election.Identity
	err := leader.Run(ctx, leader.Config{
		Options: election, REST: h.cfg.REST, Logger: h.cfg.Logger,
		Leading: func(leads bool) {
			if h.sharing.Store(leads); leads {
				seen(true)
			}
		},
		Standby: func(holder string) { seen(strings.Contains(holder, partMark)) },
	}, h.runSharedControllers)
	if errors.Is(context.Cause(ctx), errWholeHub) {
		return errWholeHub
	}
	return err
}

// runSharedControllers runs the controllers that are not about single clusters, on caches that hold all
// that the hub before has written.
func (h *Hub) runSharedControllers(ctx context.Context) error {
	if !h.informers.CatchUp(ctx) {
		return nil
	}
	h.cfg.Logger.Info("running the controllers that hubs share", "controllers", h.cfg.Controllers)
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range h.shared {
		group.Go(func() error { return c.run(ctx) })
	}
	<-ctx.Done()
	return group.Wait()
}
