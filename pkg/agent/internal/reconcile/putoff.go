package reconcile

import (
	"time"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// While works wait for a worker, the list of what was applied for a new one is written later: the apply of its name puts
// it off (putOffRecord), and the name is reconciled once more, one after each reconcile, when no other waits, or all of them after
// [Config.RecordDelay]. That reconcile, overdue, cannot put it off again.

// putOffRecord reports whether what was applied for a new work is recorded by a later reconcile, while others wait: all its
// objects are recorded as intended, by which an agent that is killed finds them again. What is complete would be applied again then,
// and users look for what is being removed.
func (r *Reconciler) putOffRecord(rec *reconciliation, status *workv1.ManifestWorkStatus) bool {
	return len(rec.amw.Status.AppliedResources) == 0 && !condition.AnyComplete(status) && !rec.removals.pending() &&
		r.Table.putOff(rec.entry.name, r.RecordDelay)
}

// putOff has name reconciled once more when no other waits for a worker, or after about most. It reports whether others wait, and
// have not for that long.
func (t *Table) putOff(name string, most time.Duration) bool {
	if t.queue.Len() == 0 {
		return false
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[name]
	if e == nil || e.overdue {
		return false
	}
	if len(t.later) == 0 {
		t.latest = now.Add(most)
	}
	if !now.Before(t.latest) {
		return false
	}
	if !e.putOff {
		e.putOff = true
		t.later = append(t.later, name)
	}
	return true
}

// takeUp enqueues one of the names that were put off, if it is time to. Called after each reconcile, it does not let a new one wait
// behind all of them.
func (t *Table) takeUp() {
	if name, due := t.nextPutOff(t.queue.Len() == 0); due {
		t.queue.Add(name) // which locks the table
	}
}

// nextPutOff takes the first of the names that were put off, if it is time to: the table is idle, or they have waited long enough.
func (t *Table) nextPutOff(idle bool) (name string, due bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !idle && time.Now().Before(t.latest) {
		return "", false
	}
	for len(t.later) > 0 && !due {
		name, t.later = t.later[0], t.later[1:]
		e := t.entries[name]
		if due = e != nil && e.putOff; due {
			e.overdue = !idle
		}
	}
	return name, due
}
