package agent_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent"
	"github.com/workwire/workwire/pkg/agent/internal/applied"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/ownership"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// stray creates an AppliedManifestWork of agentID without a work, which owns a ConfigMap of the
// same name.
func (w *fixture) stray(name, hubHash, agentID string) *workv1.AppliedManifestWork {
	w.Helper()
	amw, err := w.amws.Create(w.Context(), &workv1.AppliedManifestWork{
		ObjectMeta: metav1.ObjectMeta{Name: hubHash + "-" + name},
		Spec:       workv1.AppliedManifestWorkSpec{HubHash: hubHash, AgentID: agentID, ManifestWorkName: name},
	}, metav1.CreateOptions{})
	kit.NoError(w, err)
	object := w.configMapOf(name, amw)
	status := fmt.Sprintf(`{"status":{"appliedResources":[{"group":"","resource":"configmaps","namespace":%q,"name":%q,"version":"v1","uid":%q}]}}`,
		w.namespace, name, object)
	amw, err = w.amws.Patch(w.Context(), amw.Name, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	kit.NoError(w, err)
	return amw
}

// TestEviction: an AppliedManifestWork of this agent without a work is deleted with its objects
// after the grace period, whatever its hub. One of another agent stays.
func TestEviction(t *testing.T) {
	w := newWorld(t)
	works := w.source("hub1")
	ours, elsewhere := applied.HubHash(w.BrokerHost, ""), applied.HubHash("old-"+w.BrokerHost, "")
	w.agent(func(c *agent.Config) { c.EvictionGrace = 2 * time.Second })
	w.deploy(works, "web", configMap("a", "1"))
	stray, moved := w.stray("stray", ours, w.BrokerHost), w.stray("moved", elsewhere, w.BrokerHost)
	foreign := w.stray("foreign", elsewhere+"f", "another-"+w.BrokerHost)
	for _, amw := range []*workv1.AppliedManifestWork{stray, moved} {
		kit.Await(w, w.amws, amw.Name, "is gone", isGone)
	}
	w.data("stray", "")
	w.data("moved", "")
	amw, err := w.amws.Get(w.Context(), foreign.Name, metav1.GetOptions{})
	if err != nil || amw.DeletionTimestamp != nil {
		t.Errorf("another agent's AppliedManifestWork is %+v, %v", amw, err)
	}
	w.data("a", "1")
	w.data("foreign", "1")
}

// TestEvictionIsCancelled: a work that arrives within the grace period takes over its
// AppliedManifestWork.
func TestEvictionIsCancelled(t *testing.T) {
	w, works := start(t)
	amw := w.stray("web", applied.HubHash(w.BrokerHost, ""), w.BrokerHost)
	w.marked(amw.Name, true)
	w.deploy(works, "web", configMap("web", "2"))
	w.marked(amw.Name, false)
	w.data("web", "2")
	w.remove(works, "web")
	w.data("web", "")
}

// marked waits until an AppliedManifestWork is, or is not, marked for eviction.
func (w *fixture) marked(name string, want bool) {
	w.Helper()
	kit.Await(w, w.amws, name, fmt.Sprintf("is marked: %v", want), func(amw *workv1.AppliedManifestWork) bool {
		return amw != nil && (amw.Status.EvictionStartTime != nil) == want
	})
}

func isGone(amw *workv1.AppliedManifestWork) bool { return amw == nil }

// TestNothingIsEvictedBeforeTheSourceAnswers: without an answer the agent does not know which works
// the source has.
func TestNothingIsEvictedBeforeTheSourceAnswers(t *testing.T) {
	w, works := start(t)
	w.deploy(works, "web", configMap("a", "1"))
	web := w.names("web")
	w.stop()
	w.stopSource()
	stray := w.stray("stray", applied.HubHash(w.BrokerHost, ""), w.BrokerHost)

	raw := w.rawSource("hub1", func(c *agent.Config) { c.EvictionGrace = time.Second })
	// The agent runs: it applies a spec.
	raw.send(raw.spec("busy", "uid-busy", 1, configMap("busy", "1")), nil)
	w.data("busy", "1")
	if amw := w.names("web", "a"); amw.Status.EvictionStartTime != nil || amw.DeletionTimestamp != nil {
		t.Errorf("the AppliedManifestWork of a work whose source is silent is %+v", amw)
	}
	w.marked(stray.Name, false)

	// The answer: the source has none of the works that the agent listed.
	now := metav1.Now()
	for _, have := range raw.listed() {
		raw.send(&wire.Spec{UID: have.UID, Source: "hub1", Cluster: cluster, Generation: have.Generation,
			Action: wire.ResyncResponse, NoMetadata: true, DeletionTimestamp: &now}, nil)
	}
	kit.Await(w, w.amws, stray.Name, "is gone", isGone)
	w.data("stray", "")
	kit.Await(w, w.amws, web.Name, "of a work that the source does not have is gone", isGone)
	w.data("a", "")
}

// TestEvictionSwitchedOff: nothing is deleted, and marks are removed.
func TestEvictionSwitchedOff(t *testing.T) {
	w := newWorld(t)
	works := w.source("hub1")
	stray := w.stray("stray", applied.HubHash(w.BrokerHost, ""), w.BrokerHost)
	start := metav1.NewTime(time.Now().Add(-time.Hour))
	stray.Status.EvictionStartTime = &start
	if _, err := w.amws.UpdateStatus(w.Context(), stray, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.agent(func(c *agent.Config) { c.EvictionGrace = applied.NeverEvict })
	w.deploy(works, "web", configMap("a", "1"))
	w.marked(stray.Name, false)
	w.data("stray", "1")
}

// configMapOf creates a ConfigMap that an AppliedManifestWork owns, and returns its UID.
func (w *fixture) configMapOf(name string, amw *workv1.AppliedManifestWork) types.UID {
	w.Helper()
	object, err := w.cluster.CoreV1().ConfigMaps(w.namespace).Create(w.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{ownership.Reference(amw.Name, amw.UID)}},
		Data:       map[string]string{"k": "1"},
	}, metav1.CreateOptions{})
	kit.NoError(w, err)
	return object.UID
}
