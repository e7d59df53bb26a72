// Package agenttest is an agent for tests of sources: it speaks the protocol and
// applies nothing. Whatever it is sent it reports as applied, in the order and
// with the faults that a test asks for.
//
//	agent := agenttest.New(agenttest.Config{Cluster: "cluster1", Source: "hub1", Topics: topics, Transport: broker.Client("agent1")})
//	go agent.Run(ctx)
//	...
//	agent.Holds() // what it was sent, by UID
package agenttest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// Config says which agent it is.
type Config struct {
	// Cluster, Source, Topics and Transport are required.
	Cluster   wire.ClusterName
	Source    wire.SourceID
	Topics    wire.Topics
	Transport transport.Transport
	// Lose tells whether a message, acknowledged already, is lost before the agent
	// sees it. It may be nil.
	Lose func(wire.Message) bool
	// LoseStatus tells the same of a status that the broker has taken. It may be nil.
	LoseStatus func(*wire.Status) bool
	// KeepDeleting makes the agent report Deleting and go no further until Finish.
	KeepDeleting bool
	// Silent makes it report nothing until SetSilent(false).
	Silent bool
	// EmptyResync makes its spec resync requests list nothing.
	EmptyResync bool
}

// Agent is the agent.
type Agent struct {
	config Config
	topic  string
	wake   chan struct{}

	mu       sync.Mutex
	works    map[types.UID]*wire.Spec
	status   map[types.UID]workv1.ManifestWorkStatus
	outbox   []*wire.Status // to be published, oldest first
	sequence wire.Sequence
	log      []wire.Message      // all messages seen, oldest first
	sent     []cloudevents.Event // all statuses published, oldest first
	silent   bool
}

// New makes an agent. It panics on topics that do not fit.
func New(config Config) *Agent {
	topics, err := config.Topics.ForAgent(config.Cluster)
	if err != nil {
		panic(err)
	}
	topic, err := topics.Events(config.Source)
	if err != nil {
		panic(err)
	}
	return &Agent{
		config: config, topic: topic, wake: make(chan struct{}, 1), silent: config.Silent,
		works:  make(map[types.UID]*wire.Spec),
		status: make(map[types.UID]workv1.ManifestWorkStatus),
	}
}

// Run runs the agent until ctx ends.
func (a *Agent) Run(ctx context.Context) error {
	topics, err := a.config.Topics.ForAgent(a.config.Cluster)
	if err != nil {
		return err
	}
	var publishing sync.WaitGroup
	defer publishing.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	publishing.Go(func() { a.publish(ctx) })
	return a.config.Transport.Run(ctx, transport.Handler{
		Subscriptions: topics.Subscriptions(),
		Connected: func(ctx context.Context, _ transport.Connection) {
			a.Resync(ctx)
			a.signal()
		},
		Received: func(_ context.Context, m transport.Message) {
			defer m.Ack()
			if message, err := wire.Decode(m.Event); err == nil {
				a.Receive(message)
			}
		},
	})
}

// Resync asks the source for specs.
func (a *Agent) Resync(ctx context.Context) {
	a.mu.Lock()
	request := &wire.SpecResync{Agent: a.name(), Cluster: a.config.Cluster, Source: a.config.Source}
	if !a.config.EmptyResync {
		for uid, spec := range a.works {
			request.Versions = append(request.Versions, wire.SpecVersion{UID: uid, Generation: spec.Generation})
		}
	}
	a.mu.Unlock()
	_ = a.Send(ctx, request)
}

// Send publishes a message on the agent's topic.
func (a *Agent) Send(ctx context.Context, m wire.Message) error {
	event, err := wire.Encode(m, time.Now())
	if err != nil {
		return err
	}
	return a.config.Transport.Publish(ctx, a.topic, event)
}

// Receive is what the agent does with a message; a test may hand it one that was
// delivered before.
func (a *Agent) Receive(m wire.Message) {
	if a.config.Lose != nil && a.config.Lose(m) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log = append(a.log, m)
	switch m := m.(type) {
	case *wire.Spec:
		a.spec(m)
	case *wire.StatusResync:
		hash := func(uid types.UID) (string, bool) {
			status, ok := a.status[uid]
			if !ok {
				return "", false
			}
			sum, err := wire.StatusHash(&status)
			return sum, err == nil
		}
		for _, uid := range m.Answer(hash, maps.Keys(a.status)) {
			a.report(a.works[uid], wire.ResyncResponse)
		}
	}
}

func (a *Agent) spec(s *wire.Spec) {
	held, known := a.works[s.UID]
	switch {
	case s.IsDeletion() && !known:
		a.forget(s)
	case s.IsDeletion() && a.config.KeepDeleting:
		deleting := *held
		deleting.DeletionTimestamp, deleting.Generation = s.DeletionTimestamp, s.Generation
		a.works[s.UID] = &deleting
		a.set(s.UID, metav1.Condition{Type: workv1.WorkDeleting, Status: metav1.ConditionTrue, Reason: workv1.ReasonWorkDeleting})
		a.report(&deleting, wire.Update)
	case s.IsDeletion():
		a.forget(s)
	case known && (held.DeletionTimestamp != nil || s.Generation != 0 && s.Generation <= held.Generation):
	default:
		a.works[s.UID] = s
		a.set(s.UID, metav1.Condition{Type: workv1.WorkApplied, Status: metav1.ConditionTrue,
			Reason: workv1.ReasonAppliedManifestWorkComplete, ObservedGeneration: int64(s.Generation)})
		a.report(s, wire.Update)
	}
}

// Finish ends the deletion that KeepDeleting has held up.
func (a *Agent) Finish(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s, ok := a.works[uid]; ok && s.DeletionTimestamp != nil {
		a.forget(s)
	}
}

// Evict makes the agent delete a work of its own accord.
func (a *Agent) Evict(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s, ok := a.works[uid]; ok {
		a.forget(s)
	}
}

// Touch changes the status of a work that the agent holds.
func (a *Agent) Touch(uid types.UID, message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s, ok := a.works[uid]; ok {
		a.set(uid, metav1.Condition{Type: workv1.WorkAvailable, Status: metav1.ConditionTrue,
			Reason: workv1.ReasonResourcesAvailable, Message: message, ObservedGeneration: int64(s.Generation)})
		a.report(s, wire.Update)
	}
}

// SetSilent makes the agent stop or begin to report.
func (a *Agent) SetSilent(silent bool) {
	a.mu.Lock()
	a.silent = silent
	a.mu.Unlock()
	a.signal()
}

// forget reports s as deleted.
func (a *Agent) forget(s *wire.Spec) {
	a.set(s.UID, metav1.Condition{Type: workv1.WorkDeleted, Status: metav1.ConditionTrue, Reason: workv1.ReasonManifestsDeleted})
	a.report(s, wire.Update)
	delete(a.works, s.UID)
	delete(a.status, s.UID)
}

func (a *Agent) set(uid types.UID, c metav1.Condition) {
	status := a.status[uid]
	status.Conditions = slices.Clone(status.Conditions)
	c.LastTransitionTime = metav1.NewTime(time.Now().Truncate(time.Second))
	meta.SetStatusCondition(&status.Conditions, c)
	a.status[uid] = status
}

func (a *Agent) report(s *wire.Spec, action wire.Action) {
	about := s.Meta
	about.DeletionTimestamp = s.DeletionTimestamp
	status := &wire.Status{
		UID: s.UID, Generation: s.Generation, Source: a.config.Source, Cluster: a.config.Cluster, Agent: a.name(),
		Action: action, Meta: about, Sequence: a.sequence.Next(time.Now()),
	}
	held := a.status[s.UID]
	status.Status = *held.DeepCopy()
	a.outbox = append(a.outbox, status)
	a.signal()
}

// publish sends the outbox, and again after a connect what could not be sent.
func (a *Agent) publish(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
		for a.publishOne(ctx) {
		}
	}
}

func (a *Agent) publishOne(ctx context.Context) bool {
	a.mu.Lock()
	if a.silent || len(a.outbox) == 0 {
		a.mu.Unlock()
		return false
	}
	next := a.outbox[0]
	a.mu.Unlock()
	event, err := wire.Encode(next, time.Now())
	if err != nil {
		panic(err)
	}
	if a.config.LoseStatus == nil || !a.config.LoseStatus(next) {
		if err := a.config.Transport.Publish(ctx, a.topic, event); err != nil {
			return false
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.outbox = a.outbox[1:]
	a.sent = append(a.sent, event)
	return true
}

// Replay publishes a status again that was published before; n counts from the
// oldest and wraps around.
func (a *Agent) Replay(ctx context.Context, n int) {
	a.mu.Lock()
	sent := slices.Clone(a.sent)
	a.mu.Unlock()
	if len(sent) > 0 {
		_ = a.config.Transport.Publish(ctx, a.topic, sent[n%len(sent)])
	}
}

// Holds gives what the agent holds.
func (a *Agent) Holds() map[types.UID]*wire.Spec {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.works)
}

// Status gives the status of a work that the agent holds.
func (a *Agent) Status(uid types.UID) workv1.ManifestWorkStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	status := a.status[uid]
	return *status.DeepCopy()
}

// Specs gives the spec events that the agent has seen of a work, oldest first.
func (a *Agent) Specs(uid types.UID) []*wire.Spec {
	var specs []*wire.Spec
	for _, m := range a.Log() {
		if s, ok := m.(*wire.Spec); ok && s.UID == uid {
			specs = append(specs, s)
		}
	}
	return specs
}

// Log gives all messages that the agent has seen, oldest first.
func (a *Agent) Log() []wire.Message {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.log)
}

// Topic is the one that the agent publishes to.
func (a *Agent) Topic() string { return a.topic }

func (a *Agent) name() string { return string(a.config.Cluster) + "-agent" }

func (a *Agent) signal() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}
