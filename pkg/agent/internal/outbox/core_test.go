package outbox

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/wire"
)

// TestCore steps the core at random beside a model that knows only the newest status of each work, and checks that a work
// never has two publishes in flight, that there are never more than allowed and none without a connection, and that in the end the
// broker has acknowledged the newest status of each work.
func TestCore(t *testing.T) {
	const most, works = 3, 6
	outcomes := []outcome{acknowledged, acknowledged, refused, disconnected, canceled, exceedsLimit}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		now := time.Unix(1_000_000, 0)
		c := newCore(0, most)
		newest := map[inbox.Key]version{}
		flying := map[inbox.Key]*attempt{}
		begin := func() {
			for {
				a, _, _ := c.next(now)
				if a == nil {
					return
				}
				if flying[a.key] != nil || !c.connected || len(flying) == most || a.version != newest[a.key] {
					t.Fatalf("seed %d: publish of %+v, in flight %d, connected %v, newest %+v", seed, a.version, len(flying), c.connected, newest[a.key])
				}
				flying[a.key] = a
			}
		}
		end := func(a *attempt, how outcome) {
			delete(flying, a.key)
			if a.sent = a.version.Hash; a.form != whole {
				a.sent += "reduced"
			}
			if r := c.complete(a, how, now); r.final {
				if c.find(a.key) == a.work && a.work.want == a.version {
					c.remove(a.work)
				}
				delete(newest, a.key)
			}
		}
		for step := range 400 {
			key := inbox.Key{Source: wire.SourceID(fmt.Sprint("hub", random.IntN(2))), UID: types.UID(fmt.Sprint(random.IntN(works)))}
			switch random.IntN(10) {
			case 0:
				c.connect(fmt.Sprint(step))
			case 1:
				c.connected = false
			case 2:
				if w := c.find(key); w != nil && w.state != publishing {
					c.remove(w)
					delete(newest, key)
				}
			case 3:
				c.resync(&wire.StatusResync{Source: key.Source}, now)
			case 4:
				now = now.Add(time.Duration(random.IntN(1000)) * time.Millisecond)
			case 5, 6, 7:
				want := version{Hash: fmt.Sprint(step), Generation: wire.Generation(step), Final: random.IntN(8) == 0}
				changed, _ := c.set(key, Status{Generation: want.Generation, Meta: &metav1.ObjectMeta{}, Final: want.Final}, want, false, now)
				if changed {
					newest[key] = want
				}
			default:
				for _, a := range flying {
					end(a, outcomes[random.IntN(len(outcomes))])
					break
				}
			}
			begin()
		}
		c.connect("last")
		for rounds := 0; len(newest) > 0; rounds++ {
			begin()
			for _, a := range flying {
				end(a, acknowledged)
			}
			begin()
			_, idle, again := c.next(now)
			settled := idle && again.IsZero()
			for key, want := range newest {
				settled = settled && c.find(key).acked == want
			}
			if settled {
				break
			}
			if !again.IsZero() {
				now = again
			}
			if rounds == 100 {
				for key, want := range newest {
					t.Errorf("seed %d: %v: want %+v, have %+v", seed, key, want, c.find(key))
				}
				t.FailNow()
			}
		}
		if s := c.figures(); s.Pending != 0 || c.countWorks() != len(newest) || c.delayed.Len() != 0 {
			t.Fatalf("seed %d: %+v, %d works, %d in backoff", seed, s, len(newest), c.delayed.Len())
		}
	}
}
