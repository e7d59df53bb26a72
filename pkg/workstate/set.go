package workstate

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
)

// setBlocker tells why a work that is as it should be has not the newest template of its set. Of a set with WorkOverrides only
// the hub can tell: the specs of its works are not its template.
func setBlocker(f *Facts) *Blocker {
	set := f.Set
	if set == nil || equality.Semantic.DeepEqual(set.Spec.ManifestWorkTemplate, f.Work.Spec) {
		return nil
	}
	find := func(kind string) *metav1.Condition { return meta.FindStatusCondition(set.Status.Conditions, kind) }
	rolledOut, progressing := find(workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut), find(workv1alpha1.ManifestWorkReplicaSetConditionProgressing)
	if rolledOut != nil && rolledOut.Status == metav1.ConditionTrue && progressing != nil && progressing.ObservedGeneration == set.Generation ||
		find(workv1alpha1.ManifestWorkReplicaSetConditionOverridesRendered) != nil {
		return nil
	}
	name := fmt.Sprintf("ManifestWorkReplicaSet %s/%s", set.Namespace, set.Name)
	if workv1.IsPaused(set) {
		return &Blocker{Cause: SetPaused, Object: name, Reason: workv1.ReasonPaused,
			Message: "The set has a newer template, and its rollout is paused.",
			Do:      fmt.Sprintf("to resume it: workctl rollout resume %s -n %s", set.Name, set.Namespace)}
	}
	b := &Blocker{Cause: RolloutWaits, Object: name, Message: "The set has a newer template, and its rollout has not reached this cluster.",
		Do: fmt.Sprintf("see what it waits for: workctl rollout status %s -n %s", set.Name, set.Namespace)}
	if rolledOut != nil && rolledOut.Status == metav1.ConditionFalse {
		b.Reason, b.Since = rolledOut.Reason, &rolledOut.LastTransitionTime
		b.Message = cmp.Or(rolledOut.Message, b.Message)
	}
	return b
}
