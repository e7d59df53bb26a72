package delivery

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// forgetOvertaking is after how long the first overtaking of a work need not wait again.
const forgetOvertaking = 10 * time.Minute

// overtaking is when and how often, in a row, the source went above the generation of the agent of a work.
type overtaking struct {
	at    time.Time
	times int
}

// admitOvertaking lets the source go above the generation that the agent of a work has, and counts it, or returns how long it has to wait. Two programs
// under one source id, each above the other, would do it with each status. After a restore it is needed once. What was not published since
// nobody can have answered: it does not count.
func (d *core) admitOvertaking(k workKey, now time.Time) time.Duration {
	w, known := d.works[k]
	if !known {
		return 0
	}
	o := w.cluster.overtaken[k.uid]
	switch wait := o.at.Add(backoff(minRetryDelay, o.times-1, maxRetryDelay)).Sub(now); {
	case now.Sub(o.at) > forgetOvertaking:
		o.times = 0
	case w.publishedAt.Before(o.at):
		return 0
	case wait > 0:
		return wait
	}
	if w.cluster.overtaken == nil {
		w.cluster.overtaken = make(map[types.UID]overtaking)
	}
	w.cluster.overtaken[k.uid] = overtaking{at: now, times: o.times + 1}
	return 0
}
