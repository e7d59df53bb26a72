package reconcile

import (
	"testing"
	"time"
)

func TestRetryDelay(t *testing.T) {
	for failures, want := range []time.Duration{
		10 * time.Millisecond, 30 * time.Millisecond, 90 * time.Millisecond, 270 * time.Millisecond, 810 * time.Millisecond,
		2430 * time.Millisecond, 7290 * time.Millisecond, 21870 * time.Millisecond, time.Minute, time.Minute,
	} {
		if got := retryDelay(failures); got != want {
			t.Errorf("after %d failures: %v, want %v", failures, got, want)
		}
	}
	if got := retryDelay(1_000_000); got != time.Minute {
		t.Errorf("after very many failures: %v", got)
	}
	// What cannot succeed is tried at most 15 times in a minute, also in the first one.
	attempts, at := 1, time.Duration(0)
	for failures := 0; ; failures++ {
		if at += retryDelay(failures); at > time.Minute {
			break
		}
		attempts++
	}
	if attempts != 9 {
		t.Errorf("%d attempts in the first minute", attempts)
	}
}
