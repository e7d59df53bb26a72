package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/workwire/workwire/pkg/agent/compress"
	"github.com/workwire/workwire/pkg/agent/store"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// Waits after a refused publish; they double.
const (
	firstRest = 500 * time.Millisecond
	lastRest  = 5 * time.Minute
)

// flight is one publish.
type flight struct {
	work     *work
	last     kept
	version  version
	form     form
	action   wire.Action
	sequence wire.SequenceID
	epoch    uint64
	resync   bool
	sent     string        // hash of what went out
	packed   compress.Data // of last.fresh, once that is out; empty if it can not be
}

// Run publishes until ctx ends, then what is still pending for as long as
// Config.Flush says or until the connection is lost. It returns nil, with no
// publish under way, and must be called once. The transport must go on until
// then.
func (o *Outbox) Run(ctx context.Context) error {
	publishing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var flights sync.WaitGroup
	defer flights.Wait()
	defer cancel()

	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()
	ending := ctx.Done()
	var deadline <-chan time.Time
	for {
		f, pause, settled := o.take()
		if f != nil {
			f.sequence = o.sequence.Next(o.config.Now())
			flights.Go(func() { o.fly(publishing, f) })
			continue
		}
		if deadline != nil && settled {
			return nil
		}
		timer.Stop()
		if pause > 0 {
			timer.Reset(pause)
		}
		select {
		case <-o.wake:
		case <-timer.C:
		case <-ending:
			ending, deadline = nil, time.After(o.config.Flush)
		case <-deadline:
			o.config.Logger.Warn("the agent ends before all statuses are sent",
				"count", o.Stats().Pending)
			return nil
		}
	}
}

// take gives the next publish to begin, or nil and how long to wait for the
// first work at rest, 0 meaning none; settled reports that no publish is under
// way and none can begin before that.
func (o *Outbox) take() (f *flight, pause time.Duration, settled bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.config.Now()
	for len(o.resting) > 0 && !o.resting[0].due.After(now) {
		o.push(o.wakeFirst())
	}
	if !o.connected || o.queue.Len() == 0 {
		if o.connected && len(o.resting) > 0 {
			pause = max(o.resting[0].due.Sub(now), time.Millisecond)
		}
		return nil, pause, o.inFlight == 0
	}
	if o.inFlight >= o.config.InFlight {
		return nil, 0, false
	}
	w := o.queue.Remove(o.queue.Front()).(*work)
	w.state, w.flight = flying, w.want
	f = &flight{work: w, last: w.last, version: w.want, form: w.form, action: wire.Update, epoch: o.epoch, resync: w.resync}
	if w.resync {
		f.action, w.resync = wire.ResyncResponse, false
	}
	o.inFlight++
	return f, 0, false
}

// fly publishes f and says how it ended.
func (o *Outbox) fly(ctx context.Context, f *flight) {
	err := o.publish(ctx, f)
	if err == nil && f.last.fresh != nil {
		f.packed, _ = o.codec.Encode(f.last.fresh) // else it stays as it is
	}
	if o.land(f, err) {
		o.config.Done(f.work.key)
		o.finish(f)
	}
	o.poke()
}

// finish forgets a work that is done with, unless it has come again meanwhile.
// Until then Last gives its final status: whoever finds the work and no final
// status may conclude that it has none yet.
func (o *Outbox) finish(f *flight) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w := f.work; w.want == f.version && o.find(w.key) == w {
		o.remove(w)
	}
}

func (o *Outbox) publish(ctx context.Context, f *flight) error {
	key := f.work.key
	topic, err := o.config.Topic(key.Source)
	if err != nil {
		return fmt.Errorf("find the topic for source %q: %w", key.Source, err)
	}
	last := o.unpack(&f.last, f.version.Generation)
	message := wire.Status{
		UID:        key.UID,
		Generation: last.Generation,
		Source:     key.Source,
		Cluster:    last.Cluster,
		Agent:      o.config.Agent,
		Action:     f.action,
		Meta:       *last.Meta,
		Sequence:   f.sequence,
		Hash:       f.version.Hash,
		Status:     last.Status,
		Trace:      last.Trace,
	}
	if f.form != whole || oversized(&message.Meta) {
		message.Meta = bare(message.Meta)
	}
	if f.form != whole {
		message.Status = f.form.of(last.Status, o.config.Now())
		if message.Hash, err = wire.StatusHash(&message.Status); err != nil {
			return err
		}
	}
	f.sent = message.Hash
	e, err := wire.Encode(&message, o.config.Now())
	if err != nil {
		return err
	}
	return o.config.Publisher.Publish(ctx, topic, e)
}

// land takes note of how f ended, and reports whether the work is done with.
func (o *Outbox) land(f *flight, err error) (done bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inFlight--
	w := f.work
	w.state, w.flight = idle, version{}
	if w.dropped {
		o.remove(w)
		return false
	}
	if err != nil {
		w.resync = w.resync || f.resync
	}
	var tooLarge *transport.TooLargeError
	switch {
	case err == nil:
		return o.landed(f)
	case errors.Is(err, transport.ErrNotConnected):
		o.stats.Lost++
		if f.epoch == o.epoch {
			o.connected = false
		}
	case errors.Is(err, context.Canceled):
		o.stats.Lost++ // Run ends
	case errors.As(err, &tooLarge) && w.want != f.version:
		o.stats.Coalesced++ // the newer one may fit
	case errors.As(err, &tooLarge) && f.form < conditionsOnly:
		o.stats.Shrunk++
		o.logger(w).Warn("status is larger than the broker takes; it is cut down", "size", tooLarge.Size, "limit", tooLarge.Limit)
		w.form = f.form + 1
	default:
		o.refused(w, err)
		return false
	}
	o.push(w)
	return false
}

// refused puts w aside for a while. The first refusal of a source is logged as
// an error, those that follow would only say it again.
func (o *Outbox) refused(w *work, err error) {
	o.stats.Refused++
	w.failures++
	pause := min(firstRest<<min(w.failures-1, 16), lastRest)
	level := slog.LevelDebug
	if _, again := o.refusing[w.key.Source]; !again {
		level = slog.LevelError
		o.refusing[w.key.Source] = struct{}{}
	}
	o.logger(w).Log(context.Background(), level, "status could not be published; it is tried again", "in", pause, "error", err)
	o.rest(w, o.config.Now().Add(pause))
	o.poke()
}

func (o *Outbox) logger(w *work) *slog.Logger {
	return o.config.Logger.With("work", w.last.meta.Name, "uid", w.key.UID, "source", w.key.Source)
}

// landed takes note that the broker has taken f.
func (o *Outbox) landed(f *flight) (done bool) {
	w := f.work
	o.stats.Published++
	if f.resync {
		o.stats.Answered++
	}
	w.failures = 0
	delete(o.refusing, w.key.Source)
	w.acked, w.sent = f.version, f.sent
	if f.packed != "" && w.last.fresh == f.last.fresh {
		w.last.fresh, w.last.packed = nil, f.packed
	}
	if f.version.Final && w.want == f.version {
		if w.answer {
			o.remove(w)
		}
		return !w.answer
	}
	r := ackRecord{version: f.version, Sent: f.sent, Sequence: f.sequence}
	o.config.Store.Put(store.Acked, w.key.StoreKey(), r.encode)
	o.push(w)
	return false
}
