package replicaset

import (
	"log/slog"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
)

// event records an event on the set.
func (c *Controller) event(set *workv1alpha1.ManifestWorkReplicaSet, kind, reason, format string, args ...any) {
	c.cfg.Recorder.Eventf(set, kind, reason, format, args...)
}

// report reports in events, logs and metrics what the plan changes in the status of set. Since the
// status is stored, nothing is reported again after a restart.
func (c *Controller) report(set *workv1alpha1.ManifestWorkReplicaSet, p *plan, s *setMemory) {
	c.metrics.setGauges(&s.counted, gaugesOf(p))
	log := c.cfg.Logger.With("set", set.Name, "namespace", set.Namespace)
	changed := func(kind string) *metav1.Condition {
		before, after := meta.FindStatusCondition(set.Status.Conditions, kind), meta.FindStatusCondition(p.status.Conditions, kind)
		if after == nil || before != nil && before.Status == after.Status && before.Reason == after.Reason && before.Message == after.Message {
			return nil
		}
		return after
	}
	verified := changed(workv1alpha1.ManifestWorkReplicaSetConditionPlacementVerified)
	applied := changed(workv1alpha1.ManifestWorkReplicaSetConditionManifestworkApplied)
	switch {
	case verified != nil && verified.Reason == workv1alpha1.ReasonNotAsExpected:
		c.event(set, corev1.EventTypeWarning, verified.Reason, "%s", verified.Message)
	case p.invalid != "" && verified != nil:
		c.event(set, corev1.EventTypeWarning, verified.Reason, "%s", p.invalid)
	case p.invalid != "" && applied != nil:
		c.event(set, corev1.EventTypeWarning, applied.Reason, "%s", p.invalid)
	}
	if held := changed(workv1alpha1.ManifestWorkReplicaSetConditionRemovalsHeld); held != nil && held.Status == metav1.ConditionTrue {
		log.Warn("deletion of works held", "reason", held.Message)
		c.event(set, corev1.EventTypeWarning, held.Type, "%s", held.Message)
	}
	c.reportGroups(set, p, s)
	rolledOut := changed(workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut)
	switch {
	case rolledOut == nil, rolledOut.Status == metav1.ConditionTrue && p.status.Summary.Total == 0:
	case rolledOut.Status == metav1.ConditionTrue:
		log.Info("rollout complete", "works", p.status.Summary.Total)
		c.event(set, corev1.EventTypeNormal, workv1alpha1.EventRolledOut, "All %d works are rolled out", p.status.Summary.Total)
	}
	c.reportStop(set, p, log)
	c.reportBack(set, changed(workv1alpha1.ManifestWorkReplicaSetConditionRolledBack), changed(workv1alpha1.ManifestWorkReplicaSetConditionProgressing), log)
	c.reportPause(set, p)
}

// reportBack reports that the set goes back to an earlier template, has done so, or cannot. back and progressing are
// the conditions RolledBack and Progressing, nil if they have not changed.
func (c *Controller) reportBack(set *workv1alpha1.ManifestWorkReplicaSet, back, progressing *metav1.Condition, log *slog.Logger) {
	switch {
	case back == nil:
	case back.Status == metav1.ConditionTrue:
		log.Warn("rollout failed, going back", "reason", back.Message)
		c.event(set, corev1.EventTypeWarning, workv1alpha1.ReasonRollingBack, "Rollout failed: %s", back.Message)
	case back.Reason != workv1alpha1.ReasonAsExpected:
		c.event(set, corev1.EventTypeWarning, back.Reason, "%s", back.Message)
	}
	before := meta.FindStatusCondition(set.Status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionProgressing)
	if progressing != nil && progressing.Reason == workv1alpha1.ReasonRolledBack && (before == nil || before.Reason != progressing.Reason) {
		c.event(set, corev1.EventTypeNormal, progressing.Reason, "%s", progressing.Message)
	}
}

// reportPause reports that the rollout is paused, waits for a preview, or goes on.
func (c *Controller) reportPause(set *workv1alpha1.ManifestWorkReplicaSet, p *plan) {
	const kind = workv1alpha1.ManifestWorkReplicaSetConditionProgressing
	before, after := meta.FindStatusCondition(set.Status.Conditions, kind), meta.FindStatusCondition(p.status.Conditions, kind)
	was := before != nil && before.Reason == workv1alpha1.ReasonPaused
	is := after != nil && after.Reason == workv1alpha1.ReasonPaused
	switch {
	case after != nil && after.Reason == workv1alpha1.ReasonWaitsForPreview && (before == nil || before.Reason != after.Reason):
		c.event(set, corev1.EventTypeNormal, after.Reason, "%s", after.Message)
	case is && !was:
		c.event(set, corev1.EventTypeNormal, workv1alpha1.EventRolloutPaused, "Rollout %s", after.Message)
	case was && !is:
		c.event(set, corev1.EventTypeNormal, workv1alpha1.EventRolloutResumed, "Rollout resumed: %s", after.Message)
	}
}

// reportStop reports which failures stop the rollout, once.
func (c *Controller) reportStop(set *workv1alpha1.ManifestWorkReplicaSet, p *plan, log *slog.Logger) {
	before := meta.FindStatusCondition(set.Status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut)
	stopped := stoppedMessage(p.rollouts)
	if stopped == "" || before != nil && (before.Message == stopped || strings.HasPrefix(before.Message, stopped+";")) {
		return
	}
	log.Warn("rollout stopped by failures", "reason", stopped)
	c.event(set, corev1.EventTypeWarning, workv1alpha1.EventRolloutStopped, "Rollout %s", joinTexts(stopped, waitsMessage(p.rollouts)))
}

// reportGroups reports decision groups that have succeeded since the last reconcile, for placements
// with several groups.
func (c *Controller) reportGroups(set *workv1alpha1.ManifestWorkReplicaSet, p *plan, s *setMemory) {
	before := s.succeededGroups
	s.succeededGroups = make(map[string]int, len(p.rollouts))
	for _, r := range p.rollouts {
		s.succeededGroups[r.placement] = r.succeededGroups
		if n, known := before[r.placement]; known && r.succeededGroups > n && r.filledGroups > 1 {
			c.event(set, corev1.EventTypeNormal, workv1alpha1.EventGroupRolledOut, "%d of %d decision groups of placement %s are rolled out",
				r.succeededGroups, r.filledGroups, r.placement)
		}
	}
}
