package delivery

import (
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/workwire/workwire/pkg/wire"
)

// Session is the session of a status, interned: of equal ones only one is in memory. The zero value
// is that of statuses without a session.
type Session struct{ id unique.Handle[string] }

// NewSession returns the session with this id, which may be empty.
func NewSession(id string) Session {
	if id == "" {
		return Session{}
	}
	return Session{unique.Make(id)}
}

// String returns the id.
func (s Session) String() string {
	if s == (Session{}) {
		return ""
	}
	return s.id.Value()
}

// maxClockSkew is how far the clock of an agent may be ahead of the source's for its sequence ids to
// be compared with those of its other statuses.
const maxClockSkew = 24 * time.Hour

// aheadSuffix marks the statuses of a session whose sequence ids are ahead of the source's clock. No
// agent can send it as part of a session.
const aheadSuffix = "!"

// orderedBy returns the session by which s is ordered. Statuses with sequence ids far ahead of the
// clock have an order of their own: an agent whose clock is wrong has all of its statuses there, and
// a forged one does not precede those that the agent sends in the session.
func orderedBy(s *wire.Status, now time.Time) string {
	if s.Sequence != 0 && s.Sequence.Time().After(now.Add(maxClockSkew)) {
		return s.Session + aheadSuffix
	}
	return s.Session
}

// announced returns the session as its agent announces it.
func (s Session) announced() Session {
	if id, marked := strings.CutSuffix(s.String(), aheadSuffix); marked {
		return NewSession(id)
	}
	return s
}

// SessionSequence is the last sequence id of a work in a session of its agent.
type SessionSequence struct {
	Session Session
	// ID is 0 if no status had one.
	ID wire.SequenceID
}

// Sequences are the last sequence ids of a work in the two newest sessions of its agent
// (docs/protocol.md, Sequence ids).
type Sequences struct{ Newest, Previous SessionSequence }

// Add returns the Sequences after a status of this sequence id, which may be 0, was accepted.
func (l Sequences) Add(session Session, id wire.SequenceID) Sequences {
	switch {
	case id == 0:
	case l.Newest.ID == 0:
		l.Newest = SessionSequence{session, id}
	case session == l.Newest.Session:
		l.Newest.ID = max(l.Newest.ID, id)
	case l.Previous.ID != 0 && session == l.Previous.Session:
		l.Previous.ID = max(l.Previous.ID, id)
	default:
		l = Sequences{Newest: SessionSequence{session, id}, Previous: l.Newest}
	}
	return l
}

// old reports whether a status of this sequence id was received before, or is older than one that
// was. earlier reports whether its session began before that of l.Newest, as far as is known.
func (l Sequences) old(session Session, id wire.SequenceID, earlier bool) bool {
	switch {
	case id == 0 || l.Newest.ID == 0:
		return false
	case session == l.Newest.Session:
		return id <= l.Newest.ID
	case l.Previous.ID != 0 && session == l.Previous.Session && id <= l.Previous.ID:
		return true
	default:
		return earlier && id <= l.Newest.ID
	}
}

// maxSessions is the number of sessions of an agent whose order is remembered.
const maxSessions = 16

// sessionOrder is the newest sessions that an agent announced, in this order. Statuses do not add to
// it, so that a forged one makes no session of the agent an earlier one.
type sessionOrder []Session

// add adds s as the newest one if it is not there.
func (o sessionOrder) add(s Session) sessionOrder {
	if slices.Contains(o, s) {
		return o
	}
	if len(o) == maxSessions {
		o = slices.Delete(o, 0, 1)
	}
	return append(o, s)
}

// before reports whether a is known to be earlier than b.
func (o sessionOrder) before(a, b Session) bool {
	i, j := slices.Index(o, a.announced()), slices.Index(o, b.announced())
	return i >= 0 && i < j
}
