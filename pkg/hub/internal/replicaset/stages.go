package replicaset

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/pkg/hub/internal/worktest"
	"github.com/workwire/workwire/pkg/security/audit"
)

const (
	// byPlan indexes sets by "<namespace>/<name>" of their RolloutPlan.
	byPlan = "plan"
	// maxTestTime is how long one reconcile tests works. What is left follows in the next, and is not true before.
	maxTestTime = 2 * time.Second
)

// staging is the RolloutPlan of a set, and the results of its tests. The reconcile of the set owns it.
type staging struct {
	version   planVersion
	plan      *rollout.Plan
	tests     [][]worktest.Test                // by stage
	results   map[types.NamespacedName]*tested // by work
	openUntil time.Time                        // of the last decision: when clusters must not start any more

	// Of the decision that is being made.
	testUntil time.Time // when no more works are tested
	requeueAt time.Time // when tests time out, or are run that there was no time for
}

// planVersion identifies what a RolloutPlan says; the zero value is one that does not exist.
type planVersion struct {
	name       string
	uid        types.UID
	generation int64
}

// tested is the result of the tests of a work.
type tested struct {
	uid      types.UID
	version  string
	stage    int
	failures []worktest.Failure
}

func indexPlan(object any) ([]string, error) {
	if set, ok := object.(*workv1alpha1.ManifestWorkReplicaSet); ok {
		if name := set.Annotations[workv1alpha1.RolloutPlanAnnotationKey]; name != "" {
			return []string{set.Namespace + "/" + name}, nil
		}
	}
	return nil, nil
}

// planOf returns the RolloutPlan of a set, and its version; nil if there is none.
func (c *Controller) planOf(set *workv1alpha1.ManifestWorkReplicaSet) (*workwirev1alpha1.RolloutPlan, planVersion) {
	version := planVersion{name: set.Annotations[workv1alpha1.RolloutPlanAnnotationKey]}
	if version.name == "" {
		return nil, version
	}
	plan, ok := c.plans.Get(types.NamespacedName{Namespace: set.Namespace, Name: version.name})
	if !ok {
		return nil, version
	}
	version.uid, version.generation = plan.UID, plan.Generation
	return plan, version
}

// stage brings the staging of a set up to date, nil if the set names no RolloutPlan.
func (c *Controller) stage(set *workv1alpha1.ManifestWorkReplicaSet, s *setMemory) {
	object, version := c.planOf(set)
	if version.name == "" {
		s.staging = nil
		return
	}
	if s.staging == nil || s.staging.version != version {
		s.staging = newStaging(version, object, c.tester)
	}
	s.staging.testUntil, s.staging.requeueAt = time.Now().Add(maxTestTime), time.Time{}
}

// newStaging compiles a RolloutPlan, nil if it does not exist. Of one that is wrong nothing starts.
func newStaging(version planVersion, object *workwirev1alpha1.RolloutPlan, tester *worktest.Compiler) *staging {
	g := &staging{version: version, results: make(map[types.NamespacedName]*tested)}
	if object == nil {
		g.plan = rollout.Closed(fmt.Sprintf("RolloutPlan %s does not exist, and nothing starts until it does", version.name))
		return g
	}
	plan, err := rollout.ParsePlan(&object.Spec)
	for _, stage := range object.Spec.Stages {
		tests, errTests := tester.Compile(stage.Tests)
		if errTests != nil {
			err = errors.Join(err, fmt.Errorf("stage %s: %w", stage.Name, errTests))
		}
		g.tests = append(g.tests, tests)
	}
	if g.plan = plan; err != nil {
		g.plan, g.tests = rollout.Closed(fmt.Sprintf("RolloutPlan %s is invalid, and nothing starts: %s", version.name, strings.ReplaceAll(err.Error(), "\n", "; "))), nil
	}
	return g
}

// stagedOtherwise reports whether the RolloutPlan of a set is no longer that of its last decision, or clusters must not
// start any more.
func (c *Controller) stagedOtherwise(set *workv1alpha1.ManifestWorkReplicaSet, s *setMemory) bool {
	_, version := c.planOf(set)
	if s.staging == nil {
		return version.name != ""
	}
	until := s.staging.openUntil
	return s.staging.version != version || !until.IsZero() && !c.cfg.Now().Before(until)
}

// test returns the state of a cluster after the tests of its stage: one that succeeded is in progress while they are not
// true, and has failed when they have timed out.
func (r *placementRollout) test(in input, name string, state rollout.Cluster, work *workv1.ManifestWork) rollout.Cluster {
	if in.staging == nil || in.revisions.Served != 0 || state.Status != rollout.Succeeded {
		return state
	}
	tested := state
	tested.Status, tested.Since = rollout.Progressing, time.Time{} // the deadline of the strategy does not count here
	failures, ran := in.staging.run(work, in.staging.plan.StageOf(in.site(name).Labels))
	switch {
	case !ran:
		r.testing[name] = "its tests have yet to run"
		in.staging.requeueAt = rollout.Earlier(in.staging.requeueAt, in.now.Add(interval))
		return tested
	case len(failures) == 0:
		return state
	}
	r.testing[name] = failures[0].Message
	for _, f := range failures {
		switch end := state.Since.Add(f.Timeout); {
		case state.Since.IsZero(): // nobody knows since when
		case end.After(in.now):
			in.staging.requeueAt = rollout.Earlier(in.staging.requeueAt, end)
		case tested.Status != rollout.Failed || end.Before(tested.Since):
			tested.Status, tested.Since = rollout.Failed, end
			r.testing[name] = fmt.Sprintf("%s, %s after the cluster had succeeded", f.Message, f.Timeout)
			r.failedTests[name] = f.Name
		}
	}
	return tested
}

// failedTestsText says which tests have timed out, and on how many clusters; empty if none has.
func failedTestsText(rollouts []placementRollout) string {
	count := make(map[string]int)
	for _, r := range rollouts {
		for _, test := range r.failedTests {
			count[test]++
		}
	}
	texts := make([]string, 0, len(count))
	for _, test := range slices.Sorted(maps.Keys(count)) {
		texts = append(texts, fmt.Sprintf("test %s failed on %d clusters", test, count[test]))
	}
	return strings.Join(texts, ", ")
}

// failureReason returns the reason of a condition that says that too many clusters failed.
func failureReason(rollouts []placementRollout) string {
	for _, r := range rollouts {
		for _, cluster := range r.decision.Exceeded {
			if r.failedTests[cluster] != "" {
				return workv1alpha1.ReasonTestFailed
			}
		}
	}
	return workv1alpha1.ReasonTooManyFailures
}

// run returns the tests of a stage that are not true of a work; ran is false if there is no time left to run them.
func (g *staging) run(work *workv1.ManifestWork, stage int) (failures []worktest.Failure, ran bool) {
	if stage >= len(g.tests) || len(g.tests[stage]) == 0 {
		return nil, true
	}
	key := controller.KeyOf(work)
	known := g.results[key]
	if known == nil || known.uid != work.UID || known.version != work.ResourceVersion || known.stage != stage {
		if time.Now().After(g.testUntil) {
			return nil, false
		}
		known = &tested{uid: work.UID, version: work.ResourceVersion, stage: stage, failures: worktest.Run(g.tests[stage], works.UnpackStatus(work))}
		g.results[key] = known
	}
	return known.failures, true
}

// forget drops results if there are many of works that the set has no longer.
func (g *staging) forget(works int) {
	if len(g.results) > 2*works+16 {
		clear(g.results)
	}
}

// site returns what a RolloutPlan goes by of a cluster.
func (in input) site(name string) rollout.Site {
	cluster, ok := in.cluster(name)
	if !ok {
		return rollout.Site{}
	}
	return rollout.Site{Labels: cluster.Labels, Claim: func(name string) string {
		for _, claim := range cluster.Status.ClusterClaims {
			if claim.Name == name {
				return claim.Value
			}
		}
		return ""
	}}
}

// decideStages decides about all clusters of a set by its RolloutPlan. If a placement is invalid, or decisions are being
// written, nobody knows who is in a stage, and nothing starts.
func (p *plan) decideStages(in input) *rollout.Staged {
	in.staging.forget(len(in.works))
	targets := make([]rollout.Target, 0, len(p.rollouts))
	for _, r := range p.rollouts {
		if r.err != nil {
			return nil
		}
		p.unsettled = p.unsettled || r.chosen != r.selected
		targets = append(targets, rollout.Target{Strategy: r.strategy, Groups: r.groups, Clusters: r.states})
	}
	approvals, err := workwirev1alpha1.ApprovalsOf(in.set.Annotations)
	approval := func(stage string) *workwirev1alpha1.Approval {
		if in.revisions.Own == 0 { // the template has no number yet
			return nil
		}
		return approvals.Of(in.revisions.Own, stage)
	}
	staged := in.staging.plan.Decide(rollout.Situation{
		Targets: targets, Site: in.site, Approved: func(stage string) bool { return approval(stage) != nil }, Now: in.now,
	})
	if err != nil && staged.Hold.Reason == workv1alpha1.ReasonWaitsForApproval {
		staged.Hold.Message += ": " + err.Error()
	}
	starts := false
	for i := range p.rollouts {
		p.rollouts[i].decided, p.rollouts[i].decision = true, staged.Decisions[i]
		starts = starts || len(staged.Decisions[i].Start) > 0
	}
	p.requeueAt = rollout.Earlier(p.requeueAt, in.staging.requeueAt)
	if starts && !p.unsettled && !workv1.IsPaused(in.set) && in.held == "" {
		p.openUntil = staged.OpenUntil
		p.requeueAt = rollout.Earlier(p.requeueAt, staged.OpenUntil)
		for _, stage := range staged.Stages {
			if by := approval(stage.Name); stage.Approval && by != nil && stage.Starting > 0 && stage.Has == 0 {
				p.acted = append(p.acted, *by)
			}
		}
	}
	return &staged
}

// setStaged sets the condition Staged; a set without a RolloutPlan has none.
func setStaged(status *workv1alpha1.ManifestWorkReplicaSetStatus, in input, rollouts []placementRollout) {
	progressing := meta.FindStatusCondition(status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionProgressing)
	c := metav1.Condition{
		Type: workv1alpha1.ManifestWorkReplicaSetConditionStaged, Status: metav1.ConditionFalse, Reason: progressing.Reason, ObservedGeneration: in.set.Generation,
	}
	switch {
	case in.staging == nil:
		meta.RemoveStatusCondition(&status.Conditions, c.Type)
		return
	case in.revisions.Served != 0:
		c.Message = "the way back to an earlier template runs through no stages, windows and freezes"
	case in.staged == nil: // the set or a placement is invalid
		c.Message = "nothing starts: " + progressing.Message
	default:
		why := ""
		switch {
		case workv1.IsPaused(in.set):
			why = "paused"
		case waitsForPreview(in, rollouts):
			why = "waits for its preview"
		}
		lines, complete, stops := make([]string, 0, len(in.staged.Stages)), true, stoppedMessage(rollouts) != ""
		for _, stage := range in.staged.Stages {
			stage.Stopped = stage.Stopped && stops // otherwise it has no clusters that would start
			lines, complete = append(lines, stageLine(stage, why)), complete && stage.Complete && stage.Unrendered == 0
		}
		c.Message = strings.Join(lines, "\n")
		switch invalid := in.staging.plan.WhyClosed(); {
		case invalid != "":
			c.Reason, c.Message = workv1alpha1.ReasonInvalidPlan, invalid
		case complete:
			c.Status, c.Reason = metav1.ConditionTrue, workv1alpha1.ReasonComplete
		case progressing.Reason != workv1alpha1.ReasonComplete:
		case in.staged.Hold.Reason != "":
			c.Reason = in.staged.Hold.Reason
		default: // Progressing does not wait for the last stage to soak
			c.Reason = workv1alpha1.ReasonRollingOut
		}
	}
	conditionSetter(status, in.now)(c)
}

// stageLine returns "canary: 2 of 5 clusters succeeded, 3 have the template; in progress". held is why clusters that would start do not;
// empty if they do.
func stageLine(s rollout.StageStatus, held string) string {
	text := fmt.Sprintf("%s: %d of %d clusters succeeded", s.Name, s.Succeeded, s.Clusters)
	if s.Current != s.Succeeded {
		text += fmt.Sprintf(", %d have the template", s.Current)
	}
	if s.Staged > 0 && s.Hold.Reason == "" {
		text += fmt.Sprintf(", %d are staged", s.Staged)
	}
	switch {
	case s.Unrendered > 0 && (s.Complete || s.Unrendered == s.Clusters):
	case s.Complete:
		text += "; complete"
	case s.Stopped:
		text += "; stopped"
	case held != "" && s.Starting > 0:
		text += "; " + held
	case s.Hold.Reason != "":
		text += "; " + s.Hold.Message
	default:
		text += "; in progress"
	}
	if s.Unrendered > 0 {
		text += fmt.Sprintf("; the overrides of %d clusters fail", s.Unrendered)
	}
	return text
}

// reportApprovals reports the approvals that the plan acts on. While no work can be written, plans act on the same ones again.
func (c *Controller) reportApprovals(set *workv1alpha1.ManifestWorkReplicaSet, p *plan, s *setMemory) {
	log := c.cfg.Logger.With("set", set.Name, "namespace", set.Namespace)
	for _, a := range p.acted {
		if slices.Contains(s.acted, a) {
			continue
		}
		text := fmt.Sprintf("Stage %s of revision %d starts, approved by %s", a.Stage, a.Revision, a.By)
		if a.Reason != "" {
			text += ": " + a.Reason
		}
		log.Info("approved stage starts", "stage", a.Stage, "revision", a.Revision, "by", a.By)
		c.event(set, corev1.EventTypeNormal, workv1alpha1.EventStageApproved, "%s", text)
		c.cfg.Audit.Write(audit.Record{
			Event: audit.Approve, Verdict: "started", Identity: a.By, Object: "manifestworkreplicasets.v1alpha1.work.open-cluster-management.io " + controller.KeyOf(set).String(),
			Stage: a.Stage, Revision: a.Revision, Note: a.Reason,
		})
	}
	s.acted = p.acted
}

// planChanged queues the sets of a RolloutPlan.
func (c *Controller) planChanged(before, after *workwirev1alpha1.RolloutPlan) {
	if before != nil && after != nil && before.UID == after.UID && before.Generation == after.Generation {
		return
	}
	for _, plan := range []*workwirev1alpha1.RolloutPlan{before, after} {
		if plan != nil {
			for _, set := range c.sets.List(byPlan, controller.KeyOf(plan).String()) {
				c.Add(controller.KeyOf(set))
			}
		}
	}
}

// tests reports whether the set of a work has a RolloutPlan with tests, which may read any field of its status.
func (c *Controller) tests(work *workv1.ManifestWork) bool {
	if c.plans.Len() == 0 {
		return false
	}
	set, ok := c.setOf(work)
	if !ok {
		return false
	}
	plan, _ := c.planOf(set)
	return plan != nil && slices.ContainsFunc(plan.Spec.Stages, func(s workwirev1alpha1.RolloutStage) bool { return len(s.Tests) > 0 })
}
