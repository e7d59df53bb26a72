package trust

import (
	"time"

	"github.com/workwire/workwire/pkg/security/signing"
)

// Unproven is the reason to refuse an event of a source that has not answered a question of this agent
// yet, so that it may be from before the agent was started.
const Unproven signing.Reason = "unproven"

// memory remembers when the events of one source were signed. Times are those of the source's
// clock, in microseconds. An event is new if it was signed after all events about its subjects that
// were received before.
//
// The memory is bounded: it forgets the subject that it has known longest, and then refuses
// everything that is not newer than what it forgot.
type memory struct {
	proven bool
	floor  int64 // what was signed at this time or before is refused
	newest int64
	seen   map[string]int64 // newest time by subject
	order  []record         // of seen, in the order of arrival; some are replaced by later ones
}

type record struct {
	subject string
	at      int64
}

// limits bound a memory.
type limits struct {
	maxAge   time.Duration // 0: none
	subjects int
}

// prove notes that the source has signed an answer to a question that this agent has asked, so that
// everything signed before was signed before the question was answered.
func (m *memory) prove(at int64) {
	if !m.proven {
		m.proven, m.floor = true, max(m.floor, at)
	}
}

// decide returns why an event about subjects, signed at a time, is refused; empty if it is new.
func (m *memory) decide(subjects []string, at int64, l limits, now time.Time) signing.Reason {
	if reason := signing.DecideAge(time.UnixMicro(at), now, l.maxAge); reason != "" {
		return reason
	}
	if !m.proven {
		return Unproven
	}
	if at <= m.floor {
		return signing.Replayed
	}
	for _, subject := range subjects {
		if at <= m.seen[subject] {
			return signing.Replayed
		}
	}
	return ""
}

// note remembers an event that decide has found new. Its cost is O(1), amortized.
func (m *memory) note(subjects []string, at int64, l limits) {
	if m.seen == nil {
		m.seen = make(map[string]int64)
	}
	for _, subject := range subjects {
		m.seen[subject] = at
		m.order = append(m.order, record{subject, at})
	}
	m.newest = max(m.newest, at)
	if l.maxAge > 0 {
		m.floor = max(m.floor, m.newest-l.maxAge.Microseconds())
	}
	for len(m.order) > 0 && (len(m.order) > l.subjects || m.order[0].at <= m.floor || m.seen[m.order[0].subject] != m.order[0].at) {
		first := m.order[0]
		m.order = m.order[1:]
		if m.seen[first.subject] == first.at {
			delete(m.seen, first.subject)
			m.floor = max(m.floor, first.at)
		}
	}
}
