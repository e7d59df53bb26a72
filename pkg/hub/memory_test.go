package hub_test

import (
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"path"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	restclient "k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/runtime/leader"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/storedwork"
)

// manyWorks is an API that has n works of n/100 clusters, and nothing else. Once change is closed, it
// changes an annotation of each work, and deletes the last one.
func manyWorks(n int, change <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		query, resource := r.URL.Query(), path.Base(r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		send := func(event, team string, from, version int) {
			for i := from; i < n; i++ {
				text := storedwork.Work(i, i/100, version+i)
				fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", event, strings.Replace(text, "payments", team, 1))
			}
		}
		switch {
		case r.Method != http.MethodGet:
			w.WriteHeader(http.StatusForbidden)
		case resource == hub.IdentityConfigMap:
			fmt.Fprint(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x"},"data":{"hub1":"7a4f2b0e-60b2-4a4e-9a1e-0f9d4b2a5c11"}}`)
		case query.Get("watch") == "":
			w.WriteHeader(http.StatusNotFound)
		default:
			kind := "ManagedCluster"
			if resource == "manifestworks" {
				kind = "ManifestWork"
				send("ADDED", "payments", 0, 1)
			}
			fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n",
				kind, strings.TrimPrefix(path.Dir(r.URL.Path), "/apis/"), n+1)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-change:
			case <-r.Context().Done():
				return
			}
			if resource == "manifestworks" {
				send("MODIFIED", "orders", 0, n+2)
				send("DELETED", "orders", n-1, 2*n+3)
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
		}
	}
}

// liveHeap returns how many bytes are in use.
func liveHeap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// rest is what a hub adds to the heap at rest: once it has read its works, and once all of them have
// changed.
type rest struct{ read, changed float64 }

// heldBy measures a hub of n works. It waits until what it has in hand is done, at most want.
func heldBy(t *testing.T, n int, want rest) (held rest) {
	t.Helper()
	change := make(chan struct{})
	server := httptest.NewServer(manyWorks(n, change))
	defer server.Close()
	registry := prometheus.NewRegistry()
	before := liveHeap()
	h, err := hub.New(hub.Config{
		REST: &restclient.Config{Host: server.URL}, Source: source, Topics: topics, Transport: memory.NewBroker().Client("hub1-hub"), Election: leader.Options{Disabled: true},
		Controllers: []string{hub.ControllerReplicaSet, hub.ControllerTTL}, Registerer: registry, PendingDelay: time.Hour,
		Logger: slog.New(slog.DiscardHandler), // what a test logs stays in memory until it ends
	})
	kit.NoError(t, err)
	stop := kit.Run(t, "hub", h.Run)
	defer stop()
	kit.True(t, "the hub has asked the clusters for the statuses that it does not have", func() bool {
		return sum(t, registry, "workwire_hub_works") == float64(n) && sum(t, registry, "workwire_source_works_pending") == 0 &&
			sum(t, registry, "workwire_source_status_resync_requests_total") >= float64(n/100)
	})
	held.read = settled(t, fmt.Sprintf("%d works take at most %.0f bytes once they are read", n, want.read), before, want.read)
	close(change)
	kit.True(t, "the hub has seen the changes", func() bool { return sum(t, registry, "workwire_hub_works") == float64(n-1) })
	held.changed = settled(t, fmt.Sprintf("%d works take at most %.0f bytes once they have changed", n, want.changed), before, want.changed)
	return held
}

// settled waits until the heap is at most limit larger than before, and returns how much it is. What
// is still in hand, such as events of the works, takes memory of its own for a while.
func settled(t *testing.T, what string, before, limit float64) (held float64) {
	t.Helper()
	kit.True(t, what, func() bool {
		held = liveHeap() - before
		return held <= limit
	})
	return held
}

// sum returns the sum of the values of a metric.
func sum(t *testing.T, registry *prometheus.Registry, name string) (total float64) {
	t.Helper()
	families, err := registry.Gather()
	kit.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				total += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return total
}

// TestMemoryOfAWork: what a hub holds of a work of 2 KB, with a status of 1.5 KB, at rest. A hub of few
// works has all that does not grow with their number.
func TestMemoryOfAWork(t *testing.T) {
	const few, many, perWork = 500, 4500, 2000
	small := heldBy(t, few, rest{read: math.Inf(1), changed: math.Inf(1)})
	small.read, small.changed = min(small.read, small.changed), min(small.read, small.changed)
	large := heldBy(t, many, rest{read: small.read + (many-few)*perWork, changed: small.changed + (many-few)*perWork})
	t.Logf("%.0f bytes for a work, %.0f after a change", (large.read-small.read)/(many-few), (large.changed-small.changed)/(many-few))
}
