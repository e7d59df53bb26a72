package faults

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/test/kit"
)

// TestKilledBeforeTheRecord kills the agent after it has applied new works, and before their
// AppliedManifestWorks list what was applied. Meanwhile works change and are deleted. Nothing is
// created twice, and nothing is left.
func TestKilledBeforeTheRecord(t *testing.T) {
	// One worker is slower than works come: a record waits while works do.
	w := newWorld(t, 1, func(w *world) { w.agentArgs = append(w.agentArgs, "--workers=1") })
	end := time.Now().Add(limit)
	for n, applied := 0, 0; applied < 10; n++ {
		if time.Now().After(end) {
			t.Fatalf("%d of %d works are applied", applied, n)
		}
		w.put(fmt.Sprint("new-", n), "value", "a", "b")
		works, err := w.works.List(t.Context(), metav1.ListOptions{})
		kit.NoError(t, err)
		applied = 0
		for i := range works.Items {
			if statusOf(&works.Items[i], w.want[works.Items[i].Name]) == nil {
				applied++
			}
		}
	}
	kit.NoError(t, w.agent.Kill())

	all, err := w.appliedWorks.List(t.Context(), metav1.ListOptions{})
	kit.NoError(t, err)
	waiting := 0
	for _, amw := range all.Items {
		if amw.Spec.AgentID == w.cluster && len(amw.Status.AppliedResources) == 0 {
			waiting++
		}
	}
	if waiting < 5 {
		t.Errorf("%d of %d AppliedManifestWorks did not list what was applied when the agent was killed, want 5 or more", waiting, len(all.Items))
	}
	objects, err := w.configMaps.List(t.Context(), metav1.ListOptions{})
	kit.NoError(t, err)
	for _, object := range objects.Items {
		w.uids["object/"+object.Name] = object.UID
	}
	w.remove("new-0")
	w.put("new-1", "value", "a")           // b goes
	w.put("new-2", "other", "a", "b", "c") // c comes
	w.meddle("new-3-a", false)
	w.startAgent()
	w.converge()
	w.end()
}
