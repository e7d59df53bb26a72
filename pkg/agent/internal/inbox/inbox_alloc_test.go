package inbox_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// TestPutAllocates bounds what taking a spec costs: a new generation, and one that is held already,
// which a broker may deliver any number of times.
func TestPutAllocates(t *testing.T) {
	box := inbox.New(inbox.Config{Changed: func(inbox.Key) {}})
	spec := wire.Spec{
		UID: uidOf("busy"), Generation: 1, Source: "hub", Cluster: "c1", Action: wire.Update,
		Meta:   metav1.ObjectMeta{Name: "busy", Namespace: "c1", UID: uidOf("busy")},
		Bundle: &wire.Bundle{Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap"}`)}}}},
	}
	held := func(error) {}
	box.Put(&spec, held)
	same := testing.AllocsPerRun(200, func() {
		copied := spec
		box.Put(&copied, held)
	})
	newer := testing.AllocsPerRun(200, func() {
		spec.Generation++
		copied := spec
		box.Put(&copied, held)
	})
	if most := 8.0; same > most {
		t.Errorf("a spec that is held already allocates %v times, want at most %v", same, most)
	}
	if most := 11.0; newer > most {
		t.Errorf("a new generation allocates %v times, want at most %v", newer, most)
	}
}
