package replicaset

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
	"github.com/workwire/workwire/pkg/hub/internal/worktest"
	"github.com/workwire/workwire/pkg/security/audit"
	"github.com/workwire/workwire/test/kit"
)

func newPlan(t *testing.T, text string) *workwirev1alpha1.RolloutPlan {
	t.Helper()
	plan := &workwirev1alpha1.RolloutPlan{ObjectMeta: metav1.ObjectMeta{Name: "plan"}}
	kit.NoError(t, yaml.UnmarshalStrict([]byte(text), &plan.Spec))
	return plan
}

// stagingOf returns the staging by a plan in YAML; by one that does not exist if it is empty.
func stagingOf(t *testing.T, text string) *staging {
	t.Helper()
	tester, err := worktest.NewCompiler()
	kit.NoError(t, err)
	var plan *workwirev1alpha1.RolloutPlan
	if text != "" {
		plan = newPlan(t, text)
	}
	g := newStaging(planVersion{name: "plan"}, plan, tester)
	g.testUntil = time.Now().Add(time.Hour)
	return g
}

func approvalsText(t *testing.T, list ...workwirev1alpha1.Approval) string {
	t.Helper()
	text, err := json.Marshal(list)
	kit.NoError(t, err)
	return string(text)
}

// TestDecideStaged: what a set with a plan does and says. Cluster c1 has the label stage=canary; clusters have the template "2",
// of revision 2, as new, ok or failed, and "1" as old.
func TestDecideStaged(t *testing.T) {
	const stages = `stages:
- {name: canary, clusterSelector: {matchLabels: {stage: canary}}, soak: 10m}
- {name: all, approval: Required}
`
	const tested = `stages:
- name: canary
  clusterSelector: {matchLabels: {stage: canary}}
  tests: [{name: calm, expression: 'conditions[?"Degraded"].orValue("False") == "False"'}, {name: smoke, expression: 'conditions.Smoke == "True"', timeout: 5m}]
`
	for name, c := range map[string]struct {
		plan    string
		works   string
		after   time.Duration // since clusters have succeeded
		change  func(*input)
		changes string
		want    string // Progressing
		staged  string
		stalled bool
		failed  string // the condition with reason TestFailed
		acted   int
		requeue time.Duration
		proven  int64 // the revision, 1 by default
	}{
		"the canary": {
			plan: stages, works: "c1:old c2:old", changes: "update c1", want: "True RollingOut revision 2: 0 of 2 clusters succeeded",
			staged: "False RollingOut canary: 0 of 1 clusters succeeded; in progress\nall: 0 of 1 clusters succeeded; waits for stage canary",
		},
		"it soaks": {
			plan: stages, works: "c1:ok c2:old", after: time.Minute, requeue: 9 * time.Minute,
			want:   "True Soaking revision 2: 1 of 2 clusters succeeded; stage canary: soaks until 2026-01-02T03:14:05Z",
			staged: "False Soaking canary: 1 of 1 clusters succeeded; soaks until 2026-01-02T03:14:05Z\nall: 0 of 1 clusters succeeded; waits for stage canary",
		},
		"it waits": {
			plan: stages, works: "c1:ok c2:old", after: time.Hour,
			want:   "True WaitsForApproval revision 2: 1 of 2 clusters succeeded; stage all: waits for approval",
			staged: "False WaitsForApproval canary: 1 of 1 clusters succeeded; complete\nall: 0 of 1 clusters succeeded; waits for approval",
		},
		"an approval of another revision": {
			plan: stages, works: "c1:ok c2:old", after: time.Hour, want: "True WaitsForApproval revision 2: 1 of 2 clusters succeeded; stage all: waits for approval",
			change: func(in *input) {
				in.set.Annotations[workwirev1alpha1.ApprovalsAnnotationKey] = approvalsText(t, workwirev1alpha1.Approval{Revision: 1, Stage: "all"})
			},
		},
		"a template that has no number": {
			plan: stages, works: "c1:ok c2:old", after: time.Hour, want: "True WaitsForApproval revision 2: 1 of 2 clusters succeeded; stage all: waits for approval",
			change: func(in *input) {
				in.set.Annotations[workwirev1alpha1.ApprovalsAnnotationKey] = approvalsText(t, workwirev1alpha1.Approval{Stage: "all"})
				in.revisions.Own = 0
			},
		},
		"approvals that nobody can read": {
			plan: stages, works: "c1:ok c2:old", after: time.Hour,
			want:   "True WaitsForApproval revision 2: 1 of 2 clusters succeeded; stage all: waits for approval: annotation workwire.dev/approvals: invalid character 'y'",
			change: func(in *input) { in.set.Annotations[workwirev1alpha1.ApprovalsAnnotationKey] = "yes" },
		},
		"approved": {
			plan: stages, works: "c1:ok c2:old", after: time.Hour, changes: "update c2", acted: 1, want: "True RollingOut revision 2: 1 of 2 clusters succeeded",
			change: approve(t),
		},
		"approved and paused": {
			plan: stages, works: "c1:ok c2:old", after: time.Hour, want: "Unknown Paused",
			staged: "False Paused canary: 1 of 1 clusters succeeded; complete\nall: 0 of 1 clusters succeeded; paused",
			change: func(in *input) {
				approve(t)(in)
				in.set.Annotations[workv1.PausedAnnotationKey] = "true"
			},
		},
		"paused while it applies": {
			plan: stages, works: "c1:new c2:old", want: "Unknown Paused", change: func(in *input) { in.set.Annotations[workv1.PausedAnnotationKey] = "true" },
			staged: "False Paused canary: 0 of 1 clusters succeeded, 1 have the template; in progress\nall: 0 of 1 clusters succeeded; waits for stage canary",
		},
		"paused and complete": {
			plan: stages, works: "c1:ok c2:ok", after: time.Hour, want: "Unknown Paused", change: func(in *input) { in.set.Annotations[workv1.PausedAnnotationKey] = "true" },
			staged: "True Complete canary: 1 of 1 clusters succeeded; complete\nall: 1 of 1 clusters succeeded; complete",
		},
		"it waits for its preview": {
			plan: stages, works: "c1:old c2:old", want: "Unknown WaitsForPreview",
			change: func(in *input) { in.set.Annotations[workv1alpha1.PreviewAnnotationKey] = workv1alpha1.PreviewRequired },
			staged: "False WaitsForPreview canary: 0 of 1 clusters succeeded; waits for its preview\nall: 0 of 1 clusters succeeded; waits for stage canary",
		},
		"decisions are being written": {
			plan: stages, works: "c1:ok c2:old", after: time.Hour, want: "True RollingOut",
			change: func(in *input) {
				approve(t)(in)
				in.placements[0].object.Status.NumberOfSelectedClusters++
			},
		},
		"complete": {
			plan: stages, works: "c1:ok c2:ok", after: time.Hour, change: approve(t), want: "False Complete revision 2: 2 of 2 clusters succeeded",
			staged: "True Complete canary: 1 of 1 clusters succeeded; complete\nall: 1 of 1 clusters succeeded; complete",
		},
		"complete, and proven": {
			plan: stages, works: "c1:ok c2:ok", after: time.Hour, want: "False Complete", proven: 2, change: func(in *input) {
				approve(t)(in)
				rollback(in)
			},
		},
		"complete, and the last stage soaks": {
			plan: `stages: [{name: all, soak: 10m}]`, works: "c1:ok c2:ok", after: time.Minute, want: "False Complete", requeue: 9 * time.Minute,
			staged: "False Soaking all: 2 of 2 clusters succeeded; soaks until 2026-01-02T03:14:05Z",
		},
		"the way back": {
			plan: stages, works: "c1:old c2:new", changes: "update c2", want: "True RollingBack",
			staged: "False RollingBack the way back to an earlier template runs through no stages, windows and freezes",
			change: func(in *input) {
				in.own, in.set = in.set, in.set.DeepCopy()
				in.set.Spec.ManifestWorkTemplate = template("1")
				in.revisions.Served = 1
			},
		},
		"no plan": {
			works: "c1:ok c2:old", stalled: true, want: "False InvalidPlan revision 2: 1 of 2 clusters succeeded; RolloutPlan plan does not exist, and nothing starts until it does",
			staged: "False InvalidPlan RolloutPlan plan does not exist, and nothing starts until it does",
		},
		"no plan, and nothing to do": {
			works: "c1:ok c2:ok", want: "False Complete", staged: "False InvalidPlan RolloutPlan plan does not exist, and nothing starts until it does", change: rollback,
		},
		"a plan that is wrong": {
			plan: `{stages: [{name: a, tests: [{name: t, expression: "1"}]}, {name: preview}]}`, works: "c1:old c2:old", stalled: true,
			staged: `False InvalidPlan RolloutPlan plan is invalid, and nothing starts: stages[1] preview: name is "preview": must not be empty, and not preview; ` +
				"stage a: test t: it does not return a bool",
			want: "False InvalidPlan",
		},
		"a placement that is wrong": {
			plan: stages, works: "c1:old c2:old", stalled: true, want: "False Invalid", staged: `False Invalid nothing starts: placement p: rollout strategy: rolloutType is "Sideways": must be All, Progressive or ProgressivePerGroup`,
			change: func(in *input) { in.set.Spec.PlacementRefs[0].RolloutStrategy.RolloutType = "Sideways" },
		},
		"a placement that does not exist": {
			plan: stages, works: "c1:ok c2:ok", want: "False Invalid",
			staged: "False Invalid nothing starts: Placement p does not exist in namespace ns; works stay unchanged until it does",
			change: func(in *input) { in.placements[0].object = nil },
		},
		"a set that is wrong": {
			plan: stages, works: "c1:ok c2:ok", stalled: true, want: "False Invalid",
			staged: `False Invalid nothing starts: the name of placement "` + strings.Repeat("p", 64) + `" is not a valid value of the label ` + workv1.PlacementNameLabelKey + " of works: must be no more than 63 bytes; give the placement a shorter name",
			change: func(in *input) { in.set.Spec.PlacementRefs[0].Name = strings.Repeat("p", 64) },
		},
		"stopped": {
			plan: stages, works: "c1:failed c2:old", stalled: true, want: "False Stopped",
			staged: "False Stopped canary: 0 of 1 clusters succeeded, 1 have the template; stopped\nall: 0 of 1 clusters succeeded; waits for stage canary",
		},
		"stopped and paused": {
			plan: stages, works: "c1:failed c2:old", want: "Unknown Paused", change: func(in *input) { in.set.Annotations[workv1.PausedAnnotationKey] = "true" },
			staged: "False Paused canary: 0 of 1 clusters succeeded, 1 have the template; stopped\nall: 0 of 1 clusters succeeded; waits for stage canary",
		},
		"failed, and nobody waits": {
			plan: stages, works: "c1:failed c2:ok", want: "True RollingOut",
			staged: "False RollingOut canary: 0 of 1 clusters succeeded, 1 have the template; in progress\nall: 1 of 1 clusters succeeded; complete",
		},
		"tests are not true": {
			plan: tested, works: "c1:ok c2:old", after: time.Minute, requeue: 4 * time.Minute,
			want:   "True RollingOut revision 2: 0 of 2 clusters succeeded, 1 have the template; waiting for c1: test smoke: no such key: Smoke",
			staged: "False RollingOut canary: 0 of 1 clusters succeeded, 1 have the template; in progress\nother clusters: 0 of 1 clusters succeeded; waits for stage canary",
		},
		"tests have failed": {
			plan: tested, works: "c1:ok c2:old", after: 5 * time.Minute, stalled: true, failed: "Stopped",
			want: "False Stopped revision 2: 0 of 2 clusters succeeded, 1 have the template; stopped: 1 cluster failed or timed out, more than allowed: c1; test smoke failed on 1 clusters; " +
				"waiting for c1: test smoke: no such key: Smoke, 5m0s after the cluster had succeeded",
		},
		"tests have failed, and the set goes back": {
			plan: tested, works: "c1:ok c2:old", after: 5 * time.Minute, want: "True RollingBack", failed: "RolledBack", change: rollback,
		},
		"tests of a cluster that was away": {
			plan: tested, works: "c1:ok c2:old", after: time.Hour, requeue: 4 * time.Minute, want: "True RollingOut",
			change: func(in *input) {
				in.works[0].Status.Conditions = append(in.works[0].Status.Conditions, metav1.Condition{
					Type: workv1.WorkDelivered, Status: metav1.ConditionTrue, ObservedGeneration: 1, LastTransitionTime: metav1.NewTime(start.Add(59 * time.Minute)),
				})
			},
		},
		"tests are true": {
			plan: tested, works: "c1:ok c2:old", after: 5 * time.Minute, changes: "update c2", want: "True RollingOut revision 2: 1 of 2 clusters succeeded",
			change: func(in *input) {
				in.works[0].Status.Conditions = append(in.works[0].Status.Conditions, metav1.Condition{Type: "Smoke", Status: metav1.ConditionTrue, ObservedGeneration: 1})
			},
		},
		"there is no time to test": {
			plan: tested, works: "c1:ok c2:old", after: 5 * time.Minute, requeue: interval, want: "True RollingOut revision 2: 0 of 2 clusters succeeded, 1 have the template; waiting for c1: its tests have yet to run",
			change: func(in *input) { in.staging.testUntil = time.Time{} },
		},
		"a window": {
			plan: `windows: [{schedule: "0 22 * * *", duration: 1h, timeZoneClaim: zone}]`, works: "c1:old c2:old", changes: "update c2",
			want: "True RollingOut", requeue: 55*time.Minute + 55*time.Second, // it is 22:04 where c2 is
		},
		"a window of others": {
			plan: `windows: [{schedule: "0 22 * * *", duration: 1h, timeZoneClaim: zone}]`, works: "c1:old c2:ok",
			want: "True OutsideWindow revision 2: 1 of 2 clusters succeeded; other clusters: the windows of 1 clusters do not open",
		},
		"a freeze": {
			plan: `freezes: [{from: "2026-01-01T00:00:00Z", to: "2026-01-05T00:00:00Z", reason: holidays}]`, works: "c1:old c2:old",
			want: "True Frozen revision 2: 0 of 2 clusters succeeded; frozen until 2026-01-05T00:00:00Z: holidays", requeue: 68*time.Hour + 55*time.Minute + 55*time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := newSet("p")
			set.Annotations = map[string]string{workwirev1alpha1.RevisionAnnotationKey: "2"}
			object, decisions := placementOf("p", []string{"c1", "c2"})
			in := input{
				set: set, placements: []placement{{ref: &set.Spec.PlacementRefs[0], object: object, decisions: decisions}}, works: worksOf("p", strings.Fields(c.works)...),
				workByName: noWork, presence: present, now: start.Add(c.after), revisions: rollout.Revisions{Own: 2, Proven: 1}, staging: stagingOf(t, c.plan),
				cluster: func(name string) (*clusterv1.ManagedCluster, bool) {
					cluster := &clusterv1.ManagedCluster{}
					if name == "c1" {
						cluster.Labels = map[string]string{"stage": "canary"}
					} else {
						cluster.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: "zone", Value: "America/Lima"}} // five hours behind
					}
					return cluster, true
				},
			}
			if c.change != nil {
				c.change(&in)
			}
			p := decide(in)
			if got := strings.Join(describe(p.changes), " "); got != c.changes {
				t.Errorf("changes %q, want %q", got, c.changes)
			}
			text := func(kind string) string {
				condition := meta.FindStatusCondition(p.status.Conditions, kind)
				return fmt.Sprintf("%s %s %s", condition.Status, condition.Reason, condition.Message)
			}
			if got := text(workv1alpha1.ManifestWorkReplicaSetConditionProgressing); !strings.HasPrefix(got, c.want) {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
			if got := text(workv1alpha1.ManifestWorkReplicaSetConditionStaged); c.staged != "" && got != c.staged {
				t.Errorf("\n got %s\nwant %s", got, c.staged)
			}
			if got := meta.FindStatusCondition(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionStalled) != nil; got != c.stalled {
				t.Errorf("stalled %t", got)
			}
			for _, kind := range []string{workv1alpha1.ManifestWorkReplicaSetConditionStopped, workv1alpha1.ManifestWorkReplicaSetConditionRolledBack} {
				condition := meta.FindStatusCondition(p.status.Conditions, kind)
				if got := condition != nil && condition.Reason == workv1alpha1.ReasonTestFailed; got != (kind == c.failed) {
					t.Errorf("%s: %v", kind, condition)
				}
			}
			if len(p.acted) != c.acted {
				t.Errorf("acts on %v", p.acted)
			}
			if want := max(1, c.proven); p.revisions.Proven != want {
				t.Errorf("revision %d is proven, want %d", p.revisions.Proven, want)
			}
			var requeue time.Duration
			if !p.requeueAt.IsZero() {
				requeue = p.requeueAt.Sub(in.now)
			}
			if requeue != c.requeue {
				t.Errorf("again after %s, want %s", requeue, c.requeue)
			}
			in.set.Status, in.staging = p.status, nil
			if p := decide(in); meta.FindStatusCondition(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionStaged) != nil {
				t.Error("without a plan the condition stays")
			}
		})
	}
}

func rollback(in *input) {
	in.set.Annotations[workv1alpha1.OnFailureAnnotationKey] = workv1alpha1.OnFailureRollback
}

// approve approves the stage all of revision 2.
func approve(t *testing.T) func(*input) {
	return func(in *input) {
		in.set.Annotations[workwirev1alpha1.ApprovalsAnnotationKey] = approvalsText(t, workwirev1alpha1.Approval{Revision: 2, Stage: "all", By: "alice"})
	}
}

// TestTestsAreRemembered: a work is tested again when it has changed, and results of others are forgotten.
func TestTestsAreRemembered(t *testing.T) {
	g := stagingOf(t, `stages: [{name: a, tests: [{name: t, expression: 'conditions.Ok == "True"'}]}]`)
	work := worksOf("p", "c1:ok")[0]
	work.ResourceVersion = "1"
	if failures, ran := g.run(work, 0); !ran || len(failures) != 1 {
		t.Errorf("%v, %t", failures, ran)
	}
	g.testUntil = time.Time{} // no time
	if _, ran := g.run(work, 0); !ran {
		t.Error("it is tested again")
	}
	work.ResourceVersion = "2"
	if _, ran := g.run(work, 0); ran {
		t.Error("it is not tested again")
	}
	if _, ran := g.run(work, 1); !ran {
		t.Error("there are no tests in the last stage")
	}
	for i := range 20 {
		g.results[types.NamespacedName{Name: fmt.Sprint(i)}] = nil
	}
	g.forget(1)
	if len(g.results) != 0 {
		t.Errorf("%d results", len(g.results))
	}
}

func (e *env) createPlan(text string) {
	e.t.Helper()
	_, err := e.client.WorkwireV1alpha1().RolloutPlans(e.namespace).Create(e.t.Context(), newPlan(e.t, text), metav1.CreateOptions{})
	kit.NoError(e.t, err)
}

func (e *env) updatePlan(text string) {
	e.t.Helper()
	client := e.client.WorkwireV1alpha1().RolloutPlans(e.namespace)
	plan, err := client.Get(e.t.Context(), "plan", metav1.GetOptions{})
	kit.NoError(e.t, err)
	plan.Spec = newPlan(e.t, text).Spec
	_, err = client.Update(e.t.Context(), plan, metav1.UpdateOptions{})
	kit.NoError(e.t, err)
}

// TestStaged rolls out by a plan: its absence, canary, soak time, tests, an approval, a window, a freeze, and over a restart of
// the hub, with a real API server.
func TestStaged(t *testing.T) {
	e := newEnv(t, 3)
	e.createClusters()
	path := filepath.Join(t.TempDir(), "audit.log")
	log, err := audit.Open(audit.Config{Path: path, Program: "work-hub", Logger: kit.Logger(t)})
	kit.NoError(t, err)
	r := e.startAudited(log)
	e.writePlacement("p", e.clusters)
	set := newSet("p")
	set.Annotations = map[string]string{workv1alpha1.RolloutPlanAnnotationKey: "plan"}
	e.createSet(set)
	e.awaitProgress("Progressing False InvalidPlan revision 1: 0 of 3 clusters succeeded; RolloutPlan plan does not exist")
	if works := e.works("set"); len(works) > 0 {
		t.Fatalf("%d works without a plan", len(works))
	}

	const stages = `stages:
- name: canary
  clusterSelector: {matchLabels: {value: c02}}
  soak: 10m
  tests: [{name: smoke, expression: 'manifests.exists(m, m.feedback[?"ok"].orValue(false))', timeout: 1h}]
- {name: others, approval: Required}
`
	e.createPlan(stages)
	e.awaitTemplate("set", "2", "c02")
	e.reportApplied("set", e.clusters)
	e.awaitProgress("Progressing True RollingOut revision 1: 0 of 3 clusters succeeded, 1 have the template; waiting for c02: test smoke: not true")
	e.feedBack("set", "ok") // nothing but the feedback changes
	e.awaitProgress("Progressing True Soaking revision 1: 1 of 3")
	e.awaitIdle(r, "set")
	if got := e.clustersWith("set", "2"); got != "c02" {
		t.Errorf("while it soaks, %q have it", got)
	}
	e.advance(10 * time.Minute)
	r.requeue(e, "set") // as its requeue time has come
	e.awaitProgress("Progressing True WaitsForApproval revision 1: 1 of 3 clusters succeeded; stage others: waits for approval")
	r.stop()
	var statuses, works atomic.Int32 // so many writes fail
	r = e.startWith(func(next http.RoundTripper, request *http.Request) (*http.Response, error) {
		if strings.HasSuffix(request.URL.Path, "/set/status") && statuses.Add(-1) >= 0 ||
			request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/manifestworks") && works.Add(-1) >= 0 {
			return nil, errors.New("refused")
		}
		return next.RoundTrip(request)
	})
	e.awaitIdle(r, "set")
	statuses.Store(1)
	works.Store(2)
	e.approveStage("others", 1)
	e.awaitEvent(r, "Normal StageApproved Stage others of revision 1 starts, approved by alice: it is Tuesday")
	e.awaitEvent(r, "Warning WriteFailed Writing works of 2 clusters failed")
	e.awaitIdle(r, "set")
	e.advance(time.Second) // the works are tried again
	e.awaitTemplate("set", "2", "c01 c02 c03")
	e.reportApplied("set", e.clusters)
	e.awaitProgress("Progressing False Complete")
	e.awaitIdle(r, "set")
	if written := e.awaitIdle(r, "set"); len(written) > 0 {
		t.Errorf("a complete set with a plan wrote %q", written)
	}
	text, err := os.ReadFile(path)
	kit.NoError(t, err)
	if records := string(text); strings.Count(records, `"event":"approve"`) != 1 ||
		!strings.Contains(records, `"identity":"alice","object":"manifestworkreplicasets.v1alpha1.work.open-cluster-management.io `+e.namespace+`/set","stage":"others","revision":1,"note":"it is Tuesday"`) {
		t.Errorf("%s", records)
	}

	// Another template, in a freeze, then outside of a window, which opens by time alone.
	e.updatePlan(fmt.Sprintf(`freezes: [{from: %q, to: %q}]`, e.now().Add(-time.Hour).Format(time.RFC3339), e.now().Add(time.Hour).Format(time.RFC3339)))
	e.template("3")
	e.awaitProgress("Progressing True Frozen revision 2: 0 of 3 clusters succeeded; frozen until")
	opens := e.now().UTC().Add(time.Hour)
	e.updatePlan(fmt.Sprintf(`windows: [{schedule: "%d %d * * *", duration: 30m}]`, opens.Minute(), opens.Hour()))
	e.awaitProgress("Progressing True OutsideWindow revision 2: 0 of 3 clusters succeeded; other clusters: 3 clusters are outside their window, and the next opens")
	e.advance(time.Hour)
	r.requeue(e, "set")
	e.awaitTemplate("set", "3", "c01 c02 c03")

	// A window in the zone of each cluster, which a claim tells later.
	opened := e.now().UTC()
	e.updatePlan(fmt.Sprintf(`windows: [{schedule: "%d %d * * *", duration: 30m, timeZoneClaim: zone}]`, opened.Minute(), opened.Hour()))
	e.template("4")
	e.awaitProgress("Progressing True OutsideWindow revision 3: 0 of 3 clusters succeeded; other clusters: the windows of 3 clusters do not open")
	_, err = e.client.ClusterV1().ManagedClusters().Patch(t.Context(), e.clusters[1], types.MergePatchType,
		[]byte(`{"status":{"clusterClaims":[{"name":"zone","value":"Etc/UTC"}]}}`), metav1.PatchOptions{}, "status")
	kit.NoError(t, err)
	e.awaitTemplate("set", "4", "c02")
	r.stop()
}

// TestApprovalsOfFormerNumbers: where the numbers of revisions begin again, approvals do not count for new templates.
func TestApprovalsOfFormerNumbers(t *testing.T) {
	e := newEnv(t, 1)
	r := e.start()
	e.writePlacement("p", e.clusters)
	e.createPlan("stages: [{name: all, approval: Required}]")
	set := newSet("p")
	set.Annotations = map[string]string{workv1alpha1.RolloutPlanAnnotationKey: "plan"}
	e.createSet(set)
	e.awaitProgress("Progressing True WaitsForApproval revision 1: 0 of 1")
	e.approveStage("all", 1)
	e.awaitTemplate("set", "2", "c01")
	e.awaitIdle(r, "set")
	revisions := e.client.WorkwireV1alpha1().ManifestWorkReplicaSetRevisions(e.namespace)
	kit.NoError(t, revisions.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	e.template("3")
	e.awaitRevisions("1:3")
	e.awaitProgress("Progressing True WaitsForApproval revision 1: 0 of 1")
	e.awaitIdle(r, "set")
	if got := e.clustersWith("set", "3"); got != "" {
		t.Errorf("%s has a template that nobody has approved", got)
	}
	e.approveStage("all", 1)
	e.awaitTemplate("set", "3", "c01")
}

// startAudited is start with an audit log.
func (e *env) startAudited(log *audit.Log) *running {
	e.audit = log
	return e.start()
}

// feedBack reports a value true of the first manifest of the works of a set.
func (e *env) feedBack(set, name string) {
	e.t.Helper()
	for _, work := range e.works(set) {
		yes := true
		work.Status.ResourceStatus.Manifests = []workv1.ManifestCondition{{
			Conditions: []metav1.Condition{}, StatusFeedbacks: workv1.StatusFeedbackResult{Values: []workv1.FeedbackValue{{Name: name, Value: workv1.FieldValue{Type: workv1.Boolean, Boolean: &yes}}}},
		}}
		e.patchStatus(work)
	}
}

func (e *env) approveStage(stage string, revision int64) {
	e.t.Helper()
	e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) {
		set.Annotations[workwirev1alpha1.ApprovalsAnnotationKey] = approvalsText(e.t, workwirev1alpha1.Approval{Revision: revision, Stage: stage, By: "alice", Reason: "it is Tuesday"})
	})
}

// TestWorksThatAreTested: any change of a status counts for the works of sets whose plan has tests, and of no others.
func TestWorksThatAreTested(t *testing.T) {
	e := newEnv(t, 1)
	c, informers := newController(t, Config{Client: e.client, Now: e.now})
	kit.Run(t, "informers", informers.Run)
	set := newSet("p")
	e.createSet(set)
	work := newWork(set, "p", e.clusters[0], "", start)
	kit.True(t, "the set is known", func() bool { return c.sets.Len() > 0 })
	if c.tests(work) {
		t.Error("without a plan")
	}
	e.createPlan(`stages: [{name: a}, {name: b, tests: [{name: t, expression: "true"}]}]`)
	kit.True(t, "the plan is known", func() bool { return c.plans.Len() > 0 })
	if c.tests(work) {
		t.Error("of a set that does not name the plan")
	}
	e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) {
		set.Annotations = map[string]string{workv1alpha1.RolloutPlanAnnotationKey: "plan"}
	})
	kit.True(t, "the work is tested", func() bool { return c.tests(work) })
	e.updatePlan(`stages: [{name: a}]`)
	kit.True(t, "the work is not tested any more", func() bool { return !c.tests(work) })
}

// TestWritingEndsWithTheWindow: works that are still to be written when the window closes are not.
func TestWritingEndsWithTheWindow(t *testing.T) {
	now := start
	c := &Controller{cfg: Config{Now: func() time.Time { return now }}}
	set := newSet("p")
	s := &setMemory{staging: &staging{openUntil: now.Add(time.Minute)}}
	if c.stagedOtherwise(set, s) {
		t.Error("the window is open")
	}
	now = now.Add(time.Minute)
	if !c.stagedOtherwise(set, s) {
		t.Error("the window is closed")
	}
}

// TestExamplePlan: the plans of the examples are valid, and the set names one.
func TestExamplePlan(t *testing.T) {
	tester, err := worktest.NewCompiler()
	kit.NoError(t, err)
	var plan, ahead workwirev1alpha1.RolloutPlan
	text, err := os.ReadFile("../../../../examples/rolloutplan/ahead.yaml")
	kit.NoError(t, err)
	kit.NoError(t, yaml.UnmarshalStrict(text, &ahead))
	if g := newStaging(planVersion{name: "plan"}, &ahead, tester); g.plan.WhyClosed() != "" || ahead.Spec.StageAhead.Duration == 0 {
		t.Error(g.plan.WhyClosed())
	}
	text, err = os.ReadFile("../../../../examples/rolloutplan/plan.yaml")
	kit.NoError(t, err)
	kit.NoError(t, yaml.UnmarshalStrict(text, &plan))
	if g := newStaging(planVersion{name: "plan"}, &plan, tester); g.plan.WhyClosed() != "" {
		t.Error(g.plan.WhyClosed())
	}
	var set workv1alpha1.ManifestWorkReplicaSet
	text, err = os.ReadFile("../../../../examples/rolloutplan/set.yaml")
	kit.NoError(t, err)
	kit.NoError(t, yaml.UnmarshalStrict(text, &set))
	if set.Annotations[workv1alpha1.RolloutPlanAnnotationKey] != plan.Name || set.Namespace != plan.Namespace {
		t.Errorf("the set names %q, the plan is %q", set.Annotations[workv1alpha1.RolloutPlanAnnotationKey], plan.Name)
	}
	if !slices.ContainsFunc(plan.Spec.Stages, func(s workwirev1alpha1.RolloutStage) bool { return s.Approval != "" }) {
		t.Error("no stage of the example needs an approval")
	}
}
