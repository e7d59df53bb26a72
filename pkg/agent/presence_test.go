package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// The agent tells its source when it comes and, by itself or by its will, when it
// goes; it says so again to a source that asks for statuses.
func TestPresence(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	link := w.broker.Client("hub1")
	heard, connected := make(chan *wire.Presence, 100), make(chan struct{})
	w.run(func(ctx context.Context) error {
		return link.Run(ctx, transport.Handler{
			Subscriptions: []string{"sources/hub1/clusters/+/agentevents"},
			Connected:     func(context.Context, transport.Connection) { close(connected) },
			Received: func(_ context.Context, m transport.Message) {
				m.Ack()
				if message, err := wire.Decode(m.Event); err != nil {
					t.Error(err)
				} else if p, ok := message.(*wire.Presence); ok {
					heard <- p
				}
			},
		})
	})
	w.await(connected, "the source connects")
	next := func(what string, present bool) string {
		t.Helper()
		select {
		case p := <-heard:
			if p.Present != present || p.Cluster != cluster || p.Source != "hub1" || p.Agent != cluster+"-agent" || p.Session == "" {
				t.Fatalf("%s: heard %+v", what, p)
			}
			return p.Session
		case <-time.After(wait):
			t.Fatalf("%s: heard nothing", what)
			return ""
		}
	}
	w.agent()
	first := next("it starts", true)
	w.broker.Cut(cluster + "-agent")
	if gone := next("its connection is lost", false); gone != first {
		t.Errorf("the end of session %s is told of %s", first, gone)
	}
	w.broker.Restore(cluster + "-agent")
	second := next("it is back", true)
	if second == first {
		t.Error("two connections are one session")
	}
	event, err := wire.Encode(&wire.StatusResync{Source: "hub1", Cluster: cluster}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := link.Publish(w.ctx, "sources/hub1/clusters/"+cluster+"/sourceevents", event); err != nil {
		t.Fatal(err)
	}
	if again := next("it is asked for statuses", true); again != second {
		t.Errorf("session %s became %s", second, again)
	}
	w.stop()
	if gone := next("it stops", false); gone != second {
		t.Errorf("the end of session %s is told of %s", second, gone)
	}
}
