package source_test

import (
	"context"
	"fmt"
	"log/slog"
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
	"github.com/workwire/workwire/test/kit/wirekit"
)

var topics = wire.Topics{
	SourceEvents: "sources/ops/clusters/+/sourceevents",
	AgentEvents:  "sources/ops/clusters/+/agentevents",
}

// world is a broker with whatever runs on it, in a bubble.
type world struct {
	t       *testing.T
	broker  *memory.Broker
	running sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc
}

// inWorld runs test in a bubble of its own; whatever it starts must end with the
// world's context.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))) // generations count from 2025
		w := &world{t: t, broker: memory.NewBroker()}
		w.ctx, w.cancel = context.WithCancel(context.Background())
		defer w.running.Wait()
		defer w.cancel()
		test(t, w)
	})
}

// client makes a source that does not run yet.
func (w *world) client(options ...func(*source.Config)) *source.Client {
	w.t.Helper()
	config := source.Config{
		SourceID: "ops", Topics: topics, Transport: w.broker.Client("ops"),
		Logger: slog.New(slog.NewTextHandler(w.t.Output(), nil)),
	}
	for _, option := range options {
		option(&config)
	}
	c, err := source.New(config)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// run runs c and gives what ends it.
func (w *world) run(c *source.Client) (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan struct{})
	w.running.Go(func() {
		defer close(done)
		if err := c.Run(ctx); err != nil {
			w.t.Errorf("Run: %v", err)
		}
	})
	synctest.Wait()
	return func() { cancel(); <-done }
}

// agent runs an agent that is connected under the name of its cluster.
func (w *world) agent(cluster wire.ClusterName, options ...func(*wirekit.AgentConfig)) *wirekit.Agent {
	config := wirekit.AgentConfig{Cluster: cluster, Source: "ops", Topics: topics, Transport: w.broker.Client(string(cluster))}
	for _, option := range options {
		option(&config)
	}
	a := wirekit.NewAgent(config)
	w.running.Go(func() {
		if err := a.Run(w.ctx); err != nil {
			w.t.Errorf("agent: %v", err)
		}
	})
	synctest.Wait()
	return a
}

// configMap is a work with one ConfigMap that holds value.
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

// must gives work, or ends the test.
func must(t *testing.T) func(work *workv1.ManifestWork, err error) *workv1.ManifestWork {
	return func(work *workv1.ManifestWork, err error) *workv1.ManifestWork {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return work
	}
}

func applied(work *workv1.ManifestWork) bool {
	c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == work.Generation
}
