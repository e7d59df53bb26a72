package signing

import "time"

// startSkew is how far the clock of an agent may be behind that of the source for an event that is
// signed when the source starts.
const startSkew = time.Minute

// Window bounds when an event of an agent may have been signed.
type Window struct {
	// MaxAge is the maximum age, before and after; 0: no limit, and none by Started.
	MaxAge time.Duration
	// Started is when the source started.
	Started time.Time
}

// Decide returns why an event is refused that was signed at a time, if the newest one about its subject
// was signed at newest, in microseconds; empty if it is not. The one that was signed at newest is not
// refused.
func (w Window) Decide(at time.Time, newest int64, now time.Time) Reason {
	if reason := DecideAge(at, now, w.MaxAge); reason != "" {
		return reason
	}
	switch {
	case w.MaxAge > 0 && at.Before(w.Started.Add(-startSkew)):
		return BeforeStart
	case at.UnixMicro() < newest:
		return Replayed
	default:
		return ""
	}
}

// DefaultMaxAge is the default of the maximum age of signatures.
const DefaultMaxAge = time.Hour

// DecideAge returns why an event is refused that was signed at a time, if signatures are valid for
// maxAge before and after; empty if it is not. A maxAge of 0 is no limit.
func DecideAge(at, now time.Time, maxAge time.Duration) Reason {
	switch age := now.Sub(at); {
	case maxAge == 0:
		return ""
	case age > maxAge:
		return Expired
	case -age > maxAge:
		return Future
	default:
		return ""
	}
}
