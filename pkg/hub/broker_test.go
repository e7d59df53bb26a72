package hub_test

import (
	"fmt"
	"testing"

	"github.com/workwire/workwire/test/kit/world"
)

// Works live through a restart of a real broker, of the hub and of the agent.
func TestOverRealBrokers(t *testing.T) {
	for name, start := range world.Brokers {
		t.Run(name, func(t *testing.T) {
			const count = 20
			w := newWorldOn(t, start)
			r := w.startHub()
			a := w.startAgent(nil)
			a.AwaitConnected(t)
			for i := range count {
				if i == count/2 {
					w.Broker.Restart(t)
				}
				w.create(fmt.Sprint("work-", i))
			}
			for i := range count {
				w.Applied(w.works, fmt.Sprint("work-", i))
			}

			r.Stop()
			w.change("work-0", "2")
			w.startHub()
			w.Applied(w.works, "work-0")

			a.Stop()
			for i := range count {
				w.Delete(w.works, fmt.Sprint("work-", i))
			}
			back := w.startAgent(a.Holds())
			for i := range count {
				w.Gone(w.works, fmt.Sprint("work-", i))
			}
			w.settle(back)
			if n := len(back.Holds()); n != 1 {
				t.Errorf("the agent is left with %d works, want only the last one", n)
			}
		})
	}
}
