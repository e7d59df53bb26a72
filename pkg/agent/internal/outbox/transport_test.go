package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/outbox"
	"github.com/workwire/workwire/pkg/agent/internal/store"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// view is the state of a source: the newest status of each work, by the rules of docs/protocol.md,
// Ordering.
type view struct {
	mu     sync.Mutex
	newest map[types.UID]*wire.Status
	told   chan struct{} // signals changes; capacity 1
}

func (v *view) take(s *wire.Status) {
	v.mu.Lock()
	if held := v.newest[s.UID]; held == nil || s.Sequence > held.Sequence {
		v.newest[s.UID] = s
	}
	v.mu.Unlock()
	select {
	case v.told <- struct{}{}:
	default:
	}
}

// generations returns the generation of each work's status, or -1 if it is final.
func (v *view) generations() map[types.UID]wire.Generation {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := map[types.UID]wire.Generation{}
	for uid, s := range v.newest {
		all[uid] = s.Generation
		if s.Status.Conditions[len(s.Status.Conditions)-1].Type == "Deleted" {
			all[uid] = -1
		}
	}
	return all
}

// subscribe runs a source until the test ends, and returns its view.
func subscribe(t *testing.T, b *memory.Broker) *view {
	v := &view{newest: map[types.UID]*wire.Status{}, told: make(chan struct{}, 1)}
	subscribed := make(chan struct{})
	kit.Run(t, "the transport", func(ctx context.Context) error {
		return b.Client("hub").Run(ctx, transport.Handler{
			Subscriptions: []string{"to/hub"},
			Connected:     func(context.Context, transport.Connection) { close(subscribed) },
			Received: func(_ context.Context, m transport.Message) {
				if message, err := wire.Decode(m.Event); err != nil {
					t.Errorf("the source got %v", err)
				} else {
					v.take(message.(*wire.Status))
				}
				m.Ack()
			},
		})
	})
	<-subscribed
	return v
}

// live runs an outbox with its state in dir during the call of during.
func live(t *testing.T, b *memory.Broker, dir string, during func(*outbox.Outbox)) {
	quiet := slog.New(slog.DiscardHandler)
	state, err := store.Open(store.Config{Dir: dir, Logger: quiet})
	kit.NoError(t, err)
	defer kit.Run(t, "the store", func(ctx context.Context) error { return store.Run(ctx, state) })() // ends last
	link := b.Client("quay-agent")
	out, err := outbox.New(outbox.Config{Agent: "quay-agent", Publisher: link, Store: state, Logger: quiet, Done: func(inbox.Key) {},
		Topic: func(s wire.SourceID) (string, error) { return "to/" + string(s), nil }})
	kit.NoError(t, err)
	out.SetLimits(8, time.Millisecond)
	kit.NoError(t, out.Load(anyWork))
	defer kit.Run(t, "the transport", func(ctx context.Context) error {
		return link.Run(ctx, transport.Handler{
			Connected: func(context.Context, transport.Connection) { out.Connected("session") },
			Lost:      func(error) { out.Lost() },
			Received:  func(context.Context, transport.Message) {},
		})
	})()
	defer kit.Run(t, "the outbox", out.Run)()
	during(out)
}

// TestSourceEndsWithTheNewest sets statuses at random while the connection comes and goes, messages
// are doubled and the agent restarts. In the end the source has the newest status of each work.
func TestSourceEndsWithTheNewest(t *testing.T) {
	broker := memory.NewBroker()
	broker.Duplicate(1)
	source := subscribe(t, broker)
	random := rand.New(rand.NewPCG(7, 8))
	dir := t.TempDir()
	want := map[types.UID]wire.Generation{}
	generation := wire.Generation(0)
	for range 4 {
		live(t, broker, dir, func(out *outbox.Outbox) {
			for range 400 {
				switch random.IntN(40) {
				case 0:
					broker.Cut("quay-agent")
				case 1, 2:
					broker.Restore("quay-agent")
				}
				k := key(fmt.Sprint(random.IntN(30)))
				generation++
				if random.IntN(25) == 0 {
					want[k.UID] = -1
					out.Set(k, final(generation))
				} else if want[k.UID] != -1 { // a deleted work stays deleted
					want[k.UID] = generation
					out.Set(k, status(generation, "up"))
				}
			}
		})
		broker.Restore("quay-agent")
	}
	// The last life only delivers what is left.
	live(t, broker, dir, func(*outbox.Outbox) {
		late := time.After(kit.Patience)
		for !maps.Equal(source.generations(), want) {
			select {
			case <-source.told:
			case <-late:
				t.Fatalf("the source has %v\nwant %v", source.generations(), want)
			}
		}
	})
}

// BenchmarkStatus sets a status and has it taken.
func BenchmarkStatus(b *testing.B) {
	taken := make(chan struct{}, 1)
	out, err := outbox.New(outbox.Config{Agent: "quay-agent", Publisher: taker(taken), Done: func(inbox.Key) {},
		Topic: func(wire.SourceID) (string, error) { return "to/hub", nil }})
	kit.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- out.Run(ctx) }()
	out.Connected("session")
	s := bulky(20)
	b.ReportAllocs()
	for b.Loop() {
		s.Generation++
		out.Set(key("a"), s)
		<-taken
	}
	cancel()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}

type taker chan struct{}

func (t taker) Publish(context.Context, string, cloudevents.Event) error {
	t <- struct{}{}
	return nil
}
