package dashboard

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/workstate"
)

// setStates are all states of replica sets in the order of their ranks.
var setStates = []state{workstate.PhaseFailed, workstate.PhasePaused, workstate.PhaseDeleting, workstate.PhaseProgressing, workstate.PhaseReady}

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
	with := func(kind string, status metav1.ConditionStatus) *metav1.Condition {
		if c := find(kind); c != nil && c.Status == status {
			return c
		}
		return nil
	}
	ready := find(workv1alpha1.ManifestWorkReplicaSetConditionReady)
	switch {
	case set.DeletionTimestamp != nil:
		return workstate.PhaseDeleting, set.DeletionTimestamp.Time, "its works are being deleted"
	case workv1.IsPaused(set):
		return workstate.PhasePaused, time.Time{}, "paused: its rollout stops where it is"
	case ready == nil || ready.ObservedGeneration < set.Generation:
		return workstate.PhaseProgressing, time.Time{}, "the newest generation has not been reconciled yet"
	case ready.Status == metav1.ConditionTrue:
		return workstate.PhaseReady, ready.LastTransitionTime.Time, ""
	}
	failed := cmp.Or(with(workv1alpha1.ManifestWorkReplicaSetConditionPlacementVerified, metav1.ConditionFalse),
		with(workv1alpha1.ManifestWorkReplicaSetConditionStalled, metav1.ConditionTrue),
		with(workv1alpha1.ManifestWorkReplicaSetConditionRolledBack, metav1.ConditionTrue))
	switch {
	case failed != nil:
		return workstate.PhaseFailed, failed.LastTransitionTime.Time, cmp.Or(failed.Message, text(ready))
	case set.Status.Summary.Degraded > 0:
		return workstate.PhaseFailed, time.Time{}, text(ready)
	}
	progressing := cmp.Or(find(workv1alpha1.ManifestWorkReplicaSetConditionProgressing), ready) // tells since when for this reason
	return workstate.PhaseProgressing, progressing.LastTransitionTime.Time, text(ready)
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
