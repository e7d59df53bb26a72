package quota_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/test/kit"
)

var rates = quota.Rates{quota.Messages: {PerSecond: 10, Burst: 100}, quota.Bytes: {PerSecond: 1000, Burst: 5000}}

func TestSpend(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for _, c := range []struct {
		name  string
		costs []quota.Cost // the last one is asked for
		after time.Duration
		want  bool
		wait  time.Duration // for the last one, if refused
	}{
		{name: "the first", costs: []quota.Cost{{quota.Messages: 1}}, want: true},
		{name: "more than the burst, once", costs: []quota.Cost{{quota.Bytes: 20_000}}, want: true},
		{name: "in debt", costs: []quota.Cost{{quota.Bytes: 20_000}, {quota.Bytes: 1}}, wait: 15_001 * time.Millisecond},
		{name: "almost out of debt", costs: []quota.Cost{{quota.Bytes: 20_000}, {quota.Bytes: 1}}, after: 15 * time.Second, wait: time.Millisecond},
		{name: "out of debt", costs: []quota.Cost{{quota.Bytes: 20_000}, {quota.Bytes: 1}}, after: 16 * time.Second, want: true},
		{name: "in debt for another resource", costs: []quota.Cost{{quota.Bytes: 20_000}, {quota.Messages: 1}}, want: true},
		{name: "one of two is used up", costs: []quota.Cost{{quota.Messages: 100}, {quota.Messages: 1, quota.Bytes: 1}}, wait: 100 * time.Millisecond},
		{name: "no limit", costs: []quota.Cost{{quota.Writes: 1e12}, {quota.Writes: 1}}, want: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := quota.New[string](quota.Config{Rates: rates})
			for _, cost := range c.costs[:len(c.costs)-1] {
				q.Spend("a", cost, now)
			}
			last, at := c.costs[len(c.costs)-1], now.Add(c.after)
			if got := q.Spend("a", last, at); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if wait := q.Wait("a", last, at); !c.want && (wait-c.wait).Abs() > time.Microsecond {
				t.Errorf("wait %v, want %v", wait, c.wait)
			}
			if !q.Spend("b", last, at) {
				t.Error("another identity pays for it")
			}
			if noise := q.Noise("a", at); noise.Since.IsZero() != c.want {
				t.Errorf("noise %+v", noise)
			}
			if q.Noise("b", at) != (quota.Noise{}) {
				t.Error("another identity is noisy")
			}
		})
	}
}

func TestNoiseEnds(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	q := quota.New[string](quota.Config{Rates: rates})
	over := quota.Cost{quota.Messages: 1000}
	q.Spend("a", over, now)
	q.Spend("a", over, now.Add(time.Second))
	q.Spend("a", over, now.Add(5*time.Minute))
	q.Spend("a", over, now.Add(5*time.Minute))
	if got := q.Noise("a", now.Add(14*time.Minute)); got != (quota.Noise{Resource: quota.Messages, Since: now.Add(time.Second)}) {
		t.Errorf("noise %+v", got)
	}
	if got := q.Noise("a", now.Add(15*time.Minute)); got != (quota.Noise{}) {
		t.Errorf("noise %+v after ten quiet minutes", got)
	}
}

// TestNeverMoreThanTheRate: whatever is asked for, no more is granted than burst, rate and one debt.
func TestNeverMoreThanTheRate(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		q := quota.New[string](quota.Config{Rates: rates})
		start := time.Unix(1_000_000, 0)
		now, spent, largest := start, 0.0, 0.0
		for range 500 {
			now = now.Add(time.Duration(random.IntN(200)) * time.Millisecond)
			n := float64(random.IntN(2000))
			if q.Spend("a", quota.Cost{quota.Bytes: n}, now) {
				spent, largest = spent+n, max(largest, n)
			}
			if limit := 5000 + now.Sub(start).Seconds()*1000 + largest; spent > limit+1e-6 {
				t.Fatalf("%v spent after %v, want at most %v", spent, now.Sub(start), limit)
			}
		}
	}
}

func TestForgetsWhoIsQuiet(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	q := quota.New[string](quota.Config{Rates: rates, Subsystem: "test"})
	allocated := func() int {
		for i := range 10_000 {
			q.Spend(fmt.Sprint("quiet", i), quota.Cost{quota.Messages: 1}, now.Add(time.Duration(i)*time.Second))
		}
		return q.Len()
	}
	if n := allocated(); n > 200 {
		t.Errorf("%d identities are kept, all but one have all of their burst", n)
	}
}

func TestMetrics(t *testing.T) {
	q := quota.New[string](quota.Config{Rates: rates, Subsystem: "test"})
	now := time.Now()
	for i := range 20 {
		for range 2 {
			q.Spend(fmt.Sprintf("n%02d", i), quota.Cost{quota.Messages: 200}, now.Add(time.Duration(i)))
		}
	}
	registry := prometheus.NewPedanticRegistry()
	kit.NoError(t, registry.Register(q))
	families, err := registry.Gather()
	kit.NoError(t, err)
	var text strings.Builder
	for _, f := range families {
		fmt.Fprintln(&text, f.GetName(), len(f.GetMetric()))
	}
	const want = "workwire_test_quota_noisy 10\nworkwire_test_quota_refused_total 7\nworkwire_test_quota_spent_total 7\n"
	if text.String() != want {
		t.Errorf("metrics\n%s, want\n%s", text.String(), want)
	}
}

func BenchmarkSpend(b *testing.B) {
	q := quota.New[string](quota.Config{Rates: quota.Clusters()})
	now := time.Now()
	for b.Loop() {
		now = now.Add(time.Millisecond)
		q.Spend("a", quota.Cost{quota.Messages: 1, quota.Bytes: 1000}, now)
	}
}
