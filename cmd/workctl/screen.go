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
	s := &screen{out: o.Out, size: o.Terminal, style: o.Style(), format: format, lines: lines, pace: pace{interval: interval}}
	return follow(ctx, o, reader, o.Namespace, works, s.run)
}

// follow calls run with the changes of a fleet, of which needed is the kind that the user must be allowed to list.
func follow(ctx context.Context, o *cli.Options, reader *fleet.Reader, namespace string, needed kind,
	run func(ctx context.Context, changed <-chan struct{}, snapshot func() *fleet.Snapshot) error) error {
	followed, warnings, err := reader.Follow(ctx, namespace, string(needed))
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	for _, w := range warnings {
		_, _ = fmt.Fprintln(o.Err, "warning:", w)
	}
	return run(ctx, followed.Changed(), func() *fleet.Snapshot { return followed.Snapshot(ctx) })
}

// pace decides when to show the fleet again.
type pace struct {
	interval      time.Duration // the least between two times, unless the terminal was resized
	width, height int           // of the terminal the last time
	shown         time.Time     // the last time; zero: never
}

// due reports whether to show the fleet now. If so, the caller shows it: now is the last time from then on.
func (p *pace) due(now time.Time, dirty bool, width, height int) bool {
	age := now.Sub(p.shown)
	if !p.shown.IsZero() && width == p.width && height == p.height && (!dirty || age < p.interval) && age < redrawEvery {
		return false
	}
	p.width, p.height, p.shown = width, height, now
	return true
}

// run calls show at each change until ctx ends. size is that of the terminal, 0 without one.
func (p *pace) run(ctx context.Context, changed <-chan struct{}, size func() (width, height int, terminal bool),
	snapshot func() *fleet.Snapshot, show func(*fleet.Snapshot) error) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for dirty := true; ; {
		width, height, _ := size()
		if p.due(time.Now(), dirty, width, height) {
			now := snapshot()
			if ctx.Err() != nil {
				return nil
			}
			if err := show(now); err != nil {
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

// screen shows summaries: it redraws a terminal in place, and appends a line for each change to other
// outputs, a document with another format than table.
type screen struct {
	pace
	out    io.Writer
	size   func() (width, height int, terminal bool)
	style  cli.Style
	format cli.Format
	lines  int
	last   string // what was appended last
}

// run shows the fleet until ctx ends, and leaves the terminal as it was.
func (s *screen) run(ctx context.Context, changed <-chan struct{}, snapshot func() *fleet.Snapshot) error {
	if _, _, terminal := s.size(); terminal && s.format == cli.Table {
		if _, err := io.WriteString(s.out, enterScreen); err != nil {
			return err
		}
		defer func() { _, _ = io.WriteString(s.out, leaveScreen) }() // nobody else can be told
	}
	return s.pace.run(ctx, changed, s.size, snapshot, s.show)
}

// headLines is how many lines of a terminal the head and the titles of the tables need.
const headLines = 14

func (s *screen) show(snapshot *fleet.Snapshot) error {
	width, height, terminal := s.size()
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
		err := cli.WriteJSON(s.out, s.format, summary)
		if err == nil && s.format != cli.JSON && s.format != cli.YAML { // a template, without a line break
			_, err = fmt.Fprintln(s.out)
		}
		return err
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
