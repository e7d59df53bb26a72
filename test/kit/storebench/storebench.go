// Package storebench measures clients of the SDK with a store.
package storebench

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/source/store"
	"github.com/workwire/workwire/pkg/source/store/storetest"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// benchWorks is the number of works of a benchmark, each with a Deployment, over benchClusters.
const (
	benchWorks    = 600
	benchClusters = 10
	benchCallers  = 10
)

// Benchmark measures a client with the store that place returns, over work-broker, which waits for the
// disk, with a scripted agent for each of 10 clusters: creates per second by one caller and by ten,
// statuses per second until the store has them, and a list of 600 works.
func Benchmark(b *testing.B, place func(b *testing.B) store.Store) {
	m := newMeasurement(b, place(b), slog.New(slog.DiscardHandler))
	for b.Loop() {
		for _, f := range m.run(b, benchWorks) {
			b.ReportMetric(f.value, f.unit)
		}
	}
}

// Test tests that the benchmark works, with few works in a store that is not open.
func Test(t *testing.T, s store.Store) {
	t.Helper()
	m := newMeasurement(t, s, kit.Logger(t))
	for _, f := range m.run(t, 3*benchClusters) {
		if f.value <= 0 {
			t.Errorf("measured %v %s", f.value, f.unit)
		}
	}
}

// figure is something measured.
type figure struct {
	unit  string
	value float64
}

// measurement is a source, a broker and agents.
type measurement struct {
	client *source.Client
	agents [benchClusters]*wirekit.Agent
}

func benchCluster(i int) string { return fmt.Sprint("cluster", i%benchClusters) }

func newMeasurement(t testing.TB, s store.Store, log *slog.Logger) *measurement {
	t.Helper()
	users := []broker.User{{Username: string(storetest.Source), Password: "secret", Role: acl.Source}}
	for i := range benchClusters {
		users = append(users, broker.User{Username: benchCluster(i), Password: "secret", Role: acl.Agent})
	}
	running := brokertest.Start(t, broker.Config{Users: users, Logger: log})
	connection := func(user string) *mqtt.Transport {
		c, err := mqtt.New(mqtt.Config{ClientID: user + "-client", Logger: log,
			Broker: config.Config{BrokerHost: running.Addr, Username: user, Password: "secret", Topics: storetest.Topics}})
		kit.NoError(t, err)
		return c
	}
	m := &measurement{}
	for i := range m.agents {
		cluster := benchCluster(i)
		m.agents[i] = wirekit.StartAgent(t, wirekit.AgentConfig{
			Cluster: wire.ClusterName(cluster), Source: storetest.Source, Topics: storetest.Topics, Transport: connection(cluster),
		})
		m.agents[i].AwaitConnected(t)
	}
	client, err := source.New(source.Config{SourceID: storetest.Source, Topics: storetest.Topics, Transport: connection(string(storetest.Source)), Store: s, Logger: log})
	kit.NoError(t, err)
	m.client = client
	kit.Run(t, "source", client.Run)
	kit.True(t, "the source is connected", client.Connected)
	return m
}

// run measures with this many works, and removes them.
func (m *measurement) run(t testing.TB, works int) []figure {
	t.Helper()
	all := m.client.ManifestWorks(metav1.NamespaceAll)
	alone := m.create(t, 0, works/2, 1)
	together := m.create(t, works/2, works, benchCallers)
	m.await(t, all, works, storetest.Applied)
	statuses := m.statuses(t, all, works)
	start := time.Now()
	list, err := all.List(t.Context(), metav1.ListOptions{})
	listed := time.Since(start)
	kit.NoError(t, err)
	text, err := json.Marshal(list)
	encoded := time.Since(start)
	kit.NoError(t, err)
	if len(list.Items) != works {
		t.Fatalf("the list has %d works, %d were made", len(list.Items), works)
	}
	for i := range list.Items {
		kit.NoError(t, m.client.ManifestWorks(list.Items[i].Namespace).Delete(t.Context(), list.Items[i].Name, metav1.DeleteOptions{}))
	}
	m.await(t, all, 0, storetest.Applied)
	milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return []figure{
		{"creates/s-of-one", alone}, {fmt.Sprintf("creates/s-of-%d", benchCallers), together}, {"statuses/s", statuses},
		{"list-ms", milliseconds(listed)}, {"list-as-JSON-ms", milliseconds(encoded)}, {"list-KB", float64(len(text)) / 1000},
	}
}

// create makes the works from one number up to another, and returns how many a second.
func (m *measurement) create(t testing.TB, from, to, callers int) float64 {
	t.Helper()
	var next atomic.Int64
	next.Store(int64(from))
	var calling sync.WaitGroup
	start := time.Now()
	for range callers {
		calling.Go(func() {
			for i := int(next.Add(1)) - 1; i < to; i = int(next.Add(1)) - 1 {
				if _, err := m.client.ManifestWorks(benchCluster(i)).Create(t.Context(), benchWork(i), metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	calling.Wait()
	return float64(to-from) / time.Since(start).Seconds()
}

// statuses has each agent report another status of each of its works, and returns how many the source
// stored a second.
func (m *measurement) statuses(t testing.TB, all workclient.ManifestWorkInterface, works int) float64 {
	t.Helper()
	start := time.Now()
	for i := range works {
		m.agents[i%benchClusters].Touch(wire.UIDFor(storetest.Source, benchCluster(i), benchWork(i).Name), "measured")
	}
	m.await(t, all, works, func(work *workv1.ManifestWork) bool {
		c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkAvailable)
		return c != nil && c.Message == "measured"
	})
	return float64(works) / time.Since(start).Seconds()
}

// await waits until there are this many works, and is returns true for each. It looks at each change
// once.
func (m *measurement) await(t testing.TB, all workclient.ManifestWorkInterface, works int, is func(*workv1.ManifestWork) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*kit.Patience)
	defer cancel()
	list, err := all.List(ctx, metav1.ListOptions{})
	kit.NoError(t, err)
	there, done := map[types.UID]bool{}, 0
	set := func(work *workv1.ManifestWork, gone bool) {
		if there[work.UID] {
			done--
		}
		delete(there, work.UID)
		if !gone {
			there[work.UID] = is(work)
		}
		if there[work.UID] {
			done++
		}
	}
	for i := range list.Items {
		set(&list.Items[i], false)
	}
	changes, err := all.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	kit.NoError(t, err)
	defer changes.Stop()
	for len(there) != works || done != works {
		change, open := <-changes.ResultChan()
		work, ok := change.Object.(*workv1.ManifestWork)
		if !open || !ok {
			t.Fatalf("the watch ended with %v: there are %d of %d works, %d as wanted", change.Object, len(there), works, done)
		}
		set(work, change.Type == "DELETED")
	}
}

// benchWork returns a work with a Deployment.
func benchWork(i int) *workv1.ManifestWork {
	work := &workv1.ManifestWork{}
	work.Name = fmt.Sprint("web", i)
	work.Spec.Workload.Manifests = make([]workv1.Manifest, 1)
	work.Spec.Workload.Manifests[0].Raw = fmt.Appendf(nil, `{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web%d", "namespace": "default", "labels": {"app": "web%[1]d"}},
		"spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web%[1]d"}}, "template": {
			"metadata": {"labels": {"app": "web%[1]d"}},
			"spec": {"containers": [{"name": "web", "image": "registry.example.com/web:1.0", "ports": [{"containerPort": 80}],
				"resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}]}}}}`, i)
	return work
}
