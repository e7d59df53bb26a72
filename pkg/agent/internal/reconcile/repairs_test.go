package reconcile

import (
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
)

func TestRepairsBackOff(t *testing.T) {
	r := &repairs{}
	ref := object.Ref{Name: "a"}
	now := time.Unix(1000, 0)
	outcome := &apply.Outcome{Action: apply.Updated, Differences: []string{"/data/k"}, ConflictingManagers: []string{"kubectl", "other"}}
	last := time.Duration(0)
	for i := range 15 {
		if r.contested() != (i >= conflictThreshold) {
			t.Errorf("after %d repairs contested is %v", i, r.contested())
		}
		r.noteConflict(ref, outcome)
		if conflict := r.conflicts[ref] != nil; conflict != (i >= conflictThreshold) {
			t.Errorf("repair %d: a conflict is %v", i, conflict)
		}
		r.note(now)
		wait := r.notBefore.Sub(now)
		if wait < last || wait > maxRepairDelay {
			t.Errorf("repair %d: wait of %v after one of %v", i, wait, last)
		}
		last, now = wait, r.notBefore
	}
	if last != maxRepairDelay {
		t.Errorf("the wait ends up at %v", last)
	}
	const want = `conflict with field manager "kubectl", "other", which changes /data/k again and again; restoring it with backoff ` +
		`until that ends; leave the field to the other actor, or ignore it with ignoreFields of ServerSideApply`
	if got := r.conflicts[ref]; got == nil || got.Error() != want {
		t.Errorf("the conflict reads %v", got)
	}
	if left := r.expireConflicts(r.last.Add(repairResetAfter - time.Second)); left != time.Second || r.conflicts[ref] == nil {
		t.Errorf("a second before the end %v is left, and the conflict is %v", left, r.conflicts[ref])
	}
	if left := r.expireConflicts(r.last.Add(repairResetAfter)); left != 0 || r.conflicts[ref] != nil {
		t.Errorf("at the end %v is left, and the conflict is %v", left, r.conflicts[ref])
	}
	r.note(r.last.Add(repairResetAfter + time.Second))
	if r.count != 1 {
		t.Errorf("the first repair after a conflict is number %d", r.count)
	}
}
