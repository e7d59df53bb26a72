package integration

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

// TestHubWithAnEmptyAPI swaps the hub for one of the same source id on an empty API, as a wrong
// kubeconfig or a lost etcd does, while the agent is stopped or stays connected. No object is
// deleted; a work of the same name takes over its objects, an annotation releases a deletion, and
// the first hub has its works again when it is back.
func TestHubWithAnEmptyAPI(t *testing.T) {
	t.Parallel()
	empty := controlplane.StartFor(t, controlplane.Hub)
	kit.NoError(t, install.CRDs(t.Context(), empty.REST(), append(crds.Hub(), crds.Spoke()...)...))
	for name, way := range map[string]struct{ keepState, restart bool }{
		"memory": {restart: true}, "state": {keepState: true, restart: true}, "connected": {},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMove(t, way.keepState)
			stopHub, stopAgent := m.hubAt(0), m.agentAt(0, string(m.Clusters[0]))
			names := []string{"w0", "w1", "w2", "w3"}
			for _, name := range names {
				m.Create(m.Works(0), m.Work(0, name, "one", name))
			}
			m.Applied(m.Works(0), names...)
			before := m.objects()
			stopHub()
			if way.restart {
				stopAgent()
			}

			m.Broker = m.brokers[0]
			stopHub = m.StartHub(func(c *hub.Config) { c.REST = empty.REST() }).Stop
			if way.restart {
				stopAgent = m.agentAt(0, string(m.Clusters[0]))
			}
			m.awaitHeld(4)
			m.sameObjects(before)

			_, err := kubernetes.NewForConfigOrDie(empty.REST()).CoreV1().Namespaces().Create(t.Context(),
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: string(m.Clusters[0])}}, metav1.CreateOptions{})
			kit.NoError(t, err)
			restored := workclient.NewForConfigOrDie(empty.REST()).WorkV1().ManifestWorks(string(m.Clusters[0]))
			m.Create(restored, m.Work(0, "w0", "one", "w0"))
			m.Applied(restored, "w0")
			m.awaitHeld(3)
			m.sameObjects(before)
			m.release("w1")
			delete(before, "w1")
			kit.True(t, "the released object is gone", func() bool { return len(m.objects()) == 3 })
			m.sameObjects(before)
			stopHub()
			if way.restart {
				stopAgent()
				m.agentAt(0, string(m.Clusters[0]))
			}

			m.hubAt(0)
			m.awaitHeld(0)
			m.Applied(m.Works(0), names...)
			now := m.objects()
			delete(now, "w1") // it is applied again
			if len(now) != 3 || now["w0"] != before["w0"] || now["w2"] != before["w2"] || now["w3"] != before["w3"] {
				t.Errorf("the objects are %v, were %v", now, before)
			}
		})
	}
}

// awaitHeld waits until the deletion of this many works is held.
func (m *move) awaitHeld(want int) {
	m.Helper()
	kit.Eventually(m, fmt.Sprintf("%d works are held", want), func() error {
		held := 0
		for _, amw := range m.appliedManifestWorks() {
			if amw.Annotations[workv1.HeldAnnotation] != "" {
				held++
			}
		}
		if held != want {
			return fmt.Errorf("%d are", held)
		}
		return nil
	})
}

// release releases the deletion of a held work, as docs/agent.md says.
func (m *move) release(work string) {
	m.Helper()
	for _, amw := range m.appliedManifestWorks() {
		if amw.Spec.ManifestWorkName == work {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, workv1.ReleaseAnnotation)
			_, err := workclient.NewForConfigOrDie(spokePlane.REST()).WorkV1().AppliedManifestWorks().Patch(m.Context(), amw.Name,
				types.MergePatchType, patch, metav1.PatchOptions{})
			kit.NoError(m, err)
		}
	}
}
