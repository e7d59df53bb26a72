package sourcetest_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/source/sourcetest"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/workstate"
	"github.com/workwire/workwire/test/kit"
)

var topics = sourcetest.Topics("ops")

// start runs a source and an agent.
func start(t *testing.T, config sourcetest.AgentConfig) (workclient.ManifestWorkInterface, *sourcetest.Agent, *memory.Broker) {
	t.Helper()
	broker := memory.NewBroker()
	client, err := source.New(source.Config{SourceID: "ops", Topics: topics, Transport: broker.Client("ops"), Logger: kit.Logger(t)})
	kit.NoError(t, err)
	config.Cluster, config.Source, config.Topics, config.Transport = "cluster1", "ops", topics, broker.Client("cluster1")
	agent, err := sourcetest.NewAgent(config)
	kit.NoError(t, err)
	kit.Run(t, "source", client.Run)
	kit.Run(t, "agent", agent.Run)
	return client.ManifestWorks("cluster1"), agent, broker
}

func work(colour string) *workv1.ManifestWork {
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "settings", Labels: map[string]string{"team": "a"}}}
	work.Spec.Workload.Manifests = make([]workv1.Manifest, 1)
	work.Spec.Workload.Manifests[0].Raw = fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings","namespace":"default"},"data":{"colour":%q}}`, colour)
	return work
}

func create(t *testing.T, works workclient.ManifestWorkInterface) *workv1.ManifestWork {
	t.Helper()
	created, err := works.Create(t.Context(), work("blue"), metav1.CreateOptions{})
	kit.NoError(t, err)
	return created
}

// TestDefault: a work is applied and available as soon as it is there, and what the agent holds is what
// the source sent.
func TestDefault(t *testing.T) {
	works, agent, _ := start(t, sourcetest.AgentConfig{})
	created := create(t, works)
	reported := kit.Await(t, works, "settings", "is available", func(w *workv1.ManifestWork) bool {
		return w != nil && meta.IsStatusConditionTrue(w.Status.Conditions, workv1.WorkAvailable)
	})
	if c := meta.FindStatusCondition(reported.Status.Conditions, workv1.WorkApplied); c.ObservedGeneration != created.Generation || c.LastTransitionTime.IsZero() {
		t.Errorf("the condition is %+v", c)
	}
	want := workv1.ManifestResourceMeta{Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Name: "settings", Namespace: "default"}
	if m := reported.Status.ResourceStatus.Manifests; len(m) != 1 || m[0].ResourceMeta != want {
		t.Errorf("the manifests are %+v", m)
	}
	held := agent.Works()
	if len(held) != 1 || held[0].UID != created.UID || held[0].Generation != created.Generation || held[0].Labels["team"] != "a" ||
		string(held[0].Spec.Workload.Manifests[0].Raw) != string(created.Spec.Workload.Manifests[0].Raw) {
		t.Errorf("the agent holds %+v", held)
	}
	kit.NoError(t, works.Delete(t.Context(), "settings", metav1.DeleteOptions{}))
	kit.Await(t, works, "settings", "is gone", func(w *workv1.ManifestWork) bool { return w == nil })
	if agent.Work("settings") != nil {
		t.Error("the agent still holds the work")
	}
}

// TestReady: an agent reports readiness of works that ask for it only.
func TestReady(t *testing.T) {
	w := work("blue")
	if c := meta.FindStatusCondition(sourcetest.Available(w).Conditions, workv1.WorkProgressing); c != nil {
		t.Errorf("it was not asked and reports %+v", c)
	}
	w.Annotations = map[string]string{workv1.ReportReadinessAnnotationKey: "true"}
	if phase := workstate.Reached(&workv1.ManifestWork{Status: sourcetest.Available(w)}); phase != workstate.PhaseReady {
		t.Errorf("the work is %s", phase)
	}
}

// TestScript: the test says what is reported of each spec, and reports changes later.
func TestScript(t *testing.T) {
	works, agent, _ := start(t, sourcetest.AgentConfig{Status: func(*workv1.ManifestWork) workv1.ManifestWorkStatus {
		return sourcetest.Failed("AppliedManifestWorkFailed", "no such namespace")
	}})
	create(t, works)
	kit.Await(t, works, "settings", "has failed", func(w *workv1.ManifestWork) bool {
		return w != nil && meta.IsStatusConditionFalse(w.Status.Conditions, workv1.WorkApplied)
	})
	kit.NoError(t, agent.Report("settings", sourcetest.Available(agent.Work("settings"))))
	kit.Await(t, works, "settings", "is applied", func(w *workv1.ManifestWork) bool {
		return w != nil && meta.IsStatusConditionTrue(w.Status.Conditions, workv1.WorkApplied)
	})
	if err := agent.Report("another", workv1.ManifestWorkStatus{}); err == nil {
		t.Error("a work that the agent does not hold is reported")
	}
}

// TestDeletion: a work that is held by HoldDeletions is there until FinishDeletion.
func TestDeletion(t *testing.T) {
	works, agent, _ := start(t, sourcetest.AgentConfig{HoldDeletions: true})
	create(t, works)
	kit.True(t, "the agent holds the work", func() bool { return agent.Work("settings") != nil })
	kit.NoError(t, works.Delete(t.Context(), "settings", metav1.DeleteOptions{}))
	kit.Await(t, works, "settings", "is Deleting", func(w *workv1.ManifestWork) bool {
		return w != nil && meta.IsStatusConditionTrue(w.Status.Conditions, workv1.WorkDeleting)
	})
	if held := agent.Work("settings"); held == nil || held.DeletionTimestamp == nil {
		t.Errorf("the agent holds %+v", held)
	}
	agent.FinishDeletion("settings")
	kit.Await(t, works, "settings", "is gone", func(w *workv1.ManifestWork) bool { return w == nil })
}

// TestAway: what happens while the agent is silent or cut off is made up for.
func TestAway(t *testing.T) {
	works, agent, broker := start(t, sourcetest.AgentConfig{Silent: true})
	create(t, works)
	kit.True(t, "the agent holds the work", func() bool { return agent.Work("settings") != nil })
	broker.Cut("cluster1")
	agent.SetSilent(false)
	broker.Restore("cluster1")
	kit.Await(t, works, "settings", "is applied", func(w *workv1.ManifestWork) bool {
		return w != nil && meta.IsStatusConditionTrue(w.Status.Conditions, workv1.WorkApplied)
	})
}

func TestInvalid(t *testing.T) {
	valid := sourcetest.AgentConfig{Cluster: "cluster1", Source: "ops", Topics: topics, Transport: memory.NewBroker().Client("cluster1")}
	for name, change := range map[string]func(*sourcetest.AgentConfig){
		"cluster":       func(c *sourcetest.AgentConfig) { c.Cluster = "" },
		"source":        func(c *sourcetest.AgentConfig) { c.Source = "a/b" },
		"another":       func(c *sourcetest.AgentConfig) { c.Source = "hub1" },
		"topics":        func(c *sourcetest.AgentConfig) { c.Topics.AgentEvents = "x" },
		"no connection": func(c *sourcetest.AgentConfig) { c.Transport = nil },
	} {
		config := valid
		change(&config)
		if _, err := sourcetest.NewAgent(config); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
