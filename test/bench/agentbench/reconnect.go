package agentbench

import (
	"context"
	"time"

	"github.com/workwire/workwire/test/bench/events"
	"github.com/workwire/workwire/test/bench/report"
	"github.com/workwire/workwire/test/kit/procs"
)

// reconnect restarts the broker under an agent that has works, at once and after a time, and looks
// at what comes then.
func (w *world) reconnect(ctx context.Context, run int) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	specs := w.maker.Works("kept", w.Works, objects)
	if _, err := w.publish(ctx, specs, events.Applied(1)); err != nil {
		return err
	}
	if err := w.source.AwaitQuiet(ctx, 2*time.Second); err != nil {
		return err
	}
	for _, restart := range []struct {
		row  string
		away time.Duration
	}{{again, 0}, {againLong, w.Away}} {
		before := w.source.Counts()
		if err := w.Broker.Stop(); err != nil {
			return err
		}
		if err := procs.Pause(ctx, restart.away); err != nil {
			return err
		}
		if err := w.Broker.Start(ctx); err != nil {
			return err
		}
		listens := time.Now()
		bounded, cancel := context.WithTimeout(ctx, 2*time.Minute)
		// It may have been faster than the look at the broker's log.
		asked, err := w.source.AwaitAsked(bounded, listens.Add(-time.Second/2))
		cancel()
		if err != nil {
			return err
		}
		if err := w.source.AwaitQuiet(ctx, 2*time.Second); err != nil {
			return err
		}
		moved := w.source.Counts().Since(before)
		took := max(asked.Sent.Sub(listens), 0)
		w.Board.Add(restart.row, report.Sample{Measured: milliseconds(took), Detail: map[string]any{"awaySeconds": restart.away.Seconds()}})
		if restart.away == 0 {
			w.Board.Add(resyncAsked, report.Sample{Measured: float64(moved.Resyncs)})
			w.Board.Add(resyncMoved, report.Sample{Measured: float64(moved.Answers + moved.Statuses), Detail: map[string]any{
				"specs": moved.Answers, "statuses": moved.Statuses, "presences": moved.Presences,
			}})
		}
		w.Progress("run %d: subscribed %v after a broker that was away for %v listened; %+v", run+1, took.Round(time.Millisecond), restart.away, moved)
	}
	return w.end(ctx, specs)
}
