package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// life is a source and agents in one thread, whose network loses messages by a seed.
type life struct {
	t       *testing.T
	random  *rand.Rand
	clock   *clocktesting.FakePassiveClock
	store   *fakeStore
	source  *delivery.Stepped
	lossy   bool
	agents  map[types.UID]*wire.Spec // what they hold
	arrived []transport.Message      // at the source, in a while
	next    wire.SequenceID
	trace   strings.Builder
}

func (l *life) Run(context.Context, transport.Handler) error { return errors.ErrUnsupported }
func (l *life) Limit() int                                   { return 0 }

// Publish has the agents receive e, or nobody.
func (l *life) Publish(_ context.Context, topic string, e cloudevents.Event) error {
	m, err := wire.Decode(e)
	kit.NoError(l.t, err)
	fate := l.random.IntN(4)
	if !l.lossy {
		fate = 3
	}
	fmt.Fprintf(&l.trace, "%s publish %T to %s, %d\n", l.clock.Now().Format(time.TimeOnly), m, topic, fate)
	switch spec, ok := m.(*wire.Spec); {
	case fate == 0:
		return errBroken
	case fate == 1 || !ok:
	case spec.IsDeletion():
		delete(l.agents, spec.UID)
		l.report(spec, workv1.WorkDeleted)
	default:
		l.agents[spec.UID] = spec
		l.report(spec, workv1.WorkApplied)
	}
	return nil
}

// report has an agent send a status.
func (l *life) report(spec *wire.Spec, condition string) {
	l.next++
	l.send(spec.Cluster, &wire.Status{UID: spec.UID, Generation: spec.Generation, Source: "hub1", Cluster: spec.Cluster, Agent: "a", Sequence: l.next,
		Action: wire.Update, Meta: metav1.ObjectMeta{Name: spec.Meta.Name, Namespace: string(spec.Cluster)},
		Status: workv1.ManifestWorkStatus{Conditions: []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, ObservedGeneration: int64(spec.Generation)}}}})
}

func (l *life) send(cluster wire.ClusterName, m wire.Message) {
	event, err := wire.Encode(m, l.clock.Now())
	kit.NoError(l.t, err)
	l.arrived = append(l.arrived, transport.Message{Topic: fmt.Sprintf("sources/hub1/clusters/%s/agentevents", cluster), Event: event, Ack: func() {}})
}

// lived returns a life by this seed, after which all is well.
func lived(t *testing.T, seed uint64) *life {
	l := &life{
		t: t, random: rand.New(rand.NewPCG(seed, 3)), clock: clocktesting.NewFakePassiveClock(time.Unix(1_790_000_000, 0)), lossy: true,
		store: &fakeStore{works: map[types.UID]*workv1.ManifestWork{}}, agents: map[types.UID]*wire.Spec{},
	}
	var err error
	l.source, err = delivery.NewStepped(t.Context(), delivery.Config{
		Source: "hub1", Topics: topics, Transport: l, Works: l.store, Clock: l.clock, PublishWorkers: 3, Logger: slog.New(slog.DiscardHandler),
		Observe: func(event delivery.Event) { fmt.Fprintf(&l.trace, "%T\n", event) },
	})
	kit.NoError(t, err)
	l.store.engine = l.source.Engine
	l.source.Connect(transport.Connection{})
	for i := range 300 {
		if i == 200 {
			l.lossy = false
		}
		l.happen()
	}
	return l
}

// happen has something happen.
func (l *life) happen() {
	cluster := wire.ClusterName(fmt.Sprint("c", l.random.IntN(2)))
	work := newWork(string(cluster), fmt.Sprint("w", l.random.IntN(5)))
	switch n := l.random.IntN(10); {
	case n < 3 && l.lossy && l.store.get(work.UID) == nil:
		l.store.put(work)
	case n < 3 && l.lossy && l.store.get(work.UID).DeletionTimestamp == nil:
		l.store.change(work.UID, []func(*workv1.ManifestWork){bump, doom}[n/2])
	case n < 5:
		question := &wire.SpecResync{Agent: "a", Cluster: cluster, Source: "hub1"}
		for _, spec := range l.agents {
			if spec.Cluster == cluster {
				question.Versions = append(question.Versions, wire.SpecVersion{UID: spec.UID, Generation: spec.Generation})
			}
		}
		slices.SortFunc(question.Versions, func(a, b wire.SpecVersion) int { return strings.Compare(string(a.UID), string(b.UID)) })
		l.send(cluster, question)
	case n == 5 && l.lossy:
		l.source.Lost(errBroken)
		l.source.Connect(transport.Connection{})
	default:
		l.clock.SetTime(l.clock.Now().Add(20 * time.Second))
		l.source.TimePassed()
	}
	for l.source.Do(l.t.Context()) {
	}
	for len(l.arrived) > 0 {
		m := l.arrived[0]
		if l.arrived = l.arrived[1:]; !l.lossy || l.random.IntN(4) > 0 {
			l.source.Receive(l.t.Context(), m)
		}
		for l.source.Do(l.t.Context()) {
		}
	}
}

// TestStepped: a source in one thread does what one with goroutines does: in the end the agents hold its works and no
// others. What it does, and in which order, follows from the seed alone.
func TestStepped(t *testing.T) {
	for seed := range uint64(40) {
		first := lived(t, seed)
		if again := lived(t, seed); again.trace.String() != first.trace.String() {
			t.Fatalf("seed %d: two lives are not the same", seed)
		}
		for uid, work := range first.store.works {
			if held := first.agents[uid]; held == nil || int64(held.Generation) != work.Generation {
				t.Errorf("seed %d: the agent holds %+v of %s, want generation %d", seed, held, uid, work.Generation)
			}
		}
		if len(first.agents) != len(first.store.works) {
			t.Errorf("seed %d: the agents hold %d works, the source has %d", seed, len(first.agents), len(first.store.works))
		}
	}
}
