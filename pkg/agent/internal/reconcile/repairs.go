package reconcile

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
)

const (
	// minRepairDelay and maxRepairDelay bound the wait between repairs of one work. The wait
	// doubles, so that two actors that write one object do not do so at full speed. The first
	// repair does not wait.
	minRepairDelay = 100 * time.Millisecond
	maxRepairDelay = time.Minute
	// repairResetAfter is how long a work must need no repair until its backoff starts from the
	// beginning and its conflicts are over.
	repairResetAfter = 2 * maxRepairDelay
	// conflictThreshold is the number of repairs in a row that make a conflict.
	conflictThreshold = 3
)

// repairs is the backoff between repairs of one work. A repair is a write although the spec is the
// same as before.
type repairs struct {
	count     int       // repairs in a row
	notBefore time.Time // the next repair waits until then
	last      time.Time // time of the last repair
	conflicts map[object.Ref]error
}

// note counts a repair at now and starts the wait for the next one.
func (r *repairs) note(now time.Time) {
	if now.Sub(r.last) > repairResetAfter {
		r.count = 0
	}
	r.last = now
	r.notBefore = now.Add(min(minRepairDelay<<min(r.count, 20), maxRepairDelay))
	r.count++
}

// contested reports whether the next repair is one of many.
func (r *repairs) contested() bool { return r.count >= conflictThreshold }

// noteConflict notes that an object was repaired. It is a conflict once there were many repairs.
func (r *repairs) noteConflict(ref object.Ref, outcome *apply.Outcome) {
	if !r.contested() {
		return
	}
	if r.conflicts == nil {
		r.conflicts = map[object.Ref]error{}
	}
	r.conflicts[ref] = conflictError(outcome)
}

// expireConflicts ends the conflicts if no repair was needed for long. Otherwise it returns the
// time until that; 0 if there are no conflicts.
func (r *repairs) expireConflicts(now time.Time) time.Duration {
	if len(r.conflicts) == 0 {
		return 0
	}
	if left := r.last.Add(repairResetAfter).Sub(now); left > 0 {
		return left
	}
	r.conflicts = nil
	return 0
}

// conflictError describes who keeps changing which fields. The text stays the same as long as the
// conflict does.
func conflictError(outcome *apply.Outcome) error {
	if outcome.Action == apply.Created {
		return errors.New("another actor deletes the object again and again; recreating it with backoff until that ends")
	}
	who := "another actor"
	if len(outcome.ConflictingManagers) > 0 {
		who = fmt.Sprintf("%q", outcome.ConflictingManagers)
		who = "field manager " + strings.Trim(strings.ReplaceAll(who, `" "`, `", "`), "[]")
	}
	return fmt.Errorf("conflict with %s, which changes %s again and again; restoring it with backoff until that ends; "+
		"leave the field to the other actor, or ignore it with ignoreFields of ServerSideApply", who, strings.Join(outcome.Differences, ", "))
}
