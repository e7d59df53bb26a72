package pace_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workwire/workwire/pkg/runtime/pace"
)

// server does so many writes at once, each in busy, and answers after travel besides.
type server struct {
	atOnce       int
	busy, travel time.Duration
}

// fill has n writes done by s, as many together as limit allows, and returns how long all took, and how many were under
// way together at the end.
func (s server) fill(limit *pace.Limit, n int, random *rand.Rand) (took time.Duration, together int) {
	free := make([]time.Duration, s.atOnce)
	type write struct{ began, ended time.Duration }
	var underWay []write
	var now time.Duration
	for done := 0; done < n; {
		for len(underWay) < limit.Allowed() {
			first := 0
			for i := range free {
				if free[i] < free[first] {
					first = i
				}
			}
			busy := time.Duration(float64(s.busy) * (0.8 + 0.4*random.Float64()))
			free[first] = max(free[first], now) + busy
			underWay = append(underWay, write{now, free[first] + s.travel})
		}
		together = len(underWay)
		next := 0
		for i := range underWay {
			if underWay[i].ended < underWay[next].ended {
				next = i
			}
		}
		w := underWay[next]
		underWay = append(underWay[:next], underWay[next+1:]...)
		now = w.ended
		limit.Took(w.ended-w.began, false)
		done++
	}
	return now, together
}

// TestLimit: as many writes are under way as keep the server busy, and few more.
func TestLimit(t *testing.T) {
	const most, writes = 16, 20_000
	for name, c := range map[string]struct {
		server
		least, most int
	}{
		"one core on this machine":         {server{1, 5 * time.Millisecond, 100 * time.Microsecond}, 2, 8},
		"two cores on this machine":        {server{2, 5 * time.Millisecond, 3 * time.Millisecond}, 2, 7},
		"many cores on this machine":       {server{64, 5 * time.Millisecond, time.Millisecond}, most, most},
		"four cores on another continent":  {server{4, 5 * time.Millisecond, 200 * time.Millisecond}, most, most},
		"two cores that do a write slowly": {server{2, time.Second, 3 * time.Millisecond}, 2, 6},
	} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			took, together := c.fill(pace.New(most), writes, random)
			if together < c.least || together > c.most {
				t.Errorf("%d writes are under way, want %d to %d", together, c.least, c.most)
			}
			best := max(writes/time.Duration(c.atOnce)*c.busy, writes/most*(c.busy+c.travel))
			if took > best*11/10 {
				t.Errorf("took %s, at best %s", took, best)
			}
		})
	}
}

// TestLimitFollows: a server that becomes slower for all, and faster again, has as many writes as it had once that is believed.
func TestLimitFollows(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	limit := pace.New(16)
	fast, slow := server{64, 5 * time.Millisecond, time.Millisecond}, server{64, 50 * time.Millisecond, time.Millisecond}
	for _, step := range []struct {
		server
		writes, least, most int
	}{{fast, 1000, 16, 16}, {slow, 1000, 2, 2}, {slow, 10_000, 16, 16}, {fast, 1000, 16, 16}} {
		if _, together := step.fill(limit, step.writes, random); together < step.least || together > step.most {
			t.Errorf("%d writes of %s are under way after %d, want %d to %d", together, step.busy, step.writes, step.least, step.most)
		}
	}
}

// TestLimitOfOne: fewer than are kept otherwise may be all that is allowed.
func TestLimitOfOne(t *testing.T) {
	limit := pace.New(1)
	for range 100 {
		limit.Took(time.Millisecond, false)
		if limit.Allowed() != 1 {
			t.Fatalf("%d are allowed", limit.Allowed())
		}
	}
}

// TestGate: as many pass together as the limit allows, also when it changes, and whoever does not wait any longer takes no place.
func TestGate(t *testing.T) { synctest.Test(t, testGate) }

func testGate(t *testing.T) {
	const most = 8
	gate := pace.NewGate(most)
	writes := func(took time.Duration) { // of several callers
		var all sync.WaitGroup
		for range 2 * most {
			all.Go(func() {
				for range 100 {
					if err := gate.Enter(t.Context()); err != nil {
						t.Error(err)
						return
					}
					gate.Write(func() { time.Sleep(took) })
				}
			})
		}
		all.Wait()
	}
	places := func() (n int) {
		for ; n <= most; n++ {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			err := gate.Enter(ctx)
			cancel()
			if err != nil {
				break
			}
		}
		for range n {
			gate.Leave()
		}
		return n
	}
	for _, c := range []struct {
		took time.Duration
		want int
	}{{time.Millisecond, most}, {time.Second, 2}, {time.Millisecond, most}} {
		writes(c.took)
		if n := places(); n != c.want {
			t.Errorf("%d pass together when writes take %s, want %d", n, c.took, c.want)
		}
	}
}

// TestHangingWrites: writes that hang hold up others no longer than Patience, as long as there are fewer than may be under way at most.
func TestHangingWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 8
		gate, began := pace.NewGate(most), time.Now()
		write := func(takes time.Duration) {
			if err := gate.Enter(t.Context()); err != nil {
				t.Error(err)
				return
			}
			gate.Write(func() { time.Sleep(takes) })
		}
		var hanging sync.WaitGroup
		for range most - 1 {
			hanging.Go(func() { write(time.Minute) })
		}
		synctest.Wait()
		write(time.Millisecond) // after four pairs
		if waited := time.Since(began); waited > most/2*pace.Patience {
			t.Errorf("a write has waited for %s", waited)
		}
		hanging.Wait()
		began = time.Now()
		for range 2 { // as many as at first
			hanging.Go(func() { write(pace.Patience / 2) })
		}
		synctest.Wait()
		if write(time.Millisecond); time.Since(began) < pace.Patience/2 {
			t.Errorf("a third write is under way after %s", time.Since(began))
		}
		hanging.Wait()
	})
}
