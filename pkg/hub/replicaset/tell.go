package replicaset

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
)

// event records one about the set. There is nothing to say about a set that is
// gone before.
func (c *Controller) event(set *workv1alpha1.ManifestWorkReplicaSet, kind, reason, format string, args ...any) {
	if c.cfg.Recorder != nil {
		c.cfg.Recorder.Eventf(set, kind, reason, format, args...)
	}
}

// tell says in events, log and metrics what the plan has changed for the set,
// whose status was the one it has. What has been told once, as the status shows,
// is not told again after a restart.
func (c *Controller) tell(set *workv1alpha1.ManifestWorkReplicaSet, p *plan, m *memory) {
	c.metrics.stand(&m.counted, standingOf(p))
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
	case p.fault != "" && verified != nil:
		c.event(set, corev1.EventTypeWarning, verified.Reason, "%s", p.fault)
	case p.fault != "" && applied != nil:
		c.event(set, corev1.EventTypeWarning, applied.Reason, "%s", p.fault)
	}
	c.tellGroups(set, p, m)
	rolledOut := changed(workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut)
	switch {
	case rolledOut == nil, rolledOut.Status == metav1.ConditionTrue && p.status.Summary.Total == 0:
	case rolledOut.Status == metav1.ConditionTrue:
		log.Info("a rollout is complete", "works", p.status.Summary.Total)
		c.event(set, corev1.EventTypeNormal, "RolledOut", "All %d works are rolled out", p.status.Summary.Total)
	case rolledOut.Message != "":
		log.Warn("a rollout is stopped by failures", "reason", rolledOut.Message)
		c.event(set, corev1.EventTypeWarning, "RolloutStopped", "Rollout %s", rolledOut.Message)
	}
}

// tellGroups tells of decision groups that succeeded since the last pass, of
// placements that have several.
func (c *Controller) tellGroups(set *workv1alpha1.ManifestWorkReplicaSet, p *plan, m *memory) {
	before := m.groups
	m.groups = make(map[string]int, len(p.rollouts))
	for _, r := range p.rollouts {
		m.groups[r.placement] = r.done
		if done, known := before[r.placement]; known && r.done > done && r.filled > 1 {
			c.event(set, corev1.EventTypeNormal, "GroupRolledOut", "%d of %d decision groups of placement %s are rolled out",
				r.done, r.filled, r.placement)
		}
	}
}
