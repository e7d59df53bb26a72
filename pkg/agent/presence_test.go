package agent_test

import (
	"testing"

	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// TestPresence: the agent tells its source when it connects and, itself or by its will, when it
// disconnects. A status resync makes it repeat its presence.
func TestPresence(t *testing.T) {
	w := newWorld(t)
	hub := wirekit.Connect(w, w.Memory.Client("hub1"), "sources/hub1/clusters/+/agentevents")
	next := func(what string, present bool) string {
		t.Helper()
		p := wirekit.Next(w, hub, what, func(*wire.Presence) bool { return true })
		if p.Present != present || p.Cluster != cluster || p.Source != "hub1" || p.Agent != cluster+"-agent" || p.Session == "" {
			t.Fatalf("%s: heard %+v", what, p)
		}
		return p.Session
	}
	w.agent()
	first := next("it starts", true)
	w.Memory.Cut(cluster + "-agent")
	if gone := next("its connection is lost", false); gone != first {
		t.Errorf("the end of session %s is told of %s", first, gone)
	}
	w.Memory.Restore(cluster + "-agent")
	second := next("it is back", true)
	if second == first {
		t.Error("two connections are one session")
	}
	hub.Publish(w, "sources/hub1/clusters/"+cluster+"/sourceevents", &wire.StatusResync{Source: "hub1", Cluster: cluster}, nil)
	if again := next("it is asked for statuses", true); again != second {
		t.Errorf("session %s became %s", second, again)
	}
	w.stop()
	if gone := next("it stops", false); gone != second {
		t.Errorf("the end of session %s is told of %s", second, gone)
	}
}
