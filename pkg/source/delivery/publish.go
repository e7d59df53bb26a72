package delivery

import (
	"context"
	"errors"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// publishTimeout bounds one publish, so that a broker that never answers does not
// hold its place for ever.
const publishTimeout = time.Minute

// publisher gives a pump the publishes whose turn it is.
type publishQueue struct{ *Engine }

func (p publishQueue) next(now time.Time) (func(context.Context), bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, ok := p.state.dequeue(now)
	if !ok {
		return nil, false
	}
	return func(ctx context.Context) { p.publish(ctx, c) }, true
}

func (p publishQueue) nextDue() (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.nextDue()
}

// publish does what c's turn asks for and notes the outcome.
func (l *Engine) publish(ctx context.Context, c attempt) {
	began := time.Now()
	work := l.currentWork(c.workKey)
	p := planPublish(c, work, l.config.Source, began)
	if p.spec == nil {
		l.updateState(func() { l.state.skipped(c, p) })
		return
	}
	log := l.log.With("work", p.spec.Meta.Name, "uid", c.uid, "cluster", c.cluster,
		"generation", p.spec.Generation, "action", p.spec.Action)
	err := l.publishToCluster(ctx, c.cluster, p.spec)
	switch {
	case err == nil:
		l.metrics.published.WithLabelValues(string(p.spec.Action), "ok").Inc()
		if c.published == p.revision && !c.resync {
			l.metrics.republished.Inc()
		}
		log.Debug("published")
		l.updateState(func() { l.state.publishSucceeded(c, p, began) })
		if p.more {
			l.WorkChanged(c.uid)
		}
	case l.refuse(c, p, work, log, err):
		l.metrics.published.WithLabelValues(string(p.spec.Action), "refused").Inc()
		if p.more {
			l.WorkChanged(c.uid)
		}
	default:
		l.metrics.published.WithLabelValues(string(p.spec.Action), "failed").Inc()
		if ctx.Err() == nil && !errors.Is(err, transport.ErrNotConnected) {
			log.Warn("publish failed, it is tried again", "error", err)
		}
		l.updateState(func() { l.state.publishFailed(c, time.Now()) })
	}
}

// refuse handles an error that repeating does not mend, and reports whether err
// is one.
func (l *Engine) refuse(c attempt, p plan, work *workv1.ManifestWork, log *slog.Logger, err error) bool {
	r, ok := refusalOf(err, p.revision, time.Now())
	if !ok {
		return false
	}
	log.Error("the work can not be published", "reason", r.condition.Reason, "error", err)
	l.updateState(func() { l.state.publishRefused(c, r) })
	if work != nil {
		l.statusQueue.add(c.workKey, statusUpdate{name: work.Name, refused: &r.condition})
	}
	return true
}

// note changes the ledger.
func (l *Engine) updateState(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// workOf gives the work of k as it is now, nil when the source has none.
func (l *Engine) currentWork(k workKey) *workv1.ManifestWork {
	held, ok := l.config.Works.Get(k.uid)
	if !ok || wire.ClusterName(held.Work.Namespace) != k.cluster {
		return nil
	}
	return held.Work
}

// send publishes m to a cluster's topic.
func (l *Engine) publishToCluster(ctx context.Context, to wire.ClusterName, m wire.Message) error {
	topic, err := l.topics.Specs(to)
	if err != nil {
		return &addressError{err}
	}
	return l.publishTo(ctx, topic, m)
}

// sendOn publishes m to topic.
func (l *Engine) publishTo(ctx context.Context, topic string, m wire.Message) error {
	event, err := wire.Encode(m, time.Now())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	return l.config.Transport.Publish(ctx, topic, event)
}

// intake is what is to be handed to Works about one work.
type statusUpdate struct {
	name     string
	status   *wire.Status
	refused  *metav1.Condition
	outdated wire.Generation // that an agent holds; 0 when it is not newer than ours
}

// mergeIntakes makes one of two: of each kind the newer.
func mergeStatusUpdates(older, newer statusUpdate) statusUpdate {
	if newer.status == nil {
		newer.status = older.status
	}
	if newer.refused == nil {
		newer.refused = older.refused
	}
	newer.outdated = max(newer.outdated, older.outdated)
	return newer
}

// intake hands i to Works.
func (l *Engine) writeStatus(ctx context.Context, k workKey, i statusUpdate) error {
	log := l.log.With("work", i.name, "uid", k.uid, "cluster", k.cluster)
	if i.outdated > 0 {
		l.config.Works.AgentAhead(k.uid, i.outdated)
	}
	l.mu.Lock()
	current := l.state.refusalFor(k)
	l.mu.Unlock()
	if i.status != nil {
		current.overlay(i.status)
		if err := l.config.Works.UpdateStatus(ctx, i.status); err != nil {
			return l.statusWriteFailed(ctx, log, "status not taken in, it is tried again", err)
		}
	}
	// The spec may have been accepted since.
	if i.refused != nil && current != nil && current.condition.ObservedGeneration == i.refused.ObservedGeneration {
		if err := l.config.Works.SetCondition(ctx, k.uid, *i.refused); err != nil {
			return l.statusWriteFailed(ctx, log, "refusal not recorded, it is tried again", err)
		}
	}
	return nil
}

func (l *Engine) statusWriteFailed(ctx context.Context, log *slog.Logger, what string, err error) error {
	l.metrics.statusWriteFailures.Inc()
	if ctx.Err() == nil {
		log.Warn(what, "error", err)
	}
	return err
}
