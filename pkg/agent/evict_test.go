package agent_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent"
	"github.com/workwire/workwire/pkg/agent/applied"
	"github.com/workwire/workwire/pkg/agent/strategy/ownership"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// stray creates an AppliedManifestWork of agentID without a work, which owns a ConfigMap of the same
// name.
func (w *world) stray(name, hubHash, agentID string) *workv1.AppliedManifestWork {
	w.Helper()
	record, err := w.records.Create(w.ctx, &workv1.AppliedManifestWork{
		ObjectMeta: metav1.ObjectMeta{Name: hubHash + "-" + name},
		Spec:       workv1.AppliedManifestWorkSpec{HubHash: hubHash, AgentID: agentID, ManifestWorkName: name},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	object := w.configMapOf(name, record)
	status := fmt.Sprintf(`{"status":{"appliedResources":[{"group":"","resource":"configmaps","namespace":%q,"name":%q,"version":"v1","uid":%q}]}}`,
		w.namespace, name, object)
	if record, err = w.records.Patch(w.ctx, record.Name, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		w.Fatal(err)
	}
	return record
}

func (w *world) recordGone(name string) {
	w.Helper()
	w.eventually(name+" is gone", func() error {
		_, err := w.records.Get(w.ctx, name, metav1.GetOptions{})
		if err == nil {
			return errors.New("it is there")
		}
		return ignoreNotFound(err)
	})
}

// A record of this agent that no work stands behind goes after the grace period,
// with its objects, be it of this hub or of another. One of another agent stays.
func TestEviction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	works := w.source("hub1")
	ours, elsewhere := applied.HubHash(w.host, ""), applied.HubHash("old-"+w.host, "")
	w.agent(func(c *agent.Config) { c.EvictionGrace = 2 * time.Second })
	w.create(works, w.work("web", configMap("a", "1")))
	w.is(works, "web", "Applied=True")
	stray, moved := w.stray("stray", ours, w.host), w.stray("moved", elsewhere, w.host)
	foreign := w.stray("foreign", elsewhere+"f", "another-"+w.host)
	w.recordGone(stray.Name)
	w.recordGone(moved.Name)
	w.data("stray", "")
	w.data("moved", "")
	record, err := w.records.Get(w.ctx, foreign.Name, metav1.GetOptions{})
	if err != nil || record.DeletionTimestamp != nil {
		t.Errorf("another agent's record is %+v, %v", record, err)
	}
	w.data("a", "1")
	w.data("foreign", "1")
}

// A work that comes within the grace period takes its record over.
func TestEvictionIsCancelled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	works := w.source("hub1")
	w.agent()
	record := w.stray("web", applied.HubHash(w.host, ""), w.host)
	w.marked(record.Name, true)
	w.create(works, w.work("web", configMap("web", "2")))
	w.is(works, "web", "Applied=True", "Available=True")
	w.marked(record.Name, false)
	w.data("web", "2")
	if err := works.Delete(w.ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.gone(works, "web")
	w.data("web", "")
}

// marked waits until the record is, or is not, marked for eviction.
func (w *world) marked(name string, want bool) {
	w.Helper()
	w.eventually(fmt.Sprintf("%s is marked: %v", name, want), func() error {
		record, err := w.records.Get(w.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if (record.Status.EvictionStartTime != nil) != want {
			return fmt.Errorf("evictionStartTime is %v", record.Status.EvictionStartTime)
		}
		return nil
	})
}

// Until a source has answered, nothing is marked, however long that takes: not
// what it may still own, and not what nobody knows.
func TestNothingIsEvictedBeforeTheSourceAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	works := w.source("hub1")
	w.agent()
	w.create(works, w.work("web", configMap("a", "1")))
	w.is(works, "web", "Available=True")
	w.settle("web")
	w.stop()
	w.stopSource()
	stray := w.stray("stray", applied.HubHash(w.host, ""), w.host)

	answers := make(chan *wire.Status, 100)
	raw := w.rawSource("hub1", answers, func(c *agent.Config) { c.EvictionGrace = time.Second })
	// A spec that the agent applies shows that it is at work.
	raw.send(raw.spec("busy", "uid-busy", 1, configMap("busy", "1")), nil)
	w.data("busy", "1")
	if record := w.recorded("web", "a"); record.Status.EvictionStartTime != nil || record.DeletionTimestamp != nil {
		t.Errorf("the record of a work whose source is silent is %+v", record)
	}
	w.marked(stray.Name, false)

	// The answer: of all that the agent listed, the source has nothing.
	now := metav1.Now()
	for _, have := range raw.listed() {
		raw.send(&wire.Spec{UID: have.UID, Source: "hub1", Cluster: cluster, Generation: have.Generation,
			Action: wire.ResyncResponse, NoMetadata: true, DeletionTimestamp: &now}, nil)
	}
	w.recordGone(stray.Name)
	w.data("stray", "")
	w.eventually("the work that the source does not have is gone", func() error {
		if record, err := w.record("web"); err == nil {
			return fmt.Errorf("its record is %+v", record.Status)
		}
		return nil
	})
	w.data("a", "")
}

// Eviction that is switched off leaves all as it is.
func TestEvictionSwitchedOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	works := w.source("hub1")
	stray := w.stray("stray", applied.HubHash(w.host, ""), w.host)
	start := metav1.NewTime(time.Now().Add(-time.Hour))
	stray.Status.EvictionStartTime = &start
	if _, err := w.records.UpdateStatus(w.ctx, stray, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.agent(func(c *agent.Config) { c.EvictionGrace = applied.NeverEvict })
	w.create(works, w.work("web", configMap("a", "1")))
	w.is(works, "web", "Applied=True")
	w.marked(stray.Name, false)
	w.data("stray", "1")
}

// configMapOf makes a ConfigMap that a record owns, and gives its UID.
func (w *world) configMapOf(name string, record *workv1.AppliedManifestWork) types.UID {
	w.Helper()
	object, err := w.cluster.CoreV1().ConfigMaps(w.namespace).Create(w.ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{ownership.Reference(record.Name, record.UID)}},
		Data:       map[string]string{"k": "1"},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return object.UID
}
