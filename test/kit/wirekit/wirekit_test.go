package wirekit_test

import (
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit/wirekit"
)

func TestAgentAndPeer(t *testing.T) {
	topics := wire.Topics{SourceEvents: "sources/hub1/clusters/+/sourceevents", AgentEvents: "sources/hub1/clusters/+/agentevents"}
	broker := memory.NewBroker()
	source := wirekit.Connect(t, broker.Client("hub1"), "sources/hub1/clusters/+/agentevents")
	agent := wirekit.StartAgent(t, wirekit.AgentConfig{Cluster: "cluster1", Source: "hub1", Topics: topics, Transport: broker.Client("agent1")})
	agent.AwaitConnected(t)
	resync := wirekit.Next(t, source, "the agent requests specs", func(*wire.SpecResync) bool { return true })
	if len(resync.Versions) > 0 {
		t.Errorf("the agent holds %v", resync.Versions)
	}

	work := workv1.ManifestWorkSpec{}
	work.Workload.Manifests = make([]workv1.Manifest, 1)
	work.Workload.Manifests[0].Raw = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default"}}`)
	spec := &wire.Spec{UID: "uid-1", Source: "hub1", Cluster: "cluster1", Generation: 1, Action: wire.Create,
		Meta: metav1.ObjectMeta{Name: "web", Namespace: "cluster1", UID: "uid-1"}, Bundle: wire.NewBundle(&work)}
	changed := false
	source.Publish(t, "sources/hub1/clusters/cluster1/sourceevents", spec, func(*cloudevents.Event) { changed = true })
	got := agent.Await(t, "the spec", func(s *wire.Spec) bool { return s.Generation == 1 })
	if got.UID != "uid-1" || !changed {
		t.Errorf("got %+v; the event was changed: %t", got, changed)
	}
	status := wirekit.Next(t, source, "applied", func(s *wire.Status) bool { return s.UID == "uid-1" })
	if !meta.IsStatusConditionTrue(status.Status.Conditions, workv1.WorkApplied) {
		t.Errorf("got %+v", status)
	}

	agent.Report(got, workv1.ManifestWorkStatus{Conditions: []metav1.Condition{{Type: "Other", Status: metav1.ConditionFalse}}})
	wirekit.Next(t, source, "the reported status", func(s *wire.Status) bool {
		return meta.IsStatusConditionFalse(s.Status.Conditions, "Other")
	})
	if n := len(agent.Specs("")); n != 1 {
		t.Errorf("the agent received %d specs", n)
	}
}
