package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/cli"
	"github.com/workwire/workwire/pkg/fleet"
)

func statusCommand(o *cli.Options) *cobra.Command {
	var (
		format   cli.FormatFlag
		watch    bool
		interval time.Duration
		lines    int
	)
	cmd := leaf(&cobra.Command{
		Use:   "status [-n CLUSTER]",
		Short: "Show the whole fleet on one screen",
		Long: "Shows whether the hub is connected, how many clusters are there, how far their works have got, the oldest work\n" +
			"that waits, and what needs attention with its cause. -n limits works and sets to a namespace.",
		Example: "  workctl status\n  workctl status --watch",
	})
	fs := cmd.Flags()
	fs.BoolVarP(&watch, "watch", "w", false, "show it again every --interval until interrupted; a terminal is redrawn")
	fs.DurationVar(&interval, "interval", 5*time.Second, "pause between two reads with --watch, at least 1s")
	fs.IntVar(&lines, "lines", 10, "maximum number of clusters, works and sets that need attention to list; 0 means all")
	format.Add(cmd, cli.Table, cli.JSON, cli.YAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case interval < time.Second:
			return usageError(cmd, cli.Usagef("--interval must be at least 1s, got %s", interval))
		case lines < 0:
			return usageError(cmd, cli.Usagef("--lines must not be negative, got %d", lines))
		}
		reader, err := hub(o)
		if err != nil {
			return err
		}
		show := func(ctx context.Context) error { return showStatus(ctx, o, reader, format.Format(), lines, watch) }
		if !watch {
			return show(cmd.Context())
		}
		return repeat(cmd.Context(), interval, show)
	}
	return cmd
}

// repeat calls show, again and again with a pause, until ctx ends. The first call's error is returned.
func repeat(ctx context.Context, interval time.Duration, show func(context.Context) error) error {
	if err := show(ctx); err != nil {
		return err
	}
	timer := time.NewTicker(interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if err := show(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

func showStatus(ctx context.Context, o *cli.Options, reader *fleet.Reader, format cli.Format, lines int, redraw bool) error {
	snapshot, warnings, err := reader.Snapshot(ctx, o.Namespace)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		_, _ = fmt.Fprintln(o.Err, "warning:", w)
	}
	width, height, terminal := o.Terminal()
	if redraw && terminal && lines > 0 {
		lines = min(lines, max(1, (height-14)/3)) // three tables and the head fit on the screen
	}
	summary := fleet.Summarize(snapshot, lines)
	if format != cli.Table {
		return cli.WriteJSON(o.Out, format, summary)
	}
	var screen bytes.Buffer
	if redraw && terminal {
		screen.WriteString("\x1b[H\x1b[2J")
		fmt.Fprintf(&screen, "workctl status, %s\n\n", summary.Time.Format(time.TimeOnly))
	}
	if err := summary.Write(&screen, o.Style(), width); err != nil {
		return err
	}
	_, err = o.Out.Write(screen.Bytes())
	return err
}
