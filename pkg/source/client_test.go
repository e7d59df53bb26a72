package source_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// TestLife follows a work from its creation to its removal, and to the next work of the same name.
func TestLife(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.agent("cluster1", func(c *wirekit.AgentConfig) { c.KeepDeleting = true })
		c := w.client()
		w.run(c)
		works := c.ManifestWorks("cluster1")
		work := must(t)(works.Create(t.Context(), configMap("w", "one"), metav1.CreateOptions{}))
		if work.UID != wire.UIDFor("ops", "cluster1", "w") || work.Namespace != "cluster1" || work.Generation == 0 || work.ResourceVersion == "" {
			t.Errorf("created: %+v", work.ObjectMeta)
		}
		synctest.Wait()
		work = must(t)(works.Get(t.Context(), "w", metav1.GetOptions{}))
		if !applied(work) {
			t.Fatalf("status %+v", work.Status)
		}
		before := work.Generation
		work.Spec = specOf("two")
		work = must(t)(works.Update(t.Context(), work, metav1.UpdateOptions{}))
		if work.Generation != before+1 {
			t.Errorf("generation %d after %d", work.Generation, before)
		}
		synctest.Wait()
		if got := string(a.Holds()[work.UID].Bundle.Manifests[0].Raw); !strings.Contains(got, "two") {
			t.Errorf("the agent holds %s", got)
		}
		if err := works.Delete(t.Context(), "w", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		dying := must(t)(works.Get(t.Context(), "w", metav1.GetOptions{}))
		if dying.DeletionTimestamp == nil || !meta.IsStatusConditionTrue(dying.Status.Conditions, workv1.WorkDeleting) {
			t.Errorf("while its objects are removed: %+v %+v", dying.ObjectMeta, dying.Status)
		}
		_, err := works.Create(t.Context(), configMap("w", "three"), metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) || !strings.Contains(err.Error(), "is being deleted") {
			t.Errorf("creating the name of a dying work: %v", err)
		}
		a.Finish(work.UID)
		synctest.Wait()
		if _, err := works.Get(t.Context(), "w", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("after the agent is done: %v", err)
		}
		again := must(t)(works.Create(t.Context(), configMap("w", "three"), metav1.CreateOptions{}))
		if again.UID != work.UID || again.Generation <= dying.Generation {
			t.Errorf("the next work of the name has generation %d after %d, UID %s", again.Generation, dying.Generation, again.UID)
		}
		a.Replay(t.Context(), 3) // Deleted of the former work
		synctest.Wait()
		if again = must(t)(works.Get(t.Context(), "w", metav1.GetOptions{})); !applied(again) {
			t.Errorf("status %+v", again.Status)
		}
	})
}

// TestGiveUp: a work whose agent never answers is removed with its finalizers, and deleted from the
// cluster if the agent connects later.
func TestGiveUp(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.agent("cluster1")
		c := w.client()
		w.run(c)
		works := c.ManifestWorks("cluster1")
		uid := must(t)(works.Create(t.Context(), configMap("w", "one"), metav1.CreateOptions{})).UID
		synctest.Wait()
		w.broker.Cut("cluster1")
		w.broker.Forget("cluster1")
		if err := works.Delete(t.Context(), "w", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		must(t)(works.Patch(t.Context(), "w", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))
		if _, err := works.Get(t.Context(), "w", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Fatalf("it is still there: %v", err)
		}
		w.broker.Restore("cluster1")
		synctest.Wait()
		if _, ok := a.Holds()[uid]; ok {
			t.Error("the agent still holds it")
		}
	})
}

// TestForeignFinalizer: a work stays until all finalizers are gone.
func TestForeignFinalizer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.agent("cluster1")
		c := w.client()
		w.run(c)
		works := c.ManifestWorks("cluster1")
		made := configMap("w", "one")
		made.Finalizers = []string{"example.com/mine"}
		must(t)(works.Create(t.Context(), made, metav1.CreateOptions{}))
		if err := works.Delete(t.Context(), "w", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		work := must(t)(works.Get(t.Context(), "w", metav1.GetOptions{}))
		if len(work.Finalizers) != 1 || work.Finalizers[0] != "example.com/mine" {
			t.Fatalf("finalizers %v", work.Finalizers)
		}
		must(t)(works.Patch(t.Context(), "w", types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{}))
		if _, err := works.Get(t.Context(), "w", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("it is still there: %v", err)
		}
	})
}

// TestLoad: the works that Load returns are loaded before the first agent is answered, so they are
// not deleted from clusters; works that it does not return are.
func TestLoad(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.agent("cluster1")
		first := w.client()
		stop := w.run(first)
		kept := must(t)(first.ManifestWorks("cluster1").Create(t.Context(), configMap("kept", "one"), metav1.CreateOptions{})).UID
		left := must(t)(first.ManifestWorks("cluster1").Create(t.Context(), configMap("left", "one"), metav1.CreateOptions{})).UID
		synctest.Wait()
		stop()
		time.Sleep(time.Minute)
		w.broker.Cut("cluster1")
		second := w.client(func(c *source.Config) {
			c.Load = func(context.Context) ([]*workv1.ManifestWork, error) {
				time.Sleep(time.Hour)
				work := configMap("kept", "two")
				work.Namespace = "cluster1"
				return []*workv1.ManifestWork{work}, nil
			}
		})
		w.run(second)
		w.broker.Restore("cluster1")
		synctest.Wait()
		if n := len(a.Holds()); n != 2 {
			t.Fatalf("before the works are loaded the agent holds %d, want 2", n)
		}
		list, err := second.ManifestWorks("").List(t.Context(), metav1.ListOptions{}) // waits for Load
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("%d works are loaded, %v", len(list.Items), err)
		}
		synctest.Wait()
		if held := a.Holds()[kept]; held == nil || !strings.Contains(string(held.Bundle.Manifests[0].Raw), "two") {
			t.Fatalf("of the loaded work the agent holds %+v", held)
		}
		for _, s := range a.Specs(kept) {
			if s.IsDeletion() {
				t.Error("the loaded work was deleted")
			}
		}
		if _, ok := a.Holds()[left]; ok {
			t.Error("what was left out is still there")
		}
		work := must(t)(second.ManifestWorks("cluster1").Get(t.Context(), "kept", metav1.GetOptions{}))
		if !applied(work) {
			t.Errorf("status %+v", work.Status)
		}
	})
}

// TestAgentAhead: a source whose generations are lower than those of an agent continues above them.
func TestAgentAhead(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.agent("cluster1")
		uid := wire.UIDFor("ops", "cluster1", "w")
		a.Receive(&wire.Spec{UID: uid, Generation: 32_000_000, Source: "ops", Cluster: "cluster1", Meta: metav1.ObjectMeta{Name: "w", UID: uid},
			Bundle: &wire.Bundle{Manifests: specOf("old").Workload.Manifests}})
		c := w.client()
		must(t)(c.ManifestWorks("cluster1").Create(t.Context(), configMap("w", "new"), metav1.CreateOptions{}))
		w.run(c)
		work := must(t)(c.ManifestWorks("cluster1").Get(t.Context(), "w", metav1.GetOptions{}))
		if work.Generation != 32_000_001 || !applied(work) || !strings.Contains(string(a.Holds()[uid].Bundle.Manifests[0].Raw), "new") {
			t.Errorf("generation %d, status %+v, the agent holds %s", work.Generation, work.Status, a.Holds()[uid].Bundle.Manifests[0].Raw)
		}
		far := &wire.Status{UID: uid, Generation: 1 << 40, Source: "ops", Cluster: "cluster1", Agent: "a", Action: wire.Update, Sequence: 1 << 62}
		if err := a.Send(t.Context(), far); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if work = must(t)(c.ManifestWorks("cluster1").Get(t.Context(), "w", metav1.GetOptions{})); work.Generation != 32_000_001 {
			t.Errorf("an agent moved the generation to %d", work.Generation)
		}
	})
}

// TestTooLarge: a work that exceeds the broker's limit has a condition that says so.
func TestTooLarge(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.broker.SetLimit(2000)
		w.agent("cluster1")
		c := w.client()
		w.run(c)
		works := c.ManifestWorks("cluster1")
		must(t)(works.Create(t.Context(), configMap("w", strings.Repeat("x", 3000)), metav1.CreateOptions{}))
		synctest.Wait()
		work := must(t)(works.Get(t.Context(), "w", metav1.GetOptions{}))
		condition := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
		if condition == nil || condition.Reason != "TooLarge" || condition.ObservedGeneration != work.Generation {
			t.Fatalf("status %+v", work.Status)
		}
		work.Spec = specOf("small")
		must(t)(works.Update(t.Context(), work, metav1.UpdateOptions{}))
		synctest.Wait()
		if work = must(t)(works.Get(t.Context(), "w", metav1.GetOptions{})); !applied(work) {
			t.Errorf("status %+v", work.Status)
		}
	})
}

// TestStateFile: works, statuses and generations survive a restart, delivered works are not
// published again, and undelivered changes are.
func TestStateFile(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		path := filepath.Join(t.TempDir(), "ops.db")
		stateful := func(c *source.Config) { c.StateFile = path }
		a := w.agent("cluster1")
		first := w.client(stateful)
		stop := w.run(first)
		works := first.ManifestWorks("cluster1")
		for _, name := range []string{"same", "deleted", "former"} {
			must(t)(works.Create(t.Context(), configMap(name, "one"), metav1.CreateOptions{}))
		}
		synctest.Wait()
		for i := range 5 {
			patch := fmt.Appendf(nil, `{"spec":{"deleteOption":{"ttlSecondsAfterFinished":%d}}}`, i)
			must(t)(works.Patch(t.Context(), "former", types.MergePatchType, patch, metav1.PatchOptions{}))
		}
		former := must(t)(works.Get(t.Context(), "former", metav1.GetOptions{}))
		if err := works.Delete(t.Context(), "former", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		same := must(t)(works.Get(t.Context(), "same", metav1.GetOptions{}))
		w.broker.Cut("ops")
		if err := works.Delete(t.Context(), "deleted", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		late := must(t)(works.Create(t.Context(), configMap("late", "one"), metav1.CreateOptions{}))
		stop()
		w.broker.Restore("ops")

		second := w.client(stateful)
		stop = w.run(second)
		works = second.ManifestWorks("cluster1")
		now := must(t)(works.Get(t.Context(), "same", metav1.GetOptions{}))
		if now.ResourceVersion != same.ResourceVersion || now.Generation != same.Generation || !applied(now) {
			t.Errorf("after the restart: %+v %+v", now.ObjectMeta, now.Status)
		}
		if n := len(a.Specs(same.UID)); n != 1 {
			t.Errorf("the unchanged work was published %d times", n)
		}
		if _, err := works.Get(t.Context(), "deleted", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the work deleted before: %v", err)
		}
		if _, ok := a.Holds()[late.UID]; !ok {
			t.Error("the work created before is not on its cluster")
		}
		again := must(t)(works.Create(t.Context(), configMap("former", "two"), metav1.CreateOptions{}))
		if again.Generation <= former.Generation+1 {
			t.Errorf("generation %d after %d", again.Generation, former.Generation+1)
		}
		newest := must(t)(works.Get(t.Context(), "late", metav1.GetOptions{}))
		if newest.ResourceVersion == late.ResourceVersion {
			t.Error("the resourceVersion stands still")
		}
		stop()
		if _, err := works.Get(t.Context(), "late", metav1.GetOptions{}); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("after Run: %v", err)
		}
		if _, err := works.Create(t.Context(), configMap("x", "x"), metav1.CreateOptions{}); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("after Run: %v", err)
		}
	})
}

// TestStateFileRelabeled: a change of annotations that was stored and not published is published after a restart, although the
// agent has the generation.
func TestStateFileRelabeled(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		path := filepath.Join(t.TempDir(), "ops.db")
		stateful := func(c *source.Config) { c.StateFile = path }
		a := w.agent("cluster1")
		first := w.client(stateful)
		stop := w.run(first)
		works := first.ManifestWorks("cluster1")
		work := must(t)(works.Create(t.Context(), configMap("w", "one"), metav1.CreateOptions{}))
		synctest.Wait()
		w.broker.Cut("ops")
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"2026-12-01T22:00:00Z"}}}`, workv1.ApplyAtAnnotationKey)
		must(t)(works.Patch(t.Context(), "w", types.MergePatchType, patch, metav1.PatchOptions{}))
		stop()
		w.broker.Restore("ops")

		stop = w.run(w.client(stateful))
		specs := a.Specs(work.UID)
		if last := specs[len(specs)-1]; len(specs) != 2 || last.Meta.Annotations[workv1.ApplyAtAnnotationKey] == "" {
			t.Errorf("the work was published %d times, last with the annotations %v", len(specs), last.Meta.Annotations)
		}
		stop()
	})
}

// TestStateFileOfHostileCluster: a status with a time that JSON cannot hold does not get into the store, which could not
// be read again.
func TestStateFileOfHostileCluster(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		path := filepath.Join(t.TempDir(), "ops.db")
		stateful := func(c *source.Config) { c.StateFile = path }
		c := w.client(stateful)
		stop := w.run(c)
		work := must(t)(c.ManifestWorks("cluster1").Create(t.Context(), configMap("w", "one"), metav1.CreateOptions{}))
		hostile := wirekit.Connect(t, w.broker.Client("cluster1"))
		status := &wire.Status{
			UID: work.UID, Generation: wire.Generation(work.Generation), Source: "ops", Cluster: "cluster1", Agent: "cluster1-agent", Action: wire.Update, Sequence: 1,
		}
		for _, at := range []string{"9999-12-31T23:59:59-01:00", "0000-01-01T00:00:00+01:00"} {
			conditions := `{"conditions":[{"type":"Applied","status":"True","lastTransitionTime":"` + at + `"}]`
			for _, data := range []string{conditions + "}", `{"resourceStatus":[` + conditions + "}]}"} {
				status.Sequence++
				hostile.Publish(t, "sources/ops/clusters/cluster1/agentevents", status, func(e *cloudevents.Event) {
					kit.NoError(t, e.SetData("application/json", []byte(data)))
				})
				synctest.Wait()
			}
		}
		stop()
		c = w.client(stateful)
		w.run(c)
		must(t)(c.ManifestWorks("cluster1").Get(t.Context(), "w", metav1.GetOptions{}))
	})
}

func TestStateFileFaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ops.db")
	run := func(id wire.SourceID, path string) error {
		patterns := wire.Topics{SourceEvents: "sources/" + string(id) + "/clusters/+/sourceevents", AgentEvents: "sources/" + string(id) + "/clusters/+/agentevents"}
		c, err := source.New(source.Config{SourceID: id, Topics: patterns, Transport: memory.NewBroker().Client("x"), StateFile: path})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			_, _ = c.ManifestWorks("").List(ctx, metav1.ListOptions{}) // returns when it runs
			cancel()
		}()
		return c.Run(ctx)
	}
	if err := run("ops", path); err != nil {
		t.Fatal(err)
	}
	if err := run("other", path); err == nil || !strings.Contains(err.Error(), `"ops"`) {
		t.Errorf("the file of another source: %v", err)
	}
	if err := run("ops", t.TempDir()); err == nil {
		t.Error("a directory is accepted as a state file")
	}
}

// TestRunFails: a Load that fails ends Run and the calls that wait for it.
func TestRunFails(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		failure := errors.New("no such table")
		c := w.client(func(c *source.Config) {
			c.Load = func(context.Context) ([]*workv1.ManifestWork, error) { return nil, failure }
		})
		waiting := make(chan error, 1)
		go func() {
			_, err := c.ManifestWorks("cluster1").Get(t.Context(), "w", metav1.GetOptions{})
			waiting <- err
		}()
		synctest.Wait()
		if err := c.Run(t.Context()); !errors.Is(err, failure) {
			t.Errorf("Run: %v", err)
		}
		if err := <-waiting; !apierrors.IsServiceUnavailable(err) {
			t.Errorf("a call that waited: %v", err)
		}
		if err := c.Run(t.Context()); err == nil {
			t.Error("Run can be called twice")
		}
		bad := w.client(func(c *source.Config) {
			c.Load = func(context.Context) ([]*workv1.ManifestWork, error) {
				return []*workv1.ManifestWork{{ObjectMeta: metav1.ObjectMeta{Name: "empty", Namespace: "cluster1"}}}, nil
			}
		})
		if err := bad.Run(t.Context()); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "cluster1/empty") {
			t.Errorf("Run with a bad work: %v", err)
		}
	})
}

func TestConfig(t *testing.T) {
	broker := memory.NewBroker()
	good := source.Config{SourceID: "ops", Topics: topics, Transport: broker.Client("ops")}
	for name, change := range map[string]func(*source.Config){
		"SourceID":       func(c *source.Config) { c.SourceID = "Not Possible" },
		"Topics":         func(c *source.Config) { c.Topics = wire.Topics{} },
		"Transport":      func(c *source.Config) { c.Transport = transport.Transport(nil) },
		"PublishWorkers": func(c *source.Config) { c.PublishWorkers = -1 },
		"both": func(c *source.Config) {
			c.StateFile, c.Load = "x", func(context.Context) ([]*workv1.ManifestWork, error) { return nil, nil }
		},
	} {
		c := good
		change(&c)
		if _, err := source.New(c); err == nil {
			t.Errorf("an invalid %s is accepted", name)
		}
	}
	if _, err := source.New(good); err != nil {
		t.Error(err)
	}
}
