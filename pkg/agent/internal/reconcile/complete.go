package reconcile

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/workwire/workwire/pkg/agent/internal/conditionrules"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// completed decides completion by the rules for condition Complete. A manifest whose object is not
// observed is as complete as it was before: a finished Job stays complete after it was cleaned up.
// An object makes no spec complete that was not applied yet, unless its manifest was complete
// before: it may be another work's. A manifest without such a rule is not complete, whatever it was
// before.
func (rec *reconciliation) completed(wasComplete func(workv1.ManifestResourceMeta) bool) conditionrules.Completion {
	return conditionrules.Completed(rec.manifests, func(i int) bool {
		was, o := rec.withholds(i) == nil && wasComplete(rec.manifests[i].Meta), &rec.observed[i]
		switch {
		case o.live.State != object.Present:
			return was
		case !meta.IsStatusConditionTrue(o.conditions, workv1.ManifestComplete):
			return false
		case rec.known != nil && (was || !rec.changed):
			return true
		}
		rec.requeueWithin(time.Millisecond) // it counts once the spec is applied
		return false
	})
}
