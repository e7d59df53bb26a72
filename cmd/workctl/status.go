package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/fleet"
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
	fs.BoolVarP(&watch, "watch", "w", false, "show each change until interrupted: a terminal is redrawn, and other outputs get a line")
	fs.DurationVar(&interval, "interval", 2*time.Second, "minimum time between two redraws with --watch, at least 1s")
	fs.IntVar(&lines, "lines", 10, "maximum number of clusters, works and sets that need attention to list; 0 means all")
	format.Add(cmd, cli.Table, cli.JSON, cli.YAML, cli.JSONPath)
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
		if watch {
			return watchStatus(cmd.Context(), o, reader, format.Format(), lines, interval)
		}
		return showStatus(cmd.Context(), o, reader, format.Format(), lines)
	}
	return cmd
}

func showStatus(ctx context.Context, o *cli.Options, reader *fleet.Reader, format cli.Format, lines int) error {
	snapshot, warnings, err := reader.Snapshot(ctx, o.Namespace)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		_, _ = fmt.Fprintln(o.Err, "warning:", w)
	}
	summary := fleet.Summarize(snapshot, lines)
	if format != cli.Table {
		return cli.WriteJSON(o.Out, format, summary)
	}
	width, _, _ := o.Terminal()
	return summary.Write(o.Out, o.Style(), width)
}
