package outbox_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/outbox"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

func TestNewRefusesWhatIsIncomplete(t *testing.T) {
	full := outbox.Config{Agent: "a", Publisher: &broker{}, Topic: func(wire.SourceID) (string, error) { return "", nil }, Done: func(inbox.Key) {}}
	if _, err := outbox.New(full); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*outbox.Config){
		"agent":     func(c *outbox.Config) { c.Agent = "" },
		"publisher": func(c *outbox.Config) { c.Publisher = nil },
		"topic":     func(c *outbox.Config) { c.Topic = nil },
		"done":      func(c *outbox.Config) { c.Done = nil },
	} {
		c := full
		change(&c)
		if _, err := outbox.New(c); err == nil {
			t.Errorf("New takes a Config without a good %s", name)
		}
	}
}

func TestStatusGoesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prepare(t, &broker{})
		r.run(t)
		s := status(3, "up")
		s.Trace = `{"t":"1"}`
		r.Set(key("a"), s)
		r.took(t, "")
		if stats := r.Stats(); stats.Pending != 1 || r.Works() != 1 {
			t.Errorf("before the connection Stats = %+v", stats)
		}
		r.Connected("session")
		got := r.took(t, "a@3 up")[0]
		hash, _ := wire.StatusHash(&s.Status)
		if got.Agent != "quay-agent" || got.Source != "hub" || got.Cluster != "quay" || got.Trace != s.Trace || got.Hash != hash ||
			got.Meta.Name != "lamp" || len(got.Meta.Finalizers) != 1 || got.Sequence == 0 {
			t.Errorf("the broker took %+v", got)
		}
		if stats := r.Stats(); stats.Pending != 0 || r.InFlight() != 0 || stats.Published != 1 {
			t.Errorf("Stats = %+v", stats)
		}
		if last, ok := r.Last(key("a")); !ok || last.Generation != 3 || len(last.Status.Conditions) != 1 {
			t.Errorf("Last = %+v, %v", last, ok)
		}
		if _, ok := r.Last(key("b")); ok {
			t.Error("there is a last status of a work that has none")
		}
	})
}

func TestUnchangedStatusStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &broker{})
		r.Set(key("a"), status(1, "up"))
		r.took(t, "a@1 up")
		r.Set(key("a"), status(1, "up"))
		r.took(t, "")
		r.Set(key("a"), status(1, "down"))
		r.took(t, "a@1 down")
		r.Set(key("a"), status(1, "up"))
		r.took(t, "a@1 up")
		same := status(2, "up") // another generation, the same words
		same.Status.Conditions[0].ObservedGeneration = 1
		r.Set(key("a"), same)
		r.took(t, "a@2 up")
		r.Lost()
		r.Connected("session")
		r.took(t, "")
	})
}

// TestBurstsCoalesce: the first change is not held back, what follows while it is under way becomes
// one.
func TestBurstsCoalesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := start(t, &broker{answer: func(n int, _ *wire.Status) error {
			if n == 0 {
				<-release
			}
			return nil
		}})
		for i := range 100 {
			r.Set(key("a"), status(1, fmt.Sprint(i)))
			if i == 0 {
				synctest.Wait()
			}
		}
		r.Set(key("b"), status(1, "beside"))
		r.took(t, "b@1 beside")
		close(release)
		r.took(t, "a@1 0; a@1 99")
		if r.broker.doubled {
			t.Error("a work had two statuses under way")
		}
	})
}

func TestBackToWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := start(t, &broker{answer: func(int, *wire.Status) error { <-release; return nil }})
		r.Set(key("a"), status(1, "up"))
		synctest.Wait()
		r.Set(key("a"), status(1, "down"))
		r.Set(key("a"), status(1, "up"))
		close(release)
		r.took(t, "a@1 up")
	})
}

func TestInFlightIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := start(t, &broker{answer: func(int, *wire.Status) error { <-release; return nil }})
		r.SetLimits(5, 3*time.Second)
		for i := range 20 {
			r.Set(key(fmt.Sprint(i)), status(1, "up"))
		}
		synctest.Wait()
		if stats := r.Stats(); r.InFlight() != 5 || stats.Pending != 20 {
			t.Errorf("Stats = %+v", stats)
		}
		close(release)
		synctest.Wait()
		taken := r.broker.took()
		if len(taken) != 20 || r.broker.most != 5 {
			t.Errorf("the broker took %d, at most %d at once", len(taken), r.broker.most)
		}
	})
}

// TestSequenceIDsIncrease also while the clock goes back.
func TestSequenceIDsIncrease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := time.Duration(0)
		r := start(t, &broker{}, func(c *outbox.Config) { c.Now = func() time.Time { return time.Now().Add(-back) } })
		r.SetLimits(1, 3*time.Second)
		var last wire.SequenceID
		for i := range 50 {
			back += time.Duration(i%3) * time.Minute
			r.Set(key(fmt.Sprint(i%4)), status(wire.Generation(i), "up"))
			synctest.Wait()
		}
		for _, s := range r.broker.took() {
			if s.Sequence <= last {
				t.Fatalf("sequence id %d comes after %d", s.Sequence, last)
			}
			last = s.Sequence
		}
	})
}

func TestLostConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone atomic.Bool
		gone.Store(true)
		r := start(t, &broker{answer: func(int, *wire.Status) error {
			if gone.Load() {
				return fmt.Errorf("publish: %w", transport.ErrNotConnected)
			}
			return nil
		}})
		for i := range 10 {
			r.Set(key(fmt.Sprint(i)), status(1, "up"))
		}
		pass(time.Hour)
		r.took(t, "")
		if r.broker.calls > 10 {
			t.Errorf("%d publishes were tried without a connection", r.broker.calls)
		}
		r.Set(key("3"), status(2, "new"))
		r.Lost()
		gone.Store(false)
		pass(time.Hour)
		r.took(t, "")
		r.Connected("session")
		synctest.Wait()
		taken := r.broker.took()
		if len(taken) != 10 {
			t.Errorf("after the connection came back the broker took %q", summary(taken))
		}
		if i := slices.IndexFunc(taken, func(s *wire.Status) bool { return s.UID == "3" }); i < 0 || taken[i].Generation != 2 {
			t.Errorf("the newest status of work 3 is not among %q", summary(taken))
		}
	})
}

// TestOldLossDoesNotCloseTheNewConnection: a publish may report the loss after the next connection
// has begun.
func TestOldLossDoesNotCloseTheNewConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := start(t, &broker{answer: func(n int, _ *wire.Status) error {
			if n == 0 {
				<-release
				return transport.ErrNotConnected
			}
			return nil
		}})
		r.Set(key("a"), status(1, "up"))
		synctest.Wait()
		r.Lost()
		r.Connected("session")
		close(release)
		r.took(t, "a@1 up")
	})
}

// TestRefusedPublish is tried again, ever more rarely, and holds nothing else up.
func TestRefusedPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refuse atomic.Bool
		refuse.Store(true)
		var tries []time.Time
		r := start(t, &broker{answer: func(_ int, s *wire.Status) error {
			if s.Source == "foe" && refuse.Load() {
				tries = append(tries, time.Now())
				return fmt.Errorf("publish: %w", transport.ErrNotAuthorized)
			}
			return nil
		}})
		r.SetLimits(1, 3*time.Second)
		foe := inbox.Key{Source: "foe", UID: "x"}
		r.Set(foe, status(1, "up"))
		r.Set(key("a"), status(1, "up"))
		r.took(t, "a@1 up")
		pass(10 * time.Minute)
		if len(tries) < 8 || len(tries) > 14 {
			t.Errorf("%d tries in ten minutes", len(tries))
		}
		for i := 2; i < len(tries); i++ {
			if before, after := tries[i-1].Sub(tries[i-2]), tries[i].Sub(tries[i-1]); after < before {
				t.Errorf("try %d came after %v, the one before after %v", i, after, before)
			}
		}
		if lines := strings.Count(r.log.String(), "\n"); lines != 1 || !strings.Contains(r.log.String(), "level=ERROR") ||
			!strings.Contains(r.log.String(), "source=foe") || !strings.Contains(r.log.String(), "uid=x") {
			t.Errorf("the log says\n%s", r.log)
		}
		r.Set(foe, status(2, "new"))
		refuse.Store(false)
		pass(6 * time.Minute)
		r.took(t, "x@2 new")

		// A new connection is a new chance.
		refuse.Store(true)
		r.Set(foe, status(3, "newer"))
		pass(time.Minute)
		refuse.Store(false)
		r.Connected("session")
		r.took(t, "x@3 newer")
	})
}

func TestSourceWithoutTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &broker{}, func(c *outbox.Config) {
			c.Topic = func(s wire.SourceID) (string, error) {
				if s == "BAD" {
					return "", fmt.Errorf("source id %q", s)
				}
				return "to/" + string(s), nil
			}
		})
		r.Set(inbox.Key{Source: "BAD", UID: "x"}, status(1, "up"))
		r.Set(inbox.Key{Source: "other", UID: "y"}, status(1, "up"))
		synctest.Wait()
		if !slices.Equal(r.broker.topics, []string{"to/other"}) {
			t.Errorf("published to %v", r.broker.topics)
		}
		if stats := r.Stats(); stats.Refused != 1 || stats.Pending != 1 {
			t.Errorf("Stats = %+v", stats)
		}
	})
}
