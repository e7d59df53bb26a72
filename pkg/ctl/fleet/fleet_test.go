package fleet_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/pkg/workstate"
	"github.com/workwire/workwire/pkg/workstate/condition"
	"github.com/workwire/workwire/pkg/workstate/explain"
	"github.com/workwire/workwire/test/kit"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files")

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

func work(cluster, name string, m condition.Manifest) workv1.ManifestWork {
	m.Meta = workv1.ManifestResourceMeta{Group: "apps", Version: "v1", Kind: "Deployment", Resource: "deployments", Namespace: "default", Name: name}
	if m.Rules == nil {
		m.Rules = []string{workv1.ManifestProgressing}
		m.Evaluated = []metav1.Condition{{Type: workv1.ManifestProgressing, Status: metav1.ConditionFalse, Reason: workv1.ReasonConditionRuleEvaluated}}
	}
	w := workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name, Generation: 2, CreationTimestamp: ago(time.Hour)}}
	w.Status = condition.WorkStatus(condition.Input{Generation: 2, Manifests: []condition.Manifest{m}, Now: ago(10 * time.Minute)})
	at := func(d time.Duration) *metav1.MicroTime { return new(metav1.NewMicroTime(now.Add(-10*time.Minute + d))) }
	w.Status.Delivery = &workv1.DeliveryStatus{Generation: 2, AcceptedTime: at(0), PublishedTime: at(time.Millisecond), AcknowledgedTime: at(4 * time.Millisecond),
		ReceivedTime: at(3 * time.Millisecond), AppliedTime: at(40 * time.Millisecond), ReadyTime: at(2 * time.Second)}
	return w
}

func cluster(name string, accepted bool, available metav1.ConditionStatus) clusterv1.ManagedCluster {
	return clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: ago(48 * time.Hour), Annotations: map[string]string{clusterv1.LastSeenAnnotationKey: ago(time.Minute).Format(time.RFC3339)}},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: accepted},
		Status: clusterv1.ManagedClusterStatus{Conditions: []metav1.Condition{{Type: clusterv1.ManagedClusterConditionAvailable, Status: available,
			Message: "The agent of the cluster has stopped, or has lost its connection to the broker", LastTransitionTime: ago(5 * time.Minute)}}},
	}
}

func snapshot() *fleet.Snapshot {
	failed := work("cluster1", "broken", condition.Manifest{ApplyError: errors.New(`admission webhook "guard" denied the request: no`)})
	pending := work("cluster2", "late", condition.Manifest{})
	pending.Generation = 3
	pending.Status.Conditions = append(pending.Status.Conditions, metav1.Condition{Type: workv1.WorkDelivered, Status: metav1.ConditionFalse,
		Reason: workv1.ReasonClusterAway, Message: "The agent is away", ObservedGeneration: 3, LastTransitionTime: ago(5 * time.Minute)})
	set := workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "till", CreationTimestamp: ago(time.Hour)}}
	set.Status.Summary = workv1alpha1.ManifestWorkReplicaSetSummary{Total: 3, Applied: 2, Available: 2, Progressing: 1}
	set.Status.SelectedClusters = 5
	set.Status.Conditions = []metav1.Condition{{Type: "PlacementRolledOut", Status: metav1.ConditionFalse, Reason: "Progressing", Message: "waiting for cluster1: Deployment default/web: Available: 0/1"}}
	return &fleet.Snapshot{
		Time: now, ClustersKnown: true,
		Clusters: []clusterv1.ManagedCluster{cluster("cluster1", true, metav1.ConditionTrue), cluster("cluster2", true, metav1.ConditionUnknown), cluster("new", false, metav1.ConditionUnknown)},
		Works:    []workv1.ManifestWork{work("cluster1", "web", condition.Manifest{}), failed, pending},
		Sets:     []workv1alpha1.ManifestWorkReplicaSet{set},
		Presence: &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(now.Add(-time.Second)))}},
	}
}

// TestText compares what people see with golden files.
func TestText(t *testing.T) {
	s := snapshot()
	s.Works[0].Status.ResourceStatus.Manifests[0].StatusFeedbacks.Values = []workv1.FeedbackValue{
		{Name: "ReadyReplicas", Value: workv1.FieldValue{Type: workv1.Integer, Integer: new(int64(2))}},
		{Name: "ports", Value: workv1.FieldValue{Type: workv1.JsonRaw, JsonRaw: new("[80,\n443]")}},
	}
	lines := fleet.WorkLines(s)
	write := func(rows *cli.Rows) func(*bytes.Buffer) error {
		return func(out *bytes.Buffer) error { return rows.Write(out, cli.Style{}, 0) }
	}
	explained := func(i int) func(*bytes.Buffer) error {
		e := explain.Explain(workstate.Facts{Now: now, Work: &s.Works[i], Cluster: &s.Clusters[i/2]})
		return func(out *bytes.Buffer) error { return fleet.WriteExplanation(out, cli.Style{}, now, &e) }
	}
	fine := &fleet.Snapshot{Time: now, ClustersKnown: true, Clusters: s.Clusters[:1], Works: []workv1.ManifestWork{s.Works[0], work("cluster1", "unwatched", condition.Manifest{Rules: []string{}}),
		work("cluster1", "warned", condition.Manifest{Warnings: []string{`unknown field "spec.replcas"`}})}, Presence: s.Presence}
	// The hub is away, and has not seen the newest template of a set; and somebody may not list works.
	away, unread := *fine, *s
	away.Works, away.Presence, unread.Works, unread.WorksUnread = fine.Works[:1], &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(now.Add(-time.Hour)))}}, nil, true
	behind := away
	behind.Sets = []workv1alpha1.ManifestWorkReplicaSet{*s.Sets[0].DeepCopy()}
	behind.Sets[0].Generation = 2
	behind.Sets[0].Status.Conditions = []metav1.Condition{{Type: "PlacementRolledOut", Status: metav1.ConditionTrue}, {Type: "Progressing", ObservedGeneration: 1}}
	// A cluster asks to join, as the hub says it on its ManagedCluster.
	asks := *fine
	asks.Clusters = []clusterv1.ManagedCluster{s.Clusters[0], cluster("berlin", false, metav1.ConditionUnknown)}
	asks.Clusters[1].Annotations = nil
	asks.Clusters[1].Status.Conditions[0].Message = "The cluster asks to join: kubectl certificate approve $(kubectl get csr -o name -l workwire.dev/cluster=berlin)"
	for name, text := range map[string]func(*bytes.Buffer) error{
		"status-asks":     func(out *bytes.Buffer) error { return fleet.Summarize(&asks, 10).Write(out, cli.Style{}, 0) },
		"status-away":     func(out *bytes.Buffer) error { return fleet.Summarize(&away, 10).Write(out, cli.Style{}, 0) },
		"status-behind":   func(out *bytes.Buffer) error { return fleet.Summarize(&behind, 10).Write(out, cli.Style{}, 0) },
		"clusters-away":   write(fleet.ClusterTable(fleet.ClusterLines(&away, nil), now, false)),
		"clusters-unread": write(fleet.ClusterTable(fleet.ClusterLines(&unread, nil), now, false)),

		"status":         func(out *bytes.Buffer) error { return fleet.Summarize(s, 1).Write(out, cli.Style{}, 0) },
		"status-narrow":  func(out *bytes.Buffer) error { return fleet.Summarize(s, 0).Write(out, cli.Style{}, 80) },
		"status-fine":    func(out *bytes.Buffer) error { return fleet.Summarize(fine, 10).Write(out, cli.Style{}, 0) },
		"works":          write(fleet.WorkTable(lines, now, true)),
		"works-fine":     write(fleet.WorkTable(fleet.WorkLines(fine), now, false)),
		"clusters":       write(fleet.ClusterTable(fleet.ClusterLines(s, lines), now, false)),
		"sets":           write(fleet.SetTable([]fleet.SetLine{fleet.NewSetLine(&s.Sets[0])}, now, true)),
		"manifests":      write(fleet.ManifestTable(&s.Works[1])),
		"feedback":       write(fleet.FeedbackTable(&s.Works[0])),
		"explain-ready":  explained(0),
		"explain-failed": explained(1),
		"explain-away":   explained(2),
	} {
		var out bytes.Buffer
		kit.NoError(t, text(&out))
		path := filepath.Join("testdata", name+".txt")
		if *rewrite {
			kit.NoError(t, os.MkdirAll("testdata", 0o755))
			kit.NoError(t, os.WriteFile(path, out.Bytes(), 0o600))
		}
		want, err := os.ReadFile(path)
		kit.NoError(t, err)
		if diff := cmp.Diff(string(want), out.String()); diff != "" {
			t.Errorf("%s (run with -rewrite if it should be so):\n%s", name, diff)
		}
	}
}

// busy returns a snapshot of works of which some go on by themselves.
func busy() *fleet.Snapshot {
	waits := func(reason string) condition.Manifest {
		return condition.Manifest{Presence: condition.Missing, Waiting: &condition.Waiting{Reason: reason, Message: "Waits for something"}}
	}
	unready := condition.Manifest{Rules: []string{workv1.ManifestProgressing}, Evaluated: []metav1.Condition{{Type: workv1.ManifestProgressing, Status: metav1.ConditionTrue,
		Reason: workv1.ReasonConditionRuleEvaluated, Message: "Available: 0/1"}}}
	s := snapshot()
	s.Works = append(s.Works, work("cluster1", "unready", unready), work("cluster1", "staged", waits(workv1.ReasonStaged)), work("cluster1", "wave", waits(workv1.ReasonWaitsForWave)),
		work("cluster1", "flapping", condition.Manifest{Flapping: "ManifestWork sets /spec/replicas"}), work("cluster1", "hook", waits(workv1.ReasonHookFailed)))
	return s
}

// TestCounts checks that each work is in one of the counts that say how it is, and that those with warnings are the ones that the
// metrics count.
func TestCounts(t *testing.T) {
	s := busy()
	deleted := work("cluster1", "deleted", condition.Manifest{})
	deleted.DeletionTimestamp = new(ago(time.Minute))
	s.Works = append(s.Works, deleted, work("cluster1", "unwatched", condition.Manifest{Rules: []string{}}),
		work("cluster1", "warned", condition.Manifest{Warnings: []string{`unknown field "spec.replcas"`}}),
		work("cluster1", "feedback", condition.Manifest{Warnings: []string{`unknown field "spec.replcas"`}, HasFeedback: true, FeedbackError: errors.New("path .x is not found")}))
	sum := fleet.Summarize(s, 0)
	n := sum.Works
	if n.Total != 12 || n.Ready != 2 || n.NotWatched != 1 || n.Waiting != 2 || n.Staged != 1 || n.Pending != 2 || n.Failing != 4 {
		t.Errorf("%+v", n)
	}
	warned := 0
	for i := range s.Works {
		if workstate.PhaseOf(&s.Works[i]) == workstate.PhaseWarned {
			warned++
		}
	}
	if n.Warned != warned || warned != 2 {
		t.Errorf("%d works with warnings, want %d", n.Warned, warned)
	}
	failing := 0
	for _, c := range fleet.ClusterLines(s, fleet.WorkLines(s)) {
		failing += c.Failing
	}
	if failing != n.Failing {
		t.Errorf("clusters have %d failing works, want %d", failing, n.Failing)
	}
	if text := sum.Line(); !strings.Contains(text, "works 12: 2 ready, 1 with readiness not watched, 2 waiting, 1 staged, 2 pending, 4 failing (of all 10 delivered, ") {
		t.Errorf("%s", text)
	}
}

// TestAttention checks which works need attention, and their order.
func TestAttention(t *testing.T) {
	s := busy()
	for name, other := range map[string]string{"for-unready": "unready", "for-flapping": "flapping", "for-none": "none"} {
		w := work("cluster1", name, condition.Manifest{Presence: condition.Missing, Waiting: &condition.Waiting{Reason: workv1.ReasonWaitsForWork, Message: "Waits for work " + other}})
		w.Annotations = map[string]string{workv1.DependsOnAnnotationKey: other}
		s.Works = append(s.Works, w)
	}
	old := s.Works[2].DeepCopy() // its agent is away for longer than anything has failed
	old.Name = "old"
	old.Status.Conditions[len(old.Status.Conditions)-1].LastTransitionTime = ago(30 * time.Minute)
	s.Works = append(s.Works, *old)
	var names []string
	for _, l := range fleet.Summarize(s, 0).WorkProblems {
		names = append(names, l.Name)
	}
	want := []string{"broken", "flapping", "hook", "old", "late", "for-flapping", "for-none", "unready"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
}

// TestGoals checks when wait ends.
func TestGoals(t *testing.T) {
	s := snapshot()
	ready, failed, pending := &s.Works[0], &s.Works[1], &s.Works[2]
	silent := work("cluster1", "silent", condition.Manifest{Rules: []string{}})
	silent.Status.Conditions = append(silent.Status.Conditions, metav1.Condition{Type: "Warm", Status: metav1.ConditionFalse, ObservedGeneration: 2})
	gone := s.Works[0].DeepCopy() // from its cluster, and a finalizer holds it on the hub
	gone.DeletionTimestamp = new(ago(time.Minute))
	gone.Status = condition.WithDeleted(gone.Status, "cluster1", ago(time.Minute))
	for _, c := range []struct {
		goal string
		work *workv1.ManifestWork
		done bool
		want string // a part of the line or of the error
	}{
		{"ready", ready, true, "Ready"},
		{"ready", failed, false, "Blocked: Webhook, Deployment default/broken"},
		{"ready", pending, false, "AgentOff"},
		{"ready", &silent, false, "does not report readiness"},
		{"ready", nil, false, "does not exist"},
		{"ready", gone, false, ""},
		{"available", &silent, true, ""},
		{"applied", ready, true, ""},
		{"applied", failed, false, ""},
		{"applied", pending, false, ""}, // Applied is about the generation before
		{"delivered", failed, true, ""},
		{"delivered", pending, false, ""},
		{"deleted", nil, true, "deleted"},
		{"deleted", ready, false, ""},
		{"condition=Progressing=false", ready, true, ""},
		{"condition=Applied", ready, true, ""},
		{"condition=Warm", &silent, false, ""},
		{"condition=Warm=False", &silent, true, ""},
	} {
		goal, err := fleet.ParseGoal(c.goal)
		kit.NoError(t, err)
		done, line, err := goal.Reached(c.work, now)
		if err != nil {
			line = err.Error()
		}
		if done != c.done || !strings.Contains(line, c.want) {
			t.Errorf("%s: %v %q, want %v %q", c.goal, done, line, c.done, c.want)
		}
	}
	for _, text := range []string{"", "Ready", "condition=", "condition=A=", "condition=A=maybe"} {
		if _, err := fleet.ParseGoal(text); err == nil {
			t.Errorf("%q is a goal", text)
		}
	}
}

// TestSetMessage checks that the line of a set says what it waits for, whichever condition has the text.
func TestSetMessage(t *testing.T) {
	const approval = "revision 2: 1 of 3 clusters succeeded; stage main: waits for approval"
	for name, c := range map[string]struct {
		conditions []metav1.Condition
		want       string
	}{
		"waits for approval": {[]metav1.Condition{{Type: "PlacementRolledOut", Status: "False", Reason: "Progressing"}, {Type: "Progressing", Status: "True", Reason: "WaitsForApproval", Message: approval}}, approval},
		"stalled":            {[]metav1.Condition{{Type: "PlacementRolledOut", Status: "False", Reason: "Progressing"}, {Type: "Progressing", Status: "False", Reason: "OverrideFailed", Message: "rule 1 fails"}, {Type: "Stalled", Status: "True"}}, "rule 1 fails"},
		"removals held":      {[]metav1.Condition{{Type: "RemovalsHeld", Status: "True", Message: "3 of 4"}, {Type: "PlacementRolledOut", Status: "False"}, {Type: "Progressing", Status: "True", Message: "x"}}, "3 of 4; x"},
		"clusters outside":   {[]metav1.Condition{{Type: "PlacementVerified", Status: "False", Message: "2 clusters are in no set"}, {Type: "Progressing", Status: "True", Message: "1 of 3"}}, "2 clusters are in no set; 1 of 3"},
		"invalid":            {[]metav1.Condition{{Type: "PlacementVerified", Status: "False", Message: "no such group"}, {Type: "Progressing", Status: "False", Message: "no such group"}}, "no such group"},
		"no cluster":         {[]metav1.Condition{{Type: "PlacementVerified", Status: "False", Reason: "PlacementDecisionEmpty"}, {Type: "Progressing", Status: "False", Message: "no cluster is selected"}}, "no cluster is selected"},
		"no Progressing":     {[]metav1.Condition{{Type: "PlacementRolledOut", Status: "False", Reason: "Progressing"}}, "Progressing"},
		"rolled out":         {[]metav1.Condition{{Type: "PlacementRolledOut", Status: "True"}, {Type: "Progressing", Status: "False", Reason: "Complete", Message: "3 of 3 clusters succeeded"}}, ""},
		"degraded later": {[]metav1.Condition{{Type: "PlacementRolledOut", Status: "True"}, {Type: "Progressing", Status: "False", Reason: "Complete", Message: "3 of 3 clusters succeeded"},
			{Type: "ManifestworkApplied", Status: "False", Reason: "NotAsExpected", Message: "1 work is degraded"}}, "1 work is degraded"},
	} {
		set := &workv1alpha1.ManifestWorkReplicaSet{}
		set.Status.Conditions = c.conditions
		if got := fleet.NewSetLine(set).Message; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestRollout checks what rollout status prints, with and without the condition Progressing.
func TestRollout(t *testing.T) {
	const counts = "3 clusters have the template: 2 applied, 1 available, 0 progressing, 0 degraded"
	of := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: 2}
	}
	rolledOut := func(status metav1.ConditionStatus, message string) metav1.Condition {
		return metav1.Condition{Type: "PlacementRolledOut", Status: status, Message: message}
	}
	for name, c := range map[string]struct {
		conditions []metav1.Condition
		want       fleet.Rollout
	}{
		"new":         {nil, fleet.Rollout{Line: "the hub has not seen the newest template yet"}},
		"old status":  {[]metav1.Condition{rolledOut("True", ""), {Type: "Progressing", ObservedGeneration: 1}}, fleet.Rollout{Line: "the hub has not seen the newest template yet"}},
		"done":        {[]metav1.Condition{rolledOut("True", "")}, fleet.Rollout{Done: true, Line: "3 clusters have the template: 2 applied, 1 available, 0 progressing, 0 degraded"}},
		"waits":       {[]metav1.Condition{rolledOut("False", "waiting for a")}, fleet.Rollout{Line: "3 clusters have the template: 2 applied, 1 available, 0 progressing, 0 degraded; waiting for a"}},
		"stopped":     {[]metav1.Condition{rolledOut("False", "stopped: 2 clusters failed")}, fleet.Rollout{Stopped: true, Line: "3 clusters have the template: 2 applied, 1 available, 0 progressing, 0 degraded; stopped: 2 clusters failed"}},
		"progressing": {[]metav1.Condition{rolledOut("False", "x"), {Type: "Progressing", ObservedGeneration: 2, Message: "a soaks until noon"}}, fleet.Rollout{Line: "3 clusters have the template: 2 applied, 1 available, 0 progressing, 0 degraded; a soaks until noon"}},
		"stalled": {
			[]metav1.Condition{rolledOut("False", ""), of("Progressing", "False", "OverrideFailed", "overrides fail"), of("Stalled", "True", "OverrideFailed", "overrides fail")},
			fleet.Rollout{Stalled: true, Line: counts + "; overrides fail"},
		},
		"never decided": {
			[]metav1.Condition{of("Progressing", "False", "Invalid", "the name is too long"), of("Stalled", "True", "Invalid", "the name is too long")},
			fleet.Rollout{Stalled: true, Line: counts + "; the name is too long"},
		},
		"stages": {
			[]metav1.Condition{rolledOut("False", "x"), of("Staged", "False", "RollingOut", "canary: 1 of 1 clusters succeeded; complete\nall: 0 of 2 clusters succeeded; in progress")},
			fleet.Rollout{Line: counts + "; x", Stages: "  stage canary: 1 of 1 clusters succeeded; complete\n  stage all: 0 of 2 clusters succeeded; in progress\n"},
		},
		"waits for approval": {
			[]metav1.Condition{rolledOut("False", "x"), of("Progressing", "True", "WaitsForApproval", "stage all: waits for approval")},
			fleet.Rollout{Line: counts + "; stage all: waits for approval; to approve: workctl rollout approve till -n shop --stage=all --to-revision=2"},
		},
		"no plan": {
			[]metav1.Condition{rolledOut("False", "x"), of("Staged", "False", "InvalidPlan", "RolloutPlan p does not exist, and nothing starts until it does")},
			fleet.Rollout{Line: counts + "; x", Stages: "  RolloutPlan p does not exist, and nothing starts until it does\n"},
		},
		"the way back": {
			[]metav1.Condition{rolledOut("False", "x"), of("Staged", "False", "RollingBack", "the way back runs through no stages")},
			fleet.Rollout{Line: counts + "; x", Stages: "  the way back runs through no stages\n"},
		},
		"gone back": {
			[]metav1.Condition{rolledOut("False", "x"), of("Staged", "False", "RolledBack", "the way back runs through no stages")},
			fleet.Rollout{Line: counts + "; x", Stages: "  the way back runs through no stages\n"},
		},
		"the way back is paused": {
			[]metav1.Condition{rolledOut("False", "x"), of("Staged", "False", "Paused", "the way back runs through no stages")},
			fleet.Rollout{Line: counts + "; x", Stages: "  the way back runs through no stages\n"},
		},
		"stages of an invalid set": {
			[]metav1.Condition{rolledOut("False", "x"), of("Staged", "False", "Invalid", "canary: 1 of 1 clusters succeeded; complete\nother clusters: 0 of 2 clusters succeeded; in progress")},
			fleet.Rollout{Line: counts + "; x", Stages: "  stage canary: 1 of 1 clusters succeeded; complete\n  other clusters: 0 of 2 clusters succeeded; in progress\n"},
		},
		"stalled by removals": {
			[]metav1.Condition{rolledOut("False", ""), of("Progressing", "True", "RollingOut", "1 of 3"), of("Stalled", "True", "RemovalsHeld", "3 works")},
			fleet.Rollout{Line: counts + "; 1 of 3"},
		},
	} {
		set := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "till", Generation: 2,
			Annotations: map[string]string{"workwire.dev/revision": "2"}}}
		set.Status.Summary = workv1alpha1.ManifestWorkReplicaSetSummary{Total: 3, Applied: 2, Available: 1}
		set.Status.Conditions = c.conditions
		if got := fleet.RolloutOf(set); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestOne checks what is said of one.
func TestOne(t *testing.T) {
	set := &workv1alpha1.ManifestWorkReplicaSet{}
	set.Status.Summary.Total = 1
	set.Status.Conditions = []metav1.Condition{{Type: "PlacementRolledOut", Status: metav1.ConditionTrue}}
	out := bytes.NewBufferString(fleet.RolloutOf(set).Line)
	e := explain.Explanation{State: workstate.State{Blocker: &workstate.Blocker{More: 1, Others: make([]workstate.Blocker, 6)}}}
	kit.NoError(t, fleet.WriteExplanation(out, cli.Style{}, now, &e))
	for _, want := range []string{"1 cluster has the template", "with 1 more object of this work", "in 1 more way:"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s, want %q", out, want)
		}
	}
}

// BenchmarkSummarize summarizes 10,000 works.
func BenchmarkSummarize(b *testing.B) {
	s := snapshot()
	one := s.Works
	for len(s.Works) < 10000 {
		s.Works = append(s.Works, one...)
	}
	for b.Loop() {
		fleet.Summarize(s, 10)
	}
}
