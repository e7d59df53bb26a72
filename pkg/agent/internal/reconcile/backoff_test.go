package reconcile

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
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

func TestRefusalWaits(t *testing.T) {
	now := time.Now()
	live := &unstructured.Unstructured{Object: map[string]any{}}
	present, absent := object.Live{State: object.Present, Object: live}, object.Live{State: object.Absent}
	waits := backoff{failures: 4}.failed(now)
	if waits.failures != 5 || waits.wait(now) != 810*time.Millisecond || waits.wait(now.Add(time.Second)) > 0 {
		t.Errorf("%+v", waits)
	}
	for name, test := range map[string]struct {
		before *unstructured.Unstructured
		now    object.Live
		want   bool
	}{
		"there before and now":      {live, present, true},
		"there before, not known":   {live, object.Live{}, true},
		"there before, gone now":    {live, absent, false},
		"never there":               {nil, absent, true},
		"not there before, but now": {nil, present, true},
	} {
		refused := refusal{backoff: waits, outcome: apply.Outcome{Err: errors.New("no"), Live: test.before}}
		if got := refused.waits(test.now, now) > 0; got != test.want {
			t.Errorf("%s: waits %t", name, got)
		}
		if refused.waits(test.now, now.Add(time.Second)) > 0 {
			t.Errorf("%s: waits for too long", name)
		}
	}
}
