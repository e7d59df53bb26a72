package controller

import (
	"fmt"
	"testing"
	"time"
)

// All keys change all the time, and each decision costs what is said of its key.
func TestSpentSpacesOutDecisions(t *testing.T) {
	const interval, during = 200 * time.Millisecond, 2 * time.Minute
	for _, test := range []struct {
		name  string
		large int           // keys whose decisions cost
		cost  time.Duration // of each
		share float64       // of a CPU that all of them may use
		every time.Duration // between two of one key
	}{
		{"cheap decisions", 20, 100 * time.Microsecond, 0.05, interval},
		{"one key", 1, 100 * time.Millisecond, 0.25, 400 * time.Millisecond},
		{"several keys", 10, 100 * time.Millisecond, 0.25, 4 * time.Second},
		{"many keys", 50, 100 * time.Millisecond, 0.5, 10 * time.Second},
		{"decisions of seconds", 3, 5 * time.Second, 1.5, 10 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			throttle := throttle[string]{interval: interval, earliest: make(map[string]time.Time)}
			begin := time.Unix(0, 0)
			var used time.Duration
			started := make(map[string]time.Time)
			var longest, small time.Duration
			for now := begin; now.Before(begin.Add(during)); now = now.Add(time.Millisecond) {
				for i := range test.large + 1 {
					key, cost := fmt.Sprint(i), test.cost
					if i == test.large {
						key, cost = "small", time.Microsecond
					}
					if throttle.remaining(key, now) > 0 || throttle.start(key, now) > 0 {
						continue
					}
					if last, again := started[key]; again && key == "small" {
						small = max(small, now.Sub(last))
					} else if again {
						longest = max(longest, now.Sub(last))
					}
					started[key] = now
					throttle.spent(key, cost, now)
					used += cost
				}
			}
			if share := used.Seconds() / during.Seconds(); share > 1.1*test.share {
				t.Errorf("decisions use %.2f of a CPU, want %.2f", share, test.share)
			}
			if longest > test.every+20*time.Millisecond {
				t.Errorf("a key waits for %s, want at most %s", longest, test.every)
			}
			if small > interval {
				t.Errorf("a key with cheap decisions waits for %s", small)
			}
			if len(throttle.earliest) > test.large+1 || len(throttle.order) > 4*(test.large+1)*int(maxPause/interval) {
				t.Errorf("%d keys are remembered, %d times", len(throttle.earliest), len(throttle.order))
			}
		})
	}
}

// A decision may take longer than the interval, in which other keys start and forget what is over.
func TestSpentAfterTheInterval(t *testing.T) {
	throttle := throttle[string]{interval: time.Millisecond, earliest: make(map[string]time.Time)}
	now := time.Unix(0, 0)
	throttle.start("a", now)
	now = now.Add(time.Second)
	throttle.start("b", now)
	throttle.spent("a", time.Second, now)
	if got := throttle.remaining("a", now); got != paceAll*time.Second {
		t.Errorf("the next one is due after %s", got)
	}
	throttle.start("b", now.Add(time.Minute))
	throttle.start("c", now.Add(2*time.Minute))
	if len(throttle.earliest) != 1 || len(throttle.order) != 1 {
		t.Errorf("remembered: %v, %v", throttle.earliest, throttle.order)
	}
}
