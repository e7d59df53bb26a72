package reconcile

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/pods"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// A workload that has just been created is on its way to be ready: nothing is remembered of its pods.
func TestNothingIsKnownOfPodsAtFirst(t *testing.T) {
	workload := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment"}}
	c := causes{reconciler: &Reconciler{pods: pods.NewReader()}, rec: &reconciliation{subject: subject{entry: &entry{}}}}
	if known := c.next(t.Context(), workv1.ManifestResourceMeta{}, object.Ref{Name: "web"}, workload); known.Text != "" || c.known != nil {
		t.Errorf("known are %+v, %v", known, c.known)
	}
	if c.rec.requeueAfter == 0 {
		t.Error("nobody looks again")
	}
}
