package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/order"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// standing is how a work is for those that depend on it. It is kept only while one does.
type standing struct {
	of      *workv1.Manifest // see specOf; nil: not known
	unready string           // why it is not ready, such as "is not applied"; empty if it is
	cycle   bool             // it depends on itself
}

// depend replaces the names that e depends on. Those that nobody has depended on are reconciled, so that their standing is known.
func (t *Table) depend(e *entry, names []string) {
	t.mu.Lock()
	var unknown []string
	for _, name := range e.dependsOn {
		if slices.Contains(names, name) {
			continue
		}
		if of := t.dependents[name].Delete(e.name); of.Len() == 0 {
			delete(t.dependents, name)
			if other := t.entries[name]; other != nil {
				other.standing = standing{} // nobody notes any more how it is
			}
		}
	}
	e.dependsOn = names
	for _, name := range names {
		if t.dependents[name] == nil {
			t.dependents[name] = sets.Set[string]{}
			if t.entries[name] != nil {
				unknown = append(unknown, name)
			}
		}
		t.dependents[name].Insert(e.name)
	}
	t.mu.Unlock()
	for _, name := range unknown {
		t.queue.Add(name)
	}
}

// dependedOn reports whether a work depends on name.
func (t *Table) dependedOn(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.dependents[name]) > 0
}

// setStanding sets the standing of e, and reconciles those that depend on it if it is another one.
func (t *Table) setStanding(e *entry, is standing) {
	t.mu.Lock()
	if len(t.dependents[e.name]) == 0 {
		is = standing{} // the last one has left meanwhile
	}
	if e.standing == is {
		t.mu.Unlock()
		return
	}
	e.standing = is
	names := t.dependents[e.name].UnsortedList()
	for _, name := range names {
		t.entry(name).recheck = true
	}
	t.mu.Unlock()
	for _, name := range names {
		t.queue.Add(name)
	}
}

// standingOf returns the standing of name.
func (t *Table) standingOf(name string) standing {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[name]; e != nil {
		return e.standing
	}
	return standing{}
}

// followDependencies sets what rec depends on.
func (r *Reconciler) followDependencies(rec *reconciliation) {
	work, h := rec.work, rec.history()
	rec.dependsOn = workv1.DependsOn(&work.Meta)
	names := make([]string, 0, len(rec.dependsOn))
	for _, name := range rec.dependsOn {
		names = append(names, r.naming.name(work.Source, name))
	}
	r.Table.depend(rec.entry, names)
	if len(names) == 0 {
		h.cycle = ""
		return
	}
	if r.Table.testAndClear(&rec.entry.recheck) || rec.changed {
		h.cycle = cycleMessage(order.Cycle(work.Meta.Name, func(name string) []string { return r.dependsOn(work, name) }))
	}
}

// dependsOn returns what a work depends on that has the source of work.
func (r *Reconciler) dependsOn(work *inbox.Entry, name string) []string {
	if name == work.Meta.Name {
		return workv1.DependsOn(&work.Meta)
	}
	if other, held := r.Inbox.ByName(work.Source, name); held {
		return workv1.DependsOn(&other.Meta)
	}
	return nil
}

// cycleMessage says by which works one depends on itself, empty without a cycle.
func cycleMessage(cycle []string) string {
	if cycle == nil {
		return ""
	}
	return "The work depends on itself, by " + workv1.DependsOnAnnotationKey + ": " + strings.Join(cycle, " → ")
}

// impossible says which of names no work can have, empty if works can have all.
func impossible(names []string) string {
	for _, name := range names {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			return fmt.Sprintf("Nothing new is applied: annotation %s has %.100q, which no work can have as its name; commas separate the names", workv1.DependsOnAnnotationKey, name)
		}
	}
	return ""
}

// dependencies returns which works are not ready that rec depends on, and why; empty if all are.
func (r *Reconciler) dependencies(rec *reconciliation) string {
	var texts []string
	for _, name := range rec.dependsOn {
		if text := r.unreadyWork(rec.work.Source, name); text != "" {
			texts = append(texts, "work "+name+" "+text)
		}
	}
	if rec.history().cycle != "" {
		return cmp.Or(strings.Join(texts, "; "), "itself")
	}
	return strings.Join(texts, "; ")
}

// unreadyWork returns why the newest spec of a work is not ready, empty if it is.
func (r *Reconciler) unreadyWork(source wire.SourceID, name string) string {
	work, held := r.Inbox.ByName(source, name)
	switch {
	case !held:
		return "is not on this cluster"
	case work.Deleting != nil:
		return "is being deleted"
	case work.Refusal != nil:
		return "has a spec that is refused"
	}
	is := r.Table.standingOf(r.naming.name(source, name))
	if !work.HasSpec() || is.of != specOf(work) {
		return "is not applied"
	}
	return is.unready
}

// specOf identifies the spec of a work, which has one. The entries of a work share it while only
// what is known of its source changes.
func specOf(work *inbox.Entry) *workv1.Manifest { return &work.Spec.Workload.Manifests[0] }

// noteStanding tells the works that depend on rec how it is.
func (r *Reconciler) noteStanding(ctx context.Context, rec *reconciliation) {
	if !r.Table.dependedOn(rec.entry.name) {
		return
	}
	is := standing{of: specOf(rec.work), cycle: rec.history().cycle != ""}
	for i := range rec.manifests {
		if rec.applyError(i) != nil || rec.order.waits(i) {
			is.unready = "is not applied"
			break
		}
		if is.unready == "" && r.notReady(ctx, rec, i) != "" {
			is.unready = "is not ready"
		}
	}
	r.Table.setStanding(rec.entry, is)
}
