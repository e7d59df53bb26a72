package controller

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// run starts a controller until the test ends.
func run(t *testing.T, cfg Config[string]) *Controller[string] {
	t.Helper()
	cfg.Name, cfg.Logger = "test", slog.New(slog.DiscardHandler)
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	if !c.WaitForSync(t.Context()) {
		t.Fatal("not synced")
	}
	return c
}

func TestErrorPolicy(t *testing.T) {
	resource := workv1.Resource("manifestworks")
	terminating := apierrors.NewForbidden(resource, "w", errors.New("terminating"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, test := range map[string]struct {
		requeueAfter time.Duration
		err          error
		calls        int32         // in total, when Reconcile fails or asks to be called again twice
		took         time.Duration // until the last
	}{
		"success":               {0, nil, 1, 0},
		"requeue":               {time.Minute, nil, 3, 2 * time.Minute},
		"retriable":             {time.Hour, errors.New("no"), 3, 3 * time.Second},
		"conflict":              {0, apierrors.NewConflict(resource, "w", errors.New("no")), 3, 3 * time.Second},
		"namespace terminating": {0, terminating, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int32
				start := time.Now()
				var last time.Duration
				c := run(t, Config[string]{Backoff: time.Second, MaxBackoff: time.Minute, Reconcile: func(context.Context, string) (time.Duration, error) {
					last = time.Since(start)
					if calls.Add(1) > 2 {
						return 0, nil
					}
					return test.requeueAfter, test.err
				}})
				c.Add("a")
				time.Sleep(time.Hour)
				synctest.Wait()
				if calls.Load() != test.calls || last.Round(time.Second) != test.took {
					t.Errorf("%d calls, the last after %s; want %d and %s", calls.Load(), last, test.calls, test.took)
				}
			})
		})
	}
}

func TestIntervalSpacesOutReconcilesOfOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		c := run(t, Config[string]{Interval: time.Second, Reconcile: func(context.Context, string) (time.Duration, error) {
			calls.Add(1)
			return 0, nil
		}})
		for _, want := range []int32{2, 3, 4} { // of "b" each time, of "a" once
			c.Add("a")
			for range 10 {
				c.Add("b")
				time.Sleep(10 * time.Millisecond)
			}
			if want == 2 {
				synctest.Wait()
				if calls.Load() != want {
					t.Fatalf("%d calls at once, want %d", calls.Load(), want)
				}
			}
			time.Sleep(3 * time.Second)
			synctest.Wait()
		}
		// Each round: "a" and "b" at once, and "b" again after the interval.
		if calls.Load() != 9 {
			t.Errorf("%d calls, want 9", calls.Load())
		}
		if len(c.throttle.earliest) > 2 || len(c.throttle.order) > 2 {
			t.Errorf("%d keys are remembered", len(c.throttle.earliest))
		}
	})
}

func TestRunEndsWhenReconcilesHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int32
		c, err := New(Config[int]{Name: "test", Workers: 3, Reconcile: func(ctx context.Context, _ int) (time.Duration, error) {
			running.Add(1)
			<-ctx.Done()
			time.Sleep(time.Second)
			running.Add(-1)
			return 0, ctx.Err()
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := c.Run(ctx); err != nil {
				t.Error(err)
			}
		}()
		c.WaitForSync(ctx)
		for i := range 10 {
			c.Add(i)
		}
		synctest.Wait()
		if running.Load() != 3 {
			t.Errorf("%d keys at a time, want 3", running.Load())
		}
		cancel()
		<-ended
		if running.Load() != 0 {
			t.Error("a reconcile outlives Run")
		}
	})
}

func TestNewReportsEveryFault(t *testing.T) {
	_, err := New(Config[string]{Backoff: time.Minute, MaxBackoff: time.Second})
	for _, want := range []string{"Name", "Reconcile", "Backoff"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %s", err, want)
		}
	}
}
