package memory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/transport/transporttest"
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
