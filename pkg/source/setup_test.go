package source_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
	kitworld "github.com/workwire/workwire/test/kit/world"
)

var topics = wire.Topics{
	SourceEvents: "sources/ops/clusters/+/sourceevents",
	AgentEvents:  "sources/ops/clusters/+/agentevents",
}

// world is a broker with sources and agents, in a synctest bubble.
type world struct {
	*kitworld.World
	broker  *memory.Broker
	running sync.WaitGroup // of what the test itself starts
}

// inWorld runs test in its own bubble. All goroutines of the bubble must end with the test.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))) // generations count from 2025
		w := &world{World: kitworld.New(t, kitworld.Options{Source: "ops", Topics: topics, Memory: true})}
		w.broker = w.Memory
		defer w.running.Wait()
		test(t, w)
	})
}

// start runs run until stop is called or the test ends.
func (w *world) start(what string, run func(context.Context) error) (stop func()) {
	w.Helper()
	defer synctest.Wait()
	return kit.Run(w, what, run)
}

// client returns a source that does not run yet, without a store.
func (w *world) client(options ...func(*source.Config)) *source.Client {
	w.Helper()
	plain := func(c *source.Config) { c.Topics, c.StateFile = topics, "" }
	return w.NewSDK("ops", append([]func(*source.Config){plain}, options...)...).Client
}

// run runs c until stop is called or the test ends.
func (w *world) run(c *source.Client) (stop func()) { return w.start("Run", c.Run) }

// agent runs an agent whose client id is the name of its cluster.
func (w *world) agent(cluster wire.ClusterName, options ...func(*wirekit.AgentConfig)) *wirekit.Agent {
	w.Helper()
	defer synctest.Wait()
	return w.StartScripted(cluster, options...)
}

// configMap returns a work with one ConfigMap that contains value.
func configMap(name, value string) *workv1.ManifestWork {
	w := &workv1.ManifestWork{}
	w.Name = name
	w.Spec = specOf(value)
	return w
}

func specOf(value string) workv1.ManifestWorkSpec {
	manifest := workv1.Manifest{}
	manifest.Raw = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"default"},"data":{"value":%q}}`, value)
	return workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{manifest}}}
}

// must returns work, or fails the test.
func must(t *testing.T) func(work *workv1.ManifestWork, err error) *workv1.ManifestWork {
	return func(work *workv1.ManifestWork, err error) *workv1.ManifestWork {
		t.Helper()
		kit.NoError(t, err)
		return work
	}
}

func applied(work *workv1.ManifestWork) bool {
	c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == work.Generation
}
