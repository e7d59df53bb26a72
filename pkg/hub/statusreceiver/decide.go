package statusreceiver

import (
	"fmt"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// plan is what to do with a received status, in this order.
type plan struct {
	store   bool // write the status
	release bool // remove the hub's finalizer
}

// decide plans for a received status of work. A deleted work that only the hub's finalizer holds
// gets no further status.
func decide(work *workv1.ManifestWork, status *workv1.ManifestWorkStatus) plan {
	p := plan{store: !apiequality.Semantic.DeepEqual(&work.Status, status)}
	if work.DeletionTimestamp != nil && meta.IsStatusConditionTrue(status.Conditions, workv1.WorkDeleted) {
		p.release = slices.Contains(work.Finalizers, workv1.ManifestWorkFinalizer)
		if p.release && len(work.Finalizers) == 1 {
			p.store = false
		}
	}
	return p
}

// unstorable returns the status to write in place of one that the API server refused: the status
// before it, with the condition [ConditionStatusStored].
func unstorable(before *workv1.ManifestWorkStatus, generation int64, refusal error) *workv1.ManifestWorkStatus {
	status := before.DeepCopy()
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type:   ConditionStatusStored,
		Status: metav1.ConditionFalse,
		Reason: ReasonRefused,
		Message: truncate(fmt.Sprintf("The hub's API refuses the status that the agent reports, so the rest of this status is an older one: %v",
			refusal), maxMessage),
		ObservedGeneration: generation,
	})
	return status
}

// maxMessage is the maximum length of a condition's message in bytes.
const maxMessage = 32768

func truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const mark = " …"
	return strings.ToValidUTF8(s[:limit-len(mark)], "") + mark
}
