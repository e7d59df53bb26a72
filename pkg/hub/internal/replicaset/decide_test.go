package replicaset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
)

// start is the time at which tests begin.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func template(value string) workv1.ManifestWorkSpec {
	return workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{
		Raw: fmt.Appendf(nil, `{"apiVersion":"v1","data":{"value":%q},"kind":"ConfigMap","metadata":{"name":"a","namespace":"default"}}`, value),
	}}}}}
}

// newSet returns the set ns/set with the template "2" and the strategy All.
func newSet(placements ...string) *workv1alpha1.ManifestWorkReplicaSet {
	set := &workv1alpha1.ManifestWorkReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "set", UID: "uid-set"},
		Spec:       workv1alpha1.ManifestWorkReplicaSetSpec{ManifestWorkTemplate: template("2")},
	}
	for _, name := range placements {
		set.Spec.PlacementRefs = append(set.Spec.PlacementRefs, workv1alpha1.LocalPlacementReference{Name: name})
	}
	return set
}

func progressive(concurrency, failures int) clusterv1alpha1.RolloutStrategy {
	return clusterv1alpha1.RolloutStrategy{RolloutType: clusterv1alpha1.Progressive, Progressive: &clusterv1alpha1.RolloutProgressive{
		MaxConcurrency: intstr.FromInt32(int32(concurrency)),
		RolloutConfig:  clusterv1alpha1.RolloutConfig{MaxFailures: intstr.FromInt32(int32(failures))},
	}}
}

func placementOf(name string, groups ...[]string) (*clusterv1beta1.Placement, []*clusterv1beta1.PlacementDecision) {
	placement := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	placement.Status.Conditions = []metav1.Condition{{
		Type: clusterv1beta1.PlacementConditionSatisfied, Status: metav1.ConditionTrue, Reason: clusterv1beta1.ReasonAllDecisionsScheduled, LastTransitionTime: metav1.NewTime(start),
	}}
	var decisions []*clusterv1beta1.PlacementDecision
	for i, clusters := range groups {
		placement.Status.NumberOfSelectedClusters += int32(len(clusters))
		placement.Status.DecisionGroups = append(placement.Status.DecisionGroups, clusterv1beta1.DecisionGroupStatus{DecisionGroupIndex: int32(i)})
		decision := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: fmt.Sprintf("%s-%d", name, i),
			Labels: map[string]string{clusterv1beta1.PlacementLabel: name, clusterv1beta1.DecisionGroupIndexLabel: fmt.Sprint(i)},
		}}
		for _, cluster := range clusters {
			decision.Status.Decisions = append(decision.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: cluster})
		}
		decisions = append(decisions, decision)
	}
	return placement, decisions
}

// worksOf returns works of ns/set for a placement from texts "cluster:state". The states are new
// (with the template), old, ok (new and succeeded), progressing, failed, and going (being deleted).
func worksOf(placement string, texts ...string) []*workv1.ManifestWork {
	var works []*workv1.ManifestWork
	for _, text := range texts {
		cluster, state, _ := strings.Cut(text, ":")
		work := newWork(newSet(), placement, cluster, "", start)
		work.UID, work.Generation = types.UID("uid-"+cluster), 1
		conditions, known := map[string][]string{
			"new": nil, "old": nil, "going": nil, "ok": {workv1.WorkApplied, workv1.WorkAvailable},
			"progressing": {workv1.WorkApplied, workv1.WorkAvailable, workv1.WorkProgressing},
			"failed":      {workv1.WorkApplied, workv1.WorkAvailable, workv1.WorkProgressing, workv1.WorkDegraded},
		}[state]
		for _, kind := range conditions {
			work.Status.Conditions = append(work.Status.Conditions, metav1.Condition{
				Type: kind, Status: metav1.ConditionTrue, ObservedGeneration: 1, LastTransitionTime: metav1.NewTime(start),
			})
		}
		switch {
		case !known:
			panic("what is " + text)
		case state == "old":
			work.Spec = template("1")
		case state == "going":
			work.DeletionTimestamp = &metav1.Time{Time: start}
		}
		works = append(works, work)
	}
	return works
}

// describe formats changes: "create c1", "update c1".
func describe(changes []change) []string {
	texts := make([]string, 0, len(changes))
	for _, c := range changes {
		texts = append(texts, string(c.action)+" "+c.work.Namespace)
	}
	slices.Sort(texts)
	return texts
}

// conditionTexts formats the conditions but those that TestProgress checks.
func conditionTexts(conditions []metav1.Condition) []string {
	texts := make([]string, 0, len(conditions))
	for _, c := range conditions {
		switch c.Type {
		case workv1alpha1.ManifestWorkReplicaSetConditionProgressing, workv1alpha1.ManifestWorkReplicaSetConditionStopped,
			workv1alpha1.ManifestWorkReplicaSetConditionReady, workv1alpha1.ManifestWorkReplicaSetConditionStalled:
			continue
		}
		texts = append(texts, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", c.Type, c.Status, c.Reason, c.Message)))
	}
	return texts
}

func noWork(types.NamespacedName) (*workv1.ManifestWork, bool) { return nil, false }
func present(string) presence                                  { return presence{} }
func noCluster(string) (*clusterv1.ManagedCluster, bool)       { return nil, false }

func TestDecide(t *testing.T) {
	type testCase struct {
		strategy   clusterv1alpha1.RolloutStrategy
		groups     [][]string // of placement p
		works      []*workv1.ManifestWork
		change     func(*input)
		changes    []string
		available  string // availableDecisionGroups of p
		conditions []string
		summary    workv1alpha1.ManifestWorkReplicaSetSummary
	}
	const (
		verified    = "PlacementVerified True AsExpected"
		progressing = "PlacementRolledOut False Progressing"
		complete    = "PlacementRolledOut True Complete"
		notYet      = "ManifestworkApplied False NotAsExpected"
		fine        = "ManifestworkApplied True AsExpected"
	)
	three := [][]string{{"c1", "c2", "c3"}}
	for name, c := range map[string]testCase{
		"nothing yet": {
			groups: three, changes: []string{"create c1", "create c2", "create c3"},
			available: "1 (0 / 3 clusters applied)", conditions: []string{verified, progressing, notYet},
		},
		"on their way": {
			groups: three, works: worksOf("p", "c1:new", "c2:new", "c3:new"),
			available: "1 (3 / 3 clusters applied)", conditions: []string{verified, progressing, notYet},
			summary: workv1alpha1.ManifestWorkReplicaSetSummary{Total: 3},
		},
		"complete": {
			groups: three, works: worksOf("p", "c1:ok", "c2:ok", "c3:ok"),
			available: "1 (3 / 3 clusters applied)", conditions: []string{verified, complete, fine},
			summary: workv1alpha1.ManifestWorkReplicaSetSummary{Total: 3, Applied: 3, Available: 3},
		},
		"a rule says progressing": {
			groups: three, works: worksOf("p", "c1:ok", "c2:progressing", "c3:ok"),
			available: "1 (3 / 3 clusters applied)", conditions: []string{verified, progressing, "ManifestworkApplied False Processing"},
			summary: workv1alpha1.ManifestWorkReplicaSetSummary{Total: 3, Applied: 3, Available: 3, Progressing: 1},
		},
		"a rule says degraded": {
			groups: three, works: worksOf("p", "c1:ok", "c2:failed", "c3:progressing"),
			available: "1 (3 / 3 clusters applied)", conditions: []string{verified, progressing, notYet},
			summary: workv1alpha1.ManifestWorkReplicaSetSummary{Total: 3, Applied: 3, Available: 3, Progressing: 2, Degraded: 1},
		},
		"a new template": {
			groups: three, works: worksOf("p", "c1:old", "c2:ok", "c3:old"),
			changes: []string{"update c1", "update c3"}, available: "1 (1 / 3 clusters applied)",
			conditions: []string{verified, progressing, fine},
			summary:    workv1alpha1.ManifestWorkReplicaSetSummary{Total: 1, Applied: 1, Available: 1},
		},
		"a few at a time": {
			strategy: progressive(2, 0), groups: [][]string{{"c4", "c3"}, {"c2", "c1"}}, works: worksOf("p", "c1:ok", "c2:new", "c4:old"),
			changes: []string{"create c3"}, available: "2 (2 / 4 clusters applied)",
			conditions: []string{verified, progressing, notYet},
			summary:    workv1alpha1.ManifestWorkReplicaSetSummary{Total: 2, Applied: 1, Available: 1},
		},
		"stopped": {
			strategy: progressive(2, 1), groups: [][]string{{"c1", "c2", "c3", "c4"}}, works: worksOf("p", "c1:failed", "c2:failed", "c3:ok"),
			available: "1 (3 / 4 clusters applied)",
			conditions: []string{
				verified, "PlacementRolledOut False Progressing stopped: 2 clusters failed or timed out, more than allowed: c1, c2", notYet,
			},
			summary: workv1alpha1.ManifestWorkReplicaSetSummary{Total: 3, Applied: 3, Available: 3, Progressing: 2, Degraded: 2},
		},
		"no clusters": {
			available: "0 (0 / 0 clusters applied)",
			conditions: []string{
				"PlacementVerified False PlacementDecisionEmpty", complete, "ManifestworkApplied False PlacementDecisionEmpty",
			},
		},
		"clusters leave": {
			groups: [][]string{{"c2"}}, works: worksOf("p", "c1:ok", "c2:ok", "c3:going"),
			changes: []string{"delete c1"}, available: "1 (1 / 1 clusters applied)", conditions: []string{verified, complete, fine},
			summary: workv1alpha1.ManifestWorkReplicaSetSummary{Total: 1, Applied: 1, Available: 1},
		},
		"a cluster comes back while its work goes": {
			groups: three, works: worksOf("p", "c1:ok", "c2:ok", "c3:going"),
			available: "1 (2 / 3 clusters applied)", conditions: []string{verified, progressing, fine},
			summary: workv1alpha1.ManifestWorkReplicaSetSummary{Total: 2, Applied: 2, Available: 2},
		},
		"placements that are gone from the set": {
			groups: three, works: append(worksOf("q", "c1:ok", "c4:old"), worksOf("p", "c1:ok", "c2:ok", "c3:ok")...),
			changes: []string{"delete c1", "delete c4"}, available: "1 (3 / 3 clusters applied)", conditions: []string{verified, complete, fine},
			summary: workv1alpha1.ManifestWorkReplicaSetSummary{Total: 3, Applied: 3, Available: 3},
		},
		"works under names of others": {
			groups: three, works: worksOf("p", "c1:old", "c2:ok", "c3:ok"),
			change: func(s *input) {
				for _, work := range s.works {
					work.Name = "set-x7k2p"
				}
			},
			changes: []string{"update c1"}, available: "1 (2 / 3 clusters applied)", conditions: []string{verified, progressing, fine},
			summary: workv1alpha1.ManifestWorkReplicaSetSummary{Total: 2, Applied: 2, Available: 2},
		},
		"two works for a cluster": {
			groups: [][]string{{"c1"}}, works: worksOf("p", "c1:ok", "c1:new"),
			change: func(s *input) {
				s.works[0].Name, s.works[1].Name = "set-a", "set-b"
				s.works[1].CreationTimestamp = metav1.NewTime(start)
			},
			changes: []string{"delete c1"}, available: "1 (1 / 1 clusters applied)", conditions: []string{verified, complete, fine},
			summary: workv1alpha1.ManifestWorkReplicaSetSummary{Total: 1, Applied: 1, Available: 1},
		},
		"two works for a cluster, of which the older is being deleted": {
			groups: [][]string{{"c1"}}, works: worksOf("p", "c1:ok", "c1:going"),
			change: func(s *input) {
				s.works[0].Name, s.works[1].Name = "set-b", "set-a"
				s.works[0].CreationTimestamp = metav1.NewTime(start)
			},
			available: "1 (1 / 1 clusters applied)", conditions: []string{verified, complete, fine},
			summary: workv1alpha1.ManifestWorkReplicaSetSummary{Total: 1, Applied: 1, Available: 1},
		},
		"a work that has lost its labels": {
			groups: [][]string{{"c1"}},
			change: func(s *input) {
				lost := worksOf("p", "c1:ok")[0]
				lost.Labels = nil
				s.workByName = func(name types.NamespacedName) (*workv1.ManifestWork, bool) {
					return lost, name == controller.KeyOf(lost)
				}
			},
			changes: []string{"label c1"}, available: "1 (1 / 1 clusters applied)", conditions: []string{verified, complete, fine},
			summary: workv1alpha1.ManifestWorkReplicaSetSummary{Total: 1, Applied: 1, Available: 1},
		},
		"new labels reach every work, also those that wait": {
			strategy: progressive(1, 0), groups: three, works: worksOf("p", "c1:old", "c2:old", "c3:ok"),
			change:  func(s *input) { s.set.Labels = map[string]string{"team": "till"} },
			changes: []string{"label c2", "label c3", "update c1"}, available: "1 (1 / 3 clusters applied)",
			conditions: []string{verified, progressing, fine},
			summary:    workv1alpha1.ManifestWorkReplicaSetSummary{Total: 1, Applied: 1, Available: 1},
		},
		"a wrong strategy": {
			strategy: clusterv1alpha1.RolloutStrategy{RolloutType: "Sideways"}, groups: three, works: worksOf("p", "c1:ok", "c2:ok", "c3:ok", "c9:ok"),
			changes: []string{"delete c9"}, available: "1 (3 / 3 clusters applied)",
			conditions: []string{
				`PlacementVerified False NotAsExpected placement p: rollout strategy: rolloutType is "Sideways": must be All, Progressive or ProgressivePerGroup`,
				progressing, fine,
			},
			summary: workv1alpha1.ManifestWorkReplicaSetSummary{Total: 3, Applied: 3, Available: 3},
		},
		"a wrong decision": {
			groups: three, works: worksOf("p", "c1:ok", "c9:ok"),
			change: func(s *input) {
				s.placements[0].decisions[0].Labels[clusterv1beta1.DecisionGroupIndexLabel] = "first"
			},
			available: "1 (0 / 3 clusters applied)",
			conditions: []string{
				`PlacementVerified False NotAsExpected placement p: decision groups: PlacementDecision ns/p-0: label ` +
					`cluster.open-cluster-management.io/decision-group-index is "first": must be the index of a group`,
				progressing, "ManifestworkApplied False PlacementDecisionEmpty",
			},
		},
		"a mandatory group that is not there": {
			strategy: clusterv1alpha1.RolloutStrategy{RolloutType: clusterv1alpha1.Progressive, Progressive: &clusterv1alpha1.RolloutProgressive{
				MandatoryDecisionGroups: clusterv1alpha1.MandatoryDecisionGroups{
					MandatoryDecisionGroups: []clusterv1alpha1.MandatoryDecisionGroup{{GroupName: "canary"}},
				},
			}},
			groups: three, available: "1 (0 / 3 clusters applied)",
			conditions: []string{
				`PlacementVerified False NotAsExpected placement p: mandatory decision group "canary" does not exist`,
				progressing, notYet,
			},
		},
		"a cluster that is not accepted": {
			groups: three, works: worksOf("p", "c1:ok", "c2:ok"),
			change: func(s *input) {
				s.presence = func(cluster string) presence { return presence{refused: cluster == "c3"} }
			},
			available: "1 (2 / 3 clusters applied)", conditions: []string{verified, progressing, fine},
			summary: workv1alpha1.ManifestWorkReplicaSetSummary{Total: 2, Applied: 2, Available: 2},
		},
		"clusters that the namespace may not reach": {
			groups: three, works: worksOf("p", "c1:ok", "c2:old"),
			change: func(s *input) {
				s.set.Labels = map[string]string{"team": "till"}
				s.presence = func(cluster string) presence { return presence{outside: cluster != "c1"} }
				s.workByName = func(name types.NamespacedName) (*workv1.ManifestWork, bool) { // a work of somebody else
					return &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}, true
				}
			},
			changes: []string{"label c1"}, available: "1 (1 / 3 clusters applied)",
			conditions: []string{
				"PlacementVerified False NotAsExpected placement p: 2 clusters are in no ManagedClusterSet that is bound to the namespace, " +
					"and their works stay unchanged: c2, c3",
				progressing, fine,
			},
			summary: workv1alpha1.ManifestWorkReplicaSetSummary{Total: 1, Applied: 1, Available: 1},
		},
		"clusters that are away do not take the places of others": {
			strategy: progressive(1, 0), groups: three, works: worksOf("p", "c1:new"),
			change: func(s *input) {
				s.presence = func(cluster string) presence { return presence{away: cluster == "c1"} }
			},
			changes: []string{"create c2"}, available: "1 (1 / 3 clusters applied)", conditions: []string{verified, progressing, notYet},
			summary: workv1alpha1.ManifestWorkReplicaSetSummary{Total: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := newSet("p")
			set.Spec.PlacementRefs[0].RolloutStrategy = c.strategy
			object, decisions := placementOf("p", c.groups...)
			s := input{
				set: set, placements: []placement{{&set.Spec.PlacementRefs[0], object, decisions}}, works: c.works,
				workByName: noWork, presence: present, cluster: noCluster, now: start,
			}
			if c.change != nil {
				c.change(&s)
			}
			p := decide(s)
			if got := describe(p.changes); !slices.Equal(got, c.changes) {
				t.Errorf("changes:\n got %q\nwant %q", got, c.changes)
			}
			if got := conditionTexts(p.status.Conditions); !slices.Equal(got, c.conditions) {
				t.Errorf("conditions:\n got %q\nwant %q", got, c.conditions)
			}
			if p.status.Summary != c.summary {
				t.Errorf("summary:\n got %+v\nwant %+v", p.status.Summary, c.summary)
			}
			want := []workv1alpha1.PlacementSummary{{Name: "p", AvailableDecisionGroups: c.available, Summary: c.summary}}
			if !slices.Equal(p.status.PlacementsSummary, want) {
				t.Errorf("placements:\n got %+v\nwant %+v", p.status.PlacementsSummary, want)
			}
		})
	}
}

// TestDecideOrder: changes are made in the order of clusters, and a work that is being deleted or not to be touched does not
// keep others from theirs. A group counts once all of its clusters have succeeded.
func TestDecideOrder(t *testing.T) {
	var all, states []string
	for i := range 30 {
		all = append(all, fmt.Sprintf("c%02d", 29-i))
		states = append(states, all[i]+[]string{":ok", ":ok", ":going"}[i%3])
	}
	set := newSet("p")
	set.Labels = map[string]string{"team": "till"}
	object, decisions := placementOf("p", all[:2], all[2:6], nil, all[6:20])
	s := input{
		set: set, placements: []placement{{&set.Spec.PlacementRefs[0], object, decisions}}, workByName: noWork, cluster: noCluster, now: start,
		works:    slices.Concat(worksOf("p", states...), worksOf("q", "c02:ok", "c01:ok", "c03:ok")),
		presence: func(cluster string) presence { return presence{outside: cluster == "c29" || cluster == "c10"} },
	}
	var got []string
	for _, c := range decide(s).changes {
		got = append(got, string(c.action)+" "+c.work.Namespace)
	}
	want := strings.Split("delete c01,delete c02,delete c03,label c11,label c13,label c14,label c16,label c17,label c19,label c20,label c22,"+
		"label c23,label c25,label c26,label c28,delete c01,delete c02,delete c04,delete c05,delete c07,delete c08", ",")
	if !slices.Equal(got, want) {
		t.Errorf("changes:\n got %q\nwant %q", got, want)
	}
	s.presence, s.works = present, worksOf("p", "c29:ok", "c28:ok", "c27:ok", "c26:ok", "c25:ok", "c24:ok", "c23:ok")
	if r := decide(s).rollouts[0]; r.filledGroups != 3 || r.succeededGroups != 2 {
		t.Errorf("%d of %d groups have succeeded", r.succeededGroups, r.filledGroups)
	}
}

// For an invalid set, decide changes only conditions: the one that says why, and that of a rollout that was complete.
func TestDecideInvalidSet(t *testing.T) {
	before := workv1alpha1.ManifestWorkReplicaSetStatus{
		Summary:           workv1alpha1.ManifestWorkReplicaSetSummary{Total: 1},
		PlacementsSummary: []workv1alpha1.PlacementSummary{{Name: "q"}},
	}
	long := strings.Repeat("x", 61)
	for name, c := range map[string]struct {
		change func(*workv1alpha1.ManifestWorkReplicaSet)
		want   string
	}{
		"no such placement": {
			func(set *workv1alpha1.ManifestWorkReplicaSet) {
				set.Spec.PlacementRefs = append(set.Spec.PlacementRefs, workv1alpha1.LocalPlacementReference{Name: "nowhere"})
			}, "PlacementVerified False PlacementDecisionNotFound",
		},
		"a name that is too long": {
			func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Name = long },
			`ManifestworkApplied False InvalidManifestWorkName <namespace>.<name> of the set is "ns.` + long + `", which is not a valid value of the label ` +
				"work.open-cluster-management.io/manifestworkreplicaset of works: must be no more than 63 bytes; give the set a shorter name",
		},
		"a placement's name that is too long": {
			func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Spec.PlacementRefs[0].Name = long + "xxx" },
			`ManifestworkApplied False InvalidManifestWorkName the name of placement "` + long + `xxx" is not a valid value of the label ` +
				"work.open-cluster-management.io/placementname of works: must be no more than 63 bytes; give the placement a shorter name",
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := newSet("p")
			c.change(set)
			set.Status = before
			s := input{set: set, works: worksOf("p", "c1:old", "c2:new"), workByName: noWork, presence: present, cluster: noCluster, now: start}
			object, decisions := placementOf("p", []string{"c1"})
			s.placements = append(s.placements, placement{&set.Spec.PlacementRefs[0], object, decisions})
			if len(set.Spec.PlacementRefs) > 1 {
				s.placements = append(s.placements, placement{ref: &set.Spec.PlacementRefs[1]})
			}
			p := decide(s)
			if len(p.changes) > 0 || p.invalid == "" {
				t.Errorf("changes %q, invalid %q", describe(p.changes), p.invalid)
			}
			if !meta.IsStatusConditionFalse(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionReady) {
				t.Errorf("it is ready: %+v", p.status.Conditions)
			}
			if got := conditionTexts(p.status.Conditions); !slices.Equal(got, []string{c.want}) {
				t.Errorf("conditions:\n got %q\nwant %q", got, c.want)
			}
			set.Status.Conditions = []metav1.Condition{rolledOut(true, "")}
			again := decide(s)
			if c := meta.FindStatusCondition(again.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut); c.Status != metav1.ConditionFalse || c.Message != p.invalid {
				t.Errorf("once it was complete: %+v", c)
			}
			if p.status.Summary != before.Summary || !slices.Equal(p.status.PlacementsSummary, before.PlacementsSummary) {
				t.Errorf("the rest of the status has changed: %+v", p.status)
			}
		})
	}
}

// While the decisions of a placement are being written, no cluster starts: a later group may exist
// before the first one.
func TestDecideHalfWritten(t *testing.T) {
	set := newSet("p")
	set.Spec.PlacementRefs[0].RolloutStrategy.RolloutType = clusterv1alpha1.ProgressivePerGroup
	object, decisions := placementOf("p", []string{"c1"}, []string{"c2"})
	for name, c := range map[string]struct {
		selected  int32
		decisions []*clusterv1beta1.PlacementDecision
		want      []string
	}{
		"only the second group":                {0, decisions[1:], nil},
		"all decisions, the status is to come": {0, decisions, nil},
		"a decision is missing":                {2, decisions[1:], nil},
		"all is written":                       {2, decisions, []string{"create c1"}},
	} {
		t.Run(name, func(t *testing.T) {
			half := object.DeepCopy()
			half.Status.NumberOfSelectedClusters = c.selected
			p := decide(input{
				set: set, placements: []placement{{&set.Spec.PlacementRefs[0], half, c.decisions}}, workByName: noWork, presence: present, cluster: noCluster, now: start,
			})
			if got := describe(p.changes); !slices.Equal(got, c.want) {
				t.Errorf("changes %q, want %q", got, c.want)
			}
		})
	}
}

// A cluster that two placements selected gets a work from each.
func TestDecideOverlap(t *testing.T) {
	set := newSet("p", "q")
	var s input
	for i, name := range []string{"p", "q"} {
		object, decisions := placementOf(name, []string{"c1", "c2"})
		s.placements = append(s.placements, placement{&set.Spec.PlacementRefs[i], object, decisions})
	}
	s.set, s.workByName, s.presence, s.cluster, s.now = set, noWork, present, noCluster, start
	s.works = slices.Concat(worksOf("p", "c1:failed", "c2:ok"), worksOf("q", "c1:ok"))
	set.Spec.PlacementRefs[0].RolloutStrategy = progressive(1, 0)
	p := decide(s)
	if got := describe(p.changes); !slices.Equal(got, []string{"create c2"}) || p.changes[0].work.Name != workv1alpha1.WorkName(controller.KeyOf(set), "q") {
		t.Errorf("changes: %q", got)
	}
	if want := (workv1alpha1.ManifestWorkReplicaSetSummary{Total: 3, Applied: 3, Available: 3, Progressing: 1, Degraded: 1}); p.status.Summary != want {
		t.Errorf("summary: %+v", p.status.Summary)
	}
	// Both placements are stopped.
	set.Spec.PlacementRefs[1].RolloutStrategy = progressive(1, 0)
	s.works = slices.Concat(worksOf("p", "c1:failed"), worksOf("q", "c2:failed"))
	p = decide(s)
	want := "PlacementRolledOut False Progressing stopped in placement p: 1 cluster failed or timed out, more than allowed: c1; " +
		"stopped in placement q: 1 cluster failed or timed out, more than allowed: c2"
	if got := conditionTexts(p.status.Conditions)[1]; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// decide returns the time at which the rollout continues, and conditions keep their transition time
// while their status stays.
func TestDecideTimes(t *testing.T) {
	set := newSet("p")
	strategy := progressive(1, 0)
	strategy.Progressive.MinSuccessTime = metav1.Duration{Duration: time.Minute}
	set.Spec.PlacementRefs[0].RolloutStrategy = strategy
	object, decisions := placementOf("p", []string{"c1", "c2"})
	s := input{
		set: set, placements: []placement{{&set.Spec.PlacementRefs[0], object, decisions}}, works: worksOf("p", "c1:ok"),
		workByName: noWork, presence: present, cluster: noCluster, now: start.Add(time.Second),
	}
	p := decide(s)
	if len(p.changes) > 0 || !p.requeueAt.Equal(start.Add(time.Minute)) {
		t.Errorf("changes %q, requeue at %s", describe(p.changes), p.requeueAt)
	}
	set.Status = p.status
	s.now, s.works = start.Add(time.Minute), worksOf("p", "c1:ok", "c2:ok")
	p = decide(s)
	for i, want := range []time.Time{start.Add(time.Second), s.now, start.Add(time.Second)} {
		if c := p.status.Conditions[i]; !c.LastTransitionTime.Time.Equal(want) {
			t.Errorf("%s since %s, want %s", c.Type, c.LastTransitionTime, want)
		}
	}
}

// A status is written if it has changed, not for fields that a definition of Open Cluster Management drops.
func TestSameStatus(t *testing.T) {
	type status = workv1alpha1.ManifestWorkReplicaSetStatus
	wanted := status{SelectedClusters: 2, ObservedGeneration: 3, Summary: workv1alpha1.ManifestWorkReplicaSetSummary{Total: 2}}
	for name, c := range map[string]struct {
		change func(*status)
		want   bool
	}{
		"as wanted":              {change: func(*status) {}, want: true},
		"both dropped":           {change: func(s *status) { s.SelectedClusters, s.ObservedGeneration = 0, 0 }, want: true},
		"one dropped":            {change: func(s *status) { s.ObservedGeneration = 0 }, want: true},
		"of an older generation": {change: func(s *status) { s.ObservedGeneration = 2 }},
		"other clusters":         {change: func(s *status) { s.SelectedClusters = 1 }},
		"dropped, and another":   {change: func(s *status) { s.SelectedClusters, s.ObservedGeneration, s.Summary.Total = 0, 0, 1 }},
		"none":                   {change: func(s *status) { *s = status{} }},
	} {
		stored := wanted
		if c.change(&stored); sameStatus(&stored, &wanted) != c.want {
			t.Errorf("%s: want %v", name, c.want)
		}
	}
}

func TestNames(t *testing.T) {
	if got := joinNames([]string{"a", "b"}); got != "a, b" {
		t.Error(got)
	}
	var many []string
	for i := range 25 {
		many = append(many, fmt.Sprintf("c%02d", i))
	}
	if got := joinNames(many); !strings.HasSuffix(got, "c18, c19 and 5 more") {
		t.Error(got)
	}
}
