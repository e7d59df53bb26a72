package replicaset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/test/kit"
)

// progressText formats the conditions Progressing and Stopped.
func progressText(conditions []metav1.Condition) string {
	var texts []string
	for _, kind := range []string{workv1alpha1.ManifestWorkReplicaSetConditionProgressing, workv1alpha1.ManifestWorkReplicaSetConditionStopped} {
		if c := meta.FindStatusCondition(conditions, kind); c != nil {
			texts = append(texts, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", c.Type, c.Status, c.Reason, c.Message)))
		}
	}
	return strings.Join(texts, "\n")
}

func pausedSet(set *workv1alpha1.ManifestWorkReplicaSet) {
	set.Annotations = map[string]string{workv1.PausedAnnotationKey: "true", workwirev1alpha1.RevisionAnnotationKey: "7"}
}

// TestProgress: the conditions Progressing and Stopped name who the rollout waits for and why, and a
// paused rollout starts no cluster.
func TestProgress(t *testing.T) {
	web := workv1.ManifestResourceMeta{Kind: "Deployment", Namespace: "default", Name: "web"}
	soaking := progressive(1, 0)
	soaking.Progressive.MinSuccessTime.Duration = time.Minute
	for name, c := range map[string]struct {
		strategy clusterv1alpha1.RolloutStrategy
		clusters []string
		works    []*workv1.ManifestWork
		change   func(*input)
		changes  string
		want     string
		stalled  bool
	}{
		"nothing yet": {
			clusters: []string{"c1", "c2"}, changes: "create c1 create c2",
			want: "Progressing True RollingOut 0 of 2 clusters succeeded",
		},
		"no clusters": {want: "Progressing False NoClusters no cluster is selected"},
		"no answer": {
			clusters: []string{"c1"}, works: worksOf("p", "c1:new"),
			want: "Progressing True RollingOut 0 of 1 clusters succeeded, 1 have the template; waiting for c1: no answer since 2026-01-02T03:04:05Z",
		},
		"an object that is not ready": {
			strategy: progressive(1, 0), clusters: []string{"c1", "c2"}, works: worksOf("p", "c1:progressing"),
			change: func(in *input) { reports(in.works[0], web, "Progressing=True Available: 0/1") },
			want: "Progressing True RollingOut 0 of 2 clusters succeeded, 1 have the template; " +
				"waiting for c1: Deployment default/web: Available: 0/1",
		},
		"away, not ready, being deleted, and one more": {
			clusters: []string{"c1", "c2", "c3", "c4"}, works: worksOf("p", "c1:new", "c2:progressing", "c3:going", "c4:new"),
			change: func(in *input) {
				in.set.Annotations = map[string]string{workwirev1alpha1.RevisionAnnotationKey: "3"}
				in.presence = func(cluster string) presence { return presence{away: cluster == "c1", since: start.Add(-time.Hour)} }
			},
			want: "Progressing True RollingOut revision 3: 0 of 4 clusters succeeded, 3 have the template; waiting for " +
				"c1: away since 2026-01-02T02:04:05Z; c2: not ready; c3: its earlier work is being deleted and 1 more",
		},
		"soaking": {
			strategy: soaking, clusters: []string{"c1", "c2"}, works: worksOf("p", "c1:ok"),
			want: "Progressing True Soaking 1 of 2 clusters succeeded; soaking (minSuccessTime): c1 until 2026-01-02T03:05:05Z",
		},
		"nobody waits for a soak": {
			strategy: soaking, clusters: []string{"c1"}, works: worksOf("p", "c1:ok"),
			want: "Progressing False Complete 1 of 1 clusters succeeded",
		},
		"stopped": {
			strategy: progressive(1, 0), clusters: []string{"c1", "c2"}, works: worksOf("p", "c1:failed"),
			change: func(in *input) { reports(in.works[0], web, "Degraded=True Progress deadline exceeded") },
			want: "Progressing False Stopped 0 of 2 clusters succeeded, 1 have the template; " +
				"stopped: 1 cluster failed or timed out, more than allowed: c1; waiting for c1: Deployment default/web: Progress deadline exceeded\n" +
				"Stopped True TooManyFailures stopped: 1 cluster failed or timed out, more than allowed: c1; " +
				"waiting for c1: Deployment default/web: Progress deadline exceeded",
			stalled: true,
		},
		"stopped before": {
			strategy: progressive(1, 0), clusters: []string{"c1"}, works: worksOf("p", "c1:ok"),
			change: func(in *input) {
				in.set.Status.Conditions = []metav1.Condition{{Type: workv1alpha1.ManifestWorkReplicaSetConditionStopped, Status: metav1.ConditionTrue},
					{Type: workv1alpha1.ManifestWorkReplicaSetConditionStalled, Status: metav1.ConditionTrue}}
			},
			want: "Progressing False Complete 1 of 1 clusters succeeded\nStopped False AsExpected",
		},
		"paused": {
			strategy: progressive(1, 0), clusters: []string{"c1", "c2", "c3"}, works: worksOf("p", "c1:ok", "c2:old"),
			change: func(in *input) { pausedSet(in.set) },
			want:   "Progressing Unknown Paused paused by the annotation workwire.dev/paused; revision 7: 1 of 3 clusters succeeded",
		},
		"paused, and a cluster leaves": {
			strategy: progressive(1, 0), clusters: []string{"c2"}, works: worksOf("p", "c1:ok", "c2:old"), changes: "delete c1 label c2",
			change: func(in *input) {
				pausedSet(in.set)
				in.set.Labels = map[string]string{"team": "till"}
			},
			want: "Progressing Unknown Paused paused by the annotation workwire.dev/paused; revision 7: 0 of 1 clusters succeeded",
		},
		"another value does not pause": {
			clusters: []string{"c1"}, changes: "create c1",
			change: func(in *input) { in.set.Annotations = map[string]string{workv1.PausedAnnotationKey: "false"} },
			want:   "Progressing True RollingOut 0 of 1 clusters succeeded",
		},
		"a wrong strategy": {
			strategy: clusterv1alpha1.RolloutStrategy{RolloutType: "Sideways"}, clusters: []string{"c1"},
			want:    `Progressing False Invalid placement p: rollout strategy: rolloutType is "Sideways": must be All, Progressive or ProgressivePerGroup`,
			stalled: true,
		},
		"no placement": {
			clusters: []string{"c1"}, change: func(in *input) { in.placements[0].object = nil },
			want: "Progressing False Invalid Placement p does not exist in namespace ns; works stay unchanged until it does",
		},
		"a cluster that is not accepted": {
			clusters: []string{"c1", "c2"}, works: worksOf("p", "c1:ok"),
			change: func(in *input) {
				in.presence = func(cluster string) presence { return presence{refused: cluster == "c2"} }
			},
			want: "Progressing True RollingOut 1 of 2 clusters succeeded; " +
				"1 clusters get nothing: the hub does not accept them, or no set with them is bound to the namespace",
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := newSet("p")
			set.Generation = 5
			set.Spec.PlacementRefs[0].RolloutStrategy = c.strategy
			var groups [][]string
			if len(c.clusters) > 0 {
				groups = append(groups, c.clusters)
			}
			object, decisions := placementOf("p", groups...)
			in := input{
				set: set, placements: []placement{{&set.Spec.PlacementRefs[0], object, decisions}}, works: c.works,
				workByName: noWork, presence: present, cluster: noCluster, now: start,
			}
			if c.change != nil {
				c.change(&in)
			}
			p := decide(in)
			if got := strings.Join(describe(p.changes), " "); got != c.changes {
				t.Errorf("changes %q, want %q", got, c.changes)
			}
			if got := progressText(p.status.Conditions); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
			progressing := meta.FindStatusCondition(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionProgressing)
			ready := meta.FindStatusCondition(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionReady)
			if want := progressing.Reason == workv1alpha1.ReasonComplete; ready == nil || (ready.Status == metav1.ConditionTrue) != want || ready.Message != progressing.Message {
				t.Errorf("%+v, want ready %v", ready, want)
			}
			if got := meta.FindStatusCondition(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionStalled); (got != nil) != c.stalled ||
				got != nil && (got.Status != metav1.ConditionTrue || got.Reason != ready.Reason || got.Message != ready.Message || got.ObservedGeneration != 5) {
				t.Errorf("%+v, want stalled %v", got, c.stalled)
			}
			if progressing.ObservedGeneration != 5 || p.status.ObservedGeneration != 5 {
				t.Errorf("observed generations %d, %d", progressing.ObservedGeneration, p.status.ObservedGeneration)
			}
		})
	}
}

// TestProgressSince: the transition time is when the reason changed, not the message.
func TestProgressSince(t *testing.T) {
	set := newSet("p")
	object, decisions := placementOf("p", []string{"c1", "c2"})
	since := func(now time.Time, works ...string) time.Time {
		p := decide(input{
			set: set, placements: []placement{{&set.Spec.PlacementRefs[0], object, decisions}}, works: worksOf("p", works...),
			workByName: noWork, presence: present, cluster: noCluster, now: now,
		})
		set.Status = p.status
		return meta.FindStatusCondition(set.Status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionProgressing).LastTransitionTime.Time
	}
	minute := func(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }
	for i, step := range []struct {
		now   int
		works []string
		want  int
	}{
		{1, []string{"c1:new"}, 1}, {2, []string{"c1:ok", "c2:new"}, 1}, {3, []string{"c1:ok", "c2:ok"}, 3}, {4, []string{"c1:ok", "c2:ok"}, 3},
		{5, []string{"c1:ok", "c2:old"}, 5},
	} {
		if got := since(minute(step.now), step.works...); !got.Equal(minute(step.want)) {
			t.Errorf("step %d: since %v, want %v", i, got, minute(step.want))
		}
	}
	pausedSet(set)
	if got := since(minute(6), "c1:ok", "c2:old"); !got.Equal(minute(6)) {
		t.Errorf("paused since %v", got)
	}
}

// TestPause pauses a rollout on its way, and resumes it, with a real API server.
func TestPause(t *testing.T) {
	e := newEnv(t, 3)
	r := e.start()
	e.writePlacement("p", e.clusters)
	set := newSet("p")
	set.Spec.PlacementRefs[0].RolloutStrategy = progressive(1, 0)
	e.createSet(set)
	e.awaitTemplate("set", "2", "c01")
	pause := func(value string) {
		e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) {
			set.Annotations[workv1.PausedAnnotationKey] = value
		})
	}
	pause("true")
	e.awaitProgress("Progressing Unknown Paused paused by the annotation workwire.dev/paused; revision 1: 0 of 3")
	e.reportApplied("set", e.clusters)
	e.awaitProgress("Progressing Unknown Paused paused by the annotation workwire.dev/paused; revision 1: 1 of 3")
	e.awaitIdle(r, "set")
	e.awaitTemplate("set", "2", "c01")
	e.awaitMetric(r, "workwire_hub_replicaset_sets", "rollout", map[string]float64{"paused": 1})
	e.awaitEvent(r, "Normal RolloutPaused Rollout paused by the annotation")

	pause("false")
	e.awaitTemplate("set", "2", "c01 c02")
	e.awaitEvent(r, "Normal RolloutResumed Rollout resumed: revision 1: 1 of 3 clusters succeeded")
	e.awaitProgress("Progressing True RollingOut revision 1: 1 of 3 clusters succeeded, 2 have the template; waiting for c02: no answer since")

	// A change of the annotation about readiness takes effect without any other change.
	key := workv1alpha1.RolloutSuccessAnnotationKey
	e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) {
		set.Annotations[key] = workv1alpha1.RolloutSuccessAvailable
	})
	kit.True(t, "no work asks for readiness", func() bool {
		return !slices.ContainsFunc(e.works("set"), func(w *workv1.ManifestWork) bool {
			return w.Annotations[workv1.ReportReadinessAnnotationKey] != "false"
		})
	})
}

// awaitProgress waits until the conditions Progressing and Stopped begin so.
func (e *env) awaitProgress(prefix string) {
	e.t.Helper()
	kit.Eventually(e.t, "progress", func() error {
		set, err := e.getSet("set")
		if err != nil {
			return err
		}
		if got := strings.ReplaceAll(progressText(set.Status.Conditions), e.namespace+"-", ""); !strings.HasPrefix(got, prefix) {
			return fmt.Errorf("\n got %s\nwant %s", got, prefix)
		}
		return nil
	})
}

// TestProgressCost: the condition Progressing costs no write of its own: whenever it changes, the rest
// of the status changes too.
func TestProgressCost(t *testing.T) {
	e := newEnv(t, 20)
	r := e.start()
	e.writePlacement("p", e.clusters)
	set := newSet("p")
	set.Spec.PlacementRefs[0].RolloutStrategy = progressive(4, 0)
	watch, err := e.client.WorkV1alpha1().ManifestWorkReplicaSets(e.namespace).Watch(t.Context(), metav1.ListOptions{})
	kit.NoError(t, err)
	defer watch.Stop()
	e.createSet(set)
	kit.Eventually(t, "the rollout is complete", func() error {
		e.reportApplied("set", e.clusters)
		current, err := e.getSet("set")
		if err != nil {
			return err
		}
		if meta.IsStatusConditionTrue(current.Status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut) {
			return nil
		}
		return fmt.Errorf("%s", progressText(current.Status.Conditions))
	})
	e.awaitIdle(r, "set")
	last, err := e.getSet("set")
	kit.NoError(t, err)
	var before *workv1alpha1.ManifestWorkReplicaSetStatus
	writes, own := 0, 0
	for event := range watch.ResultChan() {
		current := event.Object.(*workv1alpha1.ManifestWorkReplicaSet)
		if before != nil && !apiequality.Semantic.DeepEqual(before, &current.Status) {
			writes++
			if sameRest(before, &current.Status) {
				own++
				t.Logf("a write for progress: %s", progressText(current.Status.Conditions))
			}
		}
		before = &current.Status
		if current.ResourceVersion == last.ResourceVersion {
			break
		}
	}
	t.Logf("%d status writes, %d of them for the condition Progressing alone", writes, own)
	if own > 1 { // the soak or wait of a cluster may change between two others
		t.Errorf("%d of %d status writes are for the condition Progressing alone", own, writes)
	}
}

// sameRest compares statuses without Progressing, and Ready and Stalled, which say the same.
func sameRest(a, b *workv1alpha1.ManifestWorkReplicaSetStatus) bool {
	rest := func(s *workv1alpha1.ManifestWorkReplicaSetStatus) *workv1alpha1.ManifestWorkReplicaSetStatus {
		s = s.DeepCopy()
		meta.RemoveStatusCondition(&s.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionProgressing)
		meta.RemoveStatusCondition(&s.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionReady)
		meta.RemoveStatusCondition(&s.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionStalled)
		return s
	}
	return apiequality.Semantic.DeepEqual(rest(a), rest(b))
}
