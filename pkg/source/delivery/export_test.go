package delivery

import (
	"context"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// OwnDigest computes what a digest is compared with.
func OwnDigest(e *Engine, cluster wire.ClusterName, buckets int) ([]wire.BucketDigest, []bool) {
	own, complete, _ := e.ownDigest(cluster, buckets)
	return own, complete
}

// MaxUnknown is maxUnknown.
const MaxUnknown = maxUnknown

// QuestionBurst is questionBurst.
const QuestionBurst = questionBurst

// Kept is what an Engine holds in memory.
type Kept struct{ Works, Clusters, Removed, Divergences, Due, Pending, Statuses, Resyncs int }

// KeptOf returns what e holds in memory.
func KeptOf(e *Engine) Kept {
	e.mu.Lock()
	defer e.mu.Unlock()
	removed := 0
	for _, c := range e.core.clusters {
		removed += c.removed.len()
	}
	return Kept{
		Works: len(e.core.works), Clusters: len(e.core.clusters), Removed: removed, Divergences: e.core.countClusters(func(c *clusterRecord) bool { return c.divergence != nil }),
		Due: e.core.unconfirmed(), Pending: e.core.pending(), Statuses: len(e.core.stores.byKey), Resyncs: len(e.core.asks.byKey),
	}
}

// Receive handles a message as if it came from the transport.
func Receive(e *Engine, m transport.Message) { e.receive(context.Background(), m) }

// StopTimer stops the timer of e, and reports whether it was set.
func StopTimer(e *Engine) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.timer != nil && e.timer.Stop()
}
