package memory_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/transport/transporttest"
	"github.com/workwire/workwire/test/kit"
)

func TestTransport(t *testing.T) {
	start := func(*testing.T) transporttest.Broker {
		b := memory.NewBroker()
		const limit = 4096
		b.SetLimit(limit)
		b.Deny(transporttest.Cluster, transporttest.OtherStatuses)
		return transporttest.Broker{
			Client:  func(user string) transport.Transport { return b.Client(user) },
			Cut:     b.Cut,
			Restore: b.Restore,
			Limit:   limit,
			Forget: func() {
				b.Forget(transporttest.Hub)
				b.Forget(transporttest.Cluster)
			},
		}
	}
	transporttest.Run(t, start)
	transporttest.RunForget(t, start)
}

func TestDuplicate(t *testing.T) {
	b := memory.NewBroker()
	b.Duplicate(2)
	hub, agent := transporttest.Start(t, b.Client("hub1")), transporttest.Start(t, b.Client("cluster1"), "#")
	hub.WaitConnected()
	agent.WaitConnected()
	hub.MustPublish("a/b", transporttest.Event("one", 8))
	hub.MustPublish("a/b", transporttest.Event("two", 8))
	agent.Expect("one", "one", "one", "two", "two", "two")
}

func TestShared(t *testing.T) {
	b := memory.NewBroker()
	hub := transporttest.Start(t, b.Client("hub1"))
	hub.WaitConnected()
	members := []*transporttest.Client{
		transporttest.Start(t, b.Client("member1"), "$share/group/a/+"),
		transporttest.Start(t, b.Client("member2"), "$share/group/a/+"),
	}
	for _, m := range members {
		m.WaitConnected()
	}
	for i := range 4 {
		hub.MustPublish("a/b", transporttest.Event(fmt.Sprint(i), 8))
	}
	members[0].Expect("1", "3")
	members[1].Expect("0", "2")
	b.Cut("member1")
	members[0].WaitLost()
	hub.MustPublish("a/b", transporttest.Event("5", 8))
	hub.MustPublish("a/b", transporttest.Event("6", 8))
	members[1].Expect("5", "6")
}

// Of two clients with one id the later has the connection; the other one gets it back when that
// ends.
func TestTakeover(t *testing.T) {
	b := memory.NewBroker()
	first := transporttest.Start(t, b.Client("cluster1"), "a")
	first.WaitConnected()
	second := transporttest.Start(t, b.Client("cluster1"), "a")
	second.WaitConnected()
	first.WaitLost()
	second.Stop()
	if !first.WaitConnected().Resumed {
		t.Error("the session was not resumed")
	}
}

// TestBreak: each end of a half-open connection learns of it when it notices. What the broker has sent meanwhile comes on the next
// connection, and the will when the broker notices.
func TestBreak(t *testing.T) {
	for name, test := range map[string]struct {
		sent, received bool
		hub, agent     []string // that arrive before anybody notices
	}{
		"both":             {sent: true, received: true},
		"what is sent":     {sent: true, agent: []string{"spec"}},
		"what is received": {received: true, hub: []string{"status"}},
		"nothing is lost":  {hub: []string{"status"}, agent: []string{"spec"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.NewBroker()
				var mu sync.Mutex // of both
				var hub, agent []string
				ctx, stop := context.WithCancel(t.Context())
				client := func(id, will string, heard *[]string) *memory.Transport {
					c := b.Client(id)
					h := transport.Handler{Subscriptions: []string{id}, Received: func(_ context.Context, m transport.Message) {
						mu.Lock()
						*heard = append(*heard, m.Event.ID())
						mu.Unlock()
						m.Ack()
					}}
					if will != "" {
						h.Will = func() (string, cloudevents.Event) { return will, transporttest.Event("will", 8) }
					}
					go func() { _ = c.Run(ctx, h) }() // until ctx ends
					return c
				}
				fromHub, fromAgent := client("hub", "", &hub), client("agent", "hub", &agent)
				synctest.Wait()
				b.Break("agent", test.sent, test.received, 20*time.Second, 40*time.Second)
				kit.NoError(t, fromHub.Publish(ctx, "agent", transporttest.Event("spec", 8)))
				published := make(chan error, 1)
				go func() { published <- fromAgent.Publish(ctx, "hub", transporttest.Event("status", 8)) }()
				synctest.Wait()
				check := func(what string, heard *[]string, want []string) {
					t.Helper()
					synctest.Wait() // what is heard now has been
					mu.Lock()
					defer mu.Unlock()
					if !slices.Equal(*heard, want) {
						t.Errorf("%s: %v, want %v", what, *heard, want)
					}
				}
				check("the hub, at first", &hub, test.hub)
				check("the agent, at first", &agent, test.agent)
				time.Sleep(30 * time.Second)
				check("the hub, when the broker has noticed", &hub, append(test.hub, "will"))
				check("the agent, before it has noticed", &agent, test.agent)
				time.Sleep(30 * time.Second)
				if err := <-published; (err == nil) != (!test.sent && !test.received) {
					t.Errorf("published with error %v", err)
				}
				again := test.agent
				if test.sent || test.received { // else it was acknowledged
					again = append(again, "spec")
				}
				check("the agent, when it has connected again", &agent, again)
				stop()
			})
		})
	}
}

// TestExpiry: what has expired is not delivered.
func TestExpiry(t *testing.T) {
	b := memory.NewBroker()
	hub, agent := transporttest.Start(t, b.Client("hub1")), transporttest.Start(t, b.Client("cluster1"), "#")
	hub.WaitConnected()
	agent.WaitConnected()
	for name, at := range map[string]time.Time{"past": time.Now().Add(-time.Second), "future": time.Now().Add(time.Hour)} {
		e := transporttest.Event(name, 8)
		e.SetExtension("expirytime", at)
		hub.MustPublish("a/b", e)
	}
	agent.Expect("future")
}
