package dashboard

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/workstate"
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
		{name: "new", want: workstate.PhasePending, why: "has not answered yet"},
		{name: "ready", conditions: []metav1.Condition{applied, available, condition(workv1.WorkProgressing, no, 2, "x", "")}, want: workstate.PhaseReady},
		{name: "applied", conditions: []metav1.Condition{applied, available}, want: workstate.PhaseApplied, why: "readiness not watched"},
		{
			name: "an answer for an older generation", want: workstate.PhasePending, why: "for generation 1, not yet for 2",
			conditions: []metav1.Condition{condition(workv1.WorkApplied, yes, 1, "x", ""), condition(workv1.WorkAvailable, yes, 1, "x", "")},
		},
		{
			name: "away", want: workstate.PhasePending, why: "the agent is away",
			conditions: []metav1.Condition{condition(workv1.WorkDelivered, no, 2, workv1.ReasonClusterAway, "the agent is away")},
		},
		{
			name: "published", want: workstate.PhasePending, why: "no answer",
			conditions: []metav1.Condition{condition(workv1.WorkDelivered, unknown, 2, workv1.ReasonPublished, "no answer")},
		},
		{
			name: "too large", want: workstate.PhaseFailed, why: "too large",
			conditions: []metav1.Condition{condition(workv1.WorkDelivered, no, 2, workv1.ReasonTooLarge, "too large")},
		},
		{
			name: "no cluster, without a message", want: workstate.PhaseFailed, why: workv1.ReasonClusterNotFound,
			conditions: []metav1.Condition{condition(workv1.WorkDelivered, no, 2, workv1.ReasonClusterNotFound, "")},
		},
		{
			name: "a cause of an older generation", want: workstate.PhasePending, why: "has not answered yet",
			conditions: []metav1.Condition{condition(workv1.WorkDelivered, no, 1, workv1.ReasonTooLarge, "too large")},
		},
		{
			name: "paused by the hub's word", want: workstate.PhasePaused, why: "its cluster is paused",
			conditions: []metav1.Condition{condition(workv1.WorkDelivered, no, 2, workv1.ReasonPaused, "its cluster is paused")},
		},
		{name: "paused by its annotation", paused: true, want: workstate.PhasePaused, why: "paused"},
		{name: "paused and up to date", paused: true, conditions: []metav1.Condition{applied, available}, want: workstate.PhaseApplied, why: "readiness not watched"},
		{
			name: "not applied", want: workstate.PhaseFailed, why: "ConfigMap shop/a: forbidden (and 1 more)",
			conditions: []metav1.Condition{condition(workv1.WorkApplied, no, 2, "AppliedManifestWorkFailed", "2 failed"), available},
			manifests: []workv1.ManifestCondition{
				{ResourceMeta: workv1.ManifestResourceMeta{Kind: "ConfigMap", Namespace: "shop", Name: "a"}, Conditions: []metav1.Condition{condition(workv1.ManifestApplied, no, 0, "x", "forbidden")}},
				{ResourceMeta: workv1.ManifestResourceMeta{Kind: "Namespace", Name: "shop"}, Conditions: []metav1.Condition{condition(workv1.ManifestApplied, yes, 0, "x", "")}},
				{ResourceMeta: workv1.ManifestResourceMeta{Kind: "Secret", Name: "b"}, Conditions: []metav1.Condition{condition(workv1.ManifestApplied, no, 0, "x", "refused")}},
			},
		},
		{
			name: "not applied, and no manifest says why", want: workstate.PhaseFailed, why: "2 failed",
			conditions: []metav1.Condition{condition(workv1.WorkApplied, no, 2, "AppliedManifestWorkFailed", "2 failed")},
		},
		{
			name: "degraded", want: workstate.PhaseFailed, why: "unschedulable",
			conditions: []metav1.Condition{applied, available, condition(workv1.WorkDegraded, yes, 2, "x", "unschedulable")},
		},
		{
			name: "progressing", want: workstate.PhaseProgressing, why: "1 of 3",
			conditions: []metav1.Condition{applied, available, condition(workv1.WorkProgressing, yes, 2, "x", "1 of 3")},
		},
		{name: "not available", want: workstate.PhaseProgressing, why: "gone", conditions: []metav1.Condition{applied, condition(workv1.WorkAvailable, no, 2, "x", "gone")}},
		{name: "applied only", want: workstate.PhaseProgressing, why: "not reported yet", conditions: []metav1.Condition{applied}},
		{name: "complete", want: workstate.PhaseReady, conditions: []metav1.Condition{applied, condition(workv1.WorkComplete, yes, 2, "x", "done")}},
		{name: "deleting", deleting: true, conditions: []metav1.Condition{applied, available}, want: workstate.PhaseDeleting, why: "has not answered"},
		{
			name: "deleting, with a cause", deleting: true, want: workstate.PhaseDeleting, why: "a finalizer",
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
	const (
		readyKind = workv1alpha1.ManifestWorkReplicaSetConditionReady
		verified  = workv1alpha1.ManifestWorkReplicaSetConditionPlacementVerified
		stalled   = workv1alpha1.ManifestWorkReplicaSetConditionStalled
	)
	at := func(minutes int, c metav1.Condition) metav1.Condition {
		c.LastTransitionTime = metav1.NewTime(epoch.Add(time.Duration(minutes) * time.Minute))
		return c
	}
	ready := at(1, condition(readyKind, yes, 2, workv1alpha1.ReasonComplete, "3 of 3 clusters succeeded"))
	notReady := at(1, condition(readyKind, no, 2, workv1alpha1.ReasonRollingOut, "1 of 3 clusters succeeded; waiting for c1: x"))
	progressing := at(2, condition(workv1alpha1.ManifestWorkReplicaSetConditionProgressing, yes, 2, workv1alpha1.ReasonRollingOut, "1 of 3 clusters succeeded; waiting for c1: x"))
	rolledBack := at(3, condition(workv1alpha1.ManifestWorkReplicaSetConditionRolledBack, yes, 0, "x", "back to revision 1: c1 failed"))
	all := workv1alpha1.ManifestWorkReplicaSetSummary{Total: 3, Available: 3, Applied: 3} // as the hub writes it
	one := workv1alpha1.ManifestWorkReplicaSetSummary{Total: 3, Available: 2, Degraded: 1}
	for _, c := range []struct {
		name       string
		conditions []metav1.Condition
		summary    workv1alpha1.ManifestWorkReplicaSetSummary
		paused     bool
		want       state
		since      int // minutes after epoch; 0: not known
		why        string
	}{
		{"new", nil, workv1alpha1.ManifestWorkReplicaSetSummary{}, false, workstate.PhaseProgressing, 0, "the newest generation has not been reconciled yet"},
		{"done", []metav1.Condition{progressing, ready}, all, false, workstate.PhaseReady, 1, ""},
		{"older", []metav1.Condition{condition(readyKind, yes, 1, "x", "y")}, all, false, workstate.PhaseProgressing, 0, "the newest generation has not been reconciled yet"},
		{"on its way", []metav1.Condition{progressing, notReady}, all, false, workstate.PhaseProgressing, 2, notReady.Message},
		{"Ready alone", []metav1.Condition{notReady}, all, false, workstate.PhaseProgressing, 1, notReady.Message},
		{"degraded", []metav1.Condition{progressing, notReady}, one, false, workstate.PhaseFailed, 0, notReady.Message},
		{"paused", []metav1.Condition{progressing, notReady}, all, true, workstate.PhasePaused, 0, "paused: its rollout stops where it is"},
		{"no placement", []metav1.Condition{at(4, condition(verified, no, 0, workv1alpha1.ReasonPlacementDecisionNotFound, "")), progressing, condition(readyKind, no, 2, workv1alpha1.ReasonInvalid, "Placement p does not exist")},
			all, false, workstate.PhaseFailed, 4, "Placement p does not exist"},
		{"out of reach", []metav1.Condition{at(4, condition(verified, no, 0, "x", "c1 is in no set that is bound")), progressing, notReady}, all, false, workstate.PhaseFailed, 4, "c1 is in no set that is bound"},
		{"stopped", []metav1.Condition{progressing, condition(readyKind, no, 2, workv1alpha1.ReasonStopped, "stopped: c1"), at(5, condition(stalled, yes, 2, workv1alpha1.ReasonStopped, "stopped: c1"))},
			all, false, workstate.PhaseFailed, 5, "stopped: c1"},
		{"goes back", []metav1.Condition{rolledBack, progressing, notReady}, all, false, workstate.PhaseFailed, 3, "back to revision 1: c1 failed"},
		{"went back before", []metav1.Condition{condition(workv1alpha1.ManifestWorkReplicaSetConditionRolledBack, no, 0, "x", ""), progressing, notReady}, all, false, workstate.PhaseProgressing, 2, notReady.Message},
	} {
		set := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
		set.Status.Conditions, set.Status.Summary = c.conditions, c.summary
		if c.paused {
			set.Annotations = map[string]string{workv1.PausedAnnotationKey: workv1.PausedValue}
		}
		since := time.Time{}
		if c.since != 0 {
			since = epoch.Add(time.Duration(c.since) * time.Minute)
		}
		if row := setRowOf(set); row.State != c.want || row.Why != c.why || !row.Since.Equal(since) {
			t.Errorf("%s: %s since %s, %q", c.name, row.State, row.Since, row.Why)
		}
	}
}
