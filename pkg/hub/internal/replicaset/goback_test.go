package replicaset

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
	"github.com/workwire/workwire/test/kit"
)

// TestGoBack: what a set does when its rollout fails, by its annotations and revisions. Clusters have the template "2", of
// revision 2, as new, ok or failed, and "1" as old.
func TestGoBack(t *testing.T) {
	const why = "back from revision 2 to revision 1: 1 cluster failed or timed out, more than allowed: c1"
	served := func(in *input) {
		in.own, in.set = in.set, in.set.DeepCopy()
		in.set.Spec.ManifestWorkTemplate = template("1")
		in.revisions.Served = 1
		in.set.Status.Conditions = []metav1.Condition{{
			Type: workv1alpha1.ManifestWorkReplicaSetConditionRolledBack, Status: metav1.ConditionTrue, Reason: workv1alpha1.ReasonTooManyFailures, Message: why,
		}}
	}
	deselected := func(in *input, away bool) { // c2, which has the taint of clusters that are away
		in.placements[0].object, in.placements[0].decisions = placementOf("p", []string{"c1"})
		in.cluster = func(name string) (*clusterv1.ManagedCluster, bool) {
			return managed(name, !away, tainted(clusterv1.ManagedClusterTaintUnreachable)), true
		}
		in.presence = func(cluster string) presence { return presence{away: away && cluster == "c2"} }
	}
	for name, c := range map[string]struct {
		works     string
		onFailure string
		change    func(*input)
		want      rollout.Revisions
		changes   string
		back      string // the condition RolledBack
		progress  string // the beginning of Progressing and Stopped
		stalled   bool
	}{
		"no wish": {
			works: "c1:failed c2:old", want: rollout.Revisions{Own: 2, Proven: 1}, stalled: true,
			progress: "Progressing False Stopped revision 2: 0 of 2",
		},
		"another wish": {
			works: "c1:failed c2:old", onFailure: "Explode", want: rollout.Revisions{Own: 2, Proven: 1}, stalled: true,
			back:     `False InvalidAnnotation the annotation workwire.dev/on-failure is "Explode", and means nothing: the one known value is Rollback`,
			progress: "Progressing False Stopped revision 2: 0 of 2",
		},
		"it fails": {
			works: "c1:failed c2:old", onFailure: "Rollback", want: rollout.Revisions{Own: 2, Proven: 1, Served: 1},
			back: "True TooManyFailures " + why + "; it waited for c1: failed", progress: "Progressing True RollingBack revision 2: 0 of 2",
		},
		"it fails on the last cluster": {
			works: "c1:failed c2:ok", onFailure: "Rollback", want: rollout.Revisions{Own: 2, Proven: 1, Served: 1},
			back: "True TooManyFailures " + why + "; it waited for c1: failed", progress: "Progressing True RollingBack revision 2: 1 of 2",
		},
		"nothing to go back to": {
			works: "c1:failed c2:old", onFailure: "Rollback", want: rollout.Revisions{Own: 2}, stalled: true,
			change: func(in *input) { in.revisions.Proven = 0 },
			back:   "False NoProvenRevision no earlier revision with this executor has succeeded everywhere it was",
			progress: "Progressing False Stopped revision 2: 0 of 2 clusters succeeded, 1 have the template; stopped: 1 cluster failed or timed out, more than allowed: c1; " +
				"waiting for c1: failed; it does not go back: no earlier revision with this executor has succeeded everywhere it was\n",
		},
		"its own template has succeeded before": {
			works: "c1:failed c2:old", onFailure: "Rollback", want: rollout.Revisions{Own: 2, Proven: 2}, stalled: true,
			change: func(in *input) { in.revisions.Proven = 2 },
			back:   "False NoProvenRevision revision 2 has succeeded everywhere before, so that the template is not the cause: mend the clusters or the WorkOverrides",
			progress: "Progressing False Stopped revision 2: 0 of 2 clusters succeeded, 1 have the template; stopped: 1 cluster failed or timed out, more than allowed: c1; " +
				"waiting for c1: failed; it does not go back: revision 2 has succeeded",
		},
		"its own template has succeeded before, and every cluster has it": {
			works: "c1:failed c2:ok", onFailure: "Rollback", want: rollout.Revisions{Own: 2, Proven: 2},
			change: func(in *input) { in.revisions.Proven = 2 }, progress: "Progressing True RollingOut",
		},
		"it has gone back": {
			works: "c1:ok c2:ok", onFailure: "Rollback", want: rollout.Revisions{Own: 2, Proven: 1, Served: 1}, stalled: true,
			change: func(in *input) {
				served(in)
				in.set.Spec.ManifestWorkTemplate, in.own.Spec.ManifestWorkTemplate = template("2"), template("3")
			},
			back: "True TooManyFailures " + why,
			progress: "Progressing False RolledBack revision 1: 2 of 2 clusters succeeded; " + why +
				"; give the set another template or, once the clusters are mended, have it try this one again: workctl rollout retry set -n ns",
		},
		"the template is not stored": {
			works: "c1:failed c2:old", onFailure: "Rollback", want: rollout.Revisions{Proven: 1}, stalled: true,
			change: func(in *input) { in.revisions.Own = 0 }, progress: "Progressing False Stopped revision 2: 0 of 2",
		},
		"paused": {
			works: "c1:failed c2:old", onFailure: "Rollback", want: rollout.Revisions{Own: 2, Proven: 1},
			change:   func(in *input) { in.set.Annotations[workv1.PausedAnnotationKey] = "true" },
			progress: "Progressing Unknown Paused",
		},
		"decisions are being written": {
			works: "c1:failed c2:old", onFailure: "Rollback", want: rollout.Revisions{Own: 2, Proven: 1}, stalled: true,
			change:   func(in *input) { in.placements[0].object.Status.NumberOfSelectedClusters++ },
			progress: "Progressing False Stopped revision 2: 0 of 2",
		},
		"proven": {
			works: "c1:ok c2:ok", onFailure: "Rollback", want: rollout.Revisions{Own: 2, Proven: 2}, progress: "Progressing False Complete revision 2: 2 of 2",
		},
		"proven without a wish": {
			works: "c1:ok c2:ok", want: rollout.Revisions{Own: 2, Proven: 1}, progress: "Progressing False Complete revision 2: 2 of 2",
		},
		"on the way back": {
			works: "c1:failed c2:failed", onFailure: "Rollback", change: served, want: rollout.Revisions{Own: 2, Proven: 1, Served: 1}, changes: "update c1",
			back: "True TooManyFailures " + why, progress: "Progressing True RollingBack revision 1: 0 of 2 clusters succeeded; " + why,
		},
		"on the way back, without the wish": {
			works: "c1:failed c2:failed", change: served, want: rollout.Revisions{Own: 2, Proven: 1, Served: 1}, changes: "update c1",
			back: "True TooManyFailures " + why, progress: "Progressing True RollingBack revision 1: 0 of 2 clusters succeeded; " + why,
		},
		"those that are away get it at once": {
			works: "c1:failed c2:new", onFailure: "Rollback", want: rollout.Revisions{Own: 2, Proven: 1, Served: 1}, changes: "update c1 update c2",
			change: func(in *input) {
				served(in)
				in.presence = func(cluster string) presence { return presence{away: cluster == "c2"} }
			},
			back: "True TooManyFailures " + why, progress: "Progressing True RollingBack revision 1: 0 of 2",
		},
		"those that are away and not selected any more, too": {
			works: "c1:failed c2:new", onFailure: "Rollback", want: rollout.Revisions{Own: 2, Proven: 1, Served: 1}, changes: "update c1 update c2",
			change: func(in *input) { served(in); deselected(in, true) },
			back:   "True TooManyFailures " + why, progress: "Progressing True RollingBack revision 1: 0 of 1",
		},
		"not those that have it": {
			works: "c1:failed c2:old", onFailure: "Rollback", want: rollout.Revisions{Own: 2, Proven: 1, Served: 1}, changes: "update c1",
			change: func(in *input) { served(in); deselected(in, true) },
			back:   "True TooManyFailures " + why, progress: "Progressing True RollingBack revision 1: 0 of 1",
		},
		"not those that are back, and will be selected": {
			works: "c1:failed c2:new", onFailure: "Rollback", want: rollout.Revisions{Own: 2, Proven: 1, Served: 1}, changes: "update c1",
			change: func(in *input) { served(in); deselected(in, false) },
			back:   "True TooManyFailures " + why, progress: "Progressing True RollingBack revision 1: 0 of 1",
		},
		"paused, and one is not selected any more": {
			works: "c1:failed c2:new", onFailure: "Rollback", want: rollout.Revisions{Own: 2, Proven: 1, Served: 1},
			change: func(in *input) {
				in.set.Annotations[workv1.PausedAnnotationKey] = "true"
				served(in)
				deselected(in, true)
			},
			back: "True TooManyFailures " + why, progress: "Progressing Unknown Paused",
		},
		"paused on the way back": {
			works: "c1:failed c2:failed", onFailure: "Rollback", want: rollout.Revisions{Own: 2, Proven: 1, Served: 1},
			change: func(in *input) { in.set.Annotations[workv1.PausedAnnotationKey] = "true"; served(in) },
			back:   "True TooManyFailures " + why, progress: "Progressing Unknown Paused",
		},
		"it is not stored any more": {
			works: "c1:failed c2:failed", onFailure: "Rollback", want: rollout.Revisions{Own: 2, Proven: 1, Served: 1}, stalled: true,
			change:   func(in *input) { served(in); in.missing = "revision 1 is gone" },
			progress: "Progressing False Invalid revision 1 is gone", back: "True TooManyFailures " + why,
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := newSet("p")
			set.Annotations = map[string]string{workwirev1alpha1.RevisionAnnotationKey: "2"}
			if c.onFailure != "" {
				set.Annotations[workv1alpha1.OnFailureAnnotationKey] = c.onFailure
			}
			set.Spec.PlacementRefs[0].RolloutStrategy = progressive(1, 0)
			object, decisions := placementOf("p", []string{"c1", "c2"})
			in := input{
				set: set, placements: []placement{{&set.Spec.PlacementRefs[0], object, decisions}}, works: worksOf("p", strings.Fields(c.works)...),
				workByName: noWork, presence: present, cluster: noCluster, now: start, revisions: rollout.Revisions{Own: 2, Proven: 1},
			}
			if c.change != nil {
				c.change(&in)
			}
			p := decide(in)
			if p.revisions != c.want {
				t.Errorf("revisions %+v, want %+v", p.revisions, c.want)
			}
			if got := strings.Join(describe(p.changes), " "); got != c.changes {
				t.Errorf("changes %q, want %q", got, c.changes)
			}
			back := ""
			if got := meta.FindStatusCondition(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionRolledBack); got != nil {
				back = fmt.Sprintf("%s %s %s", got.Status, got.Reason, got.Message)
			}
			if back != c.back {
				t.Errorf("\n got %s\nwant %s", back, c.back)
			}
			if got := progressText(p.status.Conditions); !strings.HasPrefix(got, c.progress) {
				t.Errorf("\n got %s\nwant %s", got, c.progress)
			}
			if got := meta.FindStatusCondition(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionStalled) != nil; got != c.stalled {
				t.Errorf("stalled %t, want %t", got, c.stalled)
			}
		})
	}
}

// TestRolledBack: a set whose rollout fails goes back in its batches, also over a restart of the hub, until somebody
// gives it another template or has it try the same one again, with a real API server.
func TestRolledBack(t *testing.T) {
	e := newEnv(t, 4)
	r := e.start()
	e.writePlacement("p", e.clusters)
	set := newSet("p")
	set.Annotations = map[string]string{
		workv1alpha1.OnFailureAnnotationKey: workv1alpha1.OnFailureRollback, workwirev1alpha1.RevisionHistoryLimitAnnotationKey: "1",
	}
	set.Spec.PlacementRefs[0].RolloutStrategy = progressive(2, 0)
	e.createSet(set)
	e.awaitTemplate("set", "2", "c01 c02")
	e.reportApplied("set", e.clusters)
	e.awaitTemplate("set", "2", "c01 c02 c03 c04")
	e.reportApplied("set", e.clusters)
	e.awaitAnnotation(workwirev1alpha1.ProvenRevisionAnnotationKey, "1")
	e.awaitIdle(r, "set")
	if written := e.awaitIdle(r, "set"); len(written) > 0 {
		t.Errorf("a set with a proven revision wrote %q", written)
	}

	// Two templates that do not get to their ends, and one that fails: the proven one is kept, beyond the limit.
	e.template("3")
	e.awaitTemplate("set", "3", "c01 c02")
	e.template("4")
	e.awaitTemplate("set", "4", "c01 c02")
	e.awaitRevisions("1:2 2:3 3:4")
	e.reportApplied("set", e.clusters[:1])
	e.awaitTemplate("set", "4", "c01 c02 c03")
	e.reportApplied("set", e.clusters[1:2], "Progressing=True", "Degraded=True")
	e.awaitEvent(r, "Warning RollingBack Rollout failed: back from revision 3 to revision 1: 1 cluster failed or timed out, more than allowed: c02")
	e.awaitAnnotation(workwirev1alpha1.ServedRevisionAnnotationKey, "1")
	e.awaitTemplate("set", "2", "c01 c02 c04")
	e.awaitTemplate("set", "4", "c03")
	e.awaitMetric(r, "workwire_hub_replicaset_sets", "rollout", map[string]float64{"stopped": 1})
	r.stop()
	r = e.start()
	e.reportApplied("set", e.clusters[:2])
	e.awaitTemplate("set", "2", "c01 c02 c03 c04")
	e.reportApplied("set", e.clusters)
	e.awaitProgress("Progressing False RolledBack revision 1: 4 of 4 clusters succeeded; back from revision 3 to revision 1: 1 cluster failed")
	e.awaitEvent(r, "Normal RolledBack revision 1: 4 of 4")
	e.awaitIdle(r, "set")
	if requests := e.awaitIdle(r, "set"); len(requests) > 0 {
		t.Errorf("a set that has gone back wrote %q", requests)
	}
	current, err := e.getSet("set")
	kit.NoError(t, err)
	own := template("4")
	if !sameSpec(&current.Spec.ManifestWorkTemplate, &own) || meta.IsStatusConditionTrue(current.Status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut) {
		t.Errorf("the set is %+v", current)
	}

	// The same template again, by hand. It fails again.
	e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) {
		delete(set.Annotations, workwirev1alpha1.ServedRevisionAnnotationKey)
	})
	e.awaitTemplate("set", "4", "c01 c02")
	e.reportApplied("set", e.clusters[:1], "Progressing=True", "Degraded=True")
	e.awaitAnnotation(workwirev1alpha1.ServedRevisionAnnotationKey, "1")
	e.awaitTemplate("set", "2", "c01 c02 c03 c04")

	// Another template.
	e.template("5")
	e.awaitTemplate("set", "5", "c01 c02")
	e.awaitAnnotation(workwirev1alpha1.ServedRevisionAnnotationKey, "")
	e.reportApplied("set", e.clusters)
	e.awaitTemplate("set", "5", "c01 c02 c03 c04")
	e.reportApplied("set", e.clusters)
	e.awaitAnnotation(workwirev1alpha1.ProvenRevisionAnnotationKey, "4")
	e.awaitProgress("Progressing False Complete revision 4: 4 of 4")

	// One whose earlier revision somebody has deleted stops.
	client := e.client.WorkwireV1alpha1().ManifestWorkReplicaSetRevisions(e.namespace)
	kit.NoError(t, client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	e.template("3")
	e.awaitTemplate("set", "3", "c01 c02")
	e.advance(time.Minute)
	e.reportApplied("set", e.clusters[:1], "Progressing=True", "Degraded=True")
	e.awaitEvent(r, "Warning NoProvenRevision no earlier revision")
	e.awaitProgress("Progressing False Stopped revision")
	if events := strings.Join(r.events.all(), "\n"); strings.Contains(events, "to revision 4") {
		t.Errorf("events: %s", events)
	}
}

// TestPausedMeanwhile: a pause that comes while the hub decides that a set goes back holds the way back, with a real API server.
func TestPausedMeanwhile(t *testing.T) {
	e := newEnv(t, 2)
	var once sync.Once
	r := e.startWith(func(next http.RoundTripper, request *http.Request) (*http.Response, error) {
		decided := false
		if strings.HasSuffix(request.URL.Path, "/manifestworkreplicasets/set/status") && request.GetBody != nil {
			body, err := request.GetBody()
			if err != nil {
				return nil, err
			}
			text, err := io.ReadAll(body)
			if err != nil {
				return nil, err
			}
			decided = strings.Contains(string(text), workv1alpha1.ReasonRollingBack)
		}
		response, err := next.RoundTrip(request)
		if decided {
			once.Do(func() {
				_, errPause := e.client.WorkV1alpha1().ManifestWorkReplicaSets(e.namespace).Patch(t.Context(), "set", types.MergePatchType,
					[]byte(`{"metadata":{"annotations":{"workwire.dev/paused":"true"}}}`), metav1.PatchOptions{})
				err = errors.Join(err, errPause)
			})
		}
		return response, err
	})
	e.writePlacement("p", e.clusters)
	set := newSet("p")
	set.Annotations = map[string]string{workv1alpha1.OnFailureAnnotationKey: workv1alpha1.OnFailureRollback}
	e.createSet(set)
	e.awaitTemplate("set", "2", "c01 c02")
	e.reportApplied("set", e.clusters)
	e.awaitAnnotation(workwirev1alpha1.ProvenRevisionAnnotationKey, "1")
	e.template("3")
	e.awaitTemplate("set", "3", "c01 c02")
	e.reportApplied("set", e.clusters[:1], "Progressing=True", "Degraded=True")
	e.awaitProgress("Progressing Unknown Paused")
	e.awaitIdle(r, "set")
	paused, err := e.getSet("set")
	kit.NoError(t, err)
	if served, has := paused.Annotations[workwirev1alpha1.ServedRevisionAnnotationKey]; has {
		t.Errorf("the paused set has gone back to revision %s", served)
	}
	e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) { delete(set.Annotations, workv1.PausedAnnotationKey) })
	e.awaitTemplate("set", "2", "c01 c02")
}

// TestExecutorOfSpec: clusters receive no revision with another executor than the set, whether somebody writes that it is
// served, or a rollout fails, with a real API server.
func TestExecutorOfSpec(t *testing.T) {
	const served, proven = workwirev1alpha1.ServedRevisionAnnotationKey, workwirev1alpha1.ProvenRevisionAnnotationKey
	e := newEnv(t, 2)
	r := e.start()
	e.writePlacement("p", e.clusters)
	set := newSet("p")
	set.Annotations = map[string]string{workv1alpha1.OnFailureAnnotationKey: workv1alpha1.OnFailureRollback}
	e.createSet(set)
	e.awaitTemplate("set", "2", "c01 c02")
	e.reportApplied("set", e.clusters)
	e.awaitAnnotation(proven, "1")
	executor := &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
		Type: workv1.ExecutorSubjectTypeServiceAccount, ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: "default", Name: "e"},
	}}
	without := func() (clusters []string) {
		for _, work := range e.works("set") {
			if work.Spec.Executor == nil {
				clusters = append(clusters, e.short(work.Namespace))
			}
		}
		return clusters
	}
	e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Spec.ManifestWorkTemplate.Executor = executor })
	e.awaitRevisions("1:2 2:?")
	kit.True(t, "all works have the executor", func() bool { return len(without()) == 0 })

	e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Annotations[served] = "1" })
	e.awaitProgress("Progressing False Invalid revision 1, which the set has gone back to, has another executor than the set; give the set")
	e.awaitIdle(r, "set")
	if clusters := without(); len(clusters) > 0 {
		t.Errorf("the works of %q have no executor", clusters)
	}

	e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) { delete(set.Annotations, served) })
	e.awaitProgress("Progressing True RollingOut revision 2")
	e.reportApplied("set", e.clusters[:1], "Progressing=True", "Degraded=True")
	e.awaitEvent(r, "Warning NoProvenRevision no earlier revision with this executor has succeeded")
	e.awaitAnnotation(proven, "")
	e.awaitAnnotation(served, "")
	e.awaitIdle(r, "set")
	if clusters := without(); len(clusters) > 0 {
		t.Errorf("the works of %q have no executor", clusters)
	}
}

// awaitAnnotation waits until the set has this annotation, or with an empty value lacks it.
func (e *env) awaitAnnotation(key, value string) {
	e.t.Helper()
	kit.Eventually(e.t, key+"="+value, func() error {
		set, err := e.getSet("set")
		if err == nil && set.Annotations[key] != value {
			err = fmt.Errorf("%v, %s", set.Annotations, progressText(set.Status.Conditions))
		}
		return err
	})
}
