package pace_test

import (
	"context"
	"math/rand/v2"
	"strings"
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
		w, full := underWay[next], len(underWay) >= limit.Allowed()
		underWay = append(underWay[:next], underWay[next+1:]...)
		now = w.ended
		limit.Took(w.ended-w.began, full)
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
		limit.Took(time.Millisecond, true)
		if limit.Allowed() != 1 {
			t.Fatalf("%d are allowed", limit.Allowed())
		}
	}
}

// write has a write done in its turn.
func write(t *testing.T, lane *pace.Lane, owner string, do func()) {
	t.Helper()
	place, err := lane.Enter(t.Context(), owner)
	if err != nil {
		t.Error(err)
		return
	}
	defer place.Leave()
	place.Write(func() bool { do(); return true })
}

func sleep(d time.Duration) func() { return func() { time.Sleep(d) } }

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
					write(t, gate, "fleet.web", sleep(took))
				}
			})
		}
		all.Wait()
	}
	places := func() int {
		var taken []*pace.Place
		for len(taken) <= most {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			place, err := gate.Enter(ctx, "fleet.web")
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
		var hanging sync.WaitGroup
		for range most - 1 {
			hanging.Go(func() { write(t, gate, "fleet.web", sleep(time.Minute)) })
		}
		synctest.Wait()
		write(t, gate, "fleet.web", sleep(time.Millisecond)) // after four pairs
		if waited := time.Since(began); waited > most/2*pace.Patience {
			t.Errorf("a write has waited for %s", waited)
		}
		hanging.Wait()
		began = time.Now()
		for range 2 { // as many as at first
			hanging.Go(func() { write(t, gate, "fleet.web", sleep(pace.Patience/2)) })
		}
		synctest.Wait()
		if write(t, gate, "fleet.web", sleep(time.Millisecond)); time.Since(began) < pace.Patience/2 {
			t.Errorf("a third write is under way after %s", time.Since(began))
		}
		hanging.Wait()
	})
}

// TestOwnersTakeTurns: the only write of one owner waits for one of another that has many.
func TestOwnersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lane := new(pace.Gate).NewLane(1)
		var order []string
		var all sync.WaitGroup
		for _, owner := range []string{"large", "large", "large", "large", "small"} {
			all.Go(func() {
				write(t, lane, owner, func() {
					order = append(order, owner)
					time.Sleep(time.Millisecond)
				})
			})
			synctest.Wait()
		}
		all.Wait()
		if got := strings.Join(order, " "); got != "large large small large large" {
			t.Errorf("written: %s", got)
		}
	})
}

// busy is a backlog of two lanes on a server that does so many writes at once, each in about 5 ms.
type busy struct {
	lanes   [2]*pace.Lane
	stop    func() // and wait
	mu      sync.Mutex
	random  *rand.Rand // guarded by mu
	running int
	most    int    // guarded by mu: running together since look
	began   [2]int // guarded by mu: by lane, since look
}

const busyTook = 5 * time.Millisecond

func newBusy(t *testing.T, atOnce int) *busy {
	gate, cores := &pace.Gate{}, make(chan struct{}, atOnce)
	b := &busy{lanes: [2]*pace.Lane{gate.NewLane(16), gate.NewLane(16)}, random: rand.New(rand.NewPCG(1, 2))}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i, lane := range b.lanes {
		for range 32 {
			all.Go(func() {
				for ctx.Err() == nil {
					write(t, lane, "fleet.web", func() {
						b.mu.Lock()
						b.running++
						b.most = max(b.most, b.running)
						b.began[i]++
						b.mu.Unlock()
						cores <- struct{}{}
						b.mu.Lock()
						took := time.Duration(float64(busyTook) * (0.8 + 0.4*b.random.Float64()))
						b.mu.Unlock()
						time.Sleep(took)
						<-cores
						b.mu.Lock()
						b.running--
						b.mu.Unlock()
					})
				}
			})
		}
	}
	b.stop = func() { cancel(); all.Wait() }
	return b
}

// look returns how many writes have run together at most, and how many have begun, for so long.
func (b *busy) look(d time.Duration) (most int, began [2]int) {
	b.mu.Lock()
	b.most, b.began = b.running, [2]int{}
	b.mu.Unlock()
	time.Sleep(d)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.most, b.began
}

// TestGiveWay: where writes wait for each other, none of the backlog begins while somebody changes something by hand, and then its lanes write one by
// one in turns, until nobody has changed anything for a while; what was changed by hand does not wait.
func TestGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBusy(t, 1)
		defer b.stop()
		time.Sleep(10 * time.Second)
		before, _ := b.look(time.Second)
		if before < 4 || before > 12 {
			t.Errorf("%d writes are under way before, want few, but 2 of each lane", before)
		}
		edited := time.Now()
		b.lanes[0].GiveWay()
		if _, began := b.look(pace.Pause / 2); began != [2]int{} {
			t.Errorf("%v writes of the backlog began after the change", began)
		}
		if write(t, b.lanes[1], "", sleep(busyTook)); time.Since(edited) > pace.Pause {
			t.Errorf("what was changed by hand has waited until %v after the change", time.Since(edited))
		}
		b.lanes[0].GiveWay() // no second pause
		time.Sleep(time.Until(edited.Add(pace.Pause + busyTook)))
		most, began := b.look(5 * time.Second)
		if want := int(5 * time.Second / busyTook / 2); most != 1 || min(began[0], began[1]) < want*9/10 || max(began[0], began[1])-min(began[0], began[1]) > 1 {
			t.Errorf("then %d at a time, %v of the lanes, want one, and about %d of each", most, began, want)
		}
		time.Sleep(time.Until(edited.Add(pace.Pause + pace.Attended)))
		if after, _ := b.look(time.Second); after < 4 || after > before+2 {
			t.Errorf("%d writes are under way when nobody is there any more, %d before", after, before)
		}
	})
}

// TestNoNeedToGiveWay: where writes do not wait for each other, nobody else waits for them, and they wait for nobody.
func TestNoNeedToGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBusy(t, 64)
		defer b.stop()
		time.Sleep(time.Second)
		_, before := b.look(time.Second)
		b.lanes[0].GiveWay()
		if most, after := b.look(time.Second); most != 32 || after[0] < before[0]*95/100 {
			t.Errorf("%d are under way, %v have begun in a second; want 32, and as many as before, %v", most, after, before)
		}
	})
}

// TestGiveWayAgain: however much is changed by hand, and however long the writes about that take, the backlog is written half of the time;
// what takes long in one lane holds nobody up.
func TestGiveWayAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBusy(t, 1)
		time.Sleep(10 * time.Second)
		const lasts = 10 * time.Second
		began := time.Now()
		var others sync.WaitGroup
		for range 8 {
			others.Go(func() {
				for time.Since(began) < lasts {
					b.lanes[1].GiveWay()
					write(t, b.lanes[1], "", sleep(time.Second))
				}
			})
		}
		others.Go(func() {
			for time.Since(began) < lasts {
				b.lanes[0].GiveWay()
				time.Sleep(time.Millisecond)
			}
		})
		others.Go(func() { write(t, b.lanes[1], "fleet.hangs", sleep(time.Minute)) })
		_, n := b.look(lasts)
		if want := int(lasts / busyTook / 2); n[0]+n[1] < want*9/10 || n[0]+n[1] > want*11/10 {
			t.Errorf("%v writes in %v, want about %d", n, lasts, want)
		}
		b.stop()
		others.Wait()
	})
}
