package replicaset

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
	"github.com/workwire/workwire/pkg/security/audit"
	"github.com/workwire/workwire/test/kit"
)

// timesOf formats changes with what becomes of the time to apply: "update c1 at 04:30-05:30", "label c1 at once".
func timesOf(changes []change) string {
	texts := describe(nil)
	for _, c := range changes {
		at, known := c.work.Annotations[workv1.ApplyAtAnnotationKey], c.action == create
		for _, op := range c.patch {
			if op.Path == "/metadata/annotations/workwire.dev~1apply-at" {
				at, known = "", true
				if op.Op == "add" {
					at = op.Value.(string)
				}
			}
		}
		text := string(c.action) + " " + c.work.Namespace
		switch {
		case at == "" && known:
			text += " at once"
		case known:
			text += " at " + at
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}

// TestDecideAhead: what a set with stageAhead does and says. The window of clusters is from 04:30 to 05:30, and it is 03:04 at first; clusters have the template "2" as
// new, ok or failed, and "1" as old, which they apply at the window of the day if they are staged.
func TestDecideAhead(t *testing.T) {
	const plan = `{stageAhead: 2h, windows: [{schedule: "30 4 * * *", duration: 1h}]}`
	const at, next = "2026-01-02T04:30:00Z/2026-01-02T05:30:00Z", "2026-01-03T04:30:00Z/2026-01-03T05:30:00Z"
	approved := func(in *input) {
		in.staging = stagingOf(t, plan[:len(plan)-1]+", stages: [{name: all, approval: Required}]}")
		in.set.Annotations[workwirev1alpha1.ApprovalsAnnotationKey] = approvalsText(t, workwirev1alpha1.Approval{Revision: 2, Stage: "all", By: "alice"})
	}
	overridden := func(in *input) { // all rendered, and compared
		o := overridingOf(t, in.set, map[string]string{"c1": "2", "c2": "2"})
		o.renderAll(in.placements, time.Now().Add(time.Hour))
		for _, r := range o.clusters {
			r.compared[comparison{}] = true
		}
		o.rules = nil // whoever renders again panics
		in.overriding = o
	}
	pause := func(in *input) { in.set.Annotations[workv1.PausedAnnotationKey] = "true" }
	for name, c := range map[string]struct {
		works   string
		staged  string // annotation of the works that are new or old, and of ok ones
		reason  string // of Applied, which is Unknown
		after   time.Duration
		change  func(*input)
		changes string
		want    string // Progressing
		acted   int    // approvals that the plan acts on for the first time
		since   string // the time at which c1 got the template, as the changes write it
		then    string // Progressing a minute after the change of c1
	}{
		"in time": {works: "c1:old", changes: "update c1 at " + at, want: "True StagedAhead revision 2: 0 of 1 clusters succeeded; other clusters: 1 cluster has the template and applies it when its window opens, at 2026-01-02T04:30:00Z"},
		"an agent that would apply it at once": {works: "c1:old", want: "True OutsideWindow", change: func(in *input) {
			in.cluster = func(string) (*clusterv1.ManagedCluster, bool) { return &clusterv1.ManagedCluster{}, true }
		}},
		"a new cluster":         {works: "", changes: "create c1 at " + at, want: "True StagedAhead"},
		"staged":                {works: "c1:new", staged: at, reason: "Staged", want: "True StagedAhead revision 2: 0 of 1 clusters succeeded, 1 have the template; other"},
		"staged, and away":      {works: "c1:new", staged: at, reason: "Staged", want: "True StagedAhead", change: func(in *input) { in.presence = absent(start) }},
		"paused":                {works: "c1:new", staged: at, reason: "Staged", change: pause, changes: "label c1 at Held", want: "Unknown Paused"},
		"paused and held":       {works: "c1:new", staged: "Held", reason: "Staged", change: pause, want: "Unknown Paused"},
		"resumed":               {works: "c1:new", staged: "Held", reason: "Staged", changes: "label c1 at " + at, want: "True StagedAhead"},
		"resumed in the window": {works: "c1:new", staged: "Held", reason: "Staged", after: 90 * time.Minute, changes: "label c1 at once", want: "True RollingOut"},
		"resumed, and a deadline": {
			works: "c1:new c2:old", staged: "Held", reason: "Staged", after: 90 * time.Minute, change: deadline, changes: "label c1 at once; update c2 at once", want: "True RollingOut",
			since: "2026-01-02T04:34:05Z", then: "True RollingOut",
		},
		"another window":        {works: "c1:new", staged: "2026-01-02T04:00:00Z/2026-01-02T05:00:00Z", reason: "Staged", changes: "label c1 at " + at, want: "True StagedAhead"},
		"the window has come":   {works: "c1:new", staged: at, reason: "Staged", after: 90 * time.Minute, want: "True RollingOut revision 2: 0 of 1 clusters succeeded, 1 have the template; waiting for c1"},
		"too late for a pause":  {works: "c1:new", staged: at, reason: "Staged", after: 90 * time.Minute, change: pause, want: "Unknown Paused"},
		"until the deadline":    {works: "c1:new c2:old", staged: at, reason: "Staged", after: 95 * time.Minute, change: deadline, changes: "update c2 at once", want: "True RollingOut"},
		"after the deadline":    {works: "c1:new c2:old", staged: at, reason: "Staged", after: 97 * time.Minute, change: deadline, want: "False Stopped"},
		"approved":              {works: "c1:old", changes: "update c1 at " + at, change: approved, want: "True StagedAhead", acted: 1},
		"approved and staged":   {works: "c1:new", staged: at, reason: "Staged", change: approved, want: "True StagedAhead"},
		"staged with overrides": {works: "c1:new c2:new", staged: at, reason: "Staged", change: overridden, want: "True StagedAhead"},
		"applied":               {works: "c1:ok", staged: at, after: 97 * time.Minute, changes: "label c1 at once", want: "False Complete"},
		"applied, not ready": {
			works: "c1:progressing c2:old", staged: at, after: 91 * time.Minute, change: deadline, changes: "update c2 at once; label c1 at once", want: "True RollingOut",
			since: "2026-01-02T04:30:00Z", then: "True RollingOut",
		},
		"applied, by a clock ahead": {
			works: "c1:progressing c2:old", staged: at, after: 80 * time.Minute, change: appliedAt(75 * time.Minute), changes: "update c2; label c1 at once", want: "True RollingOut",
			since: "2026-01-02T04:19:05Z", then: "True RollingOut",
		},
		"applied, and held too late": {
			works: "c1:progressing c2:old", staged: "Held", after: 95 * time.Minute, change: appliedAt(90 * time.Minute), changes: "update c2 at once; label c1 at once", want: "True RollingOut",
			since: "2026-01-02T04:34:05Z", then: "True RollingOut",
		},
		"applied, and given after its time": {
			works: "c1:progressing c2:old", staged: "2026-01-02T03:00:00Z", after: 5 * time.Minute, change: deadline, changes: "update c2 at " + at + "; label c1 at once", want: "True RollingOut",
			then: "True RollingOut",
		},
		"missed":                  {works: "c1:new", staged: at, reason: "WindowMissed", after: 3 * time.Hour, want: "True OutsideWindow"},
		"missed, and the next":    {works: "c1:new", staged: at, reason: "WindowMissed", after: 24 * time.Hour, changes: "label c1 at " + next, want: "True StagedAhead"},
		"away when it was missed": {works: "c1:new", staged: at, reason: "Staged", after: 24 * time.Hour, change: func(in *input) { in.presence = absent(start) }, want: "True RollingOut"},
		"a template before":       {works: "c1:old", staged: at, reason: "Staged", change: pause, changes: "label c1 at Held", want: "Unknown Paused"},
		"the plan is gone":        {works: "c1:new", staged: at, reason: "Staged", change: func(in *input) { in.staging = nil }, changes: "label c1 at once", want: "True RollingOut"},
		"the plan is wrong":       {works: "c1:new", staged: at, reason: "Staged", change: func(in *input) { in.staging = stagingOf(t, "") }, changes: "label c1 at Held", want: "False InvalidPlan"},
		"others fail":             {works: "c1:failed c2:new", staged: at, reason: "Staged", changes: "label c2 at Held", want: "False Stopped"},
		"the way back": {works: "c1:new c2:new", staged: at, reason: "Staged", changes: "update c1 at once; update c2 at once", want: "True RollingBack", change: func(in *input) {
			in.own, in.set = in.set, in.set.DeepCopy()
			in.set.Spec.ManifestWorkTemplate = template("1")
			in.set.Spec.PlacementRefs[0].RolloutStrategy = clusterv1alpha1.RolloutStrategy{Type: clusterv1alpha1.Progressive,
				Progressive: &clusterv1alpha1.RolloutProgressive{MaxConcurrency: intstr.FromInt32(1)}}
			in.placements[0].ref = &in.set.Spec.PlacementRefs[0]
			in.revisions.Served = 1
		}},
	} {
		t.Run(name, func(t *testing.T) {
			set := newSet("p")
			set.Annotations = map[string]string{workwirev1alpha1.RevisionAnnotationKey: "2"}
			clusters := []string{"c1", "c2"}[:max(1, len(strings.Fields(c.works)))]
			object, decisions := placementOf("p", clusters)
			in := input{
				set: set, placements: []placement{{ref: &set.Spec.PlacementRefs[0], object: object, decisions: decisions}}, works: worksOf("p", strings.Fields(c.works)...),
				workByName: noWork, presence: present, now: start.Add(c.after), revisions: rollout.Revisions{Own: 2, Proven: 1}, staging: stagingOf(t, plan),
				cluster: func(string) (*clusterv1.ManagedCluster, bool) {
					return &clusterv1.ManagedCluster{Status: clusterv1.ManagedClusterStatus{ClusterClaims: []clusterv1.ManagedClusterClaim{
						{Name: clusterv1.ClaimApplyAt, Value: clusterv1.ClaimApplyAtObeyed},
					}}}, true
				},
			}
			for _, work := range in.works {
				if c.staged != "" && !meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkDegraded) {
					work.Annotations[workv1.ApplyAtAnnotationKey] = c.staged
				}
				if c.reason != "" && len(work.Status.Conditions) == 0 {
					work.Status.Conditions = []metav1.Condition{{Type: workv1.WorkApplied, Status: metav1.ConditionUnknown, Reason: c.reason, ObservedGeneration: 1, LastTransitionTime: metav1.NewTime(start)}}
				}
			}
			if c.change != nil {
				c.change(&in)
			}
			p := decide(in)
			if got := timesOf(p.changes); got != c.changes {
				t.Errorf("changes %q, want %q", got, c.changes)
			}
			progressing := meta.FindStatusCondition(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionProgressing)
			if got := fmt.Sprintf("%s %s %s", progressing.Status, progressing.Reason, progressing.Message); !strings.HasPrefix(got, c.want) {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
			if len(p.acted) != c.acted {
				t.Errorf("acts on %+v, want %d approvals", p.acted, c.acted)
			}
			if c.then == "" {
				return
			}
			since := ""
			for _, change := range p.changes {
				if change.work != in.works[0] {
					continue
				}
				for _, op := range change.patch {
					if op.Path == "/metadata/annotations/workwire.dev~1rolled-out-at" {
						since = op.Value.(string)
					}
				}
				in.works[0] = patched(t, change)
			}
			if since != c.since {
				t.Errorf("c1 has the template since %q, want %q", since, c.since)
			}
			in.now = in.now.Add(time.Minute)
			p = decide(in)
			if got := progressText(p.status.Conditions); !strings.HasPrefix(got, "Progressing "+c.then) {
				t.Errorf("a minute later\n got %s\nwant %s", got, c.then)
			}
		})
	}
}

func deadline(in *input) {
	in.set.Spec.PlacementRefs[0].RolloutStrategy = clusterv1alpha1.RolloutStrategy{Type: clusterv1alpha1.Progressive,
		Progressive: &clusterv1alpha1.RolloutProgressive{RolloutConfig: clusterv1alpha1.RolloutConfig{ProgressDeadline: "10m"}}}
}

// appliedAt has c1 apply its template so long after the start, with a deadline.
func appliedAt(after time.Duration) func(*input) {
	return func(in *input) {
		deadline(in)
		meta.FindStatusCondition(in.works[0].Status.Conditions, workv1.WorkApplied).LastTransitionTime = metav1.NewTime(start.Add(after))
	}
}

func absent(since time.Time) func(string) presence {
	return func(string) presence { return presence{away: true, since: since} }
}

// Clusters get a template before their window opens, hear of a pause, and lose the time once they have applied it; those whose agents cannot wait get it
// when the window is open.
func TestStagedAhead(t *testing.T) {
	e := newEnv(t, 3)
	e.createClusters()
	log, err := audit.Open(audit.Config{Path: filepath.Join(t.TempDir(), "audit.log"), Program: "work-hub", Logger: kit.Logger(t)})
	kit.NoError(t, err)
	r := e.startAudited(log)
	e.writePlacement("p", e.clusters)
	for _, name := range e.clusters[:2] {
		_, err := e.client.ClusterV1().ManagedClusters().Patch(t.Context(), name, types.MergePatchType,
			[]byte(`{"status":{"clusterClaims":[{"name":"apply-at.workwire.dev","value":"true"}]}}`), metav1.PatchOptions{}, "status")
		kit.NoError(t, err)
	}
	opens := e.now().UTC().Add(time.Hour).Truncate(time.Minute)
	window := workv1.ApplyAt{Start: opens, End: opens.Add(30 * time.Minute)}.String()
	e.createPlan(fmt.Sprintf(`{stageAhead: 2h, windows: [{schedule: "%d %d * * *", duration: 30m}]}`, opens.Minute(), opens.Hour()))
	set := newSet("p")
	set.Annotations = map[string]string{workv1alpha1.RolloutPlanAnnotationKey: "plan"}
	e.createSet(set)
	times := func(want string) {
		t.Helper()
		kit.True(t, "the works are applied at "+want, func() bool {
			var texts []string
			for _, work := range e.works("set") {
				texts = append(texts, e.short(work.Namespace)+"="+work.Annotations[workv1.ApplyAtAnnotationKey])
			}
			return strings.Join(texts, " ") == want
		})
	}
	times("c01=" + window + " c02=" + window)
	e.awaitProgress("Progressing True StagedAhead revision 1: 0 of 3 clusters succeeded, 2 have the template; other clusters: 2 clusters have the template")
	e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Annotations[workv1.PausedAnnotationKey] = "true" })
	times("c01=Held c02=Held")
	e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) { delete(set.Annotations, workv1.PausedAnnotationKey) })
	times("c01=" + window + " c02=" + window)
	e.awaitIdle(r, "set")
	if written := e.awaitIdle(r, "set"); len(written) > 0 {
		t.Errorf("wrote %q while clusters are staged", written)
	}
	e.advance(time.Hour)
	r.requeue(e, "set")
	e.awaitTemplate("set", "2", "c01 c02 c03")
	times("c01=" + window + " c02=" + window + " c03=")
	e.reportApplied("set", e.clusters)
	times("c01= c02= c03=")
	e.awaitProgress("Progressing False Complete")
	r.stop()
}
