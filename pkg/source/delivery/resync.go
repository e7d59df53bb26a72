package delivery

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

const (
	// resyncWorkers is the number of clusters that are resynced concurrently.
	resyncWorkers = 8
	// resyncListMax is the maximum size in bytes of a status resync request, whatever larger
	// packets the broker accepts.
	resyncListMax = 128 << 10
	// resyncHeadroom is the maximum size in bytes of an event's topic, attributes and extensions.
	resyncHeadroom = 2 << 10
)

// resyncTask is what to do for a cluster.
type resyncTask struct {
	request         *wire.SpecResync // answer it, if set
	requestStatuses bool
	probe           bool
}

// mergeResyncTasks merges two tasks. A request lists all works that its agent holds, so the newer
// one replaces the older.
func mergeResyncTasks(older, newer resyncTask) resyncTask {
	if newer.request == nil {
		newer.request = older.request
	}
	newer.requestStatuses = newer.requestStatuses || older.requestStatuses
	newer.probe = newer.probe || older.probe
	return newer
}

// runResync carries out the task of a cluster. It reports whether to retry.
func (e *Engine) runResync(ctx context.Context, name wire.ClusterName, r resyncTask) (retry bool) {
	if r.request != nil {
		e.answerSpecResync(r.request)
	}
	var err error
	if r.requestStatuses {
		err = e.requestStatusResync(ctx, name)
	}
	if r.probe && err == nil {
		err = e.probeCluster(ctx, name)
	}
	var tooLarge *transport.TooLargeError
	var invalidCluster *invalidClusterError
	switch {
	case err == nil, ctx.Err() != nil:
	case errors.Is(err, transport.ErrNotConnected): // the next connect requests again
	case errors.As(err, &tooLarge), errors.As(err, &invalidCluster), errors.Is(err, transport.ErrNotAuthorized):
		e.log.Error("status resync request refused, not retrying", "cluster", name, "error", err)
	default:
		e.log.Warn("status resync request failed, retrying", "cluster", name, "error", err)
		return true
	}
	return false
}

// answerSpecResync enqueues the works that r requests (docs/protocol.md, Spec resync). It costs
// O(n) for n works of the cluster and of the request.
func (e *Engine) answerSpecResync(r *wire.SpecResync) {
	works := make(map[types.UID]*workv1.ManifestWork)
	send, gone := r.Answer(func(yield func(wire.WorkVersion) bool) {
		for work := range e.config.Works.ListCluster(r.Cluster) {
			works[work.UID] = work
			if !yield(wire.WorkVersion{UID: work.UID, Generation: wire.Generation(work.Generation), Deleting: work.DeletionTimestamp != nil}) {
				return
			}
		}
	})
	e.updateState(func() {
		for _, have := range r.Versions {
			if own, ok := works[have.UID]; ok && have.Generation <= wire.Generation(own.Generation) {
				e.state.agentHolds(workKey{uid: have.UID, cluster: r.Cluster}, have.Generation)
			}
		}
		for _, uid := range send {
			e.state.forcePublish(workKey{uid: uid, cluster: r.Cluster}, true)
		}
		for _, have := range gone {
			e.state.deleteUnknown(workKey{uid: have.UID, cluster: r.Cluster}, have.Generation)
		}
	})
	for _, have := range r.Versions {
		if own, ok := works[have.UID]; ok && have.Generation > wire.Generation(own.Generation) {
			e.log.Warn("agent holds a higher generation than the source", "work", own.Name, "uid", have.UID, "cluster", r.Cluster,
				"generation", have.Generation, "sourceGeneration", own.Generation)
			e.statusQueue.add(keyOf(own), statusUpdate{name: own.Name, agentGeneration: have.Generation})
		}
	}
	e.metrics.resyncAnswers.WithLabelValues("sent").Add(float64(len(send)))
	e.metrics.resyncAnswers.WithLabelValues("gone").Add(float64(len(gone)))
	e.log.Info("spec resync answered", "cluster", r.Cluster, "agent", r.Agent, "listed", len(r.Versions), "sent", len(send), "gone", len(gone))
}

// noStatus lists a work that does not exist, with a hash that no status has.
func noStatus() []wire.StatusVersion { return []wire.StatusVersion{{UID: "none", Hash: "none"}} }

// probeAllClusters asks all clusters for a message, also those that the source does not know yet,
// if a broadcast topic is configured.
func (e *Engine) probeAllClusters(ctx context.Context) {
	topic, ok := e.topics.Broadcast()
	if !ok {
		return
	}
	err := e.publishTo(ctx, topic, &wire.StatusResync{Source: e.config.Source, Hashes: noStatus()})
	if err != nil && ctx.Err() == nil && !errors.Is(err, transport.ErrNotConnected) {
		e.log.Warn("probe of all clusters failed", "topic", topic, "error", err)
	}
}

// probeCluster publishes a status resync request for a single work with a hash that no status has. The agent
// answers with the status if it has the work, and publishes its presence if it supports that. For a cluster
// without works the request lists a work that does not exist, since an empty list would request everything.
func (e *Engine) probeCluster(ctx context.Context, name wire.ClusterName) error {
	r := &wire.StatusResync{Source: e.config.Source, Cluster: name, Hashes: noStatus()}
	for work := range e.config.Works.ListCluster(name) {
		r.Hashes[0].UID = work.UID
		break
	}
	return e.publishToCluster(ctx, name, r)
}

// requestStatusResync publishes the status resync requests for a cluster (docs/protocol.md, Status
// resync). A cluster without works gets none, since an empty list would request everything.
func (e *Engine) requestStatusResync(ctx context.Context, name wire.ClusterName) error {
	r := &wire.StatusResync{Source: e.config.Source, Cluster: name}
	for work := range e.config.Works.ListCluster(name) {
		hash, err := e.statusHash(work)
		if err != nil {
			return err
		}
		r.Hashes = append(r.Hashes, wire.StatusVersion{UID: work.UID, Hash: hash})
	}
	if len(r.Hashes) == 0 {
		return nil
	}
	limit := resyncListMax
	if announced := e.config.Transport.Limit(); announced > 0 {
		limit = min(limit, max(announced-resyncHeadroom, 1))
	}
	for _, part := range r.Split(limit) {
		if err := e.publishToCluster(ctx, name, part); err != nil {
			return err
		}
		e.metrics.statusResyncs.Inc()
	}
	return nil
}

// statusHash returns the hash of work's status. It is computed once per resourceVersion.
func (e *Engine) statusHash(work *workv1.ManifestWork) (string, error) {
	k, version := keyOf(work), work.ResourceVersion
	e.mu.Lock()
	w, ok := e.state.works[k]
	if ok && version != "" && w.hashVersion == version {
		defer e.mu.Unlock()
		return w.hash, nil
	}
	e.mu.Unlock()
	hash, err := wire.StatusHash(&work.Status)
	if err != nil {
		return "", err
	}
	e.updateState(func() {
		if w, ok := e.state.works[k]; ok {
			w.hash, w.hashVersion = hash, version
		}
	})
	return hash, nil
}
