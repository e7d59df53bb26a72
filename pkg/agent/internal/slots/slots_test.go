package slots_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workwire/workwire/pkg/agent/internal/slots"
)

func TestSlowTasksLeaveTheirSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := slots.New(2)
		start := time.Now()
		var releases []func()
		acquire := func(want time.Duration) {
			t.Helper()
			release, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := time.Since(start); got != want {
				t.Errorf("task %d starts after %v, want %v", len(releases), got, want)
			}
			releases = append(releases, release)
		}
		// Two at once, and two more whenever those have become slow, until eight are.
		for i := range 10 {
			acquire(time.Duration(i/2) * time.Second)
		}
		// Now slow tasks keep their slots.
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("no slot"))
		defer cancel()
		if _, err := pool.Acquire(ctx); err == nil || err.Error() != "no slot" {
			t.Errorf("got %v", err)
		}
		start = time.Now()
		releases[8]()
		acquire(0)
		for i, release := range releases {
			if i != 8 {
				release()
			}
		}
		start, releases = time.Now(), nil
		acquire(0)
		acquire(0)
		for _, release := range releases {
			release()
		}
	})
}

func TestQuickTasksKeepTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := slots.New(1)
		release, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ended, cancel := context.WithTimeout(t.Context(), 999*time.Millisecond)
		defer cancel()
		if _, err := pool.Acquire(ended); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second task runs: %v", err)
		}
		if _, err := pool.Acquire(ended); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the end of its context: %v", err)
		}
		release()
		time.Sleep(2 * time.Second)
	})
}
