package session

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/questions"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// decide has the inbox decide on the works that source disowns.
func (s *Session) decide(source wire.SourceID) {
	now := time.Now()
	decision := s.config.Inbox.DecideDisowned(source, now)
	if decision.Wait > 0 {
		s.asking(func(q *questions.Questions, _ time.Time) { q.Disowned(source, now.Add(decision.Wait)) })
	}
	s.logDecision(source, decision)
}

// logDecision logs what was decided on the works that source does not know, in one line for an
// answer.
func (s *Session) logDecision(source wire.SourceID, d inbox.Decision) {
	held := map[string]int{workv1.ReasonSourceIdentityChanged: d.Held}
	if d.Reason != "" {
		held[d.Reason] = len(d.Keys)
	} else if len(d.Keys) > 0 {
		s.config.Logger.Info("deleting works that their source does not know", "source", source, "count", len(d.Keys), "works", d.Answer.Works)
	}
	for reason, count := range held {
		if count > 0 {
			s.config.Logger.Warn("deletion held: the source does not know the works, and may have lost its memory",
				"source", source, "reason", reason, "count", count, "works", d.Answer.Works)
		}
	}
}

// identified passes on to the inbox which works the source of a status resync knows. If works
// remain that it may not know, or know again, it is asked: a hub that has changed its API or was
// restarted while the agent stays connected otherwise learns of them at the agent's next connection
// only. A reply to a question is no reason to ask again.
func (s *Session) identified(m *wire.StatusResync) {
	if m.SourceIdentity == "" {
		return
	}
	uids := make([]types.UID, 0, len(m.Hashes))
	for i := range m.Hashes {
		if m.Hashes[i].Hash != wire.NoStatus { // the source may not know that work
			uids = append(uids, m.Hashes[i].UID)
		}
	}
	if s.config.Inbox.Identified(m.Source, m.SourceIdentity, uids) && !m.Reply {
		s.Ask(m.Source)
	}
}
