package integration

import (
	"fmt"
	"testing"

	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/test/kit"
)

func TestCreateUpdateDelete(t *testing.T) {
	onBothBrokers(t, func(w *world) {
		works := w.works(0)
		w.hub()
		w.agent(0, topicsOf(string(w.source)))
		w.create(works, w.work(0, "web", "1", "a", "b"))
		w.applied(works, "web")
		w.holds(0, map[string]string{"a": "1", "b": "1"})
		w.update(works, w.work(0, "web", "2", "b", "c"))
		w.applied(works, "web")
		w.holds(0, map[string]string{"b": "2", "c": "2"})
		w.delete(works, "web")
		w.gone(works, "web")
		w.holds(0, nil)
		w.noAppliedManifestWorks(0)
	})
}

// churn makes three works, has while done, and changes, deletes and creates works in it, which away
// is to miss.
func (w *world) churn(leave func() (back func())) {
	works := w.works(0)
	for _, name := range []string{"kept", "changed", "deleted"} {
		w.create(works, w.work(0, name, "1", name))
	}
	w.applied(works, "kept", "changed", "deleted")

	back := leave()
	w.update(works, w.work(0, "changed", "2", "changed"))
	w.delete(works, "deleted")
	w.create(works, w.work(0, "created", "1", "created"))
	w.create(works, w.work(0, "brief", "1", "brief"))
	w.delete(works, "brief")
	back()

	w.applied(works, "kept", "changed", "created")
	w.gone(works, "deleted", "brief")
	w.holds(0, map[string]string{"kept": "1", "changed": "2", "created": "1"})
	for _, name := range []string{"kept", "changed", "created"} {
		w.delete(works, name)
	}
	w.gone(works, "kept", "changed", "created")
	w.holds(0, nil)
	w.noAppliedManifestWorks(0)
}

func TestAgentAway(t *testing.T) {
	onBothBrokers(t, func(w *world) {
		w.hub()
		stop := w.agent(0, topicsOf(string(w.source)))
		w.churn(func() func() {
			stop()
			return func() { w.agent(0, topicsOf(string(w.source))) }
		})
	})
}

func TestHubAway(t *testing.T) {
	onBothBrokers(t, func(w *world) {
		stop := w.hub()
		w.agent(0, topicsOf(string(w.source)))
		w.churn(func() func() {
			stop()
			return func() { w.hub() }
		})
	})
}

func TestBrokerAway(t *testing.T) {
	onBothBrokers(t, func(w *world) {
		w.hub()
		w.agent(0, topicsOf(string(w.source)))
		w.churn(func() func() {
			w.broker.Stop()
			return func() { w.broker.Restart(w) }
		})
	})
}

func TestBrokerRestartAmidst100Works(t *testing.T) {
	onBothBrokers(t, func(w *world) {
		const n = 100
		works := w.works(0)
		w.hub()
		w.agent(0, topicsOf(string(w.source)))
		var names []string
		want := map[string]string{}
		for i := range n {
			name := fmt.Sprintf("web-%d", i)
			names = append(names, name)
			want[name] = "1"
			w.create(works, w.work(0, name, "1", name))
			if i == n/2 {
				w.broker.Restart(w)
			}
		}
		w.applied(works, names...)
		w.holds(0, want)
		for i, name := range names {
			w.delete(works, name)
			if i == n/2 {
				w.broker.Restart(w)
			}
		}
		w.gone(works, names...)
		w.holds(0, nil)
		w.noAppliedManifestWorks(0)
	})
}

func TestTwoAgents(t *testing.T) {
	onBothBrokers(t, func(w *world) {
		w.hub()
		for i := range w.clusters {
			w.agent(i, topicsOf(string(w.source)))
			w.create(w.works(i), w.work(i, "web", fmt.Sprint(i), "a"))
		}
		for i := range w.clusters {
			w.applied(w.works(i), "web")
			w.holds(i, map[string]string{"a": fmt.Sprint(i)})
		}
		w.delete(w.works(0), "web")
		w.gone(w.works(0), "web")
		w.holds(0, nil)
		w.holds(1, map[string]string{"a": "1"})
		w.applied(w.works(1), "web")
	})
}

func TestOneAgentOfTwoSources(t *testing.T) {
	onBothBrokers(t, func(w *world) {
		w.hub()
		client, err := source.New(source.Config{
			SourceID: w.sdk, Topics: topicsOf(string(w.sdk)), StateFile: w.TempDir() + "/state.db", Logger: kit.Logger(w),
			Transport: w.transport(string(w.sdk), string(w.sdk), topicsOf(string(w.sdk))),
		})
		kit.NoError(w, err)
		kit.Run(w, "source", client.Run)
		fromHub, fromSDK := w.works(0), client.ManifestWorks(string(w.clusters[0]))
		stop := w.agent(0, topicsOf("+"))
		w.create(fromHub, w.work(0, "web", "hub", "a"))
		w.create(fromSDK, w.work(0, "web", "sdk", "b"))
		w.applied(fromHub, "web")
		w.applied(fromSDK, "web")
		w.holds(0, map[string]string{"a": "hub", "b": "sdk"})

		stop()
		w.update(fromSDK, w.work(0, "web", "sdk again", "b"))
		w.agent(0, topicsOf("+"))
		w.applied(fromSDK, "web")
		w.delete(fromHub, "web")
		w.gone(fromHub, "web")
		w.holds(0, map[string]string{"b": "sdk again"})
		w.delete(fromSDK, "web")
		w.gone(fromSDK, "web")
		w.holds(0, nil)
		w.noAppliedManifestWorks(0)
	})
}

// TestAgentServesMoreSources: an agent whose topics named one source, and name all from now on, keeps
// the objects of the works that it has applied, and serves another source.
func TestAgentServesMoreSources(t *testing.T) {
	onBothBrokers(t, func(w *world) {
		w.hub()
		client, err := source.New(source.Config{
			SourceID: w.sdk, Topics: topicsOf(string(w.sdk)), StateFile: w.TempDir() + "/state.db", Logger: kit.Logger(w),
			Transport: w.transport(string(w.sdk), string(w.sdk), topicsOf(string(w.sdk))),
		})
		kit.NoError(w, err)
		kit.Run(w, "source", client.Run)
		fromHub, fromSDK := w.works(0), client.ManifestWorks(string(w.clusters[0]))
		stop := w.agent(0, topicsOf(string(w.source)))
		w.create(fromHub, w.work(0, "web", "hub", "a"))
		w.applied(fromHub, "web")
		before, err := w.configMaps(0)
		kit.NoError(w, err)
		stop()
		w.agent(0, topicsOf("+"))
		w.create(fromSDK, w.work(0, "web", "sdk", "b"))
		w.applied(fromSDK, "web")
		w.update(fromHub, w.work(0, "web", "hub again", "a"))
		w.applied(fromHub, "web")
		w.holds(0, map[string]string{"a": "hub again", "b": "sdk"})
		after, err := w.configMaps(0)
		kit.NoError(w, err)
		for _, c := range after {
			if c.Name == "a" && c.UID != before[0].UID {
				w.Error("the object was replaced")
			}
		}
	})
}
