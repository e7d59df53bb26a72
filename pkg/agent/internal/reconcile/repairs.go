package reconcile

import (
	"fmt"
	"strconv"
	"time"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

const (
	// minRepairDelay and maxRepairDelay bound the wait between repairs of one work. The wait
	// doubles, so that two actors that write one object do not do so at full speed. The first
	// repair does not wait.
	minRepairDelay = 100 * time.Millisecond
	maxRepairDelay = time.Minute
	// repairResetAfter is how long a work must need no repair until its backoff starts from the
	// beginning, and an object until it no longer flaps.
	repairResetAfter = 2 * maxRepairDelay
	// flappingThreshold is the number of repairs in a row after which the next one tells that an
	// object flaps.
	flappingThreshold = 3
	// maxNamed is the number of fields, and of other parties, that a message names.
	maxNamed = 10
)

// repairs is the backoff between repairs of one work, and what is known of the objects that were
// repaired. A repair is a write although the spec is the same as before.
type repairs struct {
	count     int       // repairs in a row
	notBefore time.Time // the next repair waits until then
	last      time.Time // time of the last repair
	objects   map[object.Ref]*repairedObject
}

// repairedObject is an object that was repaired within repairResetAfter.
type repairedObject struct {
	count    int       // repairs in a row
	last     time.Time // time of the last repair
	flapping string    // names both parties; empty if the object does not flap
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
func (r *repairs) contested() bool { return r.count >= flappingThreshold }

// noteObject counts a repair of an object at now. If that was one of many, the object flaps: then
// noteObject returns what message returns, otherwise an empty string.
func (r *repairs) noteObject(ref object.Ref, now time.Time, message func() string) string {
	if r.objects == nil {
		r.objects = map[object.Ref]*repairedObject{}
	}
	o := r.objects[ref]
	if o == nil || now.Sub(o.last) > repairResetAfter {
		o = &repairedObject{}
		r.objects[ref] = o
	}
	if o.last = now; o.count >= flappingThreshold {
		o.flapping = message()
	}
	o.count++
	return o.flapping
}

// flapping returns who undoes what of an object, an empty string if nobody does.
func (r *repairs) flapping(ref object.Ref) string {
	if o := r.objects[ref]; o != nil {
		return o.flapping
	}
	return ""
}

// countFlapping returns the number of objects that flap.
func (r *repairs) countFlapping() (n int) {
	for _, o := range r.objects {
		if o.flapping != "" {
			n++
		}
	}
	return n
}

// expire forgets the objects that needed no repair for long. It returns the time until the next
// one no longer flaps, 0 if none flaps.
func (r *repairs) expire(now time.Time) (next time.Duration) {
	for ref, o := range r.objects {
		left := o.last.Add(repairResetAfter).Sub(now)
		switch {
		case left <= 0:
			delete(r.objects, ref)
		case o.flapping != "" && (next == 0 || left < next):
			next = left
		}
	}
	if len(r.objects) == 0 {
		r.objects = nil
	}
	return next
}

// flappingMessage names the two parties that undo each other's writes: the work, and the field
// managers and other works that write the same. It stays the same as long as they do.
func flappingMessage(work string, others []string, outcome *apply.Outcome) string {
	if outcome.Action == apply.Created {
		return fmt.Sprintf("ManifestWork %q creates the object, which is deleted again and again by another actor; the agent creates it with backoff until that ends. "+
			"Stop who deletes it, whom the audit log of the API server names, or remove it from the work", work)
	}
	var by []string
	for _, manager := range outcome.ConflictingManagers {
		by = append(by, "field manager "+strconv.Quote(manager))
	}
	if len(by) == 0 { // the agent itself, for other works, of which some may only read the object
		by = others
	}
	if len(by) == 0 {
		by = []string{"another actor"}
	}
	return fmt.Sprintf("ManifestWork %q sets %s, which is undone again and again by %s; the agent restores it with backoff until that ends. "+
		"Stop the other, or leave the field to it with ignoreFields of ServerSideApply", work, differences(outcome), condition.First(by, maxNamed, len(by), ", "))
}

// driftMessage says what was repaired, and for which work. It names fields, and none of their values.
func driftMessage(work string, outcome *apply.Outcome) string {
	if outcome.Action == apply.Created {
		return fmt.Sprintf("Created the object again, which was deleted: ManifestWork %q declares it", work)
	}
	return fmt.Sprintf("Restored %s, which was changed: ManifestWork %q declares it", differences(outcome), work)
}

// differences names the fields that a repair has corrected.
func differences(outcome *apply.Outcome) string {
	if len(outcome.Differences) == 0 {
		return "the object"
	}
	return condition.First(outcome.Differences, maxNamed, len(outcome.Differences), ", ")
}
