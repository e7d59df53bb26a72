package agent

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestIdleComesOnceAfterMuch: not while works are looked at, not after few, and
// once only after many.
func TestIdleComesOnceAfterMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		a := &Agent{config: Config{Idle: func() { calls.Add(1) }}, busy: make(chan struct{}, 1)}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			a.runIdle(ctx)
		}()
		steps := []struct {
			passes      int
			every, rest time.Duration
			want        int
		}{
			{passes: busyPasses - 1, rest: time.Minute},
			{passes: 1, rest: time.Minute, want: 1}, // together they are many
			{passes: 10, rest: time.Hour, want: 1},
			{passes: 3 * busyPasses, every: time.Second, want: 1}, // never at rest
			{rest: time.Minute, want: 2},
			{rest: time.Hour, want: 2},
		}
		for i, s := range steps {
			for range s.passes {
				a.passed()
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
