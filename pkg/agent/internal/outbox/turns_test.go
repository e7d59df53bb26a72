package outbox_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/wire"
)

// TestSourcesTakeTurns: the status of a work is sent at once, although another source has asked for those of all
// its works, again and again.
func TestSourcesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const works = 500
		gate := make(chan struct{})
		b := &broker{}
		r := start(t, b)
		r.SetLimits(1, 3*time.Second)
		defer r.stop()
		greedy := func(i int) inbox.Key { return inbox.Key{Source: "greedy", UID: types.UID(fmt.Sprint(i))} }
		for i := range works {
			r.Set(greedy(i), status(1, "a"))
		}
		synctest.Wait()
		b.took()
		b.answer = func(int, *wire.Status) error { <-gate; return nil }
		for range 3 {
			r.Resync(&wire.StatusResync{Source: "greedy"})
		}
		synctest.Wait()
		r.Set(key("other"), status(1, "b"))
		for range 3 { // the one in flight, perhaps another one, and that of the other source
			gate <- struct{}{}
			synctest.Wait()
		}
		found := false
		for _, s := range b.took() {
			found = found || s.UID == "other"
		}
		if !found {
			t.Error("the other source waits for all statuses of the greedy one")
		}
		close(gate)
		synctest.Wait()
		if n := len(b.took()); n != works-2 {
			t.Errorf("then %d statuses were sent, want %d", n, works-2)
		}
	})
}

// TestAnswersAreBounded: of the works of a source that the agent does not hold, so many answers wait; others are
// dropped and counted, and have room again once those are sent.
func TestAnswersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 5_000
		b := &broker{}
		r := prepare(t, b)
		deletion := func(i int) *wire.Spec {
			now := metav1.Now()
			return &wire.Spec{UID: types.UID(fmt.Sprint(i)), Source: "hub", Cluster: "quay", DeletionTimestamp: &now, NoMetadata: true}
		}
		for i := range limit + 7 {
			r.ReportDeleted(deletion(i))
		}
		r.ReportDeleted(deletion(0))
		r.ReportDeleted(&wire.Spec{UID: "u", Source: "other", Cluster: "quay", DeletionTimestamp: deletion(0).DeletionTimestamp})
		if s := r.Stats(); r.Works() != limit+1 || s.Dropped != 7 {
			t.Errorf("%d works, %d dropped", r.Works(), s.Dropped)
		}
		r.run(t)
		defer r.stop()
		r.Connected("session")
		synctest.Wait()
		r.ReportDeleted(deletion(limit))
		synctest.Wait()
		if s := r.Stats(); r.Works() != 0 || s.Dropped != 7 || s.Published != limit+2 {
			t.Errorf("then %d works, %d dropped, %d published", r.Works(), s.Dropped, s.Published)
		}
	})
}
