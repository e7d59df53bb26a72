package hub_test

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// startAgent runs an agent of the world's cluster that holds these works, until the test ends. It
// answers no status resync: it reports everything by itself.
func (w *hubWorld) startAgent(holds map[types.UID]*wire.Spec) *wirekit.Agent {
	w.Helper()
	return wirekit.StartAgent(w, wirekit.AgentConfig{
		Cluster: w.Clusters[0], Source: source, Topics: topics, Transport: w.Transport(w.namespace, w.namespace+"-agent", topics), Holds: holds, NoStatusResync: true,
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
func (w *hubWorld) sendPresence(a *wirekit.Agent, session string, present bool) {
	w.Helper()
	kit.NoError(w, a.Send(w.Context(), &wire.Presence{
		Agent: w.namespace, Cluster: w.Clusters[0], Source: source, Session: session, Present: present,
	}))
}

// registerAgent runs an agent whose cluster the hub registers, and checks that it gets no specs of
// a work before it is accepted.
func (w *hubWorld) registerAgent(uid types.UID) *wirekit.Agent {
	w.Helper()
	a := w.startAgent(nil)
	a.AwaitConnected(w)
	w.sendPresence(a, "1", true)
	w.managed("registered and there", func(c *clusterv1.ManagedCluster) bool {
		return !c.Spec.HubAcceptsClient && meta.IsStatusConditionTrue(c.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
	})
	if specs := a.Specs(uid); len(specs) > 0 {
		w.Fatalf("a cluster that is not accepted got %d specs", len(specs))
	}
	return a
}

func generation(uid types.UID, n wire.Generation) func(*wire.Spec) bool {
	return func(s *wire.Spec) bool { return s.UID == uid && s.Generation == n && !s.IsDeletion() }
}

func deletion(uid types.UID) func(*wire.Spec) bool {
	return func(s *wire.Spec) bool { return s.UID == uid && s.IsDeletion() }
}
