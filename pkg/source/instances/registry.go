package instances

import (
	"maps"
	"slices"
	"time"

	"github.com/workwire/workwire/pkg/wire"
)

// registry decides which instances are other programs that run. It is pure.
type registry struct {
	self     string
	interval time.Duration
	others   map[string]*instance // at most wire.MaxHeardInstances
}

// instance is what is known of another one.
type instance struct {
	Other
	heard    time.Time // last
	answered time.Time // when it first said that it hears this instance; zero: it did not
	noticed  bool
	reported time.Time
}

func newRegistry(self string, interval time.Duration) registry {
	return registry{self: self, interval: interval, others: map[string]*instance{}}
}

// silence is how long an instance that is heard no longer counts.
func (r *registry) silence() time.Duration { return r.interval * 5 / 2 }

// hear records an announcement of another instance, and reports whether there is something to say
// soon: it is new, does not hear this one yet, or is noticed now. Instances beyond the limit are
// ignored.
func (r *registry) hear(m *wire.Instance, now time.Time) bool {
	o := r.others[m.ID]
	isNew := o == nil
	if isNew {
		if len(r.others) >= wire.MaxHeardInstances {
			return false
		}
		o = &instance{}
		r.others[m.ID] = o
	}
	o.Other, o.heard = Other{ID: m.ID, Program: m.Program, Shard: m.Part, Since: m.Since}, now
	if !slices.Contains(m.Heard, r.self) {
		return true
	}
	if o.answered.IsZero() {
		o.answered = now
	}
	// One answer can be the last that a former leader sends: two of them, this far apart, cannot.
	if !o.noticed && now.Sub(o.answered) >= r.interval/2 {
		o.noticed = true
		return true
	}
	return isNew
}

// heard returns the ids of the other instances.
func (r *registry) heard() []string { return slices.Sorted(maps.Keys(r.others)) }

// noticed returns the other programs, by id.
func (r *registry) noticed() (others []Other) {
	for _, id := range r.heard() {
		if o := r.others[id]; o.noticed {
			others = append(others, o.Other)
		}
	}
	return others
}

// changes forgets the instances that are silent. It returns the programs to report: noticed now,
// noticed before and to be repeated, and heard no longer.
func (r *registry) changes(now time.Time) (begun, lasting, ended []Other) {
	for _, id := range r.heard() {
		switch o := r.others[id]; {
		case now.Sub(o.heard) > r.silence():
			delete(r.others, id)
			if o.noticed {
				ended = append(ended, o.Other)
			}
		case o.noticed && o.reported.IsZero():
			begun, o.reported = append(begun, o.Other), now
		case o.noticed && now.Sub(o.reported) >= remindAfter:
			lasting, o.reported = append(lasting, o.Other), now
		}
	}
	return begun, lasting, ended
}
