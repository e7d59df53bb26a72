package replicaset

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
	"github.com/workwire/workwire/pkg/runtime/redaction"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// pausedText says what holds a paused rollout.
const pausedText = "paused by the annotation " + workv1.PausedAnnotationKey

// noteWait notes a cluster that the rollout waits for and why, for the first clusters.
func (r *placementRollout) noteWait(name string, cluster rollout.Cluster, work *workv1.ManifestWork, current bool) {
	var why string
	switch going := work != nil && work.DeletionTimestamp != nil; {
	case going:
		why = "its earlier work is being deleted"
	case !current || cluster.Status != rollout.Progressing && cluster.Status != rollout.Failed:
		return
	case len(r.waits) >= maxBlockers: // a reason costs a look at all objects
	case cluster.Away:
		why = "away since " + cluster.PresenceSince.UTC().Format(time.RFC3339)
	default:
		why = cmp.Or(r.testing[name], blocker(work), unexplained(cluster, work))
	}
	r.waiting++
	if len(r.waits) < maxBlockers {
		r.waits = append(r.waits, name+": "+why)
	}
}

// unexplained says what is known of a cluster whose work names no object.
func unexplained(cluster rollout.Cluster, work *workv1.ManifestWork) string {
	switch {
	case cluster.Status == rollout.Failed:
		return "failed"
	case slices.ContainsFunc(work.Status.Conditions, func(c metav1.Condition) bool { return c.ObservedGeneration == work.Generation && !workv1.IsOfHub(&c) }):
		return "not ready"
	}
	return "no answer since " + cmp.Or(work.Annotations[workv1alpha1.RolledOutAtAnnotationKey], "the template reached its work")
}

// setProgress sets the conditions Progressing and Stopped. complete is whether every cluster
// succeeded, err what is wrong with the set or a placement.
func setProgress(status *workv1alpha1.ManifestWorkReplicaSetStatus, in input, rollouts []placementRollout, complete bool, err error) {
	condition := progress(in, rollouts, complete, err)
	back := meta.FindStatusCondition(status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionRolledBack)
	if condition.Reason == workv1alpha1.ReasonStopped && back != nil && back.Status == metav1.ConditionFalse && back.Message != "" {
		condition.Message += "; it does not go back: " + back.Message
	}
	stopped, tests := stoppedMessage(rollouts), failedTestsText(rollouts)
	set := conditionSetter(status, in.now)
	if before := meta.FindStatusCondition(status.Conditions, condition.Type); before != nil && before.Reason != condition.Reason {
		before.LastTransitionTime = metav1.NewTime(in.now)
	}
	set(condition)
	const kind = workv1alpha1.ManifestWorkReplicaSetConditionStopped
	switch {
	case stopped != "":
		set(metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: failureReason(rollouts),
			Message: joinTexts(stopped, tests, waitsMessage(rollouts)),
		})
	case meta.FindStatusCondition(status.Conditions, kind) != nil:
		set(metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: workv1alpha1.ReasonAsExpected})
	}
}

// setReady sets the condition Ready, the sum of the others, Stalled if the set does not go on by itself, and
// observedGeneration to what they are about.
func setReady(status *workv1alpha1.ManifestWorkReplicaSetStatus, in input) {
	progressing := meta.FindStatusCondition(status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionProgressing)
	c := metav1.Condition{
		Type: workv1alpha1.ManifestWorkReplicaSetConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: in.set.Generation,
		Reason: progressing.Reason, Message: progressing.Message,
	}
	held := meta.FindStatusCondition(status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionRemovalsHeld)
	switch {
	case held != nil && held.Status == metav1.ConditionTrue:
		c.Reason, c.Message = workv1alpha1.ManifestWorkReplicaSetConditionRemovalsHeld, held.Message
	case progressing.Reason == workv1alpha1.ReasonComplete:
		c.Status = metav1.ConditionTrue
	}
	status.ObservedGeneration = in.set.Generation
	set := conditionSetter(status, in.now)
	set(c)
	if c.Type = workv1alpha1.ManifestWorkReplicaSetConditionStalled; in.missing == "" && !stalled(in.set, c.Reason) {
		meta.RemoveStatusCondition(&status.Conditions, c.Type)
		return
	}
	c.Status = metav1.ConditionTrue
	set(c)
}

// stalled reports whether a set that is not ready for this reason waits for somebody. Placements and their decisions
// may be on their way.
func stalled(set *workv1alpha1.ManifestWorkReplicaSet, reason string) bool {
	switch reason {
	case workv1alpha1.ReasonStopped, workv1alpha1.ReasonRolledBack, workv1alpha1.ReasonOverrideFailed, workv1alpha1.ReasonInvalidPlan,
		workv1alpha1.ManifestWorkReplicaSetConditionRemovalsHeld:
		return true
	case workv1alpha1.ReasonInvalid:
		return validateNames(set) != "" || slices.ContainsFunc(set.Spec.PlacementRefs, func(ref workv1alpha1.LocalPlacementReference) bool {
			_, err := rollout.Parse(&ref.RolloutStrategy)
			return err != nil
		})
	}
	return false
}

// progress returns the condition Progressing.
func progress(in input, rollouts []placementRollout, complete bool, err error) metav1.Condition {
	c := metav1.Condition{
		Type: workv1alpha1.ManifestWorkReplicaSetConditionProgressing, Status: metav1.ConditionFalse, ObservedGeneration: in.set.Generation,
	}
	n := countProgress(rollouts)
	text := n.text(in.set.Annotations[workwirev1alpha1.RevisionAnnotationKey])
	if in.revisions.Served != 0 {
		text = n.text(strconv.FormatInt(in.revisions.Served, 10))
	}
	stopped, tests := stoppedMessage(rollouts), failedTestsText(rollouts)
	onlyUnrendered := n.unrendered > 0 && n.started == 0 && n.unfinished == 0 && n.soaking == 0
	switch {
	case err != nil:
		c.Reason, c.Message = workv1alpha1.ReasonInvalid, redaction.WithoutValues(err, false).Error()
	case workv1.IsPaused(in.set):
		c.Status, c.Reason = metav1.ConditionUnknown, workv1alpha1.ReasonPaused
		c.Message = joinTexts(pausedText, text, stopped, tests, waitsMessage(rollouts))
	case n.chosen == 0:
		c.Reason, c.Message = workv1alpha1.ReasonNoClusters, "no cluster is selected"
	case stopped != "":
		c.Reason, c.Message = workv1alpha1.ReasonStopped, joinTexts(text, stopped, tests, waitsMessage(rollouts), in.back)
	case complete && in.back != "":
		c.Reason, c.Message = workv1alpha1.ReasonRolledBack, joinTexts(text, in.back, fmt.Sprintf(
			"give the set another template or, once the clusters are mended, have it try this one again: workctl rollout retry %s -n %s", in.set.Name, in.set.Namespace))
	case in.back != "" && in.revisions.Served != 0 && onlyUnrendered:
		c.Reason, c.Message = workv1alpha1.ReasonOverrideFailed, joinTexts(text, unrenderedMessage(in, rollouts), in.back)
	case in.back != "":
		c.Status, c.Reason = metav1.ConditionTrue, workv1alpha1.ReasonRollingBack
		c.Message = joinTexts(text, soakMessage(rollouts), waitsMessage(rollouts), unrenderedMessage(in, rollouts), in.back)
	case complete:
		c.Reason, c.Message = workv1alpha1.ReasonComplete, text
	case waitsForPreview(in, rollouts):
		c.Status, c.Reason = metav1.ConditionUnknown, workv1alpha1.ReasonWaitsForPreview
		c.Message = joinTexts(text, in.held, waitsMessage(rollouts))
	case in.staged != nil && in.staged.Hold.Reason != "":
		c.Reason, c.Message = in.staged.Hold.Reason, joinTexts(text, in.staged.Hold.String(), waitsMessage(rollouts), skippedMessage(rollouts), unrenderedMessage(in, rollouts))
		if in.staged.Hold.Reason != workv1alpha1.ReasonInvalidPlan {
			c.Status = metav1.ConditionTrue
		}
	case n.soaking > 0 && n.started == 0 && n.unfinished == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, workv1alpha1.ReasonSoaking, joinTexts(text, soakMessage(rollouts))
	case onlyUnrendered:
		c.Reason, c.Message = workv1alpha1.ReasonOverrideFailed, joinTexts(text, unrenderedMessage(in, rollouts))
	default:
		c.Status, c.Reason = metav1.ConditionTrue, workv1alpha1.ReasonRollingOut
		c.Message = joinTexts(text, tests, soakMessage(rollouts), waitsMessage(rollouts), skippedMessage(rollouts), unrenderedMessage(in, rollouts))
	}
	c.Message = joinTexts(c.Message, in.unwritten)
	return c
}

// progressCount sums over the placements of a set.
type progressCount struct{ chosen, succeeded, current, started, soaking, unfinished, unrendered int }

func countProgress(rollouts []placementRollout) (n progressCount) {
	for _, r := range rollouts {
		n.chosen += r.chosen
		n.succeeded += r.clusters[rollout.Succeeded]
		n.current += r.summary.Total
		n.started += len(r.decision.Start)
		n.soaking += len(r.decision.Soaking)
		n.unrendered += len(r.unrendered)
		n.unfinished += r.clusters[rollout.Progressing] + r.clusters[rollout.Failed]
	}
	return n
}

// text returns "revision 3: 4 of 10 clusters succeeded, 6 have the template".
func (n progressCount) text(revision string) string {
	text := fmt.Sprintf("%d of %d clusters succeeded", n.succeeded, n.chosen)
	if n.current != n.succeeded {
		text += fmt.Sprintf(", %d have the template", n.current)
	}
	if revision != "" {
		text = "revision " + revision + ": " + text
	}
	return text
}

// soakMessage says which clusters must stay successful until when before others start.
func soakMessage(rollouts []placementRollout) string {
	var texts []string
	for _, r := range rollouts {
		for _, soak := range r.decision.Soaking {
			texts = append(texts, soak.Cluster+" until "+soak.Until.UTC().Format(time.RFC3339))
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return "soaking (minSuccessTime): " + condition.First(texts, maxBlockers, len(texts), ", ")
}

// waitsMessage says which clusters that have the template the rollouts wait for, and why.
func waitsMessage(rollouts []placementRollout) string { return waitsText("waiting for ", rollouts) }

// waitsText is waitsMessage, with what it begins with. It is empty if they wait for none.
func waitsText(begin string, rollouts []placementRollout) string {
	var texts []string
	total := 0
	for _, r := range rollouts {
		texts = append(texts, r.waits...)
		total += r.waiting
	}
	if total == 0 {
		return ""
	}
	return begin + condition.First(texts, maxBlockers, total, "; ")
}

func skippedMessage(rollouts []placementRollout) string {
	skipped := 0
	for _, r := range rollouts {
		skipped += r.clusters[rollout.Skip] - len(r.unrendered)
	}
	if skipped == 0 {
		return ""
	}
	return fmt.Sprintf("%d clusters get nothing: the hub does not accept them, or no set with them is bound to the namespace", skipped)
}

// setInvalid sets the conditions of a set that cannot be processed. One that was rolled out is no longer: it may have another template.
func (p *plan) setInvalid(in input) {
	if meta.FindStatusCondition(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut) != nil {
		conditionSetter(&p.status, in.now)(rolledOut(false, p.invalid))
	}
	setProgress(&p.status, in, nil, false, errors.New(p.invalid))
	setStaged(&p.status, in, nil)
	setReady(&p.status, in)
}

// paused reports whether the rollout of a set is paused.
func (p *plan) paused() bool {
	c := meta.FindStatusCondition(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionProgressing)
	return c != nil && c.Reason == workv1alpha1.ReasonPaused
}
