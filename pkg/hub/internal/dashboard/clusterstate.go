package dashboard

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// States of clusters, the ones that need somebody first.
const (
	stateAway         state = "away"         // its agent is not connected
	stateUnknown      state = "unknown"      // nobody vouches for its presence
	stateUnregistered state = "unregistered" // it has works and no ManagedCluster
	stateNotAccepted  state = "not-accepted" // it gets no works until somebody accepts it
	stateAvailable    state = "available"
)

// clusterStates are all states of clusters in the order of their ranks.
var clusterStates = []state{stateAway, stateUnknown, stateUnregistered, stateNotAccepted, stateAvailable}

// awayReasons are the reasons of an unknown presence that say that the agent is gone.
var awayReasons = map[string]bool{clusterv1.ReasonDisconnected: true, clusterv1.ReasonSilent: true, clusterv1.ReasonMissing: true}

// counts are numbers of works by state.
type counts map[state]int

// Total returns the number of works.
func (c counts) Total() int {
	total := 0
	for _, n := range c {
		total += n
	}
	return total
}

// In returns the number of works in a state.
func (c counts) In(s state) int { return c[s] }

// clusterRow is a cluster in lists.
type clusterRow struct {
	Name     string
	State    state
	Since    time.Time // since when it is in State, zero if that is not known
	Why      string
	LastSeen time.Time // zero if that is not known
	Paused   bool
	Version  string
	Labels   map[string]string
	Works    counts
}

// clusterRowOf returns the row of a cluster; cluster is nil for a namespace with works and without a
// ManagedCluster, which is no fault where the hub knows no clusters (registry is false).
func clusterRowOf(name string, cluster *clusterv1.ManagedCluster, registry bool) clusterRow {
	row := clusterRow{Name: name, Works: counts{}}
	if cluster == nil {
		row.State, row.Why = stateUnknown, "this hub does not watch ManagedClusters"
		if registry {
			row.State, row.Why = stateUnregistered, "there is no ManagedCluster of this name"
		}
		return row
	}
	row.Labels, row.Version, row.Paused = cluster.Labels, cluster.Status.Version.Kubernetes, workv1.IsPaused(cluster)
	if at, err := time.Parse(time.RFC3339, cluster.Annotations[clusterv1.LastSeenAnnotationKey]); err == nil {
		row.LastSeen = at
	}
	available := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
	switch {
	case !cluster.Spec.HubAcceptsClient:
		row.State, row.Since, row.Why = stateNotAccepted, cluster.CreationTimestamp.Time, "spec.hubAcceptsClient is false"
	case available == nil:
		row.State, row.Since, row.Why = stateUnknown, cluster.CreationTimestamp.Time, "its agent was never heard from"
	case available.Status == metav1.ConditionTrue:
		row.State, row.Since = stateAvailable, available.LastTransitionTime.Time
	case available.Status == metav1.ConditionFalse || awayReasons[available.Reason]:
		row.State, row.Since, row.Why = stateAway, available.LastTransitionTime.Time, text(available)
	default:
		row.State, row.Since, row.Why = stateUnknown, available.LastTransitionTime.Time, text(available)
	}
	return row
}
