package reconcile

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent/internal/conditionrules"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// completed decides completion by the rules for condition Complete. A manifest whose object is not
// observed is as complete as it was before: a finished Job stays complete after it was cleaned up.
// An object makes no manifest complete that was not applied yet, unless the manifest was complete
// before: it may be another work's. A manifest without such a rule is not complete, whatever it was
// before.
func (rec *reconciliation) completed(wasComplete func(workv1.ManifestResourceMeta) bool) conditionrules.Completion {
	return conditionrules.Completed(rec.manifests, func(i int) bool {
		was, o := rec.withholds(i) == nil && wasComplete(rec.manifests[i].Meta), &rec.observed[i]
		if o.live.State != object.Present {
			return was
		}
		c := meta.FindStatusCondition(o.conditions, workv1.ManifestComplete)
		switch {
		case c == nil || c.Status != metav1.ConditionTrue:
			return false
		case rec.known != nil && (was || rec.last.spec(rec.manifests[i].Ref) == rec.work):
			return true
		}
		o.uncounted, c.Status, c.Message = true, metav1.ConditionUnknown, "The manifest has not been applied yet"
		return false
	})
}

// countNow has the work reconciled again if a manifest was applied whose object was complete before.
func (rec *reconciliation) countNow() {
	for i := range rec.observed {
		if rec.observed[i].uncounted && rec.last.spec(rec.manifests[i].Ref) == rec.work {
			rec.requeueWithin(time.Millisecond)
		}
	}
}
