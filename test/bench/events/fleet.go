package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
)

// Fleet is simulated agents, each with a connection of its own, that report every spec as applied and
// available at once, and execute deletions. They announce their presence and compare works on every
// connect, as real agents do. Below the connection nothing is real: no object is written anywhere.
// Its methods may be called from any goroutine.
type Fleet struct {
	source wire.SourceID
	agents []*fleetAgent
	stop   context.CancelFunc
	runs   errgroup.Group

	// Received and Sent are what the agents have received and published, in messages and in bytes of
	// their data and attributes.
	ReceivedMessages, ReceivedBytes, SentMessages, SentBytes atomic.Int64
	connected                                                atomic.Int64
}

type fleetAgent struct {
	fleet   *Fleet
	cluster wire.ClusterName
	link    transport.Transport
	topic   string
	wake    chan struct{}

	mu       sync.Mutex
	held     map[types.UID]heldWork
	outbox   []wire.Message
	sequence wire.Sequence
	session  int
}

type heldWork struct {
	generation wire.Generation
	content    string // hash
	meta       metav1.ObjectMeta
}

// dialing is how many agents connect at the same time at first.
const dialing = 64

// NewFleet connects an agent for each cluster, with what broker gives for it, and returns when all are
// connected.
func NewFleet(ctx context.Context, broker func(user string) config.Config, source wire.SourceID, clusters []wire.ClusterName) (*Fleet, error) {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	f := &Fleet{source: source, stop: stop}
	var connecting errgroup.Group
	connecting.SetLimit(dialing)
	for _, cluster := range clusters {
		link, err := mqtt.New(mqtt.Config{Broker: broker(string(cluster)), ClientID: string(cluster) + "-agent", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		a := &fleetAgent{fleet: f, cluster: cluster, link: link, wake: make(chan struct{}, 1), held: map[types.UID]heldWork{},
			topic: fmt.Sprintf("sources/%s/clusters/%s/agentevents", source, cluster)}
		f.agents = append(f.agents, a)
		up := make(chan struct{})
		connecting.Go(func() error {
			f.runs.Go(func() error { return a.run(running, sync.OnceFunc(func() { close(up) })) })
			select {
			case <-up:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}
	if err := connecting.Wait(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Connected is how many agents are connected.
func (f *Fleet) Connected() int { return int(f.connected.Load()) }

// Close disconnects. It may be called on nil.
func (f *Fleet) Close() error {
	if f == nil {
		return nil
	}
	f.stop()
	return f.runs.Wait()
}

func (a *fleetAgent) run(ctx context.Context, up func()) error {
	var sending sync.WaitGroup
	defer sending.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sending.Go(func() { a.send(ctx) })
	return a.link.Run(ctx, transport.Handler{
		Subscriptions: []string{fmt.Sprintf("sources/%s/clusters/%s/sourceevents", a.fleet.source, a.cluster)},
		Will:          a.will,
		Connected: func(context.Context, transport.Connection) {
			a.fleet.connected.Add(1)
			a.compare()
			up()
		},
		Lost: func(error) { a.fleet.connected.Add(-1) },
		Received: func(_ context.Context, m transport.Message) {
			defer m.Ack()
			a.fleet.ReceivedMessages.Add(1)
			a.fleet.ReceivedBytes.Add(size(&m.Event))
			if message, err := wire.Decode(m.Event); err == nil {
				a.receive(message)
			}
		},
	})
}

// size is the data and the attributes of an event in bytes.
func size(e *cloudevents.Event) int64 {
	n := len(e.Data()) + len(e.ID()) + len(e.Source()) + len(e.Type()) + len(e.SpecVersion()) + len(e.DataContentType())
	for name, value := range e.Extensions() {
		n += len(name) + len(fmt.Sprint(value))
	}
	return int64(n)
}

func (a *fleetAgent) presence(present bool) *wire.Presence {
	return &wire.Presence{Agent: string(a.cluster) + "-agent", Cluster: a.cluster, Source: a.fleet.source, Session: fmt.Sprint(a.session), Present: present}
}

func (a *fleetAgent) will() (string, cloudevents.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.session++
	event, err := wire.Encode(a.presence(false), time.Now())
	if err != nil {
		panic(err) // the same for all
	}
	return a.topic, event
}

// compare announces the agent and sends what it holds, ahead of all that waits.
func (a *fleetAgent) compare() {
	a.mu.Lock()
	resync := &wire.SpecResync{Agent: string(a.cluster) + "-agent", Cluster: a.cluster, Source: a.fleet.source}
	for uid, work := range a.held {
		resync.Versions = append(resync.Versions, wire.SpecVersion{UID: uid, Generation: work.generation, ContentHash: work.content})
	}
	a.outbox = append([]wire.Message{a.presence(true), resync}, a.outbox...)
	a.mu.Unlock()
	a.signal()
}

func (a *fleetAgent) signal() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *fleetAgent) receive(m wire.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch m := m.(type) {
	case *wire.Spec:
		work, known := a.held[m.UID]
		switch {
		case m.IsDeletion():
			delete(a.held, m.UID)
			a.report(m.UID, heldWork{generation: m.Generation, meta: m.Meta}, wire.Update, deleted())
		case known && m.Generation <= work.generation:
		default:
			work = heldWork{generation: m.Generation, content: m.ContentHash, meta: m.Meta}
			a.held[m.UID] = work
			a.report(m.UID, work, wire.Update, statusOf(work.generation))
		}
	case *wire.StatusResync:
		hash := func(uid types.UID) (string, bool) {
			work, ok := a.held[uid]
			if !ok {
				return "", false
			}
			status := statusOf(work.generation)
			sum, err := wire.StatusHash(&status)
			return sum, err == nil
		}
		all := func(yield func(types.UID) bool) {
			for uid := range a.held {
				if !yield(uid) {
					return
				}
			}
		}
		for _, uid := range m.Answer(hash, all) {
			a.report(uid, a.held[uid], wire.ResyncResponse, statusOf(a.held[uid].generation))
		}
		if !m.Reply {
			a.outbox = append(a.outbox, a.presence(true))
			a.signal()
		}
	}
}

// simulated is the time of all conditions, so that the status of a generation is always the same.
var simulated = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

func statusOf(generation wire.Generation) workv1.ManifestWorkStatus {
	status := Well(int64(generation))
	for i := range status.Conditions {
		status.Conditions[i].LastTransitionTime = simulated
	}
	for i := range status.ResourceStatus.Manifests {
		for j := range status.ResourceStatus.Manifests[i].Conditions {
			status.ResourceStatus.Manifests[i].Conditions[j].LastTransitionTime = simulated
		}
	}
	return status
}

func deleted() workv1.ManifestWorkStatus {
	return workv1.ManifestWorkStatus{Conditions: []metav1.Condition{{Type: workv1.WorkDeleted, Status: metav1.ConditionTrue,
		Reason: workv1.ReasonManifestsDeleted, LastTransitionTime: simulated}}}
}

func (a *fleetAgent) report(uid types.UID, work heldWork, action wire.Action, status workv1.ManifestWorkStatus) {
	a.outbox = append(a.outbox, &wire.Status{
		UID: uid, Generation: work.generation, Source: a.fleet.source, Cluster: a.cluster, Agent: string(a.cluster) + "-agent",
		Action: action, Meta: work.meta, Sequence: a.sequence.Next(time.Now()), Session: fmt.Sprint(a.session), Status: status,
	})
	a.signal()
}

// send publishes the outbox in order, until ctx ends. What fails waits for the next connect.
func (a *fleetAgent) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
		for a.sendFirst(ctx) {
		}
	}
}

// sendFirst reports whether there was one, and it was published.
func (a *fleetAgent) sendFirst(ctx context.Context) bool {
	a.mu.Lock()
	if len(a.outbox) == 0 {
		a.mu.Unlock()
		return false
	}
	first := a.outbox[0]
	a.outbox = a.outbox[1:]
	a.mu.Unlock()
	event, err := wire.Encode(first, time.Now())
	if err != nil {
		panic(err) // the same for all
	}
	if a.link.Publish(ctx, a.topic, event) != nil {
		a.mu.Lock()
		a.outbox = append([]wire.Message{first}, a.outbox...)
		a.mu.Unlock()
		return false
	}
	a.fleet.SentMessages.Add(1)
	a.fleet.SentBytes.Add(size(&event))
	return true
}
