package integration

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
)

// observedWork returns a work with n ConfigMaps that is told their value and does not change it.
func (w *world) observedWork(name string, n int) *workv1.ManifestWork {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%d", name, i))
	}
	work := w.work(0, name, "0", names...)
	for _, object := range names {
		work.Spec.ManifestConfigs = append(work.Spec.ManifestConfigs, workv1.ManifestConfigOption{
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: w.targets[0], Name: object},
			UpdateStrategy:     &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeCreateOnly},
			FeedbackRules:      []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: "k", Path: ".data.k"}}}},
		})
	}
	return work
}

// setValue changes the value of a ConfigMap on cluster 0.
func (w *world) setValue(name, value string) {
	w.Helper()
	_, err := kubernetes.NewForConfigOrDie(w.plane(0).REST()).CoreV1().ConfigMaps(w.targets[0]).
		Patch(w.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"k":%q}}`, value), metav1.PatchOptions{})
	kit.NoError(w, err)
}

// told waits until the hub was told the value of manifest i of a work, and returns the status as JSON.
func (w *world) told(name string, i int, value string) (status []byte) {
	w.Helper()
	kit.Eventually(w, fmt.Sprintf("%s of manifest %d is told", value, i), func() error {
		work, err := w.works(0).Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		manifests := work.Status.ResourceStatus.Manifests
		if i >= len(manifests) || len(manifests[i].StatusFeedbacks.Values) != 1 || *manifests[i].StatusFeedbacks.Values[0].Value.String != value {
			return fmt.Errorf("%d manifests, want %q of manifest %d", len(manifests), value, i)
		}
		status, err = json.Marshal(work.Status)
		return err
	})
	return status
}

// TestStatusDeltas: one changed value of a large work costs less than a hundredth of its status on the
// wire, also signed; and whatever the hub has lost meanwhile, it is told the newest value.
func TestStatusDeltas(t *testing.T) {
	const manifests = 300
	onBothBrokers(t, func(w *world) {
		tap, address := newWiretap(w.T, w.broker.Addr)
		agentMetrics, keys := prometheus.NewRegistry(), w.newAgentKeys()
		stopHub := w.hub(keys.trusts)
		w.agent(0, topicsOf(string(w.source)), func(c *agent.Config) {
			c.Sign, c.Registerer, c.DigestInterval = keys.signer(0, 0).SignStatus, agentMetrics, -1 // digests are bytes too
			direct := w.broker.Addr
			w.broker.Addr = address
			c.Transport = w.transport(string(w.clusters[0]), c.ClientID, c.Topics)
			w.broker.Addr = direct
		})
		w.create(w.works(0), w.observedWork("large", manifests))
		w.applied(w.works(0), "large")
		whole := len(w.told("large", manifests-1, "0"))

		deltas := func() float64 { return kit.Metric(w, agentMetrics, "workwire_agent_status_deltas_total") }
		before, sent := deltas(), len(tap.bytes())
		w.setValue("large-250", "1")
		w.told("large", 250, "1")
		sent = len(tap.bytes()) - sent
		if n := deltas() - before; n != 1 {
			w.Errorf("%v deltas were sent, want 1", n)
		}
		w.Logf("a changed value costs %d bytes in both directions, the status has %d", sent, whole)
		if 100*sent > whole {
			w.Errorf("a changed value costs %d bytes, more than a hundredth of the %d of the status", sent, whole)
		}

		// Somebody changes what the hub has stored.
		_, err := w.works(0).Patch(w.Context(), "large", types.MergePatchType, []byte(`{"status":{"resourceStatus":{"manifests":[]}}}`), metav1.PatchOptions{}, "status")
		kit.NoError(w, err)
		w.setValue("large-7", "2")
		w.told("large", 7, "2")
		w.told("large", 250, "1")

		// The hub is away while values change, and the next one knows nothing but what is stored.
		stopHub()
		w.setValue("large-8", "3")
		w.setValue("large-9", "3")
		w.hub(keys.trusts)
		w.told("large", 8, "3")
		w.told("large", 9, "3")
		w.setValue("large-10", "4")
		w.told("large", 10, "4")
	})
}
