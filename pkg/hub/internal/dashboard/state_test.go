package dashboard

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
)

// epoch is the time of all conditions in tests of views.
var epoch = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func condition(kind string, status metav1.ConditionStatus, generation int64, reason, message string) metav1.Condition {
	return metav1.Condition{
		Type: kind, Status: status, ObservedGeneration: generation, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(epoch),
	}
}

const (
	yes     = metav1.ConditionTrue
	no      = metav1.ConditionFalse
	unknown = metav1.ConditionUnknown
)

func TestStateOfWork(t *testing.T) {
	applied := condition(workv1.WorkApplied, yes, 2, "AppliedManifestWorkComplete", "")
	available := condition(workv1.WorkAvailable, yes, 2, "ResourcesAvailable", "")
	for _, c := range []struct {
		name       string
		conditions []metav1.Condition
		manifests  []workv1.ManifestCondition
		paused     bool
		deleting   bool
		want       state
		why        string
	}{
		{name: "new", want: statePending, why: "has not answered yet"},
		{name: "ready", conditions: []metav1.Condition{applied, available, condition(workv1.WorkProgressing, no, 2, "x", "")}, want: stateReady},
		{name: "applied", conditions: []metav1.Condition{applied, available}, want: stateApplied, why: "readiness not watched"},
		{
			name: "an answer for an older generation", want: statePending, why: "for generation 1, not yet for 2",
			conditions: []metav1.Condition{condition(workv1.WorkApplied, yes, 1, "x", ""), condition(workv1.WorkAvailable, yes, 1, "x", "")},
		},
		{
			name: "away", want: statePending, why: "the agent is away",
			conditions: []metav1.Condition{condition(workv1.WorkDelivered, no, 2, workv1.ReasonClusterAway, "the agent is away")},
		},
		{
			name: "published", want: statePending, why: "no answer",
			conditions: []metav1.Condition{condition(workv1.WorkDelivered, unknown, 2, workv1.ReasonPublished, "no answer")},
		},
		{
			name: "too large", want: stateFailed, why: "too large",
			conditions: []metav1.Condition{condition(workv1.WorkDelivered, no, 2, workv1.ReasonTooLarge, "too large")},
		},
		{
			name: "no cluster, without a message", want: stateFailed, why: workv1.ReasonClusterNotFound,
			conditions: []metav1.Condition{condition(workv1.WorkDelivered, no, 2, workv1.ReasonClusterNotFound, "")},
		},
		{
			name: "a cause of an older generation", want: statePending, why: "has not answered yet",
			conditions: []metav1.Condition{condition(workv1.WorkDelivered, no, 1, workv1.ReasonTooLarge, "too large")},
		},
		{
			name: "paused by the hub's word", want: statePaused, why: "its cluster is paused",
			conditions: []metav1.Condition{condition(workv1.WorkDelivered, no, 2, workv1.ReasonPaused, "its cluster is paused")},
		},
		{name: "paused by its annotation", paused: true, want: statePaused, why: "paused"},
		{name: "paused and up to date", paused: true, conditions: []metav1.Condition{applied, available}, want: stateApplied, why: "readiness not watched"},
		{
			name: "not applied", want: stateFailed, why: "ConfigMap shop/a: forbidden (and 1 more)",
			conditions: []metav1.Condition{condition(workv1.WorkApplied, no, 2, "AppliedManifestWorkFailed", "2 failed"), available},
			manifests: []workv1.ManifestCondition{
				{ResourceMeta: workv1.ManifestResourceMeta{Kind: "ConfigMap", Namespace: "shop", Name: "a"}, Conditions: []metav1.Condition{condition(workv1.ManifestApplied, no, 0, "x", "forbidden")}},
				{ResourceMeta: workv1.ManifestResourceMeta{Kind: "Namespace", Name: "shop"}, Conditions: []metav1.Condition{condition(workv1.ManifestApplied, yes, 0, "x", "")}},
				{ResourceMeta: workv1.ManifestResourceMeta{Kind: "Secret", Name: "b"}, Conditions: []metav1.Condition{condition(workv1.ManifestApplied, no, 0, "x", "refused")}},
			},
		},
		{
			name: "not applied, and no manifest says why", want: stateFailed, why: "2 failed",
			conditions: []metav1.Condition{condition(workv1.WorkApplied, no, 2, "AppliedManifestWorkFailed", "2 failed")},
		},
		{
			name: "degraded", want: stateFailed, why: "unschedulable",
			conditions: []metav1.Condition{applied, available, condition(workv1.WorkDegraded, yes, 2, "x", "unschedulable")},
		},
		{
			name: "progressing", want: stateProgressing, why: "1 of 3",
			conditions: []metav1.Condition{applied, available, condition(workv1.WorkProgressing, yes, 2, "x", "1 of 3")},
		},
		{name: "not available", want: stateProgressing, why: "gone", conditions: []metav1.Condition{applied, condition(workv1.WorkAvailable, no, 2, "x", "gone")}},
		{name: "applied only", want: stateProgressing, why: "not reported yet", conditions: []metav1.Condition{applied}},
		{name: "complete", want: stateReady, conditions: []metav1.Condition{applied, condition(workv1.WorkComplete, yes, 2, "x", "done")}},
		{name: "deleting", deleting: true, conditions: []metav1.Condition{applied, available}, want: stateDeleting, why: "has not answered"},
		{
			name: "deleting, with a cause", deleting: true, want: stateDeleting, why: "a finalizer",
			conditions: []metav1.Condition{condition(workv1.WorkDeleting, yes, 2, "x", "a finalizer")},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
			work.Status.Conditions, work.Status.ResourceStatus.Manifests = c.conditions, c.manifests
			if c.paused {
				work.Annotations = map[string]string{workv1.PausedAnnotationKey: workv1.PausedValue}
			}
			if c.deleting {
				work.DeletionTimestamp = &metav1.Time{Time: epoch}
			}
			row := rowOf(work)
			if row.State != c.want || !strings.Contains(row.Why, c.why) || (c.why == "") != (row.Why == "") {
				t.Errorf("%s, %q; want %s, %q", row.State, row.Why, c.want, c.why)
			}
		})
	}
}

func TestStateOfCluster(t *testing.T) {
	available := func(status metav1.ConditionStatus, reason string) []metav1.Condition {
		return []metav1.Condition{condition(clusterv1.ManagedClusterConditionAvailable, status, 0, reason, "because")}
	}
	for _, c := range []struct {
		name       string
		accepted   bool
		conditions []metav1.Condition
		want       state
	}{
		{"not accepted", false, available(yes, "x"), stateNotAccepted},
		{"never seen", true, nil, stateUnknown},
		{"available", true, available(yes, clusterv1.ReasonAvailable), stateAvailable},
		{"away", true, available(unknown, clusterv1.ReasonDisconnected), stateAway},
		{"silent", true, available(unknown, clusterv1.ReasonSilent), stateAway},
		{"not seen yet", true, available(unknown, clusterv1.ReasonNotSeen), stateUnknown},
		{"nobody vouches", true, available(unknown, "HubAway"), stateUnknown},
		{"false by another program", true, available(no, "x"), stateAway},
	} {
		cluster := &clusterv1.ManagedCluster{Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: c.accepted}}
		cluster.Annotations = map[string]string{clusterv1.LastSeenAnnotationKey: epoch.Format(time.RFC3339)}
		cluster.Status.Conditions = c.conditions
		if row := clusterRowOf("a", cluster, true); row.State != c.want || !row.LastSeen.Equal(epoch) || (row.Why == "") != (c.want == stateAvailable) {
			t.Errorf("%s: %+v", c.name, row)
		}
	}
	if row := clusterRowOf("a", nil, true); row.State != stateUnregistered {
		t.Errorf("no ManagedCluster: %+v", row)
	}
	if row := clusterRowOf("a", nil, false); row.State != stateUnknown {
		t.Errorf("a hub without clusters: %+v", row)
	}
}

func TestStateOfSet(t *testing.T) {
	rolledOut := func(status metav1.ConditionStatus, generation int64) metav1.Condition {
		return condition(workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut, status, generation, "x", "1 of 3 groups")
	}
	progressing := func(status metav1.ConditionStatus, generation int64) metav1.Condition {
		return condition(workv1alpha1.ManifestWorkReplicaSetConditionProgressing, status, generation, "x", "c1 soaks")
	}
	all := workv1alpha1.ManifestWorkReplicaSetSummary{Total: 3, Available: 3, Applied: 3} // as the hub writes it
	for _, c := range []struct {
		name       string
		conditions []metav1.Condition
		summary    workv1alpha1.ManifestWorkReplicaSetSummary
		paused     bool
		want       state
		why        string
	}{
		{"new", nil, workv1alpha1.ManifestWorkReplicaSetSummary{}, false, stateProgressing, "not been reconciled"},
		{"done", []metav1.Condition{rolledOut(yes, 0), progressing(no, 2)}, all, false, stateReady, ""},
		{"older", []metav1.Condition{rolledOut(yes, 0), progressing(no, 1)}, all, false, stateProgressing, "newest generation"},
		{"on its way", []metav1.Condition{rolledOut(no, 0)}, all, false, stateProgressing, "1 of 3 groups"},
		{"degraded", []metav1.Condition{rolledOut(no, 0)}, workv1alpha1.ManifestWorkReplicaSetSummary{Total: 3, Degraded: 1}, false, stateFailed, "degraded on 1 cluster; 1 of 3"},
		{"not all available", []metav1.Condition{rolledOut(yes, 0), progressing(no, 2)}, workv1alpha1.ManifestWorkReplicaSetSummary{Total: 3, Available: 2}, false, stateProgressing, "2 of 3 clusters"},
		{"paused", []metav1.Condition{rolledOut(no, 0)}, all, true, statePaused, "paused"},
		{"no placement", []metav1.Condition{condition(workv1alpha1.ManifestWorkReplicaSetConditionPlacementVerified, no, 2, "x", "no decision")}, all, false, stateFailed, "no decision"},
		{"stopped", []metav1.Condition{rolledOut(no, 0), condition(workv1alpha1.ManifestWorkReplicaSetConditionStopped, yes, 2, "x", "at cluster c1")}, all, false, stateFailed, "at cluster c1"},
		{"soaks", []metav1.Condition{rolledOut(no, 0), progressing(yes, 2)}, all, false, stateProgressing, "c1 soaks"},
		{"held", []metav1.Condition{condition(workv1alpha1.ManifestWorkReplicaSetConditionRemovalsHeld, yes, 2, "x", "too many")}, all, false, stateFailed, "too many"},
	} {
		set := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
		set.Status.Conditions, set.Status.Summary = c.conditions, c.summary
		if c.paused {
			set.Annotations = map[string]string{workv1.PausedAnnotationKey: workv1.PausedValue}
		}
		if row := setRowOf(set); row.State != c.want || !strings.Contains(row.Why, c.why) {
			t.Errorf("%s: %s, %q", c.name, row.State, row.Why)
		}
	}
}
