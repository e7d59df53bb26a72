package hub_test

import (
	"context"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

const source = wire.SourceID("hub1")

var topics = wire.Topics{
	SourceEvents: "sources/hub1/clusters/+/sourceevents",
	AgentEvents:  "sources/hub1/clusters/+/agentevents",
}

// agent is a scripted one: it holds what it is sent, says Applied at once, and
// Deleted unless it is told to keep deleted works.
type agent struct {
	t         testing.TB
	cluster   wire.ClusterName
	transport transport.Transport
	topics    wire.AgentTopics
	stop      func()
	connected chan struct{} // one value a connection
	replies   chan wire.Message

	mu       sync.Mutex
	held     map[types.UID]*wire.Spec
	received []*wire.Spec
	changed  chan struct{} // closed and replaced when received grows
	keep     bool          // deletions are not answered
	sequence wire.Sequence
}

// startAgent runs an agent of cluster, which holds what before held, until the
// test ends.
func startAgent(t testing.TB, cluster wire.ClusterName, tr transport.Transport, before *agent) *agent {
	t.Helper()
	agentTopics, err := topics.ForAgent(cluster)
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{
		t: t, cluster: cluster, transport: tr, topics: agentTopics, connected: make(chan struct{}, 16),
		replies: make(chan wire.Message, 1<<14), held: map[types.UID]*wire.Spec{}, changed: make(chan struct{}),
	}
	if before != nil {
		a.held, a.sequence = before.held, before.sequence
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { a.reply(ctx) })
	running.Go(func() {
		err := tr.Run(ctx, transport.Handler{
			Subscriptions: agentTopics.Subscriptions(),
			Connected:     a.resync,
			Received:      a.receive,
		})
		if err != nil {
			t.Errorf("agent of %s: %v", cluster, err)
		}
	})
	a.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(a.stop)
	return a
}

// reply publishes what is to be said, in order, and again until it was taken.
func (a *agent) reply(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-a.replies:
			for a.publish(ctx, m) != nil && ctx.Err() == nil {
				<-time.After(5 * time.Millisecond)
			}
		}
	}
}

func (a *agent) publish(ctx context.Context, m wire.Message) error {
	event, err := wire.Encode(m, time.Now())
	if err != nil {
		a.t.Error(err)
		return nil
	}
	topic, err := a.topics.Events(source)
	if err != nil {
		a.t.Error(err)
		return nil
	}
	return a.transport.Publish(ctx, topic, event)
}

// resync asks for what is missing, as agents do at each connect.
func (a *agent) resync(ctx context.Context, _ transport.Connection) {
	request := &wire.SpecResync{Agent: string(a.cluster) + "-agent", Cluster: a.cluster, Source: source}
	a.mu.Lock()
	for uid, spec := range a.held {
		request.Versions = append(request.Versions, wire.SpecVersion{UID: uid, Generation: spec.Generation})
	}
	a.mu.Unlock()
	if err := a.publish(ctx, request); err != nil && ctx.Err() == nil {
		a.t.Errorf("agent of %s: resync: %v", a.cluster, err)
	}
	a.connected <- struct{}{}
}

func (a *agent) receive(_ context.Context, m transport.Message) {
	defer m.Ack()
	message, err := wire.Decode(m.Event)
	if err != nil {
		a.t.Errorf("agent of %s: %v", a.cluster, err)
		return
	}
	spec, ok := message.(*wire.Spec)
	if !ok {
		return // a status resync: this agent has told everything
	}
	a.mu.Lock()
	a.received = append(a.received, spec)
	close(a.changed)
	a.changed = make(chan struct{})
	keep := a.keep
	switch {
	case !spec.IsDeletion():
		a.held[spec.UID] = spec
	case !keep:
		delete(a.held, spec.UID)
	}
	a.mu.Unlock()
	switch {
	case !spec.IsDeletion():
		a.report(spec, condition(workv1.WorkApplied, "AppliedManifestWorkComplete", spec.Generation),
			condition(workv1.WorkAvailable, "ResourcesAvailable", spec.Generation))
	case !keep:
		a.report(spec, condition(workv1.WorkDeleted, workv1.ReasonManifestsDeleted, 0))
	}
}

func condition(name, reason string, generation wire.Generation) metav1.Condition {
	return metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: reason, ObservedGeneration: int64(generation),
		LastTransitionTime: metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
}

// report sends a status of spec.
func (a *agent) report(spec *wire.Spec, conditions ...metav1.Condition) {
	a.reportStatus(spec, workv1.ManifestWorkStatus{Conditions: conditions})
}

func (a *agent) reportStatus(spec *wire.Spec, status workv1.ManifestWorkStatus) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sequence := a.sequence.Next(time.Now())
	a.replies <- &wire.Status{
		UID: spec.UID, Generation: spec.Generation, Source: source, Cluster: a.cluster, Agent: string(a.cluster) + "-agent",
		Action: wire.Update, Meta: spec.Meta, Sequence: sequence, Status: status,
	}
}

// awaitConnected waits for one more connection.
func (a *agent) awaitConnected() {
	a.t.Helper()
	kit.Receive(a.t, "agent of "+string(a.cluster)+" connects", a.connected)
}

// setKeep tells whether deletions are left unanswered.
func (a *agent) setKeep(keep bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keep = keep
}

// specs are those received so far for the work, or for all works if uid is "".
func (a *agent) specs(uid types.UID) []*wire.Spec {
	a.mu.Lock()
	defer a.mu.Unlock()
	var of []*wire.Spec
	for _, spec := range a.received {
		if uid == "" || spec.UID == uid {
			of = append(of, spec)
		}
	}
	return of
}

// await waits until a spec that is as wanted has been received.
func (a *agent) await(what string, want func(*wire.Spec) bool) *wire.Spec {
	a.t.Helper()
	next := 0
	for {
		a.mu.Lock()
		for ; next < len(a.received); next++ {
			if spec := a.received[next]; want(spec) {
				a.mu.Unlock()
				return spec
			}
		}
		changed := a.changed
		a.mu.Unlock()
		kit.Receive(a.t, "agent of "+string(a.cluster)+": "+what, changed)
	}
}

func generation(uid types.UID, n wire.Generation) func(*wire.Spec) bool {
	return func(s *wire.Spec) bool { return s.UID == uid && s.Generation == n && !s.IsDeletion() }
}

func deletion(uid types.UID) func(*wire.Spec) bool {
	return func(s *wire.Spec) bool { return s.UID == uid && s.IsDeletion() }
}
