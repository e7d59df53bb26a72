package delivery

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/security/audit"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/source/instances"
	"github.com/workwire/workwire/pkg/wire"
)

// Event is something that an [Engine] has noticed or done, as [Config].Observe, the metrics and the audit
// log learn it, in order: one of the types of this file.
type Event any

// ConnectionChanged is the establishment (Up) or the loss of the connection to the broker.
type ConnectionChanged struct{ Up bool }

// ClusterHeard is a message of a cluster that its agent sent as far as is known. It precedes what the
// message leads to.
type ClusterHeard struct {
	Cluster wire.ClusterName
	// Presence is the content of a presence message (docs/protocol.md, Presence), nil for others.
	Presence *wire.Presence
}

// Received is what happened to a message.
type Received struct {
	// Topic of the message, and the cluster whose agent may publish to it.
	Topic   string
	Cluster wire.ClusterName
	// Kind of the message in metrics.
	Kind string
	// Status that the message contains, without its content if that is a delta; nil for others.
	Status *wire.Status

	verdict verdict
	reason  signing.Reason // of an untrusted one
}

// Publication is one attempt to publish a spec or a deletion.
type Publication struct {
	// UID, Name and Cluster identify the work.
	UID     types.UID
	Name    string
	Cluster wire.ClusterName
	// Generation and Action that are published.
	Generation wire.Generation
	Action     wire.Action
	// Began is when the attempt began.
	Began time.Time
	// Ended is when it ended: with the broker's acknowledgement, if Err is nil. Zero: it has begun.
	Ended time.Time
	// NobodyListens reports whether the broker said that no client subscribes to the topic.
	NobodyListens bool
	// Refused is a reason of [workv1.IsRefusal] if a
	// retry cannot succeed.
	Refused string
	// Err is why the attempt failed.
	Err error

	deletion, repeated bool
	topic              string // empty for a cluster whose name cannot be part of one
	contentHash        string
}

// instance is the kind of the messages of other programs under the same source id. They are not audited.
const instance = "instance"

// UnknownWorks are the works that the agent of a cluster lists in a spec resync request, and that the
// source neither has nor has deleted.
type UnknownWorks struct {
	Cluster wire.ClusterName
	Listed  []wire.SpecVersion
	// All reports whether the request lists all works of this source that the agent holds.
	All bool
}

// UnknownStatus is a status of a work that the source does not have. It is not stored.
type UnknownStatus struct{ *wire.Status }

// DivergenceChanged says that the works that the agent of a cluster holds have differed from those of the
// source for a minute (docs/protocol.md, Digest), or agree again.
type DivergenceChanged struct {
	Cluster wire.ClusterName
	// Since is the time of the first digest that differed; zero: they agree.
	Since time.Time
}

// TrustChanged says that a status of a cluster was refused because of its signature: the first one, and
// when the reason has changed; and with the zero Untrusted that none was for 15 minutes.
type TrustChanged struct {
	Cluster wire.ClusterName
	Untrusted
}

// NoiseChanged says that a cluster has used up its quota, and with the zero Noise that it has not for
// [quota.Memory]. Its messages are dropped or its statuses stored later meanwhile, and it is asked for
// them again.
type NoiseChanged struct {
	Cluster wire.ClusterName
	quota.Noise
}

// InstancesChanged are the other programs that publish under the same source id, when one is noticed or
// no longer heard (docs/protocol.md, Instances).
type InstancesChanged struct{ Others []instances.Other }

// questionPaced: a resync request or digest has to wait, because its cluster asks too often.
type questionPaced struct{}

// report has an event observed, and those before it. Only what Run has started may call it: a caller of the Engine may
// hold a lock that an observer waits for.
func (e *Engine) report(event Event) {
	e.mu.Lock()
	e.events = append(e.events, event)
	e.mu.Unlock()
	e.passOn()
}

// passOn has all events observed that there are, in order; those that somebody else is passing on have been observed
// when it returns. It needs no lock of the Engine's state meanwhile, so that an observer may call the Engine.
func (e *Engine) passOn() {
	e.observing.Lock()
	defer e.observing.Unlock()
	e.mu.Lock()
	events := e.events
	e.events = e.observed[:0]
	e.mu.Unlock()
	for _, event := range events {
		e.observe(event)
	}
	clear(events)
	e.observed = events
}

// runEvents passes on the events of steps until ctx ends.
func (e *Engine) runEvents(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.eventful:
			e.passOn()
		}
	}
}

// observe has an event counted, recorded, logged, and passed to Config.Observe.
func (e *Engine) observe(event Event) {
	e.metrics.observe(event)
	if diverged, ok := event.(DivergenceChanged); ok {
		e.logDivergence(diverged)
	}
	if record, ok := auditRecord(event); ok {
		record.Source = e.config.Source
		e.config.Audit.Write(record)
	}
	e.config.Observe(event)
}

func (e *Engine) logDivergence(event DivergenceChanged) {
	if event.Since.IsZero() {
		e.log.Info("works of the cluster equal those of the source again", "cluster", event.Cluster)
	} else {
		e.log.Warn("works of the cluster differ from those of the source", "cluster", event.Cluster, "since", event.Since)
	}
}

// result returns how an attempt that has ended did: ok, refused or failed.
func (p *Publication) result() string {
	switch {
	case p.Err == nil:
		return "ok"
	case p.Refused != "":
		return "refused"
	default:
		return "failed"
	}
}

// auditRecord returns the record of an event, and false if it leaves none: a publish that is repeated, and a
// message that says nothing about works in a way that is allowed.
func auditRecord(event Event) (audit.Record, bool) {
	switch event := event.(type) {
	case Publication:
		verdict := ""
		switch result := event.result(); {
		case result == "refused":
			verdict = "refused"
		case result == "ok" && event.deletion:
			verdict = "deletion"
		case result == "ok":
			verdict = "sent"
		}
		return audit.Record{
			Event: audit.Publish, Verdict: verdict, Topic: event.topic, Cluster: event.Cluster, Work: event.Name, UID: event.UID,
			Generation: event.Generation, Digest: event.contentHash,
		}, verdict != "" && !event.Ended.IsZero()
	case Received:
		record := audit.Record{
			Event: audit.Receive, Verdict: string(event.verdict), Effect: event.verdict == accepted, Reason: string(event.reason),
			Identity: string(event.Cluster), Topic: event.Topic, Cluster: event.Cluster,
		}
		if s := event.Status; s != nil {
			record.Work, record.UID, record.Generation = s.Meta.Name, s.UID, s.Generation
			return record, true
		}
		return record, event.Kind != instance && (event.verdict == wrongCluster || event.verdict == overQuota || event.verdict == untrusted || event.verdict == undecodable)
	}
	return audit.Record{}, false
}
