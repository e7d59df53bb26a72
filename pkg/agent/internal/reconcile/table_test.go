package reconcile

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/internal/executor"
	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/observe"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
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

// TestRecordsArePutOff: while works wait, the records of new ones do, but none that a crash or a user would miss.
func TestRecordsArePutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable()
		defer table.queue.ShutDown()
		r := &Reconciler{Config: Config{Table: table, RecordDelay: time.Minute}}
		name := "new"
		putOff := func(change func(*reconciliation, *workv1.ManifestWorkStatus)) bool {
			rec, status := &reconciliation{subject: subject{entry: table.acquire(name)}, amw: &workv1.AppliedManifestWork{}}, &workv1.ManifestWorkStatus{}
			if change != nil {
				change(rec, status)
			}
			return r.putOffRecord(rec, status)
		}
		next := func() string {
			if table.takeUp(); table.queue.Len() == 0 {
				return ""
			}
			name, _ := table.queue.Get()
			table.queue.Done(name)
			return name
		}
		if putOff(nil) {
			t.Error("although no work waits")
		}
		table.Enqueue("waits")
		for what, change := range map[string]func(*reconciliation, *workv1.ManifestWorkStatus){
			"it has a record": func(rec *reconciliation, _ *workv1.ManifestWorkStatus) {
				rec.amw.Status.AppliedResources = make([]workv1.AppliedManifestResourceMeta, 1)
			},
			"an object is being removed": func(rec *reconciliation, _ *workv1.ManifestWorkStatus) { rec.removals = newRemovals(1) },
			"it is complete": func(_ *reconciliation, status *workv1.ManifestWorkStatus) {
				complete := []metav1.Condition{{Type: workv1.ManifestComplete, Status: metav1.ConditionTrue, Reason: "ConditionRuleMet"}}
				status.ResourceStatus.Manifests = []workv1.ManifestCondition{{Conditions: complete}}
			},
		} {
			if putOff(change) {
				t.Errorf("although %s", what)
			}
		}
		if !putOff(nil) {
			t.Error("it is not put off")
		}
		if got := []string{next(), next(), next()}; !slices.Equal(got, []string{"waits", "new", ""}) {
			t.Errorf("reconciled are %q", got)
		}
		table.Enqueue("waits")
		putOff(nil)
		table.release(table.acquire(name)) // because of an event
		if got := []string{next(), next()}; !slices.Equal(got, []string{"waits", ""}) {
			t.Errorf("although it has been reconciled since: %q", got)
		}
		table.Enqueue("waits")
		for name = range strings.SplitSeq("a b", " ") {
			putOff(nil)
		}
		time.Sleep(time.Minute)
		if name = "new"; putOff(nil) {
			t.Error("after a minute")
		}
		table.takeUp()
		if n := table.queue.Len(); n != 2 {
			t.Errorf("after a minute %d works wait, want the one that waited and one that was put off", n)
		}
		table.takeUp()
		if name = "b"; putOff(nil) {
			t.Error("once more, because others wait after a minute, too")
		}
		table.release(table.acquire(name))
		if !putOff(nil) {
			t.Error("it is not put off after it was reconciled")
		}
	})
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
