package hub_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/brokertest"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
)

func client(t testing.TB, address, user, id string) transport.Transport {
	t.Helper()
	link, err := mqtt.New(mqtt.Config{
		Broker:   config.Config{BrokerHost: address, Username: user, Password: "secret", Topics: topics},
		ClientID: id, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// Works live through a restart of a real broker, of the hub and of the agent.
func TestOverRealBrokers(t *testing.T) {
	for name, start := range map[string]func(testing.TB, []broker.User) *brokertest.Running{
		"work-broker": func(t testing.TB, users []broker.User) *brokertest.Running {
			return brokertest.Start(t, broker.Config{Users: users})
		},
		"mosquitto": brokertest.StartMosquitto,
	} {
		t.Run(name, func(t *testing.T) {
			const count = 20
			w := newWorld(t)
			b := start(t, []broker.User{
				{Username: "hub1", Password: "secret", Role: acl.Source},
				{Username: w.namespace, Password: "secret", Role: acl.Agent},
			})
			startHub := func() *replica {
				return w.startHubWith(func(c *hub.Config) { c.Transport = client(t, b.Addr, "hub1", "hub1-hub") })
			}
			r := startHub()
			a := w.startAgent(client(t, b.Addr, w.namespace, w.namespace+"-agent"), nil)
			a.AwaitConnected(t)
			for i := range count {
				if i == count/2 {
					b.Restart(t)
				}
				w.create(fmt.Sprint("work-", i))
			}
			for i := range count {
				w.await(fmt.Sprint("work-", i), "applied", applied(1))
			}

			r.stop()
			w.update("work-0", func(work *workv1.ManifestWork) { work.Spec.Workload.Manifests[0] = manifest("work-0", "2") })
			r = startHub()
			w.await("work-0", "applied after the hub's restart", applied(2))

			a.Stop()
			for i := range count {
				w.delete(fmt.Sprint("work-", i))
			}
			back := w.startAgent(client(t, b.Addr, w.namespace, w.namespace+"-agent"), a.Holds())
			for i := range count {
				w.await(fmt.Sprint("work-", i), "gone", gone)
			}
			w.settle(back)
			if n := len(back.Holds()); n != 1 {
				t.Errorf("the agent is left with %d works, want only the last one", n)
			}
			r.stop()
		})
	}
}
