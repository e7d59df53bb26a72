package works

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

func TestVisibleAndNeedsFinalizer(t *testing.T) {
	for _, c := range []struct {
		name                                 string
		finalizer, other, deleting, reported bool
		unaddressable                        bool
		visible, needs                       bool
	}{
		{name: "new", needs: true},
		{name: "new, with another finalizer", other: true, needs: true},
		{name: "held", finalizer: true, visible: true},
		{name: "held among others", finalizer: true, other: true, visible: true},
		{name: "being deleted", finalizer: true, deleting: true, visible: true},
		{name: "done, held by somebody else", other: true, deleting: true},
		{name: "done and reported, held by somebody else", other: true, deleting: true, reported: true},
		{name: "finalizer taken away", reported: true, visible: true, needs: true},
		{name: "not addressable", unaddressable: true, visible: true},
		{name: "not addressable, being deleted", unaddressable: true, other: true, deleting: true},
		{name: "not addressable any more", unaddressable: true, finalizer: true, visible: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			work := &workv1.ManifestWork{}
			if c.other {
				work.Finalizers = append(work.Finalizers, "example.com/other")
			}
			if c.finalizer {
				work.Finalizers = append(work.Finalizers, workv1.ManifestWorkFinalizer)
			}
			if c.deleting {
				now := metav1.Now()
				work.DeletionTimestamp = &now
			}
			work.Status.Conditions = []metav1.Condition{{Type: workv1.WorkDelivered}} // the hub's own: it says nothing
			if c.reported {
				work.Status.Conditions = []metav1.Condition{{Type: workv1.WorkApplied}}
			}
			if got := isVisible(work, !c.unaddressable); got != c.visible {
				t.Errorf("Visible %t", got)
			}
			if got := needsFinalizer(work, !c.unaddressable); got != c.needs {
				t.Errorf("NeedsFinalizer %t", got)
			}
		})
	}
}
