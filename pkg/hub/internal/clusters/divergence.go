package clusters

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// Reasons of the events about divergence.
const (
	EventDiverged = "WorksDiverged"
	EventInSync   = "WorksInSync"
)

// divergence is whether the works that an agent holds differ from those of the hub.
type divergence struct {
	// reported is whether anything is known in this process.
	reported bool
	// since is when they were first found to differ; zero: they agree.
	since time.Time
}

func (x *clusterIndex) divergenceChanged(name wire.ClusterName, d divergence) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e, ok := x.entries[name]; ok && e.divergence != d {
		e.divergence = d
		x.enqueue(name, e)
	}
}

// hasAlarm reports whether a hub, perhaps one before this process, has found works that differ, or has
// refused statuses.
func hasAlarm(cluster *clusterv1.ManagedCluster) bool {
	return meta.IsStatusConditionFalse(cluster.Status.Conditions, clusterv1.ManagedClusterConditionWorksInSync) ||
		meta.IsStatusConditionFalse(cluster.Status.Conditions, clusterv1.ManagedClusterConditionStatusesTrusted)
}

// divergenceMemory is how long a divergence that a hub before this process has found stays in the
// ManagedCluster, while the agent is connected and this one finds none.
const divergenceMemory = 5 * time.Minute

// divergenceCondition returns the condition WorksInSync; nil: what is stored stays, for requeueAfter
// if that is not 0. A cluster whose works have never differed has none.
func divergenceCondition(v view, now time.Time) (_ *metav1.Condition, requeueAfter time.Duration) {
	c := metav1.Condition{Type: clusterv1.ManagedClusterConditionWorksInSync, Status: metav1.ConditionTrue, Reason: clusterv1.ReasonInSync,
		Message: "The agent holds the works of this hub"}
	switch heard := v.held.heard; {
	case !v.divergence.reported && (heard.IsZero() || !meta.IsStatusConditionFalse(v.stored.Status.Conditions, c.Type)):
		return nil, 0
	case !v.divergence.reported && now.Before(heard.Add(divergenceMemory)):
		return nil, heard.Add(divergenceMemory).Sub(now)
	case !v.divergence.since.IsZero():
		c.Status, c.Reason = metav1.ConditionFalse, clusterv1.ReasonDiverged
		c.Message = fmt.Sprintf("Since %s, works or statuses of the agent differ from those of this hub, which exchanges them again with each "+
			"digest of the agent; the logs of both name them", v.divergence.since.UTC().Format(time.RFC3339))
	case !meta.IsStatusConditionFalse(v.stored.Status.Conditions, c.Type):
		return nil, 0
	}
	return &c, 0
}
