package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/fleet"
)

const (
	// lookEvery is how often the size of the terminal is looked at.
	lookEvery = 250 * time.Millisecond
	// redrawEvery is how often a terminal is redrawn without a change, because ages grow, and the hub's
	// Lease is read.
	redrawEvery = 10 * time.Second
)

// Sequences of terminals.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // the alternate screen, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	screenStart = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// watchStatus shows the fleet at each change, at most once per interval, until ctx ends.
func watchStatus(ctx context.Context, o *cli.Options, reader *fleet.Reader, format cli.Format, lines int, interval time.Duration) error {
	followed, warnings, err := reader.Follow(ctx, o.Namespace)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	for _, w := range warnings {
		_, _ = fmt.Fprintln(o.Err, "warning:", w)
	}
	s := &screen{out: o.Out, size: o.Terminal, style: o.Style(), format: format, lines: lines, interval: interval}
	return s.run(ctx, followed.Changed(), func() *fleet.Snapshot { return followed.Snapshot(ctx) })
}

// screen shows summaries: it redraws a terminal in place, and appends a line for each change to other
// outputs, a document with another format than table.
type screen struct {
	out      io.Writer
	size     func() (width, height int, terminal bool)
	style    cli.Style
	format   cli.Format
	lines    int
	interval time.Duration

	width, height int       // as drawn last
	drawn         time.Time // when; zero: never
	last          string    // what was appended last
}

// run shows the fleet until ctx ends, and leaves the terminal as it was.
func (s *screen) run(ctx context.Context, changed <-chan struct{}, snapshot func() *fleet.Snapshot) error {
	if _, _, terminal := s.size(); terminal && s.format == cli.Table {
		if _, err := io.WriteString(s.out, enterScreen); err != nil {
			return err
		}
		defer func() { _, _ = io.WriteString(s.out, leaveScreen) }() // nobody else can be told
	}
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for dirty := true; ; {
		width, height, _ := s.size()
		if s.due(time.Now(), dirty, width != s.width || height != s.height) {
			now := snapshot()
			if ctx.Err() != nil {
				return nil
			}
			if err := s.show(now); err != nil {
				return err
			}
			dirty = false
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			dirty = true
		case <-ticker.C:
		}
	}
}

// due reports whether to show the fleet now.
func (s *screen) due(now time.Time, dirty, resized bool) bool {
	age := now.Sub(s.drawn)
	return s.drawn.IsZero() || resized || dirty && age >= s.interval || age >= redrawEvery
}

// headLines is how many lines of a terminal the head and the titles of the tables need.
const headLines = 14

func (s *screen) show(snapshot *fleet.Snapshot) error {
	width, height, terminal := s.size()
	s.width, s.height, s.drawn = width, height, time.Now()
	if s.format == cli.Table && terminal {
		return s.draw(snapshot, width, height)
	}
	summary := fleet.Summarize(snapshot, s.lines)
	line := summary.Line()
	if line == s.last {
		return nil
	}
	s.last = line
	if s.format != cli.Table {
		return cli.WriteJSON(s.out, s.format, summary)
	}
	_, err := fmt.Fprintf(s.out, "%s %s\n", summary.Time.Format(time.TimeOnly), line)
	return err
}

// draw draws over what is on the terminal, without clearing it first, so that it does not flicker.
func (s *screen) draw(snapshot *fleet.Snapshot, width, height int) error {
	lines := max(1, (height-headLines)/3)
	if s.lines > 0 {
		lines = min(lines, s.lines)
	}
	summary := fleet.Summarize(snapshot, lines)
	var text bytes.Buffer
	fmt.Fprintf(&text, "workctl status, %s, ^C ends\n\n", summary.Time.Format(time.TimeOnly))
	if err := summary.Write(&text, s.style, width); err != nil {
		return err
	}
	all := strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	if height > 0 && len(all) > height {
		all = all[:height]
	}
	frame := screenStart + strings.Join(all, clearLine+"\r\n") + clearLine + clearBelow
	_, err := io.WriteString(s.out, frame)
	return err
}
