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

// setBlocker tells why a work that is as it should be has not the newest template of its set.
func setBlocker(f *Facts) *Blocker {
	set := f.Set
	if set == nil || equality.Semantic.DeepEqual(set.Spec.ManifestWorkTemplate, f.Work.Spec) {
		return nil
	}
	name := fmt.Sprintf("ManifestWorkReplicaSet %s/%s", set.Namespace, set.Name)
	if workv1.IsPaused(set) {
		return &Blocker{Cause: SetPaused, Object: name, Reason: "Paused",
			Message: "The set has a newer template, and its rollout is paused.",
			Do:      fmt.Sprintf("to resume it: workctl rollout resume %s -n %s", set.Name, set.Namespace)}
	}
	b := &Blocker{Cause: RolloutWaits, Object: name, Message: "The set has a newer template, and its rollout has not reached this cluster.",
		Do: fmt.Sprintf("see what it waits for: workctl rollout status %s -n %s", set.Name, set.Namespace)}
	if c := meta.FindStatusCondition(set.Status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut); c != nil && c.Status == metav1.ConditionFalse {
		b.Reason, b.Since = c.Reason, &c.LastTransitionTime
		b.Message = cmp.Or(c.Message, b.Message)
	}
	return b
}
