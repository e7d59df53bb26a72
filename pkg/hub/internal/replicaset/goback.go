package replicaset

import (
	"context"
	"fmt"
	"strconv"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
	"github.com/workwire/workwire/pkg/hub/revisions"
	"github.com/workwire/workwire/pkg/runtime/kube"
)

// revisionsOf returns the revisions of a set whose template has this hash. While the template is not stored, it has no
// number, and what the annotations say is about the one before.
func revisionsOf(set *workv1alpha1.ManifestWorkReplicaSet, hash string) rollout.Revisions {
	r := rollout.Revisions{Proven: workwirev1alpha1.RevisionOf(set.Annotations, workwirev1alpha1.ProvenRevisionAnnotationKey)}
	if hash != "" && set.Annotations[workwirev1alpha1.RevisionHashAnnotationKey] == hash {
		r.Own = workwirev1alpha1.RevisionOf(set.Annotations, workwirev1alpha1.RevisionAnnotationKey)
		r.Served = workwirev1alpha1.RevisionOf(set.Annotations, workwirev1alpha1.ServedRevisionAnnotationKey)
	}
	return r
}

// servedSet returns set with the template that clusters receive: that of the revision served, or with 0 its own. missing
// says why the revision cannot be served.
func (c *Controller) servedSet(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet, served int64, s *setMemory) (
	_ *workv1alpha1.ManifestWorkReplicaSet, missing string, err error,
) {
	if served == 0 {
		s.history.served = nil
		return set, "", nil
	}
	if has := s.history.served; has == nil || has.Revision != served || !metav1.IsControlledBy(has, set) {
		if s.history.served, err = c.revision(ctx, set, served); err != nil {
			return nil, "", err
		}
	}
	if why := notServed(s.history.served, set); why != "" {
		return set, fmt.Sprintf("revision %d, which the set has gone back to, %s; give the set a template that works, "+
			"or remove the annotation %s to roll out its own again", served, why, workwirev1alpha1.ServedRevisionAnnotationKey), nil
	}
	with := *set
	with.Spec.ManifestWorkTemplate = s.history.served.Template
	return &with, "", nil
}

// notServed says why clusters cannot receive a revision, nil if it is not stored; empty if they can. Who may annotate a set or write
// revisions need not have the right to name an executor: works have that of the spec, or none are written.
func notServed(stored *revisions.Revision, set *workv1alpha1.ManifestWorkReplicaSet) string {
	switch {
	case stored == nil:
		return "is not stored"
	case !apiequality.Semantic.DeepEqual(stored.Template.Executor, set.Spec.ManifestWorkTemplate.Executor):
		return "has another executor than the set"
	}
	return ""
}

// revision reads a stored revision; nil if there is none with the number.
func (c *Controller) revision(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet, number int64) (*revisions.Revision, error) {
	stored, err := revisions.List(ctx, c.cfg.Client, set)
	if err != nil {
		return nil, err
	}
	for i := range stored {
		if stored[i].Revision == number {
			return &stored[i], nil
		}
	}
	return nil, nil
}

// storeRevisions writes what has changed of the revisions of a set to its annotations. A set goes back only to a
// revision that can be served: one that cannot is proven no more.
func (c *Controller) storeRevisions(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet, before, after rollout.Revisions, s *setMemory) error {
	if before == after {
		return nil
	}
	if after.Served != before.Served {
		target, err := c.revision(ctx, set, after.Served)
		if err != nil {
			return err
		}
		if notServed(target, set) != "" {
			after.Served, after.Proven = before.Served, 0
		} else {
			s.history.served = target // which the next reconcile serves
		}
	}
	wanted := make(map[string]string)
	var removed []string
	for key, number := range map[string]int64{
		workwirev1alpha1.ProvenRevisionAnnotationKey: after.Proven, workwirev1alpha1.ServedRevisionAnnotationKey: after.Served,
	} {
		if number != 0 {
			wanted[key] = strconv.FormatInt(number, 10)
		} else {
			removed = append(removed, key)
		}
	}
	// Meanwhile somebody may have changed the template, or paused the set. Then it is queued again.
	latest, ok := c.sets.Latest(controller.KeyOf(set))
	if !ok || steered(set, latest) {
		return nil
	}
	patch := append(kube.JSONPatch{{Op: "test", Path: "/metadata/resourceVersion", Value: latest.ResourceVersion}},
		mapPatch("/metadata/annotations", latest.Annotations, wanted, removed)...)
	_, err := c.jsonPatchSet(ctx, set, "annotate the proven revision of", patch)
	return err
}

// onFailure returns whether a set goes back when its rollout fails, and what is wrong with the annotation that says so.
func onFailure(set *workv1alpha1.ManifestWorkReplicaSet) (rollback bool, invalid string) {
	value, asked := set.Annotations[workv1alpha1.OnFailureAnnotationKey]
	if asked && value != workv1alpha1.OnFailureRollback {
		return false, fmt.Sprintf("the annotation %s is %q, and means nothing: the one known value is %s",
			workv1alpha1.OnFailureAnnotationKey, value, workv1alpha1.OnFailureRollback)
	}
	return asked, ""
}

// goBack decides whether the set goes back to an earlier template, sets the condition RolledBack, and returns why
// clusters receive an earlier template; empty if they do not. A rollout that goes back is not stopped.
func (p *plan) goBack(in input) (why string) {
	rollback, invalid := onFailure(in.set)
	settled := rollback && in.revisions.Own != 0 && !workv1.IsPaused(in.set)
	decisions := make([]rollout.Decision, 0, len(p.rollouts))
	for _, r := range p.rollouts {
		settled = settled && r.err == nil && r.chosen == r.selected
		decisions = append(decisions, r.decision)
	}
	if settled {
		p.revisions = in.revisions.After(decisions)
	}
	failures := exceededMessage(p.rollouts)
	c := metav1.Condition{Type: workv1alpha1.ManifestWorkReplicaSetConditionRolledBack, Status: metav1.ConditionFalse}
	before := meta.FindStatusCondition(p.status.Conditions, c.Type)
	switch {
	case in.revisions.Served != 0:
		why = servedText(in)
	case p.revisions.Served != 0:
		// The message stays when it waits no longer.
		why = backText(p.revisions) + ": " + joinTexts(failures, failedTestsText(p.rollouts), waitsText("it waited for ", p.rollouts))
		for i := range p.rollouts {
			p.rollouts[i].decision.StoppedBy = nil
		}
	case invalid != "":
		c.Reason, c.Message = workv1alpha1.ReasonInvalidAnnotation, invalid
	case settled && failures != "" && in.revisions.Proven == 0:
		c.Reason, c.Message = workv1alpha1.ReasonNoProvenRevision, "no earlier revision with this executor has succeeded everywhere it was"
	case settled && in.revisions.Own == in.revisions.Proven && stoppedMessage(p.rollouts) != "":
		c.Reason = workv1alpha1.ReasonNoProvenRevision
		c.Message = fmt.Sprintf("revision %d has succeeded everywhere before, so that the template is not the cause: mend the clusters or the WorkOverrides", in.revisions.Own)
	case before != nil:
		c.Reason = workv1alpha1.ReasonAsExpected
	default:
		return ""
	}
	if why != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, failureReason(p.rollouts), why
		if in.revisions.Served != 0 && before != nil && before.Status == metav1.ConditionTrue { // why it goes back, not how it fares
			c.Reason = before.Reason
		}
	}
	conditionSetter(&p.status, in.now)(c)
	return why
}

// backText says where a set has gone back to.
func backText(r rollout.Revisions) string {
	return fmt.Sprintf("back from revision %d to revision %d", r.Own, r.Served)
}

// servedText says which revision clusters receive in place of the set's own, and why, which the condition RolledBack
// remembers.
func servedText(in input) string {
	if c := meta.FindStatusCondition(in.set.Status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionRolledBack); c != nil && c.Status == metav1.ConditionTrue {
		return c.Message
	}
	return backText(in.revisions)
}

// exceededMessage names the clusters whose failures are more than strategies tolerate; empty if there are none.
func exceededMessage(rollouts []placementRollout) string {
	for _, r := range rollouts {
		if len(r.decision.Exceeded) > 0 {
			return failuresText(r.decision.Exceeded)
		}
	}
	return ""
}
