package fleet

import (
	"runtime"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/hub"
)

// BenchmarkHub gives the hub works for a hundred clusters, from their creation to
// their statuses: works a second, requests and heap bytes of the hub a work. The
// simulated agents run in the same process; what they hold of a work, its UID and
// generation, is in the bytes.
func BenchmarkHub(b *testing.B) {
	const clusters, each = 100, 20
	for b.Loop() {
		w := newWorld(b, "bench")
		var asked requests
		w.hub(&asked, func(c *hub.Config) { c.AutoRegister, c.AutoAccept = true, true })
		names := w.come(w.agents(well), clusters)
		before := heap()
		asked.take()
		start := time.Now()
		w.give(names, each)
		created := time.Since(start)
		w.eventually("all statuses are stored", func() error { return w.reported(clusters * each) })
		took := time.Since(start)
		total := 0
		for _, n := range asked.take() {
			total += n
		}
		const works = clusters * each
		b.ReportMetric(works/created.Seconds(), "created/s")
		b.ReportMetric(works/took.Seconds(), "reported/s")
		b.ReportMetric(float64(total)/works, "requests/work")
		b.ReportMetric((heap()-before)/works, "heap-B/work")
	}
}

func heap() float64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}
