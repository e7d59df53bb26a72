package works

import (
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
)

func newHops() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "workwire", Subsystem: "hub", Name: "delivery_seconds",
		Help: "Seconds from when the hub saw a spec until it was published, acknowledged (by the broker), received, applied and ready " +
			"(by the clock of the cluster), by hop. Once per generation and hop; ready each time that the objects become ready.",
		Buckets: []float64{.01, .03, .1, .3, 1, 3, 10, 30, 120, 600, 3600},
	}, []string{"hop"})
}

func (c *Controller) pendingGauge() prometheus.Collector {
	return controller.NewGaugeFunc("works_pending", "ManifestWorks whose newest spec, or deletion, the agent has not answered.", func() (n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for cluster, works := range c.clusters {
			if c.cfg.Served(cluster) {
				n += len(works)
			}
		}
		return n
	})
}

// countHops counts the hops that a work whose status was stored has made.
func (c *Controller) countHops(before, after *workv1.DeliveryStatus) {
	for hop, seconds := range newlyMade(before, after) {
		c.hops.WithLabelValues(hop).Observe(seconds)
	}
}

// newlyMade returns the hops that are in after and not in before, with the seconds since the spec was
// accepted. Clocks of clusters may differ: none is less than 0.
func newlyMade(before, after *workv1.DeliveryStatus) map[string]float64 {
	if after == nil || after.AcceptedTime == nil {
		return nil
	}
	if before == nil || before.Generation != after.Generation {
		before = &workv1.DeliveryStatus{}
	}
	made := map[string]float64{}
	for hop, times := range map[string][2]*metav1.MicroTime{
		"published":    {before.PublishedTime, after.PublishedTime},
		"acknowledged": {before.AcknowledgedTime, after.AcknowledgedTime},
		"received":     {before.ReceivedTime, after.ReceivedTime},
		"applied":      {before.AppliedTime, after.AppliedTime},
		"ready":        {before.ReadyTime, after.ReadyTime},
	} {
		if times[0] == nil && times[1] != nil {
			made[hop] = max(0, times[1].Sub(after.AcceptedTime.Time).Seconds())
		}
	}
	return made
}
