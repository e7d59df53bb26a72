package delivery

import (
	"time"

	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// message is what every message costs.
var message = quota.Cost{quota.Messages: 1, quota.Bytes: 1}

// affords reports whether the cluster of a message can pay for it. If not, the message is dropped before it
// costs anything, and the cluster is asked for its statuses once it can pay again. A question that is
// dropped is repeated by its agent.
func (e *Engine) affords(m transport.Message, from sender, now time.Time) bool {
	if e.core.quotas.Spend(from.cluster, quota.Message(wire.PlainSize(m.Event)), now) {
		return true
	}
	e.decided(m, from, "unknown", overQuota, nil)
	e.log.Warn("message dropped: its cluster sends more than its quota, it is asked again", "cluster", from.cluster)
	e.step(quotaExceeded{from.cluster})
	return false
}
