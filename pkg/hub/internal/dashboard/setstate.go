package dashboard

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
)

// setStates are all states of replica sets in the order of their ranks.
var setStates = []state{stateFailed, statePaused, stateDeleting, stateProgressing, stateReady}

// setRow is a replica set in lists.
type setRow struct {
	Namespace, Name string
	State           state
	Since           time.Time // since when it is in State, zero if that is not known
	Why             string
	Summary         workv1alpha1.ManifestWorkReplicaSetSummary
	Wanted          int // clusters that the placements select
}

// setRowOf returns the row of a replica set.
func setRowOf(set *workv1alpha1.ManifestWorkReplicaSet) setRow {
	row := setRow{Namespace: set.Namespace, Name: set.Name, Summary: set.Status.Summary, Wanted: set.Status.SelectedClusters}
	if row.Wanted == 0 { // a CRD of Open Cluster Management drops it
		for i := range set.Status.PlacementsSummary {
			_, wanted := groupsOf(&set.Status.PlacementsSummary[i])
			row.Wanted += wanted
		}
	}
	row.State, row.Since, row.Why = setStateOf(set)
	return row
}

// groupsOf returns the number of decision groups of a placement, and of its clusters; 0 without a summary.
func groupsOf(s *workv1alpha1.PlacementSummary) (groups, clusters int) {
	_, _ = fmt.Sscanf(s.AvailableDecisionGroups, "%d (%d / %d ", &groups, new(int), &clusters)
	return groups, clusters
}

// setStateOf returns the state of a replica set, since when, and why it is not ready.
func setStateOf(set *workv1alpha1.ManifestWorkReplicaSet) (state, time.Time, string) {
	find := func(kind string) *metav1.Condition { return meta.FindStatusCondition(set.Status.Conditions, kind) }
	if set.DeletionTimestamp != nil {
		return stateDeleting, set.DeletionTimestamp.Time, "its works are being deleted"
	}
	if workv1.IsPaused(set) {
		return statePaused, time.Time{}, "paused: its rollout stops where it is"
	}
	if c := find(workv1alpha1.ManifestWorkReplicaSetConditionPlacementVerified); is(c, metav1.ConditionFalse) {
		return stateFailed, c.LastTransitionTime.Time, text(c)
	}
	for _, kind := range []string{
		workv1alpha1.ManifestWorkReplicaSetConditionRemovalsHeld, workv1alpha1.ManifestWorkReplicaSetConditionStopped,
		workv1alpha1.ManifestWorkReplicaSetConditionRolledBack,
	} {
		if c := find(kind); is(c, metav1.ConditionTrue) {
			return stateFailed, c.LastTransitionTime.Time, text(c)
		}
	}
	summary, rolledOut := set.Status.Summary, find(workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut)
	progressing := find(workv1alpha1.ManifestWorkReplicaSetConditionProgressing) // tells the generation, which those of Open Cluster Management do not
	switch {
	case summary.Degraded > 0:
		why := fmt.Sprintf("degraded on %s", plural(summary.Degraded, "cluster"))
		if is(rolledOut, metav1.ConditionFalse) {
			return stateFailed, rolledOut.LastTransitionTime.Time, why + "; " + text(rolledOut)
		}
		return stateFailed, time.Time{}, why
	case rolledOut == nil:
		return stateProgressing, set.CreationTimestamp.Time, "it has not been reconciled yet"
	case rolledOut.Status != metav1.ConditionTrue:
		if is(progressing, metav1.ConditionTrue) {
			return stateProgressing, progressing.LastTransitionTime.Time, text(progressing)
		}
		return stateProgressing, rolledOut.LastTransitionTime.Time, text(rolledOut)
	case progressing == nil || progressing.ObservedGeneration < set.Generation:
		return stateProgressing, time.Time{}, "the newest generation has not been reconciled yet"
	case summary.Available < summary.Total:
		return stateProgressing, rolledOut.LastTransitionTime.Time, fmt.Sprintf("available on %d of %s", summary.Available, plural(summary.Total, "cluster"))
	}
	return stateReady, rolledOut.LastTransitionTime.Time, ""
}

// plural returns "1 cluster", "2 clusters".
func plural(n int, one string) string {
	return fmt.Sprintf("%d %s", n, noun(n, one))
}

// noun returns the noun for n of one.
func noun(n int, one string) string {
	if n == 1 {
		return one
	}
	return one + "s"
}
