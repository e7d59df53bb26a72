package clusters

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
)

// Reasons of the events about statuses that are refused.
const (
	EventStatusesRefused = "StatusesRefused"
	EventStatusesTrusted = "StatusesTrusted"
)

// refusals are the reasons of the condition StatusesTrusted while it is False, and what they mean.
var refusals = map[signing.Reason]struct{ reason, why string }{
	signing.Unsigned: {clusterv1.ReasonUnsigned, "they have no signature: start its agent with --signing-key"},
	signing.UnknownKey: {clusterv1.ReasonUnknownKey, "the key that signs them is not trusted: add the output of workctl keys public, run where the key of its agent is, " +
		"to a file of --trusted-agents"},
	signing.WrongCluster: {clusterv1.ReasonWrongCluster, "the key that signs them is that of another cluster"},
	signing.Expired:      {clusterv1.ReasonExpired, "they were signed too long ago: compare the clocks of its agent and of the hub"},
	signing.Future:       {clusterv1.ReasonSignedInFuture, "they were signed in the future: compare the clocks of its agent and of the hub"},
}

// untrusted is whether statuses of a cluster are refused because of their signature.
type untrusted struct {
	// reported is whether anything is known in this process.
	reported bool
	delivery.Untrusted
}

func (x *clusterIndex) untrustedChanged(name wire.ClusterName, u untrusted) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e, ok := x.entries[name]; ok && e.untrusted != u {
		e.untrusted = u
		x.enqueue(name, e)
	}
}

// untrustedMemory is how long it stays in the ManagedCluster that a hub before this process has
// refused statuses, while the agent is connected and this one refuses none.
const untrustedMemory = 15 * time.Minute

// trustCondition returns the condition StatusesTrusted; nil: what is stored stays, for requeueAfter if
// that is not 0. A cluster of which no status was ever refused has none.
func trustCondition(v view, now time.Time) (_ *metav1.Condition, requeueAfter time.Duration) {
	c := metav1.Condition{Type: clusterv1.ManagedClusterConditionStatusesTrusted, Status: metav1.ConditionTrue, Reason: clusterv1.ReasonSigned,
		Message: "No status of the cluster was refused because of its signature for 15 minutes"}
	stored := v.stored != nil && meta.IsStatusConditionFalse(v.stored.Status.Conditions, c.Type)
	heard := v.held.heard
	switch {
	case !v.untrusted.Since.IsZero():
		refusal, ok := refusals[v.untrusted.Reason]
		if !ok {
			refusal.reason, refusal.why = "InvalidSignature", "they are not what was signed"
		}
		c.Status, c.Reason = metav1.ConditionFalse, refusal.reason
		c.Message = fmt.Sprintf("Since %s, statuses in the name of this cluster are refused: %s. If its agent signs with a trusted key, somebody forges them",
			v.untrusted.Since.UTC().Format(time.RFC3339), refusal.why)
	case !stored, !v.untrusted.reported && heard.IsZero():
		return nil, 0
	case !v.untrusted.reported && now.Before(heard.Add(untrustedMemory)):
		return nil, heard.Add(untrustedMemory).Sub(now)
	}
	return &c, 0
}
