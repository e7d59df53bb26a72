package source_test

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// TestNewStore: a source whose store is new, while agents hold works of the one before, goes on
// and deletes nothing, however often it is started and whatever it creates, so that no cluster can stop it; with the
// former store it knows them; with Ephemeral it deletes them.
func TestNewStore(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		dir := t.TempDir()
		store := func(name string) func(*source.Config) {
			return func(c *source.Config) { c.StateFile = filepath.Join(dir, name) }
		}
		a := w.agent("cluster1")
		first := w.client(store("former"))
		stop := w.run(first)
		uid := must(t)(first.ManifestWorks("cluster1").Create(t.Context(), configMap("w", "one"), metav1.CreateOptions{})).UID
		synctest.Wait()
		stop()
		time.Sleep(time.Hour)

		keeps := func(options ...func(*source.Config)) {
			t.Helper()
			w.broker.Cut("cluster1")
			w.broker.Forget("cluster1")
			var log kit.Log
			c := w.client(append(options, func(c *source.Config) { c.Logger = log.Logger() })...)
			stop := w.run(c)
			w.broker.Restore("cluster1")
			synctest.Wait()
			another := must(t)(c.Apply(t.Context(), inCluster("another", "two")))
			synctest.Wait()
			if !applied(must(t)(c.ManifestWorks("cluster1").Get(t.Context(), another.Name, metav1.GetOptions{}))) {
				t.Error("the source does not go on")
			}
			if !strings.Contains(log.String(), "agent holds works of an earlier memory of this source") {
				t.Errorf("nothing in the log says so: %s", &log)
			}
			stop()
			if _, ok := a.Holds()[uid]; !ok {
				t.Fatal("the work was deleted")
			}
		}
		keeps()
		keeps(store("new"))
		keeps(store("new"))
		for _, spec := range a.Specs(uid) {
			if spec.IsDeletion() {
				t.Errorf("a deletion was published: %+v", spec)
			}
		}

		stop = w.run(w.client(store("former")))
		w.broker.Cut("cluster1")
		w.broker.Restore("cluster1")
		synctest.Wait()
		if _, ok := a.Holds()[uid]; !ok {
			t.Fatal("the former store has deleted the work")
		}
		stop()
		w.run(w.client(store("new"), func(c *source.Config) { c.Ephemeral = true }))
		w.broker.Cut("cluster1")
		w.broker.Restore("cluster1")
		synctest.Wait()
		if _, ok := a.Holds()[uid]; ok {
			t.Error("an ephemeral source keeps a work that it does not know")
		}
		specs := a.Specs(uid)
		if last := specs[len(specs)-1]; !last.IsDeletion() || last.NoMetadata {
			t.Errorf("it was deleted by %+v", last)
		}
	})
}

// TestLateAgent: an agent that holds works of an earlier store and connects to a source that is in
// use does not end the source. Its works are held, those of this store are deleted.
func TestLateAgent(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		dir := t.TempDir()
		store := func(name string) func(*source.Config) {
			return func(c *source.Config) { c.StateFile = filepath.Join(dir, name) }
		}
		late := w.agent("cluster2")
		first := w.client(store("former"))
		stop := w.run(first)
		old := must(t)(first.ManifestWorks("cluster2").Create(t.Context(), configMap("old", "one"), metav1.CreateOptions{})).UID
		synctest.Wait()
		stop()
		w.broker.Cut("cluster2")
		w.broker.Forget("cluster2")
		time.Sleep(time.Hour)

		w.agent("cluster1")
		second := w.client(store("new"))
		w.run(second)
		works := second.ManifestWorks("cluster1")
		must(t)(works.Create(t.Context(), configMap("w", "one"), metav1.CreateOptions{}))
		synctest.Wait()
		if !applied(must(t)(works.Get(t.Context(), "w", metav1.GetOptions{}))) {
			t.Fatal("the new source does not work")
		}
		// A work that this store has had: deleted for good while the agent was away.
		gone := must(t)(second.ManifestWorks("cluster2").Create(t.Context(), configMap("gone", "one"), metav1.CreateOptions{}))
		synctest.Wait()
		w.broker.Restore("cluster2")
		synctest.Wait()
		if _, ok := late.Holds()[gone.UID]; !ok {
			t.Fatal("the agent did not get the new work")
		}
		w.broker.Cut("cluster2")
		w.broker.Forget("cluster2")
		if err := second.ManifestWorks("cluster2").Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		must(t)(second.ManifestWorks("cluster2").Patch(t.Context(), "gone", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))
		w.broker.Restore("cluster2")
		synctest.Wait()
		if _, ok := late.Holds()[old]; !ok {
			t.Error("the work of the former store was deleted")
		}
		if _, ok := late.Holds()[gone.UID]; ok {
			t.Error("the work that was removed is still there")
		}
		if !second.Connected() {
			t.Error("the source has ended")
		}
	})
}

// TestClaimOfCluster: what one cluster lists ends the delivery to no other one.
func TestClaimOfCluster(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.client()
		w.run(c)
		evil := w.agent("evil")
		kit.NoError(t, evil.Send(t.Context(), &wire.SpecResync{
			Source: "ops", Cluster: "evil", Agent: "a", Versions: []wire.SpecVersion{{UID: wire.UIDFor("ops", "evil", "w"), Generation: 1}},
		}))
		synctest.Wait()
		w.agent("cluster1")
		must(t)(c.Apply(t.Context(), inCluster("w", "one")))
		synctest.Wait()
		if !applied(must(t)(c.ManifestWorks("cluster1").Get(t.Context(), "w", metav1.GetOptions{}))) {
			t.Error("a work of another cluster is not applied")
		}
	})
}
