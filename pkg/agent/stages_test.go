package agent

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
)

// TestStagesStopInReverse: each stage goes on until the one after it has returned, and one that
// fails ends them all.
func TestStagesStopInReverse(t *testing.T) {
	ctx, fail := context.WithCancelCause(t.Context())
	var mu sync.Mutex
	var stopped []string
	runner := func(name string, err error) runner {
		return func(ctx context.Context) error {
			if err != nil {
				return err
			}
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			stopped = append(stopped, name)
			return nil
		}
	}
	broken := errors.New("broken")
	var running stages
	running.start(ctx, fail, runner("store", nil))
	running.start(ctx, fail, runner("transport", nil))
	running.start(ctx, fail, runner("outbox", nil))
	running.start(ctx, fail, runner("workers", nil), runner("session", broken))
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, broken) {
		t.Errorf("the context ended with %v", cause)
	}
	if err := running.stop(); !errors.Is(err, broken) {
		t.Errorf("stop returned %v", err)
	}
	if want := []string{"workers", "outbox", "transport", "store"}; !slices.Equal(stopped, want) {
		t.Errorf("stopped in the order %v, want %v", stopped, want)
	}
}
