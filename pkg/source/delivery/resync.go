package delivery

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

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
	// maxUnknown is the maximum number of works of a cluster, of those that the source does not have,
	// whose deletion waits to be published. Further ones wait for the next request.
	maxUnknown = 10_000
	// maxStatuses is the maximum number of works of a cluster whose statuses are requested whatever they are.
	maxStatuses = 1_000
	// freeQuestion is the number of works that a cluster may list without a pace, if the source has none for it.
	freeQuestion = 100
	// turn is the number of listed works that are handled while all other clusters wait.
	turn = 1_000
)

// resyncTask is what to do for a cluster.
type resyncTask struct {
	question        question // answer it, if any
	requestStatuses bool
	statuses        sets.Set[types.UID] // of works whose statuses to request, whatever they are; at most maxStatuses
	probe           bool
	owed            bool         // the cluster had used up its quota: wait until it has not
	digest          *wire.Digest // compare it, if set
}

// mergeResyncTasks merges two tasks. It may change the older one, and costs O(n) for what the newer one lists.
func mergeResyncTasks(older, newer resyncTask) resyncTask {
	newer.question = older.question.with(newer.question)
	newer.digest = cmp.Or(newer.digest, older.digest)
	newer.requestStatuses = newer.requestStatuses || older.requestStatuses
	if len(older.statuses) > 0 {
		for uid := range newer.statuses {
			older.statuses.Insert(uid)
		}
		newer.statuses = older.statuses
	}
	if len(newer.statuses) > maxStatuses {
		newer.statuses, newer.requestStatuses = nil, true // of those that the source has; others are listed again
	}
	newer.probe = newer.probe || older.probe
	newer.owed = newer.owed || older.owed
	return newer
}

// ask carries out a, and tells the core how that has ended.
func (e *Engine) ask(ctx context.Context, a *asking) {
	name, r := a.job.cluster, &a.task
	request := r.question.request()
	var unknown []wire.SpecVersion
	if request != nil {
		unknown = e.answerSpecResync(request)
	}
	var err error
	if r.requestStatuses {
		question := e.statusResync(name, statusesOf(unknown)...)
		question.Reply = request != nil
		err = e.requestStatusResync(ctx, question)
	}
	if len(r.statuses) > 0 && err == nil {
		err = e.requestStatuses(ctx, name, sets.List(r.statuses))
	}
	if r.probe && err == nil {
		err = e.probeCluster(ctx, name)
	}
	if r.digest != nil && err == nil {
		err = e.compareDigest(ctx, name, r.digest)
	}
	retry := false
	var tooLarge *transport.TooLargeError
	var invalidCluster *invalidClusterError
	switch {
	case err == nil, ctx.Err() != nil:
	case errors.Is(err, transport.ErrNotConnected): // the next connect requests again
	case errors.As(err, &tooLarge), errors.As(err, &invalidCluster), errors.Is(err, transport.ErrNotAuthorized):
		e.log.Error("status resync request refused, not retrying", "cluster", name, "error", err)
	default:
		e.log.Warn("status resync request failed, retrying", "cluster", name, "error", err)
		retry = true
	}
	e.step(askEnded{a, retry})
}

// answerSpecResync enqueues the works that r requests (docs/protocol.md, Spec resync). It returns
// the listed works that the source neither has nor has deleted. It costs O(n) for n works of the
// cluster and of the request.
func (e *Engine) answerSpecResync(r *wire.SpecResync) (unknown []wire.SpecVersion) {
	works := make(map[types.UID]*workv1.ManifestWork)
	send, gone := r.Answer(func(yield func(wire.WorkVersion) bool) {
		for work := range e.requestedWorks(r) {
			works[work.UID] = work
			if !yield(wire.WorkVersion{UID: work.UID, Generation: wire.Generation(work.Generation), Deleting: work.DeletionTimestamp != nil}) {
				return
			}
		}
	})
	paused := e.stateOf(r.Cluster) != ClusterOpen
	if r.Partial || paused {
		gone = e.held(r, paused, gone)
	}
	deletions, unknown, err := e.decideUnknown(r.Cluster, gone)
	if err != nil {
		e.fail(err)
		return nil
	}
	if !paused {
		e.report(UnknownWorks{r.Cluster, unknown, r.Source == e.config.Source && len(r.Versions) > 0 && !r.Partial})
	}
	overruled := sets.New(e.overrule(r, works)...)
	if r.Partial {
		send = append(send, e.contentless(r, works)...)
	}
	postponed := e.noteAnswer(r, works, send, overruled, deletions)
	for _, have := range r.Versions {
		if own, ok := works[have.UID]; ok && have.Generation > wire.Generation(own.Generation) && !overruled.Has(have.UID) {
			e.log.Warn("agent holds a higher generation than the source", "work", own.Name, "uid", have.UID, "cluster", r.Cluster,
				"generation", have.Generation, "sourceGeneration", own.Generation)
			e.step(storeWanted{keyOf(own), statusUpdate{name: own.Name, agentGeneration: have.Generation}})
		}
	}
	e.countAnswers(r, paused, resyncAnswers{
		sent: len(send), authoritative: len(overruled), gone: len(deletions) - postponed, held: len(gone) - len(deletions), postponed: postponed,
	})
	return unknown
}

// noteAnswer passes the answer to r to the core, in turns, so that other clusters do not wait: works are published,
// and deletions of works that the source does not have. It returns how many of these have to wait for another request.
func (e *Engine) noteAnswer(r *wire.SpecResync, works map[types.UID]*workv1.ManifestWork, send []types.UID, overruled sets.Set[types.UID],
	deletions []unknownDeletion) (postponed int) {
	counts := func(have *wire.SpecVersion) bool {
		own, ok := works[have.UID]
		return ok && have.Generation <= wire.Generation(own.Generation) && !overruled.Has(have.UID)
	}
	inTurns(r.Versions, func(versions []wire.SpecVersion) {
		e.step(worksListed{cluster: r.Cluster, versions: versions, partial: r.Partial, counts: counts})
	})
	inTurns(send, func(send []types.UID) { e.step(worksAsked{r.Cluster, send}) })
	for _, uid := range sets.List(overruled) {
		e.step(workRestored{workKey{uid: uid, cluster: r.Cluster}, reply})
	}
	inTurns(deletions, func(deletions []unknownDeletion) {
		in := &worksUnknown{cluster: r.Cluster, deletions: deletions}
		e.step(in)
		postponed += in.postponed
	})
	return postponed
}

// resyncAnswers are numbers of works in the answer to a spec resync request, see
// metrics.resyncAnswers.
type resyncAnswers struct{ sent, authoritative, gone, held, postponed int }

// countAnswers counts and logs the answer to r. paused reports whether its cluster is not accepted.
func (e *Engine) countAnswers(r *wire.SpecResync, paused bool, a resyncAnswers) {
	for answer, n := range map[string]int{
		"sent": a.sent, "authoritative": a.authoritative, "gone": a.gone, "held": a.held, "postponed": a.postponed,
	} {
		e.metrics.resyncAnswers.WithLabelValues(answer).Add(float64(n))
	}
	level := slog.LevelInfo
	if paused {
		level = slog.LevelDebug // anybody can ask
	}
	e.log.Log(context.Background(), level, "spec resync answered", "cluster", r.Cluster, "agent", r.Agent, "listed", len(r.Versions),
		"sent", a.sent, "authoritative", a.authoritative, "gone", a.gone, "postponed", a.postponed)
	if a.held > 0 {
		e.log.Error("agent holds works of an earlier memory of this source, they are neither updated nor deleted",
			"cluster", r.Cluster, "agent", r.Agent, "works", a.held)
	}
}

// requestedWorks returns the works that r may be answered with.
func (e *Engine) requestedWorks(r *wire.SpecResync) iter.Seq[*workv1.ManifestWork] {
	if !r.Partial {
		return e.config.Works.ListCluster(r.Cluster)
	}
	return func(yield func(*workv1.ManifestWork) bool) {
		for _, have := range r.Versions {
			if work := e.currentWork(workKey{uid: have.UID, cluster: r.Cluster}).Work; work != nil && !yield(work) {
				return
			}
		}
	}
}

// inTurns calls do with the parts of list, so that what do locks is free between them.
func inTurns[T any](list []T, do func(part []T)) {
	for part := range slices.Chunk(list, turn) {
		do(part)
	}
}

// held returns those of gone that are to be answered. In a partial request, the agent lists works that it
// holds, or that it is to report as deleted. Of works that the source has not removed, nothing is kept for a
// cluster that is not accepted: its agent asks again.
func (e *Engine) held(r *wire.SpecResync, paused bool, gone []wire.SpecVersion) (held []wire.SpecVersion) {
	inTurns(gone, func(part []wire.SpecVersion) {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, v := range part {
			if e.core.get(workKey{uid: v.UID, cluster: r.Cluster}).removed != nil || !paused && (!r.Partial || v.Generation != 0) {
				held = append(held, v)
			}
		}
	})
	return held
}

// contentless returns the works that the agent holds without a content hash, though specs have one.
func (e *Engine) contentless(r *wire.SpecResync, works map[types.UID]*workv1.ManifestWork) (send []types.UID) {
	for _, have := range r.Versions {
		own, ok := works[have.UID]
		if ok && e.identity != "" && have.ContentHash == "" && own.DeletionTimestamp == nil && have.Generation == wire.Generation(own.Generation) {
			send = append(send, have.UID)
		}
	}
	return send
}

// overrule returns the works that the agent holds with other content, or at a higher generation.
func (e *Engine) overrule(r *wire.SpecResync, works map[types.UID]*workv1.ManifestWork) []types.UID {
	if e.identity == "" {
		return nil
	}
	return r.Overrule(func(uid types.UID) (wire.Generation, bool) {
		own, ok := works[uid]
		if !ok || own.DeletionTimestamp != nil {
			return 0, false // Answer sends its deletion
		}
		return wire.Generation(own.Generation), true
	}, func(uid types.UID) string { return e.contentHash(works[uid]) })
}

// contentHash returns the hash of work's spec as it is published. It is computed once per
// generation. It is empty for a spec that cannot be published.
func (e *Engine) contentHash(work *workv1.ManifestWork) string {
	k, generation := keyOf(work), wire.Generation(work.Generation)
	e.mu.Lock()
	w := e.core.get(k)
	e.mu.Unlock()
	if known := w.content(); known.hash != "" && known.generation == generation {
		return known.hash
	}
	hash, err := wire.ContentHash(wire.NewBundle(&e.config.Works.Content(work).Spec))
	if err != nil {
		e.log.Error("spec cannot be hashed", "work", work.Name, "uid", work.UID, "cluster", work.Namespace, "error", err)
		return ""
	}
	hash = e.config.Seal.ContentHash(k.cluster, k.uid, generation, hash)
	e.mu.Lock()
	defer e.mu.Unlock()
	if w, ok := e.core.works[k]; ok {
		w.setContent(w.content().withHash(k.uid, hash, generation))
	}
	return hash
}

// noStatus lists a work that does not exist, with a hash that no status has.
func noStatus() []wire.StatusVersion {
	return []wire.StatusVersion{{UID: "none", Hash: wire.NoStatus}}
}

// statusResync returns a request of this source for the statuses of a cluster, empty for all, that lists
// hashes.
func (e *Engine) statusResync(cluster wire.ClusterName, hashes ...wire.StatusVersion) *wire.StatusResync {
	return &wire.StatusResync{Source: e.config.Source, SourceIdentity: e.identity, Accepts: wire.AcceptedBySources, Cluster: cluster, Hashes: hashes}
}

// probeAllClusters asks all clusters for a message, also those that the source does not know yet,
// if a broadcast topic is configured.
func (e *Engine) probeAllClusters(ctx context.Context) {
	topic, ok := e.topics.Broadcast()
	if !ok {
		return
	}
	err := e.publishTo(ctx, topic, e.statusResync("", noStatus()...))
	if err != nil && ctx.Err() == nil && !errors.Is(err, transport.ErrNotConnected) {
		e.log.Warn("probe of all clusters failed", "topic", topic, "error", err)
	}
}

// probeCluster publishes a status resync request for a single work with a hash that no status has.
// The agent answers with the status if it has the work, and publishes its presence if it supports
// that. For a cluster without works the request lists a work that does not exist, since an empty
// list would request everything.
func (e *Engine) probeCluster(ctx context.Context, name wire.ClusterName) error {
	r := e.statusResync(name, noStatus()...)
	for work := range e.config.Works.ListCluster(name) {
		r.Hashes[0].UID = work.UID
		break
	}
	return e.publishToCluster(ctx, name, r)
}

// requestStatusResync publishes the status resync requests for the works of a cluster
// (docs/protocol.md, Status resync), and for those that r lists. If there are none, it publishes
// nothing, since an empty list would request everything.
func (e *Engine) requestStatusResync(ctx context.Context, r *wire.StatusResync) error {
	for work := range e.config.Works.ListCluster(r.Cluster) {
		hash, err := e.statusHash(work)
		if err != nil {
			return err
		}
		r.Hashes = append(r.Hashes, wire.StatusVersion{UID: work.UID, Hash: hash})
	}
	if len(r.Hashes) == 0 {
		return nil
	}
	return e.publishStatusResync(ctx, r)
}

// requestStatuses requests the statuses of works of a cluster, whatever they are.
func (e *Engine) requestStatuses(ctx context.Context, cluster wire.ClusterName, uids []types.UID) error {
	r := e.statusResync(cluster)
	r.Reply = true
	for _, uid := range uids {
		r.Hashes = append(r.Hashes, wire.StatusVersion{UID: uid, Hash: wire.NoStatus})
	}
	return e.publishStatusResync(ctx, r)
}

// publishStatusResync publishes r in parts that fit the broker's packet limit.
func (e *Engine) publishStatusResync(ctx context.Context, r *wire.StatusResync) error {
	limit := resyncListMax
	if announced := e.config.Transport.Limit(); announced > 0 {
		limit = min(limit, max(announced-resyncHeadroom, 1))
	}
	for _, part := range r.Split(limit) {
		if err := e.publishToCluster(ctx, r.Cluster, part); err != nil {
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
	w, ok := e.core.works[k]
	if ok && version != "" && w.hashVersion == version {
		defer e.mu.Unlock()
		return w.hash, nil
	}
	e.mu.Unlock()
	hash, err := wire.StatusHash(reported(&e.config.Works.Content(work).Status))
	if err != nil {
		return "", err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if w, ok := e.core.works[k]; ok {
		w.hash, w.hashVersion = hash, version
		w.digest.status = wire.StatusDigest(work.UID, hash)
	}
	return hash, nil
}
