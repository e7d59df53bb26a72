package agent_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// TestObjectMadeAgainBeforeTheRecord: an agent makes an object again, and is killed before it has recorded the new UID. The
// object is removed all the same when its work drops it.
func TestObjectMadeAgainBeforeTheRecord(t *testing.T) {
	w, works := start(t)
	w.deploy(works, "web", configMap("a", "1"), configMap("b", "1"))
	amw := w.names("web", "a", "b")
	w.stop()
	patch := []byte(`[{"op":"replace","path":"/status/appliedResources/0/uid","value":"former"}]`)
	_, err := w.amws.Patch(t.Context(), amw.Name, types.JSONPatchType, patch, metav1.PatchOptions{}, "status")
	kit.NoError(t, err)
	w.change(works, "web", configMap("b", "1"))
	w.agent()
	w.data("a", "")
	w.names("web", "b")
}

// TestBackupWithoutTheRecord: while a spec is being applied, a restore removes the record of its work, and the work is deleted. What was applied is gone
// when the agent says Deleted.
func TestBackupWithoutTheRecord(t *testing.T) {
	w := newWorld(t)
	raw := w.rawSource("hub1")
	raw.send(raw.spec("web", "uid-1", 1, configMap("a", "1")), nil)
	raw.reported("uid-1", 1, workv1.WorkApplied)
	amw := raw.names("web", "a")
	reached, goOn := make(chan struct{}, 10), make(chan struct{})
	raw.requests.Fail(func(request kit.Request) error {
		if isRecord(request) && request.Name == amw.Name {
			reached <- struct{}{}
			<-goOn
		}
		return nil
	})
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	raw.send(raw.spec("web", "uid-1", 2, configMap("a", "2"), configMap("c", "2")), nil)
	kit.Receive(t, "the record is about to be written", reached)
	_, err := w.amws.Patch(t.Context(), amw.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	kit.NoError(t, errors.Join(err, w.amws.Delete(t.Context(), amw.Name, metav1.DeleteOptions{})))
	raw.delete("uid-1", 3)
	raw.send(raw.spec("later", "uid-2", 1, configMap("b", "1")), nil)
	raw.reported("uid-2", 1, workv1.WorkApplied) // so the agent holds the deletion
	release()
	raw.reported("uid-1", 0, workv1.WorkDeleted)
	for _, name := range []string{"a", "c"} {
		if _, err := w.cluster.CoreV1().ConfigMaps(w.namespace).Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the work is deleted, and of its object %s there is: %v", name, err)
		}
	}
}

// TestBackupBeforeTheLastWord: a restore of the cluster brings a deleted work back before the broker has taken the status that it is deleted. The
// agent removes it first.
func TestBackupBeforeTheLastWord(t *testing.T) {
	raw := newWorld(t).rawSource("hub1")
	raw.send(raw.spec("web", "uid-1", 1, configMap("a", "1")), nil)
	raw.reported("uid-1", 1, workv1.WorkApplied)
	backup := raw.names("web", "a")
	raw.Memory.Deny(cluster+"-agent", "sources/hub1/clusters/+/agentevents")
	raw.delete("uid-1", 2)
	raw.noneApplied()
	backup.ResourceVersion = ""
	restored, err := raw.amws.Create(t.Context(), backup, metav1.CreateOptions{})
	kit.NoError(t, err)
	raw.configMapOf("a", restored)
	raw.noneApplied()
	raw.data("a", "")
}

// TestBackupOfAnUnknownWork: a work is known from its AppliedManifestWork alone, and the answer that its source does not have it was
// lost. Its absence from the source's list has the agent ask for it.
func TestBackupOfAnUnknownWork(t *testing.T) {
	raw := newWorld(t).rawSource("hub1")
	raw.send(raw.spec("web", "uid-1", 1, configMap("a", "1")), nil)
	raw.reported("uid-1", 1, workv1.WorkApplied)
	raw.names("web")
	raw.stop()
	raw.agent()
	request := wirekit.Next(raw, raw.peer, "the agent asks for specs", func(r *wire.SpecResync) bool {
		return !r.Partial && slices.Contains(r.Versions, wire.SpecVersion{UID: "uid-1"})
	})
	for _, v := range request.Versions {
		if v.Probe {
			raw.disown(v.UID, "one")
		}
	}
	raw.peer.Publish(raw, raw.topic, &wire.StatusResync{Source: "hub1", Cluster: cluster, Buckets: &wire.Buckets{Count: 1, Indices: []int{0}}}, nil)
	wirekit.Next(raw, raw.peer, "the agent asks for the work", func(r *wire.SpecResync) bool {
		return r.Partial && slices.Equal(r.Versions, []wire.SpecVersion{{UID: "uid-1", Recorded: true}})
	})
	raw.disown("uid-1", "one")
	raw.data("a", "")
}
