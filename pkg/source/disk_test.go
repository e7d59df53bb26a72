package source_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/test/kit"
)

// TestFullDisk fills the disk of a state file. Writes are refused with an error that says what to do,
// and change nothing; statuses that arrive meanwhile are stored once there is room; no work is lost.
func TestFullDisk(t *testing.T) {
	disk := kit.NewDisk(t, 4<<20)
	inWorld(t, func(t *testing.T, w *world) {
		stateFile := func(c *source.Config) { c.StateFile = filepath.Join(disk.Dir, "ops.db") }
		agent := w.agent("cluster1")
		c := w.client(stateFile)
		stop := w.run(c)
		works := c.ManifestWorks("cluster1")
		first := must(t)(works.Create(t.Context(), configMap("first", "one"), metav1.CreateOptions{}))
		synctest.Wait()
		stored := map[string]string{"first": string(first.Spec.Workload.Manifests[0].Raw)}

		free := disk.Fill()
		var refusal error
		large := strings.Repeat("x", 50_000)
		for i := 0; refusal == nil && i < 100; i++ {
			work := configMap(fmt.Sprint("more-", i), large)
			if _, refusal = works.Create(t.Context(), work, metav1.CreateOptions{}); refusal == nil {
				stored[work.Name] = string(work.Spec.Workload.Manifests[0].Raw)
			}
		}
		refused := func(what string, err error) {
			t.Helper()
			for _, want := range []string{"no space left on device", disk.Dir, "nothing was changed", "make room"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s on a full disk: %v, want %q", what, err, want)
				}
			}
		}
		refused("a creation", refusal)
		change := must(t)(works.Get(t.Context(), "first", metav1.GetOptions{})).DeepCopy()
		change.Spec = specOf(large)
		_, err := works.Update(t.Context(), change, metav1.UpdateOptions{})
		refused("an update", err)
		time.Sleep(time.Minute)
		synctest.Wait()
		same(t, works, stored)
		if holds := len(agent.Holds()); holds != len(stored) {
			t.Errorf("the agent holds %d works, want the %d that were stored", holds, len(stored))
		}

		free()
		after := must(t)(works.Create(t.Context(), configMap("after", large), metav1.CreateOptions{}))
		stored["after"] = string(after.Spec.Workload.Manifests[0].Raw)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		stop()
		c = w.client(stateFile)
		w.run(c)
		works = c.ManifestWorks("cluster1")
		same(t, works, stored)
		for name := range stored {
			if work := must(t)(works.Get(t.Context(), name, metav1.GetOptions{})); !applied(work) {
				t.Errorf("the status of %s is %+v", name, work.Status.Conditions)
			}
		}
	})
}

// same checks that the source has these works, with these manifests.
func same(t *testing.T, works workclientv1.ManifestWorkInterface, want map[string]string) {
	t.Helper()
	list, err := works.List(t.Context(), metav1.ListOptions{})
	kit.NoError(t, err)
	if len(list.Items) != len(want) {
		t.Errorf("%d works, want %d", len(list.Items), len(want))
	}
	for _, work := range list.Items {
		if string(work.Spec.Workload.Manifests[0].Raw) != want[work.Name] {
			t.Errorf("work %s has other manifests, or should not exist", work.Name)
		}
	}
}
