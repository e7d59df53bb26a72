package faults

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
)

// backup is a snapshot of an API, and the model of that time.
type backup struct {
	file string
	want map[string]content
	uids map[string]types.UID
}

// snapshotHub writes a backup of the hub's API.
func (w *world) snapshotHub() backup {
	w.Helper()
	b := w.modelNow()
	b.file = filepath.Join(w.Dir, "hub.db")
	kit.NoError(w, w.Hub.Snapshot(b.file))
	return b
}

// modelNow returns the model of now.
func (w *world) modelNow() backup { return backup{want: maps.Clone(w.want), uids: maps.Clone(w.uids)} }

// restoreHub restores the hub's API while hub and agent run. From now on the model is that of the
// backup.
func (w *world) restoreHub(b backup, bumpRevision uint64) {
	w.Helper()
	kit.NoError(w, w.Hub.Halt())
	kit.NoError(w, w.Hub.Restore(b.file, bumpRevision))
	kit.NoError(w, w.Hub.Continue())
	w.goBack(b)
}

// goBack makes the model that of the time when the works were as in the backup.
func (w *world) goBack(b backup) {
	uids := map[string]types.UID{}
	for key, uid := range b.uids {
		// An object has the UID that it had before the restore, unless it was deleted since.
		if _, object := strings.CutPrefix(key, "object/"); !object || w.uids[key] == uid {
			uids[key] = uid
		}
	}
	w.want, w.uids, w.mayHold = maps.Clone(b.want), uids, true
}

// snapshotCluster writes a backup of the API of the agent's cluster.
func (w *world) snapshotCluster() backup {
	w.Helper()
	b := w.modelNow()
	b.file = filepath.Join(w.Dir, "cluster.db")
	kit.NoError(w, spokePlane.Snapshot(b.file))
	return b
}

// restoreCluster restores the API of the agent's cluster while hub and agent run. An object that
// the backup has must keep the UID that it has there; others are created again.
func (w *world) restoreCluster(b backup) {
	w.Helper()
	kit.NoError(w, spokePlane.Halt())
	kit.NoError(w, spokePlane.Restore(b.file, 1_000_000_000))
	kit.NoError(w, spokePlane.Continue())
	for key := range w.uids {
		if _, object := strings.CutPrefix(key, "object/"); !object {
			continue
		}
		if uid, ok := b.uids[key]; ok {
			w.uids[key] = uid
		} else {
			delete(w.uids, key)
		}
	}
	for name := range w.want {
		w.meddled[name]++ // what the restore has changed is repaired
	}
	w.mayHold = true
}

// heldStrays returns the works that must not be there and whose deletion the agent holds.
func (w *world) heldStrays(applied map[string]*workv1.AppliedManifestWork) (held []string) {
	if !w.mayHold {
		return nil
	}
	for name, record := range applied {
		if _, ok := w.want[name]; !ok && record.Annotations["workwire.dev/deletion-held"] != "" {
			held = append(held, name)
		}
	}
	return held
}

// releaseStrays has the agent delete the strays that it holds, as docs/agent.md says.
func (w *world) releaseStrays(applied map[string]*workv1.AppliedManifestWork, held []string) error {
	for _, name := range held {
		_, err := w.appliedWorks.Patch(w.Context(), applied[name].Name, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"workwire.dev/release-deletion":"true"}}}`), metav1.PatchOptions{})
		if err != nil {
			return err
		}
	}
	return nil
}

// TestRestoredHub follows docs/operations.md: the hub's API is restored from a snapshot while hub and agents run. The works
// that the backup does not have are many, so that the agent holds them.
func TestRestoredHub(t *testing.T) {
	w := newWorld(t, 1, func(w *world) {})
	unchanged, created := []string{"unchanged-0", "unchanged-1", "unchanged-2", "unchanged-3"}, []string{"new-0", "new-1", "new-2", "new-3"}
	for _, work := range append(unchanged, "changed", "shrunk", "deleted", "replaced") {
		w.put(work, "backup", "a", "b")
	}
	w.converge()
	b := w.snapshotHub()
	for _, work := range append(created, "changed") {
		w.put(work, "later", "a", "b")
	}
	w.put("shrunk", "backup", "a")
	w.remove("deleted")
	w.remove("replaced")
	w.converge()
	w.put("replaced", "later", "b")
	w.converge()
	before := w.versions()
	w.restoreHub(b, 1_000_000_000)
	w.holdsAndReleases(before, unchanged, len(created))
	w.during(0, 4)
	w.converge()
	w.end()
}

// holdsAndReleases waits until all is as the model says, with n works that the agent holds, and then without them. It fails the
// test if an object of works was written since versions returned before.
func (w *world) holdsAndReleases(before map[string]string, works []string, n int) {
	w.Helper()
	w.keepStrays = true
	w.converge()
	w.unwritten(before, works)
	w.holds(n)
	w.keepStrays = false
	w.converge()
	w.holds(0)
}

// versions returns the resourceVersion of each object on the cluster.
func (w *world) versions() map[string]string {
	w.Helper()
	list, err := w.configMaps.List(w.Context(), metav1.ListOptions{})
	kit.NoError(w, err)
	versions := map[string]string{}
	for _, object := range list.Items {
		versions[object.Name] = object.ResourceVersion
	}
	return versions
}

// TestRestoredCluster: the API of the agent's cluster is restored from a snapshot while hub and
// agent run. The cluster has what the hub wants again, and no object of an unchanged work is
// written. Works that were deleted since come back and are many, so that the agent holds them.
func TestRestoredCluster(t *testing.T) {
	w := newWorld(t, 1, func(w *world) {})
	unchanged := []string{"unchanged-0", "unchanged-1", "unchanged-2", "unchanged-3"}
	gone := []string{"deleted-0", "deleted-1", "deleted-2", "deleted-3"}
	for _, work := range slices.Concat(unchanged, gone, []string{"changed", "shrunk", "replaced"}) {
		w.put(work, "backup", "a", "b")
	}
	w.converge()
	b := w.snapshotCluster()
	before := w.versions()
	w.put("created", "later", "a")
	w.put("changed", "later", "a", "b", "c")
	w.put("shrunk", "backup", "a")
	for _, work := range append(gone, "replaced") {
		w.remove(work)
	}
	w.converge()
	w.put("replaced", "later", "b")
	w.converge()
	w.restoreCluster(b)
	w.holdsAndReleases(before, unchanged, len(gone))
	w.during(0, 4)
	w.converge()
	w.end()
}

// unwritten fails the test if an object of works was written since versions returned before.
func (w *world) unwritten(before map[string]string, works []string) {
	w.Helper()
	after := w.versions()
	for _, work := range works {
		for _, object := range w.want[work].objects {
			if before[object] != after[object] {
				w.Errorf("%s was written", object)
			}
		}
	}
}
