package reconcile

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestIdleComesAtRest: after the start and after many reconciles, and every two minutes otherwise, but not while
// works are reconciled.
func TestIdleComesAtRest(t *testing.T) {
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
			{rest: time.Minute, want: 1},
			{reconciles: idleThreshold - 1, rest: time.Minute, want: 1},
			{reconciles: 1, rest: time.Minute, want: 2}, // together they are many
			{reconciles: 10, rest: time.Minute, want: 2},
			{rest: 2 * time.Minute, want: 3},
			{reconciles: 6 * idleThreshold, every: time.Second, want: 3}, // never at rest
			{rest: time.Minute, want: 4},
			{rest: 10 * time.Minute, want: 9},
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
