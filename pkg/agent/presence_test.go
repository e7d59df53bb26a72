package agent_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
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

// TestAbout: the agent tells what its cluster says of itself, and again with each announcement.
func TestAbout(t *testing.T) {
	w := newWorld(t)
	hub := wirekit.Connect(w, w.Memory.Client("hub1"), "sources/hub1/clusters/+/agentevents")
	version, err := w.cluster.Discovery().ServerVersion()
	kit.NoError(t, err)
	namespace, err := w.cluster.CoreV1().Namespaces().Get(w.Context(), "kube-system", metav1.GetOptions{})
	kit.NoError(t, err)
	next := func(what string) {
		t.Helper()
		about := wirekit.Next(w, hub, what, func(p *wire.Presence) bool { return p.Present && p.About != nil }).About
		if about.Kubernetes != version.GitVersion || !slices.Contains(about.Claims, wire.Claim{Name: "id.k8s.io", Value: string(namespace.UID)}) {
			t.Errorf("%s: the cluster says %+v", what, about)
		}
	}
	w.agent(func(c *agent.Config) { c.AboutInterval = time.Minute })
	next("it starts")
	hub.Publish(w, "sources/hub1/clusters/"+cluster+"/sourceevents", &wire.StatusResync{Source: "hub1", Cluster: cluster}, nil)
	next("it is asked for statuses")
	w.stop()
	if gone := wirekit.Next(w, hub, "it stops", func(p *wire.Presence) bool { return !p.Present }); gone.About != nil {
		t.Errorf("the end of the session tells %+v", gone.About)
	}
}
