package wirekit

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// AgentConfig configures an [Agent].
type AgentConfig struct {
	// Cluster, Source, Topics and Transport are required.
	Cluster   wire.ClusterName
	Source    wire.SourceID
	Topics    wire.Topics
	Transport transport.Transport
	// Holds are the works that the agent has from an earlier run.
	Holds map[types.UID]*wire.Spec
	// Conditions returns the conditions that the agent reports of a spec that it applied; default
	// Applied.
	Conditions func(*wire.Spec) []metav1.Condition
	// Status returns the whole status in place of Conditions. It must not call the agent's methods.
	Status func(*wire.Spec) workv1.ManifestWorkStatus
	// Lose reports whether a message, acknowledged already, is lost before the agent handles it. It
	// may be nil.
	Lose func(wire.Message) bool
	// LoseStatus reports the same of a status that the broker has acknowledged. It may be nil.
	LoseStatus func(*wire.Status) bool
	// KeepDeleting makes the agent report Deleting, and Deleted only on Finish.
	KeepDeleting bool
	// Silent makes it report nothing until SetSilent(false).
	Silent bool
	// EmptyResync makes its spec resync requests list nothing.
	EmptyResync bool
	// NoStatusResync makes it ignore status resync requests.
	NoStatusResync bool
}

// Agent is a scripted agent. Its methods may be called from any goroutine.
type Agent struct {
	// Stop ends the agent that StartAgent started. The end of the test does as well.
	Stop func()

	config    AgentConfig
	topic     string
	wake      chan struct{}
	connected chan struct{} // one value for each connection
	log       journal       // all messages received

	mu       sync.Mutex
	works    map[types.UID]*wire.Spec
	status   map[types.UID]workv1.ManifestWorkStatus
	outbox   []*wire.Status // to be published, oldest first
	sequence wire.Sequence
	sent     []cloudevents.Event // all statuses published, oldest first
	silent   bool
	ignore   bool // deletions get no answer
}

// NewAgent returns an agent that does not run yet. It panics on invalid topics.
func NewAgent(config AgentConfig) *Agent {
	topics, err := config.Topics.ForAgent(config.Cluster)
	if err != nil {
		panic(err)
	}
	topic, err := topics.Events(config.Source)
	if err != nil {
		panic(err)
	}
	return &Agent{
		config: config, topic: topic, wake: make(chan struct{}, 1), connected: make(chan struct{}, 1000), silent: config.Silent,
		works:  maps.Collect(maps.All(config.Holds)),
		status: make(map[types.UID]workv1.ManifestWorkStatus),
	}
}

// StartAgent runs an agent until the end of the test.
func StartAgent(t testing.TB, config AgentConfig) *Agent {
	t.Helper()
	a := NewAgent(config)
	a.Stop = kit.Run(t, "agent of "+string(config.Cluster), a.Run)
	return a
}

// AwaitConnected waits for one more connection.
func (a *Agent) AwaitConnected(t testing.TB) {
	t.Helper()
	kit.Receive(t, "agent of "+string(a.config.Cluster)+" connects", a.connected)
}

// Await returns the first spec for which want returns true, of all that were received.
func (a *Agent) Await(t testing.TB, what string, want func(*wire.Spec) bool) *wire.Spec {
	t.Helper()
	a.log.seek("*wire.Spec", 0)
	return next(t, &a.log, "agent of "+string(a.config.Cluster)+": "+what, want)
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
			select {
			case a.connected <- struct{}{}:
			default: // nobody waits for connections
			}
		},
		Received: func(_ context.Context, m transport.Message) {
			defer m.Ack()
			if message, err := wire.Decode(m.Event); err == nil {
				a.Receive(message)
			}
		},
	})
}

// Resync requests the specs of the source.
func (a *Agent) Resync(ctx context.Context) {
	a.mu.Lock()
	request := &wire.SpecResync{Agent: a.name(), Cluster: a.config.Cluster, Source: a.config.Source}
	if !a.config.EmptyResync {
		for uid, spec := range a.works {
			request.Versions = append(request.Versions, wire.SpecVersion{UID: uid, Generation: spec.Generation, ContentHash: spec.ContentHash})
		}
	}
	a.mu.Unlock()
	_ = a.Send(ctx, request)
}

// SendDigest publishes a digest of the works and of their statuses.
func (a *Agent) SendDigest(ctx context.Context) error {
	a.mu.Lock()
	var works []wire.WorkDigest
	for uid, spec := range a.works {
		if spec.DeletionTimestamp != nil {
			continue
		}
		status := a.status[uid]
		hash, err := wire.StatusHash(&status)
		if err != nil {
			panic(err)
		}
		works = append(works, wire.WorkDigest{UID: uid, BucketDigest: wire.BucketDigest{
			Works:    wire.SpecDigest(uid, spec.Generation, false) + wire.StatusDigest(uid, hash),
			Contents: wire.ContentDigest(uid, spec.ContentHash),
		}})
	}
	a.mu.Unlock()
	return a.Send(ctx, &wire.Digest{Agent: a.name(), Cluster: a.config.Cluster, Source: a.config.Source, Buckets: wire.NewBuckets(works)})
}

// requestDiffering answers a status resync request by buckets.
func (a *Agent) requestDiffering(m *wire.StatusResync) {
	differing := m.DifferingSpecs(func(yield func(wire.HeldSpec) bool) {
		for uid, spec := range a.works {
			version := wire.SpecVersion{UID: uid, Generation: spec.Generation, ContentHash: spec.ContentHash}
			if !yield(wire.HeldSpec{SpecVersion: version, Deleting: spec.DeletionTimestamp != nil}) {
				return
			}
		}
	})
	if len(differing) > 0 {
		go func() {
			_ = a.Send(context.Background(), &wire.SpecResync{
				Agent: a.name(), Cluster: a.config.Cluster, Source: a.config.Source, Versions: differing, Partial: true,
			})
		}()
	}
}

// Send publishes a message on the agent's topic.
func (a *Agent) Send(ctx context.Context, m wire.Message) error {
	event, err := wire.Encode(m, time.Now())
	if err != nil {
		return err
	}
	return a.config.Transport.Publish(ctx, a.topic, event)
}

// Receive handles a message. A test may pass one that was delivered before.
func (a *Agent) Receive(m wire.Message) {
	if a.config.Lose != nil && a.config.Lose(m) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log.add(m)
	switch m := m.(type) {
	case *wire.Spec:
		a.spec(m)
	case *wire.StatusResync:
		if a.config.NoStatusResync {
			return
		}
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
		a.requestDiffering(m)
	}
}

func (a *Agent) spec(s *wire.Spec) {
	held, known := a.works[s.UID]
	switch {
	case s.IsDeletion() && a.ignore:
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
	case known && (held.DeletionTimestamp != nil || s.Generation != 0 && s.Generation <= held.Generation && !s.Authoritative):
	default:
		a.works[s.UID] = s
		conditions := []metav1.Condition{{Type: workv1.WorkApplied, Status: metav1.ConditionTrue,
			Reason: workv1.ReasonAppliedManifestWorkComplete, ObservedGeneration: int64(s.Generation)}}
		switch {
		case a.config.Status != nil:
			conditions = nil
		case a.config.Conditions != nil:
			conditions = a.config.Conditions(s)
		}
		for _, c := range conditions {
			a.set(s.UID, c)
		}
		if a.config.Status != nil {
			a.status[s.UID] = a.config.Status(s)
		}
		a.report(s, wire.Update)
	}
}

// Finish completes the deletion of a work that KeepDeleting holds.
func (a *Agent) Finish(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s, ok := a.works[uid]; ok && s.DeletionTimestamp != nil {
		a.forget(s)
	}
}

// Evict makes the agent delete a work that is not deleted at the source.
func (a *Agent) Evict(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s, ok := a.works[uid]; ok {
		a.forget(s)
	}
}

// Report publishes this status of a spec.
func (a *Agent) Report(s *wire.Spec, status workv1.ManifestWorkStatus) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.works[s.UID]; ok {
		a.status[s.UID] = status
	}
	a.enqueue(s, wire.Update, status)
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

// IgnoreDeletions makes the agent neither execute nor answer deletions from now on.
func (a *Agent) IgnoreDeletions(ignore bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ignore = ignore
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
	a.enqueue(s, action, a.status[s.UID])
}

func (a *Agent) enqueue(s *wire.Spec, action wire.Action, current workv1.ManifestWorkStatus) {
	about := s.Meta
	about.DeletionTimestamp = s.DeletionTimestamp
	status := &wire.Status{
		UID: s.UID, Generation: s.Generation, Source: a.config.Source, Cluster: a.config.Cluster, Agent: a.name(),
		Action: action, Meta: about, Sequence: a.sequence.Next(time.Now()),
	}
	status.Status = *current.DeepCopy()
	a.outbox = append(a.outbox, status)
	a.signal()
}

// publish sends the outbox. After a connect it retries what failed before.
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

// Replay publishes a status again that was published before: the n-th, modulo their number.
func (a *Agent) Replay(ctx context.Context, n int) {
	a.mu.Lock()
	sent := slices.Clone(a.sent)
	a.mu.Unlock()
	if len(sent) > 0 {
		_ = a.config.Transport.Publish(ctx, a.topic, sent[n%len(sent)])
	}
}

// Holds returns the specs that the agent holds, by UID.
func (a *Agent) Holds() map[types.UID]*wire.Spec {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.works)
}

// Status returns the status of a work that the agent holds.
func (a *Agent) Status(uid types.UID) workv1.ManifestWorkStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	status := a.status[uid]
	return *status.DeepCopy()
}

// Specs returns the specs of a work that the agent has received, oldest first; with "" those of all
// works.
func (a *Agent) Specs(uid types.UID) []*wire.Spec {
	var specs []*wire.Spec
	for _, m := range a.Log() {
		if s, ok := m.(*wire.Spec); ok && (uid == "" || s.UID == uid) {
			specs = append(specs, s)
		}
	}
	return specs
}

// Log returns all messages that the agent has received, oldest first.
func (a *Agent) Log() []wire.Message { return a.log.all() }

// Topic returns the topic that the agent publishes to.
func (a *Agent) Topic() string { return a.topic }

func (a *Agent) name() string { return string(a.config.Cluster) + "-agent" }

func (a *Agent) signal() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}
