// Package pace limits how many writes to a server are under way together by how long they take. Writes that a server
// cannot do at once wait for each other there, before and among those of everybody else. As many as it does at once are as fast, and nobody
// waits behind the others. A write that hangs, in a webhook say, no longer counts after [Patience]. What a rollout writes also gives
// way to what people change by hand.
//
//	lane := gate.NewLane(16)
//	place, err := lane.Enter(ctx, owner)
//	place.Write(func() bool { … })
//	place.Leave()
package pace

import "time"

const (
	// Patience is how long a write may take before it hangs: it waits for something else than the server's turn.
	Patience = 2 * time.Second

	// fewest writes may always be under way: some are served while others are on their way, and one that hangs does not hold up all.
	fewest = 2
	// slow is how many times as long as the fastest ones writes take when there are too many of them.
	slow = 2
	// window is how many writes the fastest is taken of. In the first ones of a window fewest are under way, so that it is not one of
	// those that wait for each other; a server that others have made slower is believed then.
	window, first = 4096, 32
	// weight is the part that the last write has in the average.
	weight = 1.0 / 16
	// crowded is how many writes in a row must be fast until they do not wait for each other.
	crowded = 128
)

// Limit is how many writes may be under way. It is not safe for concurrent use; a [Lane] is.
type Limit struct {
	most             int
	allowed          float64
	crowded          int     // writes until nothing says any more that they wait for each other
	count            int     // of writes in this window
	fastest, average float64 // of what the writes of this window took, in seconds
}

// New returns a limit of 2 writes, or most if that is less, that grows to most while writes stay fast.
func New(most int) *Limit {
	return &Limit{most: most, allowed: min(fewest, float64(most))}
}

// Allowed returns how many writes may be under way, from 1 to most.
func (l *Limit) Allowed() int { return int(l.allowed) }

// Crowded reports whether writes wait for each other: some of the last that were under way together took too long.
func (l *Limit) Crowded() bool { return l.crowded > 0 }

// Took says how long a write took that has succeeded, and whether as many as allowed were under way until then. What few writes take says
// nothing about more of them, and one that was refused at once nothing about those that are done.
func (l *Limit) Took(took time.Duration, full bool) {
	seconds := took.Seconds()
	if l.count == 0 {
		l.fastest, l.average = seconds, seconds
	}
	l.count++
	l.fastest = min(l.fastest, seconds)
	l.average += (seconds - l.average) * weight
	switch {
	case l.count < first:
		l.allowed = fewest
	case l.count == window:
		l.count = 0
	case !full:
		return
	default:
		// By one up or down for as many writes as are under way together, so that it follows what it did itself.
		step := 1 / l.allowed
		if l.average > slow*l.fastest {
			step = -step
		}
		if l.allowed += step; step < 0 {
			l.crowded = crowded
		} else if l.crowded > 0 {
			l.crowded--
		}
	}
	l.allowed = min(max(l.allowed, fewest), float64(l.most))
}
