package reconcile

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestIdleComesOnceAfterMuch: not while works are reconciled, not after few, and once only after
// many.
func TestIdleComesOnceAfterMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		d := newIdleDetector(func() { calls.Add(1) })
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			d.run(ctx)
		}()
		steps := []struct {
			reconciles  int
			every, rest time.Duration
			want        int
		}{
			{reconciles: idleThreshold - 1, rest: time.Minute},
			{reconciles: 1, rest: time.Minute, want: 1}, // together they are many
			{reconciles: 10, rest: time.Hour, want: 1},
			{reconciles: 3 * idleThreshold, every: time.Second, want: 1}, // never at rest
			{rest: time.Minute, want: 2},
			{rest: time.Hour, want: 2},
		}
		for i, s := range steps {
			for range s.reconciles {
				d.reconciled()
				synctest.Wait()
				time.Sleep(s.every)
			}
			time.Sleep(s.rest)
			synctest.Wait()
			if got := int(calls.Load()); got != s.want {
				t.Errorf("after step %d it was called %d times, want %d", i, got, s.want)
			}
		}
		stop()
		<-ended
	})
}
