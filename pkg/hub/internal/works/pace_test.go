package works

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// TestStatusesOfGoneWorksArePaced: that a work is gone is answered at once, and does not make the statuses look slow that are written.
func TestStatusesOfGoneWorksArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 16
		var underWay, most atomic.Int32
		client := versioned.NewForConfigOrDie(&rest.Config{Host: "http://hub", QPS: -1, Transport: kit.RoundTripper(func(request *http.Request) (*http.Response, error) {
			response := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: request.Body, Request: request}
			if strings.Contains(request.URL.Path, "/gone") {
				response.StatusCode, response.Body = http.StatusNotFound, io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","reason":"NotFound","code":404}`))
				return response, nil
			}
			if n := underWay.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer underWay.Add(-1)
			time.Sleep(10 * time.Millisecond)
			return response, nil
		})})
		gone, deleted := work("c", "gone", "1"), work("c", "gone-deleted", "1")
		deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: time.Now()}, []string{workv1.ManifestWorkFinalizer}
		held := []*workv1.ManifestWork{gone, deleted}
		for i := range 400 {
			held = append(held, work("c", fmt.Sprint("w", i), "1"))
		}
		cache, _ := newCache(t, held...)
		all := func(wire.ClusterName) bool { return true }
		c, err := New(Config{Cache: cache, Client: client, Addressable: all, Accepted: all, Served: all, Workers: workers, Logger: slog.New(slog.DiscardHandler)})
		kit.NoError(t, err)
		update := func(work *workv1.ManifestWork, condition string) {
			status := &wire.Status{UID: work.UID, Status: workv1.ManifestWorkStatus{Conditions: []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, Reason: "R"}}}}
			if err := c.UpdateStatus(t.Context(), status); err != nil {
				t.Error(err)
			}
		}
		update(gone, workv1.WorkApplied)
		update(deleted, workv1.WorkDeleted)
		var writes sync.WaitGroup
		for _, work := range held[2:] {
			writes.Go(func() { update(work, workv1.WorkApplied) })
		}
		writes.Wait()
		if most.Load() != workers {
			t.Errorf("%d writes were under way, want %d", most.Load(), workers)
		}
	})
}
