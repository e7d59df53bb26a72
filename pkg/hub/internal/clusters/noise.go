package clusters

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/wire"
)

// resourceWords are the resources of quotas in messages.
var resourceWords = map[quota.Resource]string{
	quota.Messages: "messages", quota.Bytes: "bytes", quota.Writes: "changes of statuses", quota.WrittenBytes: "bytes of statuses",
}

// noise is whether a cluster has used up its quota.
type noise struct {
	// reported is whether anything is known in this process.
	reported bool
	quota.Noise
}

func (x *clusterIndex) noiseChanged(name wire.ClusterName, n noise, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, ok := x.entries[name]
	if !ok && !n.Since.IsZero() { // its ManagedCluster may come
		e, ok = x.addUnregistered(name, now)
	}
	if ok && e.noise != n {
		if e.noise = n; e.registered {
			x.enqueue(name, e)
		}
	}
}

// noiseCondition returns the condition Noisy; nil: what is stored stays, for requeueAfter if that is not 0. A cluster that never
// used up its quota has none.
func noiseCondition(v view, now time.Time) (_ *metav1.Condition, requeueAfter time.Duration) {
	stored := v.stored != nil && meta.IsStatusConditionTrue(v.stored.Status.Conditions, clusterv1.ManagedClusterConditionNoisy)
	heard := v.held.heard
	switch {
	case !v.noise.Since.IsZero():
		return &metav1.Condition{
			Type: clusterv1.ManagedClusterConditionNoisy, Status: metav1.ConditionTrue, Reason: clusterv1.ReasonOverQuota,
			Message: fmt.Sprintf("Since %s, the cluster sends more %s than its quota. What is over it is dropped or stored later, and asked for again; "+
				"other clusters do not wait. If its agent is not to blame, somebody has its credentials: issue new ones",
				v.noise.Since.UTC().Format(time.RFC3339), resourceWords[v.noise.Resource]),
		}, 0
	case !stored, !v.noise.reported && heard.IsZero():
		return nil, 0
	case !v.noise.reported && now.Before(heard.Add(quota.Memory)): // a hub before this process has said so
		return nil, heard.Add(quota.Memory).Sub(now)
	}
	return &metav1.Condition{
		Type: clusterv1.ManagedClusterConditionNoisy, Status: metav1.ConditionFalse, Reason: clusterv1.ReasonWithinQuota,
		Message: "The cluster has not used up its quota for 10 minutes",
	}, 0
}
