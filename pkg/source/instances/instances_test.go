package instances

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// bus delivers what its members publish to those that subscribe.
type bus struct {
	transport.Transport

	mu         sync.Mutex
	refuse     error
	deaf       bool
	subscribes int
	published  int
	members    []*Watcher
}

func (b *bus) Subscribe(context.Context, string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subscribes++
	return b.refuse
}

func (b *bus) Publish(_ context.Context, _ string, e cloudevents.Event) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.published++
	m, err := wire.Decode(e)
	if err != nil {
		return err
	}
	for _, w := range b.members {
		if !b.deaf {
			w.Received(m.(*wire.Instance), time.Now())
		}
	}
	return nil
}

func (b *bus) join(t *testing.T, log *kit.Log, onChange func([]Other)) *Watcher {
	t.Helper()
	topics, err := wire.Topics{SourceEvents: "sources/hub1/clusters/+/sourceevents", AgentEvents: "sources/hub1/clusters/+/agentevents"}.ForSource("hub1")
	kit.NoError(t, err)
	w := New(Config{Source: "hub1", Topics: topics, Transport: b, Logger: log.Logger(), OnChange: onChange}, time.Now())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.members = append(b.members, w)
	return w
}

// TestPair: two programs notice each other within half a minute, and the end of one after its
// silence; alone, a program sends two messages a minute.
func TestPair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{}
		var log kit.Log
		var changes []int
		first := b.join(t, &log, func(others []Other) { changes = append(changes, len(others)) })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go first.Run(ctx)
		time.Sleep(10*time.Minute - time.Second)
		synctest.Wait()
		if b.published != 20 || !first.Watching() || first.Others() != 0 {
			t.Errorf("alone: %d announcements in 10 minutes, %d others", b.published, first.Others())
		}
		second := b.join(t, &log, nil)
		otherCtx, end := context.WithCancel(ctx)
		go second.Run(otherCtx)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if first.Others() != 1 || second.Others() != 1 || len(log.Lines("level=ERROR", "another program publishes under this source id")) != 2 {
			t.Errorf("after 30 s the first has %d others, the second %d:\n%s", first.Others(), second.Others(), &log)
		}
		end()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if !slices.Equal(changes, []int{1, 0}) {
			t.Errorf("the first was told of %v others", changes)
		}
	})
}

// TestWithoutTheRight: a broker that refuses the subscription is asked once an hour, and one that
// delivers nothing is told of.
func TestWithoutTheRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{refuse: errors.New("not authorized")}
		var log kit.Log
		w := b.join(t, &log, nil)
		for range 30 { // a broker that ends the connection each time
			w.Run(t.Context())
			time.Sleep(time.Minute)
		}
		if b.subscribes != 1 || b.published != 0 || len(log.Lines("level=WARN", "other programs under this source id cannot be noticed", "not authorized")) != 1 {
			t.Errorf("%d subscriptions, %d announcements:\n%s", b.subscribes, b.published, &log)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b := &bus{deaf: true}
		var log kit.Log
		w := b.join(t, &log, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.Run(ctx)
		time.Sleep(10 * time.Minute)
		if w.Watching() || len(log.Lines("level=WARN", "other programs under this source id cannot be noticed", "does not deliver")) != 1 {
			t.Errorf("watching: %v\n%s", w.Watching(), &log)
		}
	})
}

// TestShards: programs with different shards of the clusters do not notice each other; two with the same
// shard do, and so does one that serves all.
func TestShards(t *testing.T) {
	for name, c := range map[string]struct {
		first, second string
		want          int
	}{
		"different": {"a", "b", 0}, "the same": {"a", "a", 1}, "all and a shard": {"", "b", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bus{}
				var log kit.Log
				first, second := b.join(t, &log, nil), b.join(t, &log, nil)
				first.cfg.Shard, first.self.Part = c.first, c.first
				second.cfg.Shard, second.self.Part = c.second, c.second
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go first.Run(ctx)
				go second.Run(ctx)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if first.Others() != c.want || second.Others() != c.want {
					t.Errorf("the first has %d others, the second %d, want %d", first.Others(), second.Others(), c.want)
				}
			})
		})
	}
}
