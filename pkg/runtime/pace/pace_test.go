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
		limit.Took(w.ended - w.began)
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
		limit.Took(time.Millisecond)
		if limit.Allowed() != 1 {
			t.Fatalf("%d are allowed", limit.Allowed())
		}
	}
}

// TestGate: as many pass together as the limit allows, also when it changes, and whoever does not wait any longer takes no place.
func TestGate(t *testing.T) { synctest.Test(t, testGate) }

func testGate(t *testing.T) {
	const most = 8
	gate := new(pace.Gate).NewLane(most)
	writes := func(took time.Duration) { // of several callers
		var all sync.WaitGroup
		for range 2 * most {
			all.Go(func() {
				for range 100 {
					place, err := gate.Enter(t.Context(), false)
					if err != nil {
						t.Error(err)
						return
					}
					place.Write(func() { time.Sleep(took) })
				}
			})
		}
		all.Wait()
	}
	places := func() int {
		var taken []*pace.Place
		for len(taken) <= most {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			place, err := gate.Enter(ctx, false)
			cancel()
			if err != nil {
				break
			}
			taken = append(taken, place)
		}
		for _, place := range taken {
			place.Leave()
		}
		return len(taken)
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
		gate, began := new(pace.Gate).NewLane(most), time.Now()
		write := func(takes time.Duration) {
			place, err := gate.Enter(t.Context(), false)
			if err != nil {
				t.Error(err)
				return
			}
			place.Write(func() { time.Sleep(takes) })
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

// TestGiveWay: what people change by hand does not wait for the backlog, which waits for it, and is then written one by one, its lanes in
// turns, until nobody has changed anything for a while.
func TestGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, took = 4, 10 * time.Millisecond
		gate, began := new(pace.Gate), time.Now()
		lanes := []*pace.Lane{gate.NewLane(most), gate.NewLane(most)}
		var mu sync.Mutex
		type write struct {
			lane     int
			at, ends time.Duration
		}
		var all []write // of the backlog, in the order in which they began
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for i, lane := range lanes {
			for range 2 * most {
				running.Go(func() {
					for {
						place, err := lane.Enter(ctx, false)
						if err != nil {
							return
						}
						place.Write(func() {
							mu.Lock()
							at := time.Since(began)
							all = append(all, write{i, at, at + took})
							mu.Unlock()
							time.Sleep(took)
						})
					}
				})
			}
		}
		together := func(from, to time.Duration) (most int, lanes [2]int) {
			mu.Lock()
			defer mu.Unlock()
			for _, w := range all {
				n := 0
				for _, o := range all {
					if o.at <= w.at && w.at < o.ends {
						n++
					}
				}
				if from < w.at && w.at < to {
					most = max(most, n)
					lanes[w.lane]++
				}
			}
			return most, lanes
		}
		time.Sleep(time.Second)
		if n, _ := together(0, time.Second); n != 2*most {
			t.Errorf("%d writes were under way before, want %d", n, 2*most)
		}
		edited := time.Since(began)
		for range 3 { // only the first one has all wait
			lanes[0].GiveWay()
			time.Sleep(took)
		}
		place, err := lanes[1].Enter(t.Context(), true)
		if err != nil || time.Since(began) > edited+4*took {
			t.Errorf("by hand: %v, after %v", err, time.Since(began)-edited)
		}
		place.Write(func() { time.Sleep(took) })
		last := edited + 2*took
		time.Sleep(pace.Attended + time.Second)
		if n, _ := together(edited, edited+pace.Pause); n != 0 {
			t.Errorf("%d writes of the backlog at a time began after the change", n)
		}
		n, turns := together(edited+pace.Pause, last+pace.Attended)
		if n != 1 || turns[0] < 400 || max(turns[0], turns[1])-min(turns[0], turns[1]) > 1 {
			t.Errorf("then %d at a time, %v of the lanes; want one, and as many of each", n, turns)
		}
		if n, _ := together(last+pace.Attended, time.Since(began)); n != 2*most {
			t.Errorf("and %d at last, want %d", n, 2*most)
		}
		cancel()
		running.Wait()
	})
}

// TestGiveWayAgain: however much is changed by hand, and however long the writes about that take, the backlog is written half of the time;
// what hangs holds nobody up.
func TestGiveWayAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lasts = 10 * time.Second
		lane, began, n := new(pace.Gate).NewLane(4), time.Now(), 0
		write := func(byHand bool, takes time.Duration) {
			place, err := lane.Enter(t.Context(), byHand)
			if err != nil {
				t.Error(err)
				return
			}
			place.Write(func() { time.Sleep(takes) })
		}
		var others sync.WaitGroup
		for range 8 {
			others.Go(func() {
				for time.Since(began) < lasts {
					lane.GiveWay()
					write(true, time.Second)
				}
			})
		}
		others.Go(func() {
			for time.Since(began) < lasts {
				lane.GiveWay()
				time.Sleep(time.Millisecond)
			}
		})
		others.Go(func() { write(false, time.Minute) })
		for ; time.Since(began) < lasts; n++ {
			write(false, time.Millisecond)
		}
		if want := int((lasts - pace.Patience) / (2 * time.Millisecond)); n < want*95/100 || n > want*105/100 {
			t.Errorf("%d writes in %v, want about %d", n, lasts, want)
		}
		others.Wait()
	})
}
