package delivery

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"go.opentelemetry.io/otel/trace"

	"github.com/workwire/workwire/pkg/runtime/tracing"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// publishTimeout limits one publish, so that a broker that does not answer does not block a worker
// forever.
const publishTimeout = time.Minute

// step passes an input to the core, and has the actions carried out that follow. Run passes on the events among them.
func (e *Engine) step(in input) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := len(e.events)
	for _, a := range e.core.step(time.Now(), in) {
		switch a.(type) {
		case *attempt, *asking, *storing:
			e.begun <- a // has room for all that are under way
		default:
			e.events = append(e.events, a)
		}
	}
	e.setTimer(in)
	if before == 0 && len(e.events) > 0 {
		select {
		case e.eventful <- struct{}{}:
		default: // runEvents is about to look
		}
	}
}

// setTimer has the core learn that time has passed when something is due. e.mu must be held.
func (e *Engine) setTimer(in input) {
	if e.stopped {
		return
	}
	due := e.core.nextDue()
	if _, passed := in.(timePassed); due.Equal(e.due) && !passed {
		return
	}
	e.due = due
	switch {
	case due.IsZero():
		e.timer.Stop()
	case e.timer == nil:
		e.timer = time.AfterFunc(time.Until(due), func() { e.step(timePassed{}) })
	default:
		e.timer.Reset(time.Until(due))
	}
}

// stopTimer has no more time pass: what would begin is not carried out.
func (e *Engine) stopTimer() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped = true; e.timer != nil {
		e.timer.Stop()
	}
}

// runActions carries out actions until ctx ends and all of them have returned.
func (e *Engine) runActions(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-e.begun:
			running.Go(func() { e.carryOut(ctx, a) })
		}
	}
}

// carryOut carries out an action, and tells the core how it has ended.
func (e *Engine) carryOut(ctx context.Context, a action) {
	switch a := a.(type) {
	case *attempt:
		e.publish(ctx, a)
	case *asking:
		e.ask(ctx, a)
	case *storing:
		e.store(ctx, a)
	}
}

// publish carries out an attempt and passes its end to the core.
func (e *Engine) publish(ctx context.Context, a *attempt) {
	ended, before := &attemptEnded{attempt: a, began: time.Now()}, &a.before
	stored := e.currentWork(before.key)
	work := stored.Work
	ended.plan = planPublish(before, stored, e.config.Source, ended.began)
	p, change := ended.plan, e.changeOf(a, ended.plan)
	switch {
	case p.spec != nil && !p.spec.IsDeletion() && work.DeletionTimestamp == nil && stored.Paused:
		ended.paused, ended.holds = true, confirmedBy(work)
		e.step(ended)
		return
	case p.spec == nil:
		e.changes.Done(before.key, change)
		e.step(ended)
		return
	}
	published := Publication{
		UID: before.key.uid, Name: p.spec.Meta.Name, Cluster: before.key.cluster, Generation: p.spec.Generation, Action: p.spec.Action, Began: ended.began,
		deletion: p.spec.IsDeletion(), repeated: before.published == p.revision && before.intent < missed,
	}
	published.topic, _ = e.topics.Specs(before.key.cluster) // publishSpec fails if there is none
	e.report(published)
	p.spec.SourceIdentity, p.spec.Accepts = e.identityFor(before.key.cluster), wire.Accepted
	if !p.spec.IsDeletion() {
		p.spec.Meta.Annotations = withDefaults(p.spec.Meta.Annotations, e.config.Annotations)
		p.spec.Bundle = wire.NewBundle(&e.config.Works.Content(work).Spec)
	}
	sent, err := e.publishSpec(ctx, p.spec, before.specBase(p, ended.began), e.tracer.Root(change, tracedSpec(p.spec)))
	published.NobodyListens, published.Err, published.contentHash, published.Ended = sent.nobody, err, sent.contentHash, time.Now()
	ended.sent, ended.err, ended.refused = sent, err, newRefusal(err, p.revision, published.Ended)
	if ended.refused != nil {
		published.Refused = ended.refused.condition.Reason
		if p.more && keepsObjects(work) {
			ended.refused.holdDeletion()
		}
	}
	if work != nil {
		ended.name, ended.owner = work.Name, ownerOf(work)
	}
	e.logPublished(ctx, &published)
	if !p.more && published.result() != "failed" {
		e.changes.Done(before.key, change)
	}
	e.step(ended)
	e.report(published)
}

// withDefaults returns annotations, with those of defaults that they do not have.
func withDefaults(annotations, defaults map[string]string) map[string]string {
	if len(defaults) == 0 {
		return annotations
	}
	all := maps.Clone(defaults)
	maps.Copy(all, annotations)
	return all
}

// logPublished logs how an attempt has ended.
func (e *Engine) logPublished(ctx context.Context, p *Publication) {
	log := e.log.With("work", p.Name, "uid", p.UID, "cluster", p.Cluster, "generation", p.Generation, "action", p.Action)
	switch {
	case p.Err == nil:
		log.Debug("spec published")
	case p.Refused != "":
		log.Error("publish refused, not retrying", "reason", p.Refused, "error", p.Err)
	case ctx.Err() == nil && !errors.Is(p.Err, transport.ErrNotConnected):
		log.Warn("publish failed, retrying", "error", p.Err)
	}
}

// currentWork returns the work of k from the store, the zero value if the source does not have it.
func (e *Engine) currentWork(k workKey) StoredWork {
	stored, ok := e.config.Works.Get(k.uid)
	if !ok || wire.ClusterName(stored.Work.Namespace) != k.cluster {
		return StoredWork{}
	}
	return stored
}

// sentSpec is what was published of a spec.
type sentSpec struct {
	contentHash string // that the event has, empty if it has none
	delta       bool
	nobody      bool // the broker said that nobody subscribes to the topic
}

// publishSpec publishes spec to its cluster, within the span change. base is the content hash of the spec
// that its agent has, empty if that is not known.
func (e *Engine) publishSpec(ctx context.Context, spec *wire.Spec, base string, change trace.SpanContext) (sent sentSpec, err error) {
	topic, err := e.topics.Specs(spec.Cluster)
	if err != nil {
		return sent, &invalidClusterError{err}
	}
	event, err := wire.Encode(spec, time.Now())
	if err != nil {
		return sent, err
	}
	if err := e.config.Seal.Seal(&event); err != nil {
		return sent, err
	}
	data := event.Data()
	if wire.IsSealed(data) {
		data = nil
	} else {
		event, sent.delta = e.smaller(spec, base, event)
		if e.agentAccepts(spec.Cluster).Zstd {
			if err := wire.Compress(&event); err != nil {
				return sent, err
			}
		}
	}
	sent.contentHash = wire.ContentHashOf(event)
	span := e.tracePublish(change, topic, &event, spec)
	sent.nobody, err = e.publishEvent(ctx, topic, event)
	span.End(tracing.FailedIf(err))
	if err == nil {
		e.contents.keep(sent.contentHash, data)
	}
	return sent, err
}

// publishToCluster publishes m to the topic of a cluster. It fails with *invalidClusterError if the
// cluster's name cannot be part of a topic.
func (e *Engine) publishToCluster(ctx context.Context, cluster wire.ClusterName, m wire.Message) error {
	topic, err := e.topics.Specs(cluster)
	if err != nil {
		return &invalidClusterError{err}
	}
	return e.publishTo(ctx, topic, m)
}

// publishTo publishes m to topic.
func (e *Engine) publishTo(ctx context.Context, topic string, m wire.Message) error {
	event, err := wire.Encode(m, time.Now())
	if err != nil {
		return err
	}
	_, err = e.publishEvent(ctx, topic, event)
	return err
}

// publishEvent signs event if the source signs, and publishes it to topic. It reports whether the
// broker said that nobody subscribes to topic.
func (e *Engine) publishEvent(ctx context.Context, topic string, event cloudevents.Event) (nobody bool, err error) {
	if err := e.config.Sign(&event); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if err := e.config.BeforePublish(ctx); err != nil {
		return false, err
	}
	if t, ok := e.config.Transport.(transport.SubscriberReporter); ok {
		return t.PublishReporting(ctx, topic, event)
	}
	return false, e.config.Transport.Publish(ctx, topic, event)
}
