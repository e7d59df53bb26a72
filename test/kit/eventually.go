package kit

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// Patience is how long the helpers of this package wait before they fail a test. It only passes
// when something is broken, so it is generous: tests run in parallel, with the race detector, on small
// machines that do other work too. Tests take no smaller limit of their own for what must happen.
const Patience = 3 * time.Minute

// The interval of polling begins at minInterval and doubles up to maxInterval. It is longer after a
// check that takes long, so that checking takes a fifth of the time at most.
const (
	minInterval = time.Millisecond
	maxInterval = 50 * time.Millisecond
)

// Eventually calls check until it returns nil. It fails the test with the last error after
// [Patience].
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	Within(t, Patience, what, check)
}

// True calls check until it returns true. It fails the test after [Patience].
func True(t testing.TB, what string, check func() bool) {
	t.Helper()
	Within(t, Patience, what, func() error {
		if !check() {
			return errors.New("it is not so")
		}
		return nil
	})
}

// Within is like [Eventually] with a limit of its own. It returns how long it took.
func Within(t testing.TB, limit time.Duration, what string, check func() error) time.Duration {
	t.Helper()
	start := time.Now()
	for interval := minInterval; ; interval = min(2*interval, maxInterval) {
		checked := time.Now()
		err := check()
		took := time.Since(start)
		switch {
		case err == nil:
			return took
		case took > limit:
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
		<-time.After(max(interval, 4*time.Since(checked)))
	}
}

// Receive returns the next value of c; of a closed channel, the zero value. It fails the test when
// none comes within [Patience].
func Receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case value := <-c:
		return value
	case <-time.After(Patience):
		t.Fatalf("%s: not within %v", what, Patience)
		panic("unreachable")
	}
}

// Run calls run in a goroutine until stop is called or the test ends. It fails the test when run
// returns an error, or does not return within [Patience] after its context was canceled. Calling
// stop more than once has no effect.
func Run(t testing.TB, what string, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(Patience):
			t.Errorf("%s does not end within %v", what, Patience)
		}
	})
	t.Cleanup(stop)
	return stop
}
