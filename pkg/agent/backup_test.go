package agent_test

import (
	"slices"
	"testing"

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

// TestBackupOfAnUnknownWork: a work is known from its AppliedManifestWork alone, and the answer that its source does not have it was
// lost. Its absence from the source's list has the agent ask again for all that it holds.
func TestBackupOfAnUnknownWork(t *testing.T) {
	raw := newWorld(t).rawSource("hub1")
	raw.send(raw.spec("web", "uid-1", 1, configMap("a", "1")), nil)
	raw.reported("uid-1", 1, workv1.WorkApplied)
	raw.names("web")
	raw.stop()
	raw.agent()
	lists := func(r *wire.SpecResync) bool {
		return !r.Partial && slices.Contains(r.Versions, wire.SpecVersion{UID: "uid-1"})
	}
	request := wirekit.Next(raw, raw.peer, "the agent asks for specs", lists)
	for _, v := range request.Versions {
		if v.Probe {
			raw.disown(v.UID, "one")
		}
	}
	raw.peer.Publish(raw, raw.topic, &wire.StatusResync{Source: "hub1", Cluster: cluster, Buckets: &wire.Buckets{Count: 1, Indices: []int{0}}}, nil)
	wirekit.Next(raw, raw.peer, "the agent asks again", lists)
	raw.disown("uid-1", "one")
	raw.data("a", "")
}
