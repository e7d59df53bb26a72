package session

import (
	"time"

	"github.com/workwire/workwire/pkg/agent/internal/questions"
	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// overQuota is the verdict on a message of a source that has used up its quota.
const overQuota = "over_quota"

// owedAfter is how long after a message was dropped its source is asked for the specs that the agent lacks, at
// least.
const owedAfter = 10 * time.Second

// affords reports whether source can pay for m. If not, it is asked for what the agent lacks once it can.
func (s *Session) affords(m transport.Message, source wire.SourceID, now time.Time) bool {
	cost := quota.Message(wire.PlainSize(m.Event))
	if s.config.Quotas.Spend(source, cost, now) {
		return true
	}
	again := now.Add(max(owedAfter, s.config.Quotas.Wait(source, cost, now)))
	s.asking(func(q *questions.Questions, _ time.Time) { q.Ask(source, again) })
	return false
}

// owes has source pay for the size of what a delta of it is worked out from: a debt, for which messages that follow are dropped.
func (s *Session) owes(source wire.SourceID, size int64) {
	s.config.Quotas.Reserve(source, quota.Cost{quota.Bytes: float64(size)}, time.Now())
}
