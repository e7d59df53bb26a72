package wire

import (
	"fmt"
	"strconv"
	"time"
)

// SequenceID orders the status events of one agent: 41 bits of milliseconds since [sequenceEpoch],
// 10 bits of node, 12 bits of step (docs/protocol.md, Sequence ids). Later ids are greater; 0 is
// none.
type SequenceID int64

const (
	sequenceEpoch   = 1288834974657 // milliseconds since 1970
	sequenceNode    = 1
	sequenceTimeBit = 22
	sequenceNodeBit = 12
	sequenceSteps   = 1 << sequenceNodeBit
	// sequenceMaxTime is the millisecond, since sequenceEpoch, from which on a clock is not believed:
	// it is in 2063, and leaves room to continue from the last id.
	sequenceMaxTime = 3 << 39
)

// ParseSequenceID parses the decimal form. It returns an error if s is not a positive number.
func ParseSequenceID(s string) (SequenceID, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("sequence id %q: want a positive decimal number", s)
	}
	return SequenceID(n), nil
}

// Time returns the time at which the clock of the agent stood, to the millisecond, unless the agent
// has continued from an earlier id (docs/protocol.md, Sequence ids).
func (id SequenceID) Time() time.Time {
	return time.UnixMilli(sequenceEpoch + int64(id>>sequenceTimeBit))
}

// Credible reports whether a clock can have shown the time of id: no [Sequence] makes ids of later
// times, so that one that is not credible is forged.
func (id SequenceID) Credible() bool { return int64(id>>sequenceTimeBit) < sequenceMaxTime }

// String returns the decimal form.
func (id SequenceID) String() string { return strconv.FormatInt(int64(id), 10) }

// Sequence generates strictly increasing ids. Its zero value is ready to use. It is not safe for
// concurrent use.
type Sequence struct {
	millisecond int64
	step        int64
}

// Resume makes all following ids greater than last, the last id of an earlier Sequence, even if the
// clock was set back since. 0 changes nothing.
func (s *Sequence) Resume(last SequenceID) {
	if ms := int64(last >> sequenceTimeBit); ms >= s.millisecond && last > 0 {
		s.millisecond, s.step = ms, sequenceSteps-1
	}
}

// Next returns an id that is greater than all before it. If the clock stands still, goes back, or
// shows a time before 2010 or after 2062, it uses the ids that follow the last one.
func (s *Sequence) Next(now time.Time) SequenceID {
	if ms := now.UnixMilli() - sequenceEpoch; ms > s.millisecond && ms < sequenceMaxTime {
		s.millisecond, s.step = ms, 0
	} else if s.step++; s.step == sequenceSteps {
		s.millisecond, s.step = s.millisecond+1, 0
	}
	return SequenceID(s.millisecond<<sequenceTimeBit | sequenceNode<<sequenceNodeBit | s.step)
}
