package faults

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/process"
)

// TestEmptyHub starts the hub on an empty API under the same source id, as with a wrong kubeconfig:
// the agent keeps all works and objects, and says so. Back on the right API, everything goes on.
func TestEmptyHub(t *testing.T) {
	for name, args := range map[string][]string{"memory": nil, "state": {"--state-dir=" + t.TempDir()}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, func(w *world) { w.agentArgs = args })
			w.during(time.Second, 8)
			w.converge()
			kit.NoError(t, w.hub.Stop())
			empty := controlplane.StartFor(t, controlplane.Hub)
			kit.NoError(t, install.CRDs(t.Context(), empty.REST(), crds.Hub()...))
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.cluster}}
			_, err := kubernetes.NewForConfigOrDie(empty.REST()).CoreV1().Namespaces().Create(t.Context(), namespace, create)
			kit.NoError(t, err)

			w.startHubOn(empty)
			w.stopAgent()
			w.startAgent()
			w.holds(len(w.want))
			w.converge() // nothing has changed

			kit.NoError(t, w.hub.Stop())
			w.startHub()
			w.stopAgent() // it asks for its works when it connects
			w.startAgent()
			w.holds(0)
			w.converge()
			w.during(time.Second, 4)
			w.converge()
			w.end()
		})
	}
}

// holds waits until the agent's metric counts so many works that it keeps although their source
// does not know them.
func (w *world) holds(n int) {
	w.Helper()
	address, err := w.agent.Line(w.Context(), process.Listening)
	kit.NoError(w, err)
	kit.Within(w, limit, fmt.Sprintf("the agent holds %d works", n), func() error {
		response, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		metrics, err := kit.ParseMetrics(bytes.NewReader(text))
		if held := int(metrics.Sum("workwire_agent_works_deletion_held")); err == nil && held != n {
			err = fmt.Errorf("it holds %d", held)
		}
		return err
	})
}
