package events

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/wire"
)

// Agents are simulated agents, each with a connection of its own. One goroutine at a time may use
// it.
type Agents struct {
	source   wire.SourceID
	clusters []wire.ClusterName
	clients  []*client

	mu    sync.Mutex
	specs map[types.UID]*wire.Spec // received since Expect
	want  int
	last  time.Time
	done  chan struct{}
	err   error // the first that could not be read
}

// NewAgents connects an agent for each cluster, with what transport gives for it.
func NewAgents(ctx context.Context, transport func(user string) config.Config, source wire.SourceID, clusters []wire.ClusterName) (*Agents, error) {
	a := &Agents{source: source, clusters: clusters}
	for _, cluster := range clusters {
		topic := fmt.Sprintf("sources/%s/clusters/%s/sourceevents", source, cluster)
		c, err := connect(ctx, transport(string(cluster)), string(cluster)+"-agent", []string{topic}, a.received)
		if err != nil {
			return nil, errors.Join(err, a.Close())
		}
		a.clients = append(a.clients, c)
	}
	return a, nil
}

// Close disconnects. It may be called on nil.
func (a *Agents) Close() error {
	if a == nil {
		return nil
	}
	var errs []error
	for _, c := range a.clients {
		errs = append(errs, c.close())
	}
	return errors.Join(errs...)
}

// Expect forgets the specs received, and expects those of n works.
func (a *Agents) Expect(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.specs, a.want, a.done = make(map[types.UID]*wire.Spec, n), n, make(chan struct{})
}

// Await waits for the specs expected and gives the time from start to the last.
func (a *Agents) Await(ctx context.Context, start time.Time) (time.Duration, error) {
	bounded, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	select {
	case <-a.done:
	case <-bounded.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.specs) < a.want {
		return 0, fmt.Errorf("%d of %d works are published: %w", len(a.specs), a.want, errors.Join(context.Cause(bounded), a.err))
	}
	return a.last.Sub(start), a.err
}

func (a *Agents) received(m transport.Message) {
	now := time.Now()
	message, err := wire.Decode(m.Event)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		if a.err == nil {
			a.err = err
		}
		return
	}
	spec, ok := message.(*wire.Spec)
	if !ok || spec.IsDeletion() || a.specs == nil || a.specs[spec.UID] != nil || len(a.specs) == a.want {
		return
	}
	a.specs[spec.UID] = spec
	a.last = now
	if len(a.specs) == a.want {
		close(a.done)
	}
}

// Report publishes a status for every work received: it is applied and available.
func (a *Agents) Report(ctx context.Context) error {
	byCluster := map[wire.ClusterName][]packet{}
	var sequence wire.Sequence
	a.mu.Lock()
	for _, spec := range a.specs {
		p, err := encode(fmt.Sprintf("sources/%s/clusters/%s/agentevents", a.source, spec.Cluster), &wire.Status{
			UID: spec.UID, Generation: spec.Generation, Source: a.source, Cluster: spec.Cluster, Agent: string(spec.Cluster) + "-agent",
			Action: wire.Update, Meta: spec.Meta, Sequence: sequence.Next(time.Now()), Status: Well(int64(spec.Generation)),
		})
		if err != nil {
			a.mu.Unlock()
			return err
		}
		byCluster[spec.Cluster] = append(byCluster[spec.Cluster], p)
	}
	a.mu.Unlock()
	var group errgroup.Group
	for i, cluster := range a.clusters {
		group.Go(func() error {
			for _, p := range byCluster[cluster] {
				if err := deliver(ctx, a.clients[i].link, p); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// Well is the status of a work of two ConfigMaps that is as it should be.
func Well(generation int64) workv1.ManifestWorkStatus {
	now := metav1.Now()
	var status workv1.ManifestWorkStatus
	conditions := func(to *[]metav1.Condition, generation int64, kinds ...string) {
		for _, kind := range kinds {
			meta.SetStatusCondition(to, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind, ObservedGeneration: generation,
				LastTransitionTime: now, Message: "All resources are as they should be"})
		}
	}
	conditions(&status.Conditions, generation, workv1.WorkApplied, workv1.WorkAvailable)
	for i := range int32(2) {
		manifest := workv1.ManifestCondition{ResourceMeta: workv1.ManifestResourceMeta{
			Ordinal: i, Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespace: "default", Name: fmt.Sprintf("object-%d", i),
		}}
		conditions(&manifest.Conditions, 0, workv1.WorkApplied, workv1.WorkAvailable)
		status.ResourceStatus.Manifests = append(status.ResourceStatus.Manifests, manifest)
	}
	return status
}
