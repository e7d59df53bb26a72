package reconcile

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/workwire/workwire/pkg/agent/internal/conditionrules"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// completed decides completion by the rules for condition Complete. A manifest whose object is not
// observed is as complete as it was before: a finished Job stays complete after it was cleaned up.
// A manifest without such a rule is not complete, whatever it was before.
func completed(manifests []strategy.Manifest, observed []observed, wasComplete func(workv1.ManifestResourceMeta) bool) conditionrules.Completion {
	return conditionrules.Completed(manifests, func(i int) bool {
		if observed[i].live.State != object.Present {
			return wasComplete(manifests[i].Meta)
		}
		return meta.IsStatusConditionTrue(observed[i].conditions, workv1.ManifestComplete)
	})
}
