package outbox_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/outbox"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate/condition"
	"github.com/workwire/workwire/test/kit"
)

// broker takes what is published and answers as its test says.
type broker struct {
	mu      sync.Mutex
	answer  func(n int, s *wire.Status) error // of the n-th publish, from 0; nil takes all
	size    int                               // greatest data taken, 0 for any
	taken   []*wire.Status
	deltas  int // of taken; a source resolves them
	zstd    int // compressed ones of taken
	topics  []string
	calls   int
	held    map[types.UID]*wire.Status
	flying  map[types.UID]int
	most    int // flying at once
	doubled bool
}

func (b *broker) Publish(ctx context.Context, topic string, e cloudevents.Event) error {
	m, err := wire.Decode(e)
	if err != nil {
		return err
	}
	s, whole := m.(*wire.Status)
	b.mu.Lock()
	if !whole {
		if s, err = b.resolve(m.(*wire.StatusDelta)); err != nil {
			b.mu.Unlock()
			return err
		}
	}
	n := b.calls
	b.calls++
	if b.flying == nil {
		b.flying = map[types.UID]int{}
	}
	b.flying[s.UID]++
	b.doubled = b.doubled || b.flying[s.UID] > 1
	flying := 0
	for _, count := range b.flying {
		flying += count
	}
	b.most = max(b.most, flying)
	b.mu.Unlock()
	if b.answer != nil {
		err = b.answer(n, s)
	}
	if err == nil && b.size > 0 && len(e.Data()) > b.size {
		err = fmt.Errorf("publish: %w", &transport.TooLargeError{Size: len(e.Data()), Limit: b.size})
	}
	if err == nil {
		err = ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flying[s.UID]--
	if err == nil {
		b.taken = append(b.taken, s)
		if !whole {
			b.deltas++
		}
		if e.DataContentType() != "application/json" {
			b.zstd++
		}
		if b.held == nil {
			b.held = map[types.UID]*wire.Status{}
		}
		b.held[s.UID] = s
		b.topics = append(b.topics, topic)
	}
	return err
}

// resolve returns the status of a delta, as a source does.
func (b *broker) resolve(d *wire.StatusDelta) (*wire.Status, error) {
	base := b.held[d.Of.UID]
	if base == nil || base.Hash != d.Base {
		return nil, fmt.Errorf("no status with hash %s", d.Base)
	}
	return d.Apply(&base.Status)
}

// took returns what was taken since the last call.
func (b *broker) took() []*wire.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := b.taken
	b.taken, b.topics = nil, nil
	return taken
}

// rig is an Outbox on a broker, inside a bubble of synctest.
type rig struct {
	*outbox.Outbox
	broker *broker
	log    *bytes.Buffer
	done   []inbox.Key
	stop   func()
}

// start returns a rig that is connected and runs. change may change its Config.
func start(t *testing.T, b *broker, change ...func(*outbox.Config)) *rig {
	t.Helper()
	r := prepare(t, b, change...)
	r.run(t)
	r.Connected("session")
	synctest.Wait()
	return r
}

func prepare(t *testing.T, b *broker, change ...func(*outbox.Config)) *rig {
	t.Helper()
	r := &rig{broker: b, log: &bytes.Buffer{}}
	var mu sync.Mutex
	config := outbox.Config{
		Agent:     "quay-agent",
		Publisher: b,
		Topic:     func(s wire.SourceID) (string, error) { return "to/" + string(s), nil },
		Done:      func(k inbox.Key) { mu.Lock(); defer mu.Unlock(); r.done = append(r.done, k) },
		Logger:    slog.New(slog.NewTextHandler(r.log, nil)),
	}
	for _, c := range change {
		c(&config)
	}
	o, err := outbox.New(config)
	kit.NoError(t, err)
	r.Outbox = o
	return r
}

func (r *rig) run(t *testing.T) { r.stop = kit.Run(t, "the outbox", r.Run) }

func key(name string) inbox.Key { return inbox.Key{Source: "hub", UID: types.UID(name)} }

// status returns a status whose condition has text as message.
func status(generation wire.Generation, text string) outbox.Status {
	return outbox.Status{
		Generation: generation, Cluster: "quay",
		Meta: &metav1.ObjectMeta{Name: "lamp", Finalizers: []string{workv1.ManifestWorkFinalizer}},
		Status: workv1.ManifestWorkStatus{Conditions: []metav1.Condition{{
			Type: "Applied", Status: metav1.ConditionTrue, Reason: "R", Message: text, ObservedGeneration: int64(generation),
			LastTransitionTime: metav1.Date(2031, 3, 4, 5, 6, 7, 0, time.UTC)}}},
	}
}

func final(generation wire.Generation) outbox.Status {
	s := status(generation, "was")
	s.Final = true
	s.Status = condition.WithDeleted(s.Status, "quay", metav1.Date(2031, 3, 4, 5, 6, 7, 0, time.UTC))
	return s
}

// summary returns uid@generation message, and the action unless it is an update.
func summary(list []*wire.Status) string {
	var lines []string
	for _, s := range list {
		line := fmt.Sprintf("%s@%d", s.UID, s.Generation)
		for _, c := range s.Status.Conditions {
			if c.Type == "Applied" {
				line += " " + c.Message
			} else {
				line += " " + c.Type
			}
		}
		if s.Action != wire.Update {
			line += " " + string(s.Action)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// took waits until nothing moves and checks what the broker took, in order.
func (r *rig) took(t *testing.T, want string) []*wire.Status {
	t.Helper()
	synctest.Wait()
	taken := r.broker.took()
	if got := summary(taken); got != want {
		t.Errorf("the broker took %q, want %q", got, want)
	}
	return taken
}

// pass advances the clock of the bubble by d and waits until all goroutines are blocked.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
