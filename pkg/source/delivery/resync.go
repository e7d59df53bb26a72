package delivery

import (
	"context"
	"errors"
	"iter"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

const (
	// resyncParallel is how many clusters are resynced at a time.
	resyncParallel = 8
	// resyncListMax bounds one status resync request, whatever the broker takes.
	resyncListMax = 128 << 10
	// resyncHeadroom is what an event needs besides its data: topic, attributes
	// and extensions.
	resyncHeadroom = 2 << 10
)

// resync is what a cluster is owed: an answer to its request, and our question.
type resyncTask struct {
	request         *wire.SpecResync
	requestStatuses bool
	probe           bool // our question is only whether there is somebody
}

// mergeResyncs makes one of two: a request tells all that its agent holds, so the
// newer stands for both.
func mergeResyncTasks(older, newer resyncTask) resyncTask {
	if newer.request == nil {
		newer.request = older.request
	}
	newer.requestStatuses = newer.requestStatuses || older.requestStatuses
	newer.probe = newer.probe || older.probe
	return newer
}

// resync does what r says for a cluster.
func (l *Engine) runResync(ctx context.Context, name wire.ClusterName, r resyncTask) error {
	if r.request != nil {
		l.answerSpecResync(r.request)
	}
	var err error
	if r.requestStatuses {
		err = l.requestStatusResync(ctx, name)
	}
	if r.probe && err == nil {
		err = l.probeCluster(ctx, name)
	}
	if err == nil || ctx.Err() != nil {
		return nil
	}
	var tooLarge *transport.TooLargeError
	var address *addressError
	switch {
	case errors.Is(err, transport.ErrNotConnected):
		return nil // the next connect asks again
	case errors.As(err, &tooLarge), errors.As(err, &address), errors.Is(err, transport.ErrNotAuthorized):
		l.log.Error("the cluster can not be asked for its statuses", "cluster", name, "error", err)
		return nil
	default:
		l.log.Warn("asking for statuses failed, it is tried again", "cluster", name, "error", err)
		return err
	}
}

// answer puts in line what r asks for (docs/protocol.md, Spec resync). It costs
// one pass over the works of the cluster and over what it listed.
func (l *Engine) answerSpecResync(r *wire.SpecResync) {
	generations := make(map[workKey]wire.Generation)
	send, gone := r.Answer(l.listWorks(r.Cluster, generations))
	l.mu.Lock()
	for _, have := range r.Versions {
		k := workKey{uid: have.UID, cluster: r.Cluster}
		if own, ok := generations[k]; ok && have.Generation <= own {
			l.state.agentHolds(k, have.Generation)
		}
	}
	for _, uid := range send {
		l.state.forcePublish(workKey{uid: uid, cluster: r.Cluster}, true)
	}
	for _, have := range gone {
		l.state.deleteUnknown(workKey{uid: have.UID, cluster: r.Cluster}, have.Generation)
	}
	notify(l.wake)
	l.mu.Unlock()

	for _, have := range r.Versions {
		k := workKey{uid: have.UID, cluster: r.Cluster}
		if own, ok := generations[k]; ok && have.Generation > own {
			name := l.workName(k)
			l.log.Warn("the agent holds a newer spec than the source has", "work", name, "uid", have.UID, "cluster", r.Cluster,
				"generation", have.Generation, "sourceGeneration", own)
			l.statusQueue.add(k, statusUpdate{name: name, outdated: have.Generation})
		}
	}
	l.metrics.resyncAnswers.WithLabelValues("sent").Add(float64(len(send)))
	l.metrics.resyncAnswers.WithLabelValues("gone").Add(float64(len(gone)))
	l.log.Info("spec resync answered", "cluster", r.Cluster, "agent", r.Agent, "listed", len(r.Versions), "sent", len(send), "gone", len(gone))
}

// nameOf is the name of the work of k, for logs; empty when there is none.
func (l *Engine) workName(k workKey) string {
	if work := l.currentWork(k); work != nil {
		return work.Name
	}
	return ""
}

// worksOf gives the works of a cluster and notes their generations on the way.
func (l *Engine) listWorks(name wire.ClusterName, generations map[workKey]wire.Generation) iter.Seq[wire.WorkVersion] {
	return func(yield func(wire.WorkVersion) bool) {
		for work := range l.config.Works.ListCluster(name) {
			generation := wire.Generation(work.Generation)
			generations[keyOf(work)] = generation
			if !yield(wire.WorkVersion{UID: work.UID, Generation: generation, Deleting: work.DeletionTimestamp != nil}) {
				return
			}
		}
	}
}

// noStatus lists a work that there is not, with a hash that no status has.
func noStatus() []wire.StatusVersion { return []wire.StatusVersion{{UID: "none", Hash: "none"}} }

// probeAll asks all clusters for a sign of life, also those that the source does
// not know yet, if there is a topic for it.
func (l *Engine) probeAllClusters(ctx context.Context) {
	topic, ok := l.topics.Broadcast()
	if !ok {
		return
	}
	err := l.publishTo(ctx, topic, &wire.StatusResync{Source: l.config.Source, Hashes: noStatus()})
	if err != nil && ctx.Err() == nil && !errors.Is(err, transport.ErrNotConnected) {
		l.log.Warn("clusters can not be asked to show themselves", "topic", topic, "error", err)
	}
}

// probe publishes a status resync request for a single work, with a hash that no
// status has: whoever is there answers with the status, if it has the work, and
// announces itself, if it does that. It names none that there is where the cluster
// has no works, since an empty list would ask for everything.
func (l *Engine) probeCluster(ctx context.Context, name wire.ClusterName) error {
	r := &wire.StatusResync{Source: l.config.Source, Cluster: name, Hashes: noStatus()}
	for work := range l.config.Works.ListCluster(name) {
		r.Hashes[0].UID = work.UID
		break
	}
	return l.publishToCluster(ctx, name, r)
}

// ask publishes the status resync requests for a cluster (docs/protocol.md, Status
// resync). A cluster without works is not asked: an empty list would ask for
// everything.
func (l *Engine) requestStatusResync(ctx context.Context, name wire.ClusterName) error {
	r := &wire.StatusResync{Source: l.config.Source, Cluster: name}
	for work := range l.config.Works.ListCluster(name) {
		hash, err := l.statusHash(work)
		if err != nil {
			return err
		}
		r.Hashes = append(r.Hashes, wire.StatusVersion{UID: work.UID, Hash: hash})
	}
	if len(r.Hashes) == 0 {
		return nil
	}
	limit := resyncListMax
	if announced := l.config.Transport.Limit(); announced > 0 {
		limit = min(limit, max(announced-resyncHeadroom, 1))
	}
	for _, part := range r.Split(limit) {
		if err := l.publishToCluster(ctx, name, part); err != nil {
			return err
		}
		l.metrics.statusResyncs.Inc()
	}
	return nil
}

// statusHash is that of work's status, computed once per version of work.
func (l *Engine) statusHash(work *workv1.ManifestWork) (string, error) {
	k, version := keyOf(work), work.ResourceVersion
	l.mu.Lock()
	e, ok := l.state.works[k]
	if ok && version != "" && e.hashVersion == version {
		defer l.mu.Unlock()
		return e.hash, nil
	}
	l.mu.Unlock()
	hash, err := wire.StatusHash(&work.Status)
	if err != nil {
		return "", err
	}
	l.updateState(func() {
		if e, ok := l.state.works[k]; ok {
			e.hash, e.hashVersion = hash, version
		}
	})
	return hash, nil
}
