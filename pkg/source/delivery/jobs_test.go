package delivery

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/wire"
)

func sum(older, newer int) int { return older + newer }

// TestJobs: values that are added while a job runs or waits are merged, it waits longer after each failure, others do
// not wait for it, and a value that was cleared does not come back.
func TestJobs(t *testing.T) {
	now := time.Unix(1000, 0)
	q := newJobs[string](sum)
	next := func(want string, value int) *job[string, int] {
		t.Helper()
		j, got := q.next(now, 2)
		switch {
		case want == "" && j != nil, want != "" && (j == nil || j.key != want || got != value):
			t.Fatalf("next is %+v with %d, want %q with %d", j, got, want, value)
		}
		return j
	}
	q.add("slow", "", "a", 1)
	slow := next("slow", 1)
	q.add("slow", "", "a", 10)
	q.add("slow", "", "a", 100)
	q.add("fast", "", "b", 5)
	fast := next("fast", 5)
	q.add("third", "", "c", 7)
	next("", 0) // two are running
	q.end(fast)
	third := next("third", 7)
	q.retry(slow, 1, now)
	next("", 0)
	now = now.Add(minRetryDelay)
	slow = next("slow", 111)
	q.retry(slow, 111, now)
	q.add("slow", "", "a", 1000)
	now = now.Add(minRetryDelay)
	next("", 0) // the pause has doubled
	now = now.Add(minRetryDelay)
	slow = next("slow", 1111)
	q.retry(slow, 1111, now)
	q.clear("a")
	now = now.Add(maxRetryDelay)
	q.end(next("slow", 0))
	q.end(third)
	if len(q.byKey) != 0 || q.atOnce() != 0 || !q.due.Next().IsZero() {
		t.Errorf("left: %+v", q)
	}
}

// TestJobsAtRandom: whatever happens, no value is lost or carried out twice, no key is carried out twice at a time, and
// what is ready begins.
func TestJobsAtRandom(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	now := time.Unix(1000, 0)
	const limit = 3
	q := newJobs[string](sum)
	type run struct {
		job   *job[string, int]
		value int
	}
	var running []run
	added, done := 0, 0
	for i := range 50_000 {
		if n := random.IntN(6); n < 2 && i < 40_000 {
			key := fmt.Sprint(random.IntN(8))
			q.add(key, []string{"", "fleet.web", "fleet.db"}[key[0]%3], wire.ClusterName(key[:1]), 1)
			added++
		} else if n < 5 && len(running) > 0 {
			at := random.IntN(len(running))
			ended := running[at]
			running[at] = running[len(running)-1]
			running = running[:len(running)-1]
			if random.IntN(3) == 0 {
				q.retry(ended.job, ended.value, now)
			} else {
				q.end(ended.job)
				done += ended.value
			}
		} else {
			now = now.Add(time.Duration(random.IntN(40)) * time.Second)
		}
		for j, value := q.next(now, limit); j != nil; j, value = q.next(now, limit) {
			for _, other := range running {
				if other.job.key == j.key {
					t.Fatalf("%s runs twice", j.key)
				}
			}
			running = append(running, run{j, value})
		}
		owned := 0
		for _, r := range running {
			if r.job.owner != "" {
				owned++
			}
		}
		if own := len(running) - owned; [2]int{own, owned} != q.running || max(own, owned) > limit || own < limit && q.own.Len() > 0 || owned < limit && q.owned.Len() > 0 {
			t.Fatalf("%d and %d run, counted as %v, %d and %d are ready", own, owned, q.running, q.own.Len(), q.owned.Len())
		}
	}
	if added != done || len(q.byKey) > 0 {
		t.Errorf("%d were added, %d carried out, %d are left", added, done, len(q.byKey))
	}
}

// TestOneWaitsForNoRollout: what has no owner waits for no replica set, whose works are on thousands of clusters, and these take turns.
func TestOneWaitsForNoRollout(t *testing.T) {
	q := newJobs[string](sum)
	for i := range 1000 {
		cluster := wire.ClusterName(fmt.Sprint("c", i))
		q.add(fmt.Sprint("rollout-on-", cluster), "fleet.web", cluster, 1)
		q.add(fmt.Sprint("another-on-", cluster), "fleet.db", cluster, 1)
	}
	var begun []string
	next := func() {
		if j, _ := q.next(time.Time{}, 2); j != nil {
			begun = append(begun, j.key)
		}
	}
	for range 3 {
		next()
	}
	q.add("by-hand", "", "c0", 1)
	next()
	if got := strings.Join(begun, " "); got != "rollout-on-c0 another-on-c0 by-hand" {
		t.Errorf("%s begin", got)
	}
}

func TestBackoff(t *testing.T) {
	for _, c := range []struct {
		n    int
		want time.Duration
	}{{0, time.Second}, {1, 2 * time.Second}, {4, 16 * time.Second}, {5, 30 * time.Second}, {1 << 30, 30 * time.Second}} {
		if got := backoff(time.Second, c.n, 30*time.Second); got != c.want {
			t.Errorf("backoff after %d: %s, want %s", c.n, got, c.want)
		}
	}
}
