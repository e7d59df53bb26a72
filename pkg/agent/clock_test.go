package agent_test

import (
	"errors"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// TestClockSteps: statuses arrive of an agent whose clock is back by years, as after a failover to
// a slower machine or a boot without a clock, and of one whose last sequence id was forged. It runs
// with topics that have presence and with topics that have none.
func TestClockSteps(t *testing.T) {
	for name, events := range map[string]string{"one source": "sources/hub1", "all sources": "sources/+"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.Topics.SourceEvents, w.Topics.AgentEvents = events+"/clusters/+/sourceevents", events+"/clusters/+/agentevents"
			works := w.source("hub1")
			clock := func(at time.Time) func(*agent.Config) {
				return func(c *agent.Config) { c.Now = func() time.Time { return at } }
			}
			w.agent(clock(time.Now().AddDate(5, 0, 0)))
			// An agent of all sources asks only those that it knows, so the spec must not be sent before.
			kit.Eventually(w, "the agent connects", func() error {
				if !w.Memory.Connected(cluster + "-agent") {
					return errors.New("it is not connected")
				}
				return nil
			})
			w.deploy(works, "a", configMap("a", "1"))
			for i, at := range []time.Time{time.Now(), time.UnixMilli(0), time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC), time.UnixMilli(0)} {
				w.stop()
				w.agent(clock(at))
				value := string(rune('a' + i))
				w.change(works, "a", configMap("a", value))
				w.Is(works, "a", "Applied=True", "Available=True")
				w.data("a", value)
			}

			work := w.Is(works, "a", "Applied=True")
			forger := wirekit.Connect(w, w.Memory.Client("forger"), "sources/hub1/clusters/+/agentevents")
			forger.Publish(w, "sources/hub1/clusters/"+cluster+"/agentevents", &wire.Status{
				UID: work.UID, Generation: wire.Generation(work.Generation), Source: "hub1", Cluster: cluster, Agent: "forger", Action: wire.Update,
				Sequence: 1 << 62, Session: "forged",
			}, nil)
			kit.Await(w, works, "a", "has the forged status", func(w *workv1.ManifestWork) bool {
				return w != nil && len(w.Status.Conditions) == 0
			})
			w.change(works, "a", configMap("a", "2"))
			w.Is(works, "a", "Applied=True", "Available=True")
			w.remove(works, "a")
		})
	}
}
