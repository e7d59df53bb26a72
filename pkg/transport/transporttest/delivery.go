package transporttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/workwire/workwire/pkg/transport"
)

func delivers(t *testing.T, b Broker) {
	hub, agent := pair(t, b)
	spec := Event("one", 64)
	deletion := Event("two", 0)
	deletion.DataEncoded = nil
	hub.MustPublish(ClusterSpecs, spec, deletion)
	for _, want := range []string{spec.String(), deletion.String()} {
		m := agent.Next()
		if m.Err != nil || m.Topic != ClusterSpecs {
			t.Errorf("message on %s, error %v", m.Topic, m.Err)
		}
		if diff := cmp.Diff(want, m.Event.String()); diff != "" {
			t.Errorf("event (-published +received):\n%s", diff)
		}
		m.Ack()
	}
	agent.MustPublish(ClusterStatuses, Event("status", 64))
	hub.Expect("status")
	// No one subscribes to this: it is published all the same.
	hub.MustPublish(OtherSpecs, Event("unheard", 64))
}

func order(t *testing.T, b Broker) {
	hub, agent := pair(t, b)
	ids, events := events("event", 300)
	var group sync.WaitGroup
	group.Go(func() {
		for _, e := range events {
			if err := hub.Publish(context.Background(), ClusterSpecs, e); err != nil {
				t.Errorf("publish %s: %v", e.ID(), err)
			}
		}
	})
	agent.Expect(ids...)
	group.Wait()
}

func parallel(t *testing.T, b Broker) {
	hub, agent := pair(t, b)
	_, events := events("event", 2000)
	var group sync.WaitGroup
	for _, e := range events {
		group.Go(func() {
			if err := hub.Publish(context.Background(), ClusterSpecs, e); err != nil {
				t.Errorf("publish %s: %v", e.ID(), err)
			}
		})
	}
	seen := make(map[string]bool)
	for range events {
		m := agent.Next()
		if seen[m.Event.ID()] {
			t.Errorf("event %s came twice on one connection", m.Event.ID())
		}
		seen[m.Event.ID()] = true
		m.Ack()
	}
	group.Wait()
}

func wildcards(t *testing.T, b Broker) {
	hub, agent := pair(t, b)
	other := Start(t, b.Client(Other), OtherSpecs)
	other.WaitConnected()
	agent.MustPublish(ClusterStatuses, Event("from-1", 64))
	hub.Expect("from-1")
	other.MustPublish(OtherStatuses, Event("from-2", 64))
	m := hub.Next()
	if m.Topic != OtherStatuses || m.Event.ID() != "from-2" {
		t.Errorf("got %s on %s", m.Event.ID(), m.Topic)
	}
	hub.MustPublish(OtherSpecs, Event("for-2", 64))
	hub.MustPublish(ClusterSpecs, Event("for-1", 64))
	other.Expect("for-2")
	agent.Expect("for-1")
}

func redelivers(t *testing.T, b Broker) {
	hub, agent := pair(t, b)
	ids, events := events("event", 3)
	hub.MustPublish(ClusterSpecs, events...)
	first, second, third := agent.Next(), agent.Next(), agent.Next()
	first.Ack()
	third.Ack() // has no effect before the second is acknowledged
	// The broker has taken note of the first when it answers what was sent after it.
	agent.MustPublish(ClusterStatuses, Event("marker", 64))
	b.Cut(Cluster)
	agent.WaitLost()
	b.Restore(Cluster)
	if !agent.WaitConnected().Resumed {
		t.Error("the session was not resumed")
	}
	again := []transport.Message{agent.Next(), agent.Next()}
	for i, m := range again {
		if m.Event.ID() != ids[1+i] {
			t.Fatalf("after reconnecting, message %d is %s, want %s", i, m.Event.ID(), ids[1+i])
		}
	}
	second.Ack() // of the connection lost: does nothing
	again[1].Ack()
	b.Cut(Cluster)
	agent.WaitLost()
	b.Restore(Cluster)
	agent.WaitConnected()
	agent.Expect(ids[1:]...)
	hub.MustPublish(ClusterSpecs, Event("last", 64))
	agent.Expect("last")
}

func acksInAnyOrder(t *testing.T, b Broker) {
	hub, agent := pair(t, b)
	// More than any window, so that the acknowledgements must get through.
	const rounds, batch = 4, 100
	for round := range rounds {
		ids, events := events(fmt.Sprintf("round%d-", round), batch)
		hub.MustPublish(ClusterSpecs, events...)
		var held []transport.Message
		for _, id := range ids {
			m := agent.Next()
			if m.Event.ID() != id {
				t.Fatalf("got %s, want %s", m.Event.ID(), id)
			}
			if held = append(held, m); len(held) == 10 {
				for i := range held {
					held[len(held)-1-i].Ack()
				}
				held = nil
			}
		}
	}
}

func queuesOffline(t *testing.T, b Broker) {
	hub, agent := pair(t, b)
	agent.Stop()
	agent.WaitLost()
	ids, events := events("event", 50)
	hub.MustPublish(ClusterSpecs, events...)
	agent = Start(t, b.Client(Cluster), ClusterSpecs)
	if !agent.WaitConnected().Resumed {
		t.Error("the session was not resumed")
	}
	agent.Expect(ids...)
}

func tooLarge(t *testing.T, b Broker) {
	agent := Start(t, b.Client(Cluster), ClusterSpecs)
	hub := Start(t, b.Client(Hub), AllStatuses)
	agent.WaitConnected()
	if limit := hub.WaitConnected().Limit; limit != b.Limit || hub.Limit() != b.Limit {
		t.Fatalf("limits are %d and %d, want %d", limit, hub.Limit(), b.Limit)
	}
	// The size of what surrounds the data is told by the error.
	large := Event("large", b.Limit)
	err := hub.Publish(context.Background(), ClusterSpecs, large)
	var tooLarge *transport.TooLargeError
	if !errors.As(err, &tooLarge) || tooLarge.Limit != b.Limit || tooLarge.Attribute != "" {
		t.Fatalf("publish of a large event gives %v", err)
	}
	around := tooLarge.Size - b.Limit
	if err := hub.Publish(context.Background(), ClusterSpecs, Event("large", b.Limit-around+1)); !errors.As(err, &tooLarge) {
		t.Errorf("publish of an event one byte too large gives %v", err)
	}
	hub.MustPublish(ClusterSpecs, Event("large", b.Limit-around))
	agent.Expect("large")
	if len(hub.Lost) != 0 {
		t.Error("the connection was lost")
	}
}

func notAuthorized(t *testing.T, b Broker) {
	hub, agent := pair(t, b)
	err := agent.Publish(context.Background(), OtherStatuses, Event("forged", 64))
	if !errors.Is(err, transport.ErrNotAuthorized) || !strings.Contains(err.Error(), OtherStatuses) {
		t.Errorf("publish to another cluster's topic gives %v", err)
	}
	agent.MustPublish(ClusterStatuses, Event("own", 64))
	hub.Expect("own")
	if len(agent.Lost) != 0 {
		t.Error("the connection was lost")
	}
}

func cancelled(t *testing.T, b Broker) {
	hub, _ := pair(t, b)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	// It may have been sent and confirmed at once; if it fails, then by ctx.
	if err := hub.Publish(ctx, ClusterSpecs, Event("one", 64)); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("publish with a cancelled context gives %v", err)
	}
	invalid := Event("", 64)
	if err := hub.Publish(context.Background(), ClusterSpecs, invalid); err == nil {
		t.Error("an event without id was published")
	}
}
