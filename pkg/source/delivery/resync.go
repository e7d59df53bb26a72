package delivery

import (
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
	// resyncListMax is the maximum size in bytes of a status resync request, whatever larger
	// packets the broker accepts.
	resyncListMax = 128 << 10
	// resyncHeadroom is the maximum size in bytes of an event's topic, attributes and extensions.
	resyncHeadroom = 2 << 10
	// turn is the number of listed works that are handled while all other clusters wait.
	turn = 1_000
)

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
	listed, others := e.listedBy(r)
	var missing []missingWork
	inTurns(others, func(others []wire.SpecVersion) {
		e.mu.Lock()
		defer e.mu.Unlock()
		missing = append(missing, e.core.decideMissing(r.Cluster, r.Partial, others, e.config.Works.Unknown)...)
	})
	for i := range missing {
		if missing[i].unknown && !missing[i].held.Probe {
			unknown = append(unknown, missing[i].held)
		}
	}
	open := e.stateOf(r.Cluster) == ClusterOpen
	if open {
		e.report(UnknownWorks{r.Cluster, unknown, r.Source == e.config.Source && len(r.Versions) > 0 && !r.Partial})
	}
	answers := make(map[resyncAnswer]int)
	inTurns(listed, func(works []listedWork) {
		e.step(&worksListed{cluster: r.Cluster, works: works, partial: r.Partial, hashed: e.identity != ""})
		for i := range works {
			w := &works[i]
			if answers[w.answer]++; w.isAhead() {
				e.log.Warn("agent holds a higher generation than the source", "work", w.name, "uid", w.uid, "cluster", r.Cluster,
					"generation", w.have.Generation, "sourceGeneration", w.generation)
			}
		}
	})
	inTurns(missing, func(works []missingWork) {
		e.step(worksMissing{r.Cluster, works})
		for i := range works {
			if !works[i].held.Probe {
				answers[works[i].answer]++
			}
		}
	})
	e.countAnswers(r, open, answers)
	return unknown
}

// listedBy returns the works of the source that r is answered with, and the versions that r lists of others.
func (e *Engine) listedBy(r *wire.SpecResync) (works []listedWork, others []wire.SpecVersion) {
	held := make(map[types.UID]wire.SpecVersion, len(r.Versions))
	for _, v := range r.Versions {
		held[v.UID] = v
	}
	for work := range e.requestedWorks(r) {
		have, lists := held[work.UID]
		if r.Partial && !lists {
			continue // r lists it twice
		}
		w := listedWork{uid: work.UID, name: work.Name, generation: wire.Generation(work.Generation), deleting: work.DeletionTimestamp != nil, have: have}
		if e.identity != "" && w.hashCounts() {
			w.hash = e.contentHash(work)
		}
		works = append(works, w)
		delete(held, work.UID)
	}
	for _, v := range r.Versions {
		if _, left := held[v.UID]; left {
			others = append(others, v)
		}
	}
	return works, others
}

// countAnswers counts and logs the answer to r. open reports whether its cluster is accepted.
func (e *Engine) countAnswers(r *wire.SpecResync, open bool, answers map[resyncAnswer]int) {
	for _, a := range []resyncAnswer{sendNewest, sendAuthoritative, sendDeletion, letKeep, postpone} {
		e.metrics.resyncAnswers.WithLabelValues(string(a)).Add(float64(answers[a]))
	}
	level := slog.LevelInfo
	if !open {
		level = slog.LevelDebug // anybody can ask
	}
	listed := 0
	for i := range r.Versions {
		if !r.Versions[i].Probe {
			listed++
		}
	}
	e.log.Log(context.Background(), level, "spec resync answered", "cluster", r.Cluster, "agent", r.Agent, "listed", listed,
		"sent", answers[sendNewest], "authoritative", answers[sendAuthoritative], "gone", answers[sendDeletion], "postponed", answers[postpone])
	if n := answers[letKeep]; n > 0 {
		e.log.Error("agent holds works of an earlier memory of this source, they are neither updated nor deleted",
			"cluster", r.Cluster, "agent", r.Agent, "works", n)
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

// statusesOf lists the works among unknown that the agent keeps although it was told that the source
// does not know them, which it lists without a generation: the answer is their status.
func statusesOf(unknown []wire.SpecVersion) (list []wire.StatusVersion) {
	for _, held := range unknown {
		if held.Generation == 0 {
			list = append(list, wire.StatusVersion{UID: held.UID, Hash: wire.NoStatus})
		}
	}
	return list
}

// contentHash returns the hash of work's spec as it is published. It is computed once per
// generation. It is empty for a spec that cannot be published.
func (e *Engine) contentHash(work *workv1.ManifestWork) string {
	k, generation := keyOf(work), wire.Generation(work.Generation)
	e.mu.Lock()
	known := e.core.peek(k).content()
	e.mu.Unlock()
	if known.hash != "" && known.generation == generation {
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
	return &wire.StatusResync{Source: e.config.Source, SourceIdentity: e.identityFor(cluster), Accepts: wire.Accepted, Cluster: cluster, Hashes: hashes}
}

// identityFor returns what a cluster, empty for all, is told as the identity of the source; empty for none.
func (e *Engine) identityFor(cluster wire.ClusterName) string {
	switch {
	case e.identity == "" || e.config.ClusterIdentity == nil:
		return e.identity
	case cluster == "":
		return ""
	default:
		return e.config.ClusterIdentity(e.identity, cluster)
	}
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
