package hub_test

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit/wirekit"
)

const source = wire.SourceID("hub1")

var topics = wire.Topics{
	SourceEvents: "sources/hub1/clusters/+/sourceevents",
	AgentEvents:  "sources/hub1/clusters/+/agentevents",
}

// startAgent runs an agent of the world's cluster that holds these works, until the test ends. It
// answers no status resync: it reports everything by itself.
func (w *world) startAgent(tr transport.Transport, holds map[types.UID]*wire.Spec) *wirekit.Agent {
	w.t.Helper()
	return wirekit.StartAgent(w.t, wirekit.AgentConfig{
		Cluster: wire.ClusterName(w.namespace), Source: source, Topics: topics, Transport: tr, Holds: holds, NoStatusResync: true,
		Conditions: func(s *wire.Spec) []metav1.Condition {
			return []metav1.Condition{condition(workv1.WorkApplied, "AppliedManifestWorkComplete", s.Generation),
				condition(workv1.WorkAvailable, "ResourcesAvailable", s.Generation)}
		},
	})
}

func condition(name, reason string, generation wire.Generation) metav1.Condition {
	return metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: reason, ObservedGeneration: int64(generation),
		LastTransitionTime: metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
}

// report sends a status of spec with a single condition.
func report(a *wirekit.Agent, spec *wire.Spec, c metav1.Condition) {
	a.Report(spec, workv1.ManifestWorkStatus{Conditions: []metav1.Condition{c}})
}

// sendPresence sends the presence of the world's agent.
func (w *world) sendPresence(a *wirekit.Agent, session string, present bool) {
	w.t.Helper()
	if err := a.Send(w.t.Context(), &wire.Presence{
		Agent: w.namespace, Cluster: wire.ClusterName(w.namespace), Source: source, Session: session, Present: present,
	}); err != nil {
		w.t.Fatal(err)
	}
}

// registerAgent runs an agent whose cluster the hub registers, and checks that it gets no specs of
// a work before it is accepted.
func (w *world) registerAgent(uid types.UID) *wirekit.Agent {
	w.t.Helper()
	a := w.startAgent(w.broker.Client(w.namespace), nil)
	a.AwaitConnected(w.t)
	w.sendPresence(a, "1", true)
	w.managed("registered and there", func(c *clusterv1.ManagedCluster) bool {
		return !c.Spec.HubAcceptsClient && meta.IsStatusConditionTrue(c.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
	})
	if specs := a.Specs(uid); len(specs) > 0 {
		w.t.Fatalf("a cluster that is not accepted got %d specs", len(specs))
	}
	return a
}

func generation(uid types.UID, n wire.Generation) func(*wire.Spec) bool {
	return func(s *wire.Spec) bool { return s.UID == uid && s.Generation == n && !s.IsDeletion() }
}

func deletion(uid types.UID) func(*wire.Spec) bool {
	return func(s *wire.Spec) bool { return s.UID == uid && s.IsDeletion() }
}
