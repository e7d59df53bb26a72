// Package instances notices other programs that publish under the id of a source at the same time
// (docs/protocol.md, Instances). Two such programs delete and overwrite each other's works.
//
// Each program announces itself to the others, and lists whom it hears. Another program counts once
// it has said for a while that it hears this one: then both have been connected since this one
// began. A leader that hands over, a program that restarts, and messages that were kept for an
// absent client do not say so.
package instances

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// DefaultInterval is the default of [Config].Interval.
const DefaultInterval = 30 * time.Second

const (
	answerPause  = time.Second      // between two announcements
	refusedPause = time.Hour        // after the broker has refused the subscription: it may end connections
	remindAfter  = 10 * time.Minute // the error is repeated
)

// What is logged when nothing would be noticed.
const (
	unnoticeable = "other programs under this source id cannot be noticed"
	accessAdvice = "let the source read this topic: docs/brokers.md, Access rules"
)

// Config configures a [Watcher].
type Config struct {
	// Source is the id of the source; required.
	Source wire.SourceID
	// Shard names the clusters that this program serves if it does not serve all of the source: programs
	// with different shards do not disturb each other, and are not noticed. Empty: all clusters.
	Shard string
	// Topics are those of the source.
	Topics wire.SourceTopics
	// Transport publishes the announcements. Nothing is noticed unless it is a
	// [transport.Subscriber].
	Transport transport.Transport
	// BeforePublish returns nil once this program may publish; it is called before each announcement. Optional.
	BeforePublish func(context.Context) error
	// Interval is how often the program announces itself while it is alone, three times as often
	// while it is not. Another program is noticed after about one interval. Default 30 s.
	Interval time.Duration
	// OnChange is called when other programs are noticed, or no longer heard; others are all that
	// are noticed. It must not block. Optional.
	OnChange func(others []Other)
	// Logger receives an error for each other program; default slog.Default().
	Logger *slog.Logger
}

// Other is another program that publishes under the same source id.
type Other struct {
	// ID is its instance id, Program its description of itself, and Shard names the clusters that it
	// serves, see [Config].
	ID, Program, Shard string
	// Since is when it started by its own clock; zero if it does not say.
	Since time.Time
}

// Watcher announces this program and notices others. Its methods are safe for concurrent use.
type Watcher struct {
	cfg   Config
	topic string // empty: nothing is noticed
	self  wire.Instance

	mu       sync.Mutex
	others   registry
	heardOwn bool
	wake     chan struct{} // buffered: announce soon

	// Of the goroutine of Run.
	last     time.Time // of the last announcement
	failures int       // of subscriptions, in a row
	retryAt  time.Time // no subscription before
	deaf     int       // announcements of this connection that did not come back
}

// New returns a Watcher. It does no I/O and starts nothing.
func New(cfg Config, now time.Time) *Watcher {
	cfg.Interval = cmp.Or(cfg.Interval, DefaultInterval)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.BeforePublish == nil {
		cfg.BeforePublish = func(context.Context) error { return nil }
	}
	if cfg.OnChange == nil {
		cfg.OnChange = func([]Other) {}
	}
	w := &Watcher{cfg: cfg, wake: make(chan struct{}, 1)}
	w.self = wire.Instance{Source: cfg.Source, ID: uuid.NewString(), Part: cfg.Shard, Program: program(), Since: now.UTC().Truncate(time.Second)}
	w.others = newRegistry(w.self.ID, cfg.Interval)
	if _, ok := cfg.Transport.(transport.Subscriber); ok {
		w.topic, _ = cfg.Topics.Instances()
	}
	return w
}

// Disturbing reports whether two of these programs serve the same clusters.
func Disturbing(programs []Other) bool {
	shards := map[string]bool{}
	for _, p := range programs {
		if shards[p.Shard] || p.Shard == "" && len(programs) > 1 {
			return true
		}
		shards[p.Shard] = true
	}
	return false
}

// disjoint reports whether programs that serve these shards share no cluster.
func disjoint(a, b string) bool { return a != "" && b != "" && a != b }

// program describes this process to people.
func program() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("host %.200s, process %d", host, os.Getpid())
}

// Topic returns the topic whose messages belong to [Watcher.Received]; empty if there is none.
func (w *Watcher) Topic() string { return w.topic }

// Others returns the number of other programs that are noticed.
func (w *Watcher) Others() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.others.noticed())
}

// Watching reports whether the program hears its own announcements, so that it would hear those of
// others.
func (w *Watcher) Watching() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heardOwn
}

// Received handles an announcement.
func (w *Watcher) Received(m *wire.Instance, now time.Time) {
	if m.Source != w.cfg.Source || disjoint(w.cfg.Shard, m.Part) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.ID == w.self.ID {
		w.heardOwn = true
		return
	}
	if m.ID == "" || w.others.hear(m, now) {
		select {
		case w.wake <- struct{}{}:
		default: // it is about to announce itself
		}
	}
}

// Run announces this program until ctx ends, which is that of a connection. It returns at once if
// nothing can be noticed. Calls must not overlap.
func (w *Watcher) Run(ctx context.Context) {
	if w.topic == "" || !w.subscribe(ctx) {
		return
	}
	defer w.forget()
	w.deaf = 0
	for ctx.Err() == nil {
		w.announce(ctx)
		w.report(time.Now())
		timer := time.NewTimer(w.interval())
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-w.wake:
			select {
			case <-ctx.Done():
			case <-time.After(time.Until(w.last.Add(min(answerPause, w.cfg.Interval/10)))):
			}
		}
		timer.Stop()
	}
}

// forget ends what was heard on a connection.
func (w *Watcher) forget() {
	w.mu.Lock()
	w.heardOwn = false
	w.mu.Unlock()
}

func (w *Watcher) interval() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.others.others) > 0 {
		return w.cfg.Interval / 3
	}
	return w.cfg.Interval
}

// subscribe reports whether announcements can be received. A broker may end the connection when it
// refuses a subscription, so that it is not tried on each connection.
func (w *Watcher) subscribe(ctx context.Context) bool {
	if time.Now().Before(w.retryAt) {
		return false
	}
	err := w.cfg.Transport.(transport.Subscriber).Subscribe(ctx, w.topic) // New has checked the type
	if err == nil {
		w.failures = 0
		return true
	}
	w.failures++
	lost := errors.Is(err, transport.ErrNotConnected) || ctx.Err() != nil
	if !lost || w.failures > 1 {
		w.retryAt = time.Now().Add(refusedPause)
		w.cfg.Logger.Warn(unnoticeable, "topic", w.topic, "reason", "the broker refuses the subscription",
			"error", err, "advice", accessAdvice)
	}
	return false
}

func (w *Watcher) announce(ctx context.Context) {
	if w.cfg.BeforePublish(ctx) != nil {
		return // ctx has ended
	}
	w.mu.Lock()
	message, heardOwn := w.self, w.heardOwn
	message.Heard = w.others.heard()
	w.mu.Unlock()
	w.last = time.Now()
	message.Expires = w.last.Add(w.cfg.Interval)
	event, err := wire.Encode(&message, w.last)
	if err == nil {
		err = w.cfg.Transport.Publish(ctx, w.topic, event)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, transport.ErrNotConnected) {
		w.cfg.Logger.Warn("announcing this program to others under its source id failed", "topic", w.topic, "error", err)
	}
	if w.deaf++; !heardOwn && w.deaf == 3 {
		w.cfg.Logger.Warn(unnoticeable, "topic", w.topic, "reason", "the broker does not deliver the announcements",
			"advice", accessAdvice)
	}
}

// report logs what has changed, and repeats what lasts.
func (w *Watcher) report(now time.Time) {
	w.mu.Lock()
	begun, lasting, ended := w.others.changes(now)
	all := w.others.noticed()
	w.mu.Unlock()
	for _, o := range append(begun, lasting...) {
		w.cfg.Logger.Error("another program publishes under this source id", "other", o.Program, "otherInstance", o.ID,
			"otherSince", o.Since, "this", w.self.Program, "thisInstance", w.self.ID, "thisSince", w.self.Since,
			"advice", "stop all but one, or give each a source id of its own: they delete and overwrite each other's works")
	}
	for _, o := range ended {
		w.cfg.Logger.Info("the other program under this source id is no longer heard", "other", o.Program, "otherInstance", o.ID)
	}
	if len(begun)+len(ended) > 0 {
		w.cfg.OnChange(all)
	}
}

// SinceText returns Since for people.
func (o Other) SinceText() string {
	if o.Since.IsZero() {
		return "an unknown time"
	}
	return o.Since.UTC().Format(time.RFC3339)
}
