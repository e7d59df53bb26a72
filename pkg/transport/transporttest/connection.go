package transporttest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/test/kit"
)

func reconnects(t *testing.T, b Broker) {
	hub, agent := pair(t, b)
	b.Cut(Hub)
	if reason := hub.WaitLost(); reason == nil {
		t.Error("the loss has no reason")
	}
	if err := hub.Publish(context.Background(), ClusterSpecs, Event("refused", 64)); !errors.Is(err, transport.ErrNotConnected) {
		t.Errorf("publish without connection gives %v", err)
	}
	agent.MustPublish(ClusterStatuses, Event("status", 64))
	b.Restore(Hub)
	if !hub.WaitConnected().Resumed {
		t.Error("the session was not resumed")
	}
	hub.Expect("status")
	hub.MustPublish(ClusterSpecs, Event("spec", 64))
	agent.Expect("spec")
}

func waitsForConnected(t *testing.T, b Broker) {
	ended, release := make(chan struct{}, 10), make(chan struct{})
	var running atomic.Bool
	agent := StartWith(t, b.Client(Cluster), transport.Handler{
		Subscriptions: []string{ClusterSpecs},
		Connected: func(ctx context.Context, _ transport.Connection) {
			running.Store(true)
			<-ctx.Done()
			ended <- struct{}{}
			<-release
			running.Store(false)
		},
		Lost: func(error) {
			if running.Load() {
				t.Error("Lost was called before Connected had returned")
			}
		},
	})
	agent.WaitConnected()
	b.Cut(Cluster)
	kit.Receive(t, "the end of Connected's context", ended)
	b.Restore(Cluster)
	// The call before has not returned. Nothing tells when another one has not come, so this would
	// miss a fault at times, yet never report a false one.
	select {
	case <-agent.Connected:
		t.Error("Connected was called again before the call before it had returned")
	case reason := <-agent.Lost: // reported by the handler
		agent.Lost <- reason
	case <-time.After(300 * time.Millisecond):
	}
	close(release)
	agent.WaitLost()
	agent.WaitConnected()
	agent.Stop()
	kit.Receive(t, "the end of Connected's context at the end of Run", ended)
	agent.WaitLost()
	if len(agent.Lost) != 0 {
		t.Error("Lost was called more often than Connected")
	}
}

func restart(t *testing.T, b Broker) {
	hub, agent := pair(t, b)
	unacked := Event("unacked", 64)
	hub.MustPublish(ClusterSpecs, unacked)
	agent.Next()
	b.Restart()
	for _, c := range []*Client{hub, agent} {
		c.WaitLost()
		if !c.WaitConnected().Resumed {
			t.Error("the session was not resumed")
		}
	}
	agent.Expect("unacked")
	hub.MustPublish(ClusterSpecs, Event("after", 64))
	agent.Expect("after")
}

func forgotten(t *testing.T, b Broker) {
	hub, agent := pair(t, b)
	b.Cut(Cluster)
	agent.WaitLost()
	hub.MustPublish(ClusterSpecs, Event("forgotten", 64))
	b.Cut(Hub)
	hub.WaitLost()
	b.Forget()
	b.Restore(Cluster)
	b.Restore(Hub)
	for _, c := range []*Client{hub, agent} {
		if c.WaitConnected().Resumed {
			t.Error("a connection is resumed although the session was forgotten")
		}
	}
	hub.MustPublish(ClusterSpecs, Event("new", 64))
	agent.Expect("new")
}

func unreachable(t *testing.T, b Broker) {
	b.Cut(Cluster)
	agent := Start(t, b.Client(Cluster), ClusterSpecs)
	if err := agent.Publish(context.Background(), ClusterStatuses, Event("one", 64)); !errors.Is(err, transport.ErrNotConnected) {
		t.Errorf("publish gives %v", err)
	}
	if agent.Limit() != 0 {
		t.Errorf("limit is %d", agent.Limit())
	}
	agent.Stop()
	if len(agent.Connected)+len(agent.Lost) != 0 {
		t.Error("a connection was reported")
	}
}

func endsCleanly(t *testing.T, b Broker) {
	before := runtime.NumGoroutine()
	hub, agent := pair(t, b)
	hub.MustPublish(ClusterSpecs, Event("one", 64))
	agent.Expect("one")
	for _, c := range []*Client{hub, agent} {
		c.Stop()
		if len(c.Lost) != 1 {
			t.Errorf("Lost was called %d times", len(c.Lost))
		}
		if err := c.Publish(context.Background(), ClusterSpecs, Event("late", 64)); !errors.Is(err, transport.ErrNotConnected) {
			t.Errorf("publish after Run gives %v", err)
		}
	}
	kit.True(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

func runsOnce(t *testing.T, b Broker) {
	agent := Start(t, b.Client(Cluster), ClusterSpecs)
	agent.WaitConnected()
	if err := agent.Run(context.Background(), transport.Handler{Received: func(context.Context, transport.Message) {}}); err == nil {
		t.Error("Run runs twice")
	}
	if err := b.Client(Other).Run(context.Background(), transport.Handler{}); err == nil {
		t.Error("Run runs without Received")
	}
}

func will(t *testing.T, b Broker) {
	hub := Start(t, b.Client(Hub), AllStatuses)
	hub.WaitConnected()
	connects := 0
	agent := StartWith(t, b.Client(Cluster), transport.Handler{
		Subscriptions: []string{ClusterSpecs},
		Will: func() (string, cloudevents.Event) {
			connects++ // one connect at a time
			return ClusterStatuses, Event(fmt.Sprintf("gone-%d", connects), 64)
		},
	})
	agent.WaitConnected()
	agent.MustPublish(ClusterStatuses, Event("here", 64))
	hub.Expect("here")
	b.Cut(Cluster)
	m := hub.Next()
	if id := m.Event.ID(); !strings.HasPrefix(id, "gone-") || m.Topic != ClusterStatuses {
		t.Errorf("after the loss of the agent comes %q on %s", id, m.Topic)
	}
	m.Ack()
	b.Restore(Cluster)
	agent.WaitConnected()
	agent.MustPublish(ClusterStatuses, Event("back", 64))
	hub.Expect("back")
	agent.Stop()
	// After a clean end nothing comes but what others say.
	other := Start(t, b.Client(Cluster), ClusterSpecs)
	other.WaitConnected()
	other.MustPublish(ClusterStatuses, Event("other", 64))
	hub.Expect("other")
}
