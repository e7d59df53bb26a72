package reconcile

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/internal/executor"
	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/observe"
)

func TestEventsAreHeldDuringAReconcile(t *testing.T) {
	table, ref := NewTable(), appliedManifestWorkRef("x")
	e := table.acquire("a")
	if table.hold("a", ref, "1") {
		t.Error("held before the reconcile")
	}
	table.holdEvents(e)
	if !table.hold("a", ref, "9") || !table.hold("a", ref, "10") || !table.hold("a", ref, "8") || table.hold("b", ref, "1") {
		t.Error("not held, or for the wrong work")
	}
	if got := table.takeEvents(e); len(got) != 1 || got[ref] != "10" {
		t.Errorf("held %v, want the newest", got)
	}
	if table.hold("a", ref, "11") {
		t.Error("held after the reconcile")
	}
}

// TestEntriesEndWithTheirState adds and removes each part of an entry's state.
func TestEntriesEndWithTheirState(t *testing.T) {
	table, key, kind := NewTable(), inbox.Key{Source: "s", UID: "u"}, schema.GroupKind{Kind: "K"}
	table.add("a", key)
	table.add("b", key) // it keeps the name it has
	if name, ok := table.name(key); !ok || name != "a" || len(table.keys("a")) != 1 || len(table.keys("b")) != 0 {
		t.Errorf("the key has the name %q", name)
	}
	e := table.acquire("a")
	table.remove("b", key) // not its name
	table.remove("a", key)
	if len(table.keys("a")) != 0 || table.entries["a"] != e {
		t.Error("a worker's entry is gone, or has keys")
	}
	table.await(e, []schema.GroupKind{kind})
	table.release(e)
	table.KindChanged(kind)
	if name, _ := table.queue.Get(); name != "a" {
		t.Errorf("%q is reconciled for a new kind", name)
	}
	if e = table.acquire("a"); len(e.awaited) != 1 {
		t.Error("the entry lost its state")
	}
	table.await(e, nil)
	e.interest.objects = []object.Ref{{Name: "o"}}
	table.release(e)
	if table.entries["a"] != e {
		t.Error("an entry with followed objects is gone")
	}
	e = table.acquire("a")
	e.interest.objects = nil
	table.release(e)
	if len(table.entries) != 0 || len(table.names) != 0 {
		t.Errorf("%d entries and %d keys are left", len(table.entries), len(table.names))
	}
}

// TestForgetKeepsTheBackoff: an AppliedManifestWork that cannot be evicted is retried less and less
// often, although no work has its name.
func TestForgetKeepsTheBackoff(t *testing.T) {
	table := NewTable()
	r := &Reconciler{Config: Config{
		Table: table, Objects: observe.New(observe.Config{}), Named: observe.New(observe.Config{}),
		Executors: &executor.Executor[string]{},
	}}
	table.queue.AddRateLimited("name")
	r.forget(table.acquire("name"))
	if n := table.queue.NumRequeues("name"); n != 1 {
		t.Errorf("%d failures are counted, want 1", n)
	}
}
