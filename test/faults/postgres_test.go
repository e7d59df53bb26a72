package faults

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/postgreskit"
)

// TestHubInPostgreSQL: the database of the hub's API is killed while works are created, and later
// restored from a dump while hub and agent run, with lower revisions.
func TestHubInPostgreSQL(t *testing.T) {
	server := postgreskit.StartDurable(t)
	database := server.Database(t)
	plane := controlplane.StartOnFor(t, controlplane.Hub, server.URL(database))
	kit.NoError(t, install.CRDs(t.Context(), plane.REST(), crds.Hub()...))

	w := newWorldOn(t, plane, 1, func(*world) {})
	const works = 20
	name := func(i int) string { return fmt.Sprintf("work-%03d", i) }
	for i := range works {
		w.put(name(i), "first", "a", "b")
	}
	server.Kill(t) // hub and agent are at work
	server.Continue(t)
	w.writable()
	for i := 0; i < works; i += 5 {
		w.put(name(i), "second", "b", "c")
		w.remove(name(i + 1))
	}
	w.converge()

	w.put("replaced", "backup", "a")
	w.converge()
	b, dump := w.modelNow(), server.Dump(t, database)
	w.put("created", "later", "a")
	w.put(name(0), "later", "a")
	w.remove(name(5))
	w.remove("replaced")
	w.converge()
	w.put("replaced", "later", "b")
	w.converge()
	before := w.versions()
	kit.NoError(t, plane.Halt())
	server.Restore(t, database, dump)
	kit.NoError(t, plane.Continue())
	w.goBack(b)
	w.keepStrays = true
	w.converge()
	w.unwritten(before, []string{name(2), name(7)})
	w.holds(0)
	w.end()
}

// writable waits until the hub's API accepts writes.
func (w *world) writable() {
	w.Helper()
	kit.Eventually(w, "the hub's API accepts writes", func() error {
		_, err := w.works.Patch(w.Context(), "work-000", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"t":"t"}}}`), metav1.PatchOptions{})
		return err
	})
}
