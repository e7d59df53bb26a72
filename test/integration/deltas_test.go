package integration

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/brokertest"
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

// tries is how often cheapest has a value changed.
const tries = 3

// cheapest returns the fewest bytes on the link that a change costs, to "1", "2" and "3" in turn: beside one of them there may
// be what a slow machine sends late.
func cheapest(link *recording, change func(value string)) int {
	fewest := math.MaxInt
	for try := range tries {
		before := len(link.bytes())
		change(fmt.Sprint(try + 1))
		fewest = min(fewest, len(link.bytes())-before)
	}
	return fewest
}

// TestStatusDeltas: one changed value of a large work costs less than a hundredth of its status on the
// wire, also signed; and whatever the hub has lost meanwhile, it is told the newest value.
func TestStatusDeltas(t *testing.T) {
	const manifests = 300
	onBothBrokers(t, func(w *world) {
		tap, address := record(w.T, w.broker.Addr)
		agentMetrics, keys := prometheus.NewRegistry(), w.newAgentKeys()
		stopHub := w.connectedHub(prometheus.NewRegistry(), keys.trusts)
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
		before := deltas()
		sent := cheapest(tap, func(value string) {
			w.setValue("large-250", value)
			w.told("large", 250, value)
		})
		if n := deltas() - before; n != tries {
			w.Errorf("%v deltas were sent, want %d", n, tries)
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
		w.told("large", 250, fmt.Sprint(tries))

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

// editedWork is a work with large ConfigMaps, of which one at a time changes.
type editedWork struct {
	*world
	work *workv1.ManifestWork
}

// newEditedWork creates a work with n ConfigMaps of a kilobyte each that does not compress.
func (w *world) newEditedWork(n int) *editedWork {
	w.Helper()
	e := &editedWork{w, w.work(0, "edited", "")}
	for i := range n {
		var value strings.Builder
		for value.Len() < 1000 {
			value.WriteString(rand.Text())
		}
		e.work.Spec.Workload.Manifests = append(e.work.Spec.Workload.Manifests, configMap(w.targets[0], fmt.Sprintf("edited-%d", i), value.String()))
	}
	w.create(w.works(0), e.work)
	w.applied(w.works(0), e.work.Name)
	return e
}

// edit changes one ConfigMap.
func (e *editedWork) edit(i int, value string) {
	e.Helper()
	e.work.Spec.Workload.Manifests[i] = configMap(e.targets[0], fmt.Sprintf("edited-%d", i), value)
	e.update(e.works(0), e.work)
}

// arrives waits until the work is applied and the ConfigMap has a value.
func (e *editedWork) arrives(i int, value string) {
	e.Helper()
	e.applied(e.works(0), e.work.Name)
	c, err := kubernetes.NewForConfigOrDie(e.plane(0).REST()).CoreV1().ConfigMaps(e.targets[0]).Get(e.Context(), fmt.Sprintf("edited-%d", i), metav1.GetOptions{})
	kit.NoError(e, err)
	if c.Data["k"] != value {
		e.Errorf("the ConfigMap has %q, want %q", c.Data["k"], value)
	}
}

// deltasOf returns how many specs a hub with these metrics has sent as deltas.
func (w *world) deltasOf(metrics *prometheus.Registry) float64 {
	return kit.Metric(w, metrics, "workwire_source_spec_deltas_total")
}

// TestSpecDeltas: a small edit of a large work, with the status that answers it, costs less than a twentieth
// of its spec on the wire, also signed.
func TestSpecDeltas(t *testing.T) {
	onBothBrokers(t, func(w *world) {
		tap, address := record(w.T, w.broker.Addr)
		hubMetrics, keys := prometheus.NewRegistry(), newKeys(w.T, w.source)
		w.connectedHub(hubMetrics, keys.signs)
		w.agent(0, topicsOf(string(w.source)), keys.trusts, func(c *agent.Config) {
			direct := w.broker.Addr
			w.broker.Addr = address
			c.Transport = w.transport(string(w.clusters[0]), c.ClientID, c.Topics)
			w.broker.Addr = direct
		})
		e := w.newEditedWork(300)
		whole, err := json.Marshal(e.work.Spec)
		kit.NoError(w, err)
		sent := cheapest(tap, func(value string) {
			e.edit(150, value)
			e.arrives(150, value)
		})
		w.Logf("an edit costs %d bytes in both directions, the spec has %d", sent, len(whole))
		if n := w.deltasOf(hubMetrics); n != tries || 20*sent > len(whole) {
			w.Errorf("an edit costs %d bytes, the spec has %d; %v deltas were sent, want %d", sent, len(whole), n, tries)
		}
	})
}

// TestSpecDeltaWithoutBase: the broker keeps a delta for an agent that has lost what it is the difference
// from, while the hub is away. The agent gets the whole, and deltas again.
func TestSpecDeltaWithoutBase(t *testing.T) {
	onBothBrokers(t, func(w *world) {
		hubMetrics, agentMetrics := prometheus.NewRegistry(), prometheus.NewRegistry()
		stopHub := w.connectedHub(hubMetrics)
		stopAgent := w.agent(0, topicsOf(string(w.source)))
		e := w.newEditedWork(20)
		stopAgent()
		e.edit(7, "one")
		kit.True(w, "the edit is sent as a delta", func() bool { return w.deltasOf(hubMetrics) == 1 })
		stopHub()
		w.agent(0, topicsOf(string(w.source)), func(c *agent.Config) { c.Registerer = agentMetrics })
		kit.True(w, "the delta has no base", func() bool {
			return kit.Metric(w, agentMetrics, "workwire_agent_specs_received_total", "verdict=unknown_base") == 1
		})
		hubMetrics = prometheus.NewRegistry()
		w.connectedHub(hubMetrics)
		e.arrives(7, "one")
		e.edit(8, "two")
		e.arrives(8, "two")
		if n := w.deltasOf(hubMetrics); n != 1 {
			w.Errorf("%v deltas were sent after that, want 1", n)
		}
	})
}

// TestSealedSpecIsNoDelta: what is sealed is never sent as a difference, which would show what changes.
func TestSealedSpecIsNoDelta(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.broker = brokertest.Start(t, broker.Config{Users: w.users})
	hubMetrics, s := prometheus.NewRegistry(), newSeals(t, w.source, w.clusters[0])
	w.connectedHub(hubMetrics, s.seals)
	w.agent(0, topicsOf(string(w.source)), s.trusts, s.opens())
	e := w.newEditedWork(20)
	e.edit(3, "one")
	e.arrives(3, "one")
	if n := w.deltasOf(hubMetrics); n != 0 {
		t.Errorf("%v deltas were sent", n)
	}
}
