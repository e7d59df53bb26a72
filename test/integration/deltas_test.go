package integration

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/world"
)

// observedWork returns a work with n ConfigMaps that is told their value and does not change it.
func observedWork(w *world.World, name string, n int) *workv1.ManifestWork {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%d", name, i))
	}
	work := w.Work(0, name, "0", names...)
	for _, object := range names {
		work.Spec.ManifestConfigs = append(work.Spec.ManifestConfigs, workv1.ManifestConfigOption{
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: w.Targets[0], Name: object},
			UpdateStrategy:     &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeCreateOnly},
			FeedbackRules:      []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: "k", Path: ".data.k"}}}},
		})
	}
	return work
}

// setValue changes the value of a ConfigMap on cluster 0.
func setValue(w *world.World, name, value string) {
	w.Helper()
	_, err := kubernetes.NewForConfigOrDie(w.Spokes[0].REST()).CoreV1().ConfigMaps(w.Targets[0]).
		Patch(w.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"k":%q}}`, value), metav1.PatchOptions{})
	kit.NoError(w, err)
}

// told waits until the hub was told the value of manifest i of a work, and returns the status as JSON.
func told(w *world.World, name string, i int, value string) (status []byte) {
	w.Helper()
	kit.Eventually(w, fmt.Sprintf("%s of manifest %d is told", value, i), func() error {
		work, err := w.Works(0).Get(w.Context(), name, metav1.GetOptions{})
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
	t.Parallel()
	w := withBroker(t)
	tap, address := record(w, w.Broker.Addr)
	keys := newAgentKeys(w)
	hub := w.StartHub(keys.trusts).AwaitConnected()
	agent := w.StartAgent(0, func(c *agent.Config) {
		c.Sign, c.DigestInterval = keys.signer(0, 0).SignStatus, -1 // digests are bytes too
		c.Transport = w.Via(address).Transport(string(w.Clusters[0]), c.ClientID, c.Topics)
	})
	w.Create(w.Works(0), observedWork(w, "large", manifests))
	w.Applied(w.Works(0), "large")
	whole := len(told(w, "large", manifests-1, "0"))

	deltas := func() float64 { return agent.Metric("workwire_agent_status_deltas_total") }
	before := deltas()
	sent := cheapest(tap, func(value string) {
		setValue(w, "large-250", value)
		told(w, "large", 250, value)
	})
	if n := deltas() - before; n != tries {
		w.Errorf("%v deltas were sent, want %d", n, tries)
	}
	w.Logf("a changed value costs %d bytes in both directions, the status has %d", sent, whole)
	if 100*sent > whole {
		w.Errorf("a changed value costs %d bytes, more than a hundredth of the %d of the status", sent, whole)
	}

	// Somebody changes what the hub has stored.
	_, err := w.Works(0).Patch(w.Context(), "large", types.MergePatchType, []byte(`{"status":{"resourceStatus":{"manifests":[]}}}`), metav1.PatchOptions{}, "status")
	kit.NoError(w, err)
	setValue(w, "large-7", "2")
	told(w, "large", 7, "2")
	told(w, "large", 250, fmt.Sprint(tries))

	// The hub is away while values change, and the next one knows nothing but what is stored.
	hub.Stop()
	setValue(w, "large-8", "3")
	setValue(w, "large-9", "3")
	w.StartHub(keys.trusts)
	told(w, "large", 8, "3")
	told(w, "large", 9, "3")
	setValue(w, "large-10", "4")
	told(w, "large", 10, "4")
}

// editedWork is a work with large ConfigMaps, of which one at a time changes.
type editedWork struct {
	*world.World
	work *workv1.ManifestWork
}

// newEditedWork creates a work with n ConfigMaps of a kilobyte each that does not compress.
func newEditedWork(w *world.World, n int) *editedWork {
	w.Helper()
	e := &editedWork{w, w.Work(0, "edited", "")}
	for i := range n {
		var value strings.Builder
		for value.Len() < 1000 {
			value.WriteString(rand.Text())
		}
		e.work.Spec.Workload.Manifests = append(e.work.Spec.Workload.Manifests, world.ConfigMap(w.Targets[0], fmt.Sprintf("edited-%d", i), value.String()))
	}
	w.Create(w.Works(0), e.work)
	w.Applied(w.Works(0), e.work.Name)
	return e
}

// edit changes one ConfigMap.
func (e *editedWork) edit(i int, value string) {
	e.Helper()
	e.work.Spec.Workload.Manifests[i] = world.ConfigMap(e.Targets[0], fmt.Sprintf("edited-%d", i), value)
	e.Update(e.Works(0), e.work)
}

// arrives waits until the work is applied and the ConfigMap has a value.
func (e *editedWork) arrives(i int, value string) {
	e.Helper()
	e.Applied(e.Works(0), e.work.Name)
	c, err := kubernetes.NewForConfigOrDie(e.Spokes[0].REST()).CoreV1().ConfigMaps(e.Targets[0]).Get(e.Context(), fmt.Sprintf("edited-%d", i), metav1.GetOptions{})
	kit.NoError(e, err)
	if c.Data["k"] != value {
		e.Errorf("the ConfigMap has %q, want %q", c.Data["k"], value)
	}
}

// deltasOf returns how many specs a hub has sent as deltas.
func deltasOf(h *world.Hub) float64 { return h.Metric("workwire_source_spec_deltas_total") }

// TestSpecDeltas: a small edit of a large work, with the status that answers it, costs less than a twentieth
// of its spec on the wire, also signed.
func TestSpecDeltas(t *testing.T) {
	t.Parallel()
	w := withBroker(t)
	tap, address := record(w, w.Broker.Addr)
	keys := newKeys(w, w.Source)
	hub := w.StartHub(keys.signs).AwaitConnected()
	w.StartAgent(0, keys.trusts, func(c *agent.Config) {
		c.Transport = w.Via(address).Transport(string(w.Clusters[0]), c.ClientID, c.Topics)
	})
	e := newEditedWork(w, 300)
	whole, err := json.Marshal(e.work.Spec)
	kit.NoError(w, err)
	sent := cheapest(tap, func(value string) {
		e.edit(150, value)
		e.arrives(150, value)
	})
	w.Logf("an edit costs %d bytes in both directions, the spec has %d", sent, len(whole))
	if n := deltasOf(hub); n != tries || 20*sent > len(whole) {
		w.Errorf("an edit costs %d bytes, the spec has %d; %v deltas were sent, want %d", sent, len(whole), n, tries)
	}
}

// TestSpecDeltaWithoutBase: the broker keeps a delta for an agent that has lost what it is the difference
// from, while the hub is away. The agent gets the whole, and deltas again.
func TestSpecDeltaWithoutBase(t *testing.T) {
	onBothBrokers(t, func(w *world.World) {
		hub, agent := w.StartHub().AwaitConnected(), w.StartAgent(0)
		e := newEditedWork(w, 20)
		agent.Stop()
		e.edit(7, "one")
		kit.True(w, "the edit is sent as a delta", func() bool { return deltasOf(hub) == 1 })
		hub.Stop()
		agent = w.StartAgent(0)
		kit.True(w, "the delta has no base", func() bool {
			return agent.Metric("workwire_agent_specs_received_total", "verdict=unknown_base") == 1
		})
		hub = w.StartHub().AwaitConnected()
		e.arrives(7, "one")
		e.edit(8, "two")
		e.arrives(8, "two")
		if n := deltasOf(hub); n != 1 {
			w.Errorf("%v deltas were sent after that, want 1", n)
		}
	})
}

// TestSealedSpecIsNoDelta: what is sealed is never sent as a difference, which would show what changes.
func TestSealedSpecIsNoDelta(t *testing.T) {
	t.Parallel()
	w := withBroker(t)
	s := newSeals(t, w.Source, w.Clusters[0])
	hub := w.StartHub(s.seals).AwaitConnected()
	w.StartAgent(0, s.trusts, s.opens())
	e := newEditedWork(w, 20)
	e.edit(3, "one")
	e.arrives(3, "one")
	if n := deltasOf(hub); n != 0 {
		t.Errorf("%v deltas were sent", n)
	}
}
