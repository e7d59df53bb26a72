package agentbench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/workwire/workwire/test/bench/events"
	"github.com/workwire/workwire/test/bench/report"
	"github.com/workwire/workwire/test/kit/procs"
)

const (
	// fewWorks is the number of works of a small cluster.
	fewWorks = 100
	// meteredSpeed is how many times faster the clock of the metered link goes: 1 s between keep-alives, which is the least that
	// MQTT has, in place of 4 minutes, and 3 s between digests in place of 12 minutes.
	meteredSpeed = 240
)

// small measures what an agent costs on a small machine: its file, the start of one that has no work, its memory with few, and
// the bytes of an idle day on a metered link.
func (w *world) small(ctx context.Context, run int) (err error) {
	program, err := exec.LookPath(w.Agent[0])
	if err != nil {
		return err
	}
	file, err := os.Stat(program)
	if err != nil {
		return err
	}
	w.Board.Add(binarySize, report.Sample{Measured: float64(file.Size()) / 1e6})
	counted, err := newLink(w.Broker.Addr)
	if err != nil {
		return err
	}
	transport, err := w.Broker.WriteTransport(string(cluster), counted.tap.Addr)
	if err != nil {
		return err
	}
	var fast []string
	if w.own {
		fast = []string{"--link=metered", "--digest-interval=3s"}
		if err := appendTo(transport, "keepAlive: 1\n"); err != nil {
			return err
		}
	}
	start := time.Now()
	if err := w.launchWith(ctx, transport, fast...); err != nil {
		return err
	}
	w.Board.Add(startEmpty, report.Sample{Measured: time.Since(start).Seconds()})
	works := w.maker.Works("few", min(fewWorks, w.Works), objects)
	if _, err := w.publish(ctx, works, events.Applied(1)); err != nil {
		return err
	}
	if _, err := w.awaitRecords(ctx); err != nil {
		return err
	}
	idle := max(w.Idle, 12*time.Second)
	bytes, err := w.bytesOf(ctx, counted, func() error { return procs.Pause(ctx, idle) })
	if err != nil {
		return err
	}
	used, err := w.memory(ctx)
	if err != nil {
		return err
	}
	w.ProfileMemory(ctx, run, "agent-few")
	w.Board.Add(memoryFew, report.Sample{Measured: float64(used.RSS) / 1e6, Detail: map[string]any{"peakMB": float64(used.Peak) / 1e6, "works": len(works)}})
	if w.own {
		day := float64(bytes) * float64(24*time.Hour) / float64(idle*meteredSpeed)
		w.Board.Add(uplinkMetered, report.Sample{Measured: day / 1e3, Detail: map[string]any{"bytes": bytes, "seconds": idle.Seconds(), "works": len(works)}})
	} else {
		w.Board.Miss(uplinkMetered, "another agent has no --link")
	}
	w.Progress("run %d: a file of %.1f MB, %.1f MB of memory with %d works", run+1, float64(file.Size())/1e6, float64(used.RSS)/1e6, len(works))
	if _, err := w.publish(ctx, events.Deleted(works), events.Gone); err != nil {
		return err
	}
	if err := w.Stop(); err != nil {
		return err
	}
	return counted.tap.Close()
}

func appendTo(path, text string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(content, text...), 0o600); err != nil {
		return fmt.Errorf("change the transport: %w", err)
	}
	return nil
}
