package replicaset

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
)

// validateNames returns why works of the set cannot be labelled; empty if they can.
func validateNames(set *workv1alpha1.ManifestWorkReplicaSet) string {
	label := workv1alpha1.WorkLabel(controller.KeyOf(set))
	if problems := validation.IsValidLabelValue(label); len(problems) > 0 {
		return fmt.Sprintf("<namespace>.<name> of the set is %q, which is not a valid value of the label %s of works: %s; give the set a shorter name",
			label, workv1.ReplicaSetLabelKey, strings.Join(problems, "; "))
	}
	for _, ref := range set.Spec.PlacementRefs {
		if problems := validation.IsValidLabelValue(ref.Name); len(problems) > 0 {
			return fmt.Sprintf("the name of placement %q is not a valid value of the label %s of works: %s; give the placement a shorter name",
				ref.Name, workv1.PlacementNameLabelKey, strings.Join(problems, "; "))
		}
	}
	return ""
}
