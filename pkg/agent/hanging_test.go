package agent_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/test/kit"
)

// TestHangingWebhook has a webhook that hangs for 10 seconds on each of the many objects of one
// work. The other works are changed as quickly as before.
func TestHangingWebhook(t *testing.T) {
	w := newSerialWorld(t)
	works := w.source("hub1")
	w.agent()
	var hanging, hung atomic.Int64
	var released atomic.Bool
	w.webhook("hangs", func(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if request.Name != "probe" {
			hung.Add(1)
			hanging.Add(1)
			defer hanging.Add(-1)
			for end := time.Now().Add(10 * time.Second); time.Now().Before(end) && ctx.Err() == nil && !released.Load(); {
				time.Sleep(10 * time.Millisecond)
			}
		}
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "too late"}}
	})
	const hangs = 160 // eight at a time: more than hang while a slow machine measures
	w.unaffected(works, func() (measured, stop func()) {
		var manifests []string
		for i := range hangs {
			manifests = append(manifests, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: hangs-%d, namespace: NAMESPACE, labels: {hangs: x}}}", i))
		}
		hung.Store(0)
		w.create(works, w.work("hangs", manifests...))
		kit.True(t, "the webhook hangs", func() bool { return hanging.Load() > 0 })
		measured = func() {
			if hanging.Load() == 0 {
				t.Error("nothing hangs any more: the test tells nothing")
			}
			if hung.Load() > hangs {
				t.Errorf("%d requests hung", hung.Load())
			}
		}
		return measured, func() {
			released.Store(true)
			w.remove(works, "hangs")
			released.Store(false)
		}
	})
}

// unaffected changes 99 works, before and after slow is called. The 99th percentile of the times
// after it must be below three times that before it, of which less than 100 ms count as 100 ms. The
// machine may have other work during one of the two, so both are measured up to three times, with
// stop between: what waits for something slow waits for it each time. measured is called at the end
// of the second measurement.
func (w *world) unaffected(works workclientv1.ManifestWorkInterface, slow func() (measured, stop func())) {
	w.Helper()
	const others, attempts = 99, 3
	name := func(i int) string { return fmt.Sprintf("web-%d", i) }
	for i := range others {
		w.create(works, w.work(name(i), configMap(name(i), "0")))
	}
	for i := range others {
		w.data(name(i), "0")
	}
	measure := func(value string) time.Duration {
		var took []time.Duration
		for i := range others {
			start := time.Now()
			w.change(works, name(i), configMap(name(i), value))
			w.data(name(i), value)
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	for attempt := 1; ; attempt++ {
		before := measure(fmt.Sprint("before-", attempt))
		measured, stop := slow()
		after := measure(fmt.Sprint("after-", attempt))
		measured()
		w.Logf("99th percentile: %v before, %v after", before, after)
		limit := 3 * max(before, 100*time.Millisecond)
		if after <= limit {
			return
		}
		if attempt == attempts {
			w.Fatalf("the other works took %v, at most %v is allowed", after, limit)
		}
		stop()
	}
}
