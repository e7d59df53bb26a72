package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/fleet"
)

// waitFlags are the flags of wait.
type waitFlags struct {
	goal, selector string
	timeout        time.Duration
}

func waitCommand(o *cli.Options) *cobra.Command {
	var f waitFlags
	cmd := leaf(&cobra.Command{
		Use:   "wait work|set [NAME...] -n NAMESPACE --for=GOAL",
		Short: "Wait until works are delivered, applied, ready or deleted, or sets are rolled out",
		Long: "Waits until works have reached a goal with their newest spec, and prints a line for each change:\n" +
			"  delivered         the agent has answered\n" +
			"  applied           all manifests are applied\n" +
			"  available         all objects exist\n" +
			"  ready             all objects are ready; the work must report readiness\n" +
			"  deleted           the work is gone\n" +
			"  condition=T[=S]   the condition T has the status S, by default True\n" +
			"Sets have the goal ready only: every cluster has the newest template and succeeded with it.\n" +
			"Named works need not exist yet. Exit code 3 means that --timeout has passed.",
		Example: "  workctl wait work web -n cluster1 --for=ready --timeout=10m\n  workctl wait work -l app=web -n cluster1 --for=applied\n" +
			"  workctl wait set till -n default",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: complete(o, works, sets),
	})
	fs := cmd.Flags()
	fs.StringVar(&f.goal, "for", "ready", "goal: delivered, applied, available, ready, deleted or condition=TYPE[=STATUS]")
	fs.StringVarP(&f.selector, "selector", "l", "", "label selector of works instead of names; those that match now are waited for")
	fs.DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long to wait; 0 means forever")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t, err := parseTarget(cmd, args, works, sets)
		if err != nil {
			return err
		}
		goal, err := fleet.ParseGoal(f.goal)
		if err != nil {
			return usageError(cmd, err)
		}
		if (len(t.names) == 0) == (f.selector == "") {
			return usageError(cmd, cli.Usagef("name works, or give --selector"))
		}
		if f.timeout < 0 {
			return usageError(cmd, cli.Usagef("--timeout must not be negative, got %s", f.timeout))
		}
		if t.kind == sets {
			if f.goal != "ready" || f.selector != "" {
				return usageError(cmd, cli.Usagef("sets are named, and have the goal ready only"))
			}
			return f.sets(cmd.Context(), o, t.names)
		}
		return f.run(cmd.Context(), o, t.names, goal)
	}
	return cmd
}

// bounded returns ctx with a timeout, if that is above 0.
func bounded(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout > 0 {
		return context.WithTimeout(ctx, timeout)
	}
	return ctx, func() {}
}

// doneMark is at the begin of the line of what is waited for.
func doneMark(style cli.Style, done bool) string {
	if done {
		return style.Paint(cli.Good, "✓")
	}
	return style.Paint(cli.Dim, "·")
}

// linesTo returns a function that prints the line of a key, unless it is the one that the key had.
func linesTo(out io.Writer) func(key, line string) {
	last := map[string]string{}
	return func(key, line string) {
		if last[key] != line {
			last[key] = line
			_, _ = fmt.Fprintln(out, line)
		}
	}
}

func (f *waitFlags) run(ctx context.Context, o *cli.Options, names []string, goal fleet.Goal) error {
	reader, cluster, err := hubNamespace(o)
	if err != nil {
		return err
	}
	ctx, cancel := bounded(ctx, f.timeout)
	defer cancel()
	style, show := o.Style(), linesTo(o.Out)
	left, err := reader.Await(ctx, cluster, f.selector, names, goal, func(name, line string, done bool) {
		show(name, fmt.Sprintf("%s %s/%s  %s", doneMark(style, done), cluster, name, line))
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return f.timedOut(o, reader, cluster, left)
	case ctx.Err() != nil:
		return errInterrupted
	}
	return err
}

// errInterrupted is of a command that somebody has ended.
var errInterrupted = errors.New("interrupted")

// sets waits for the rollouts of sets, one after another.
func (f *waitFlags) sets(ctx context.Context, o *cli.Options, names []string) error {
	reader, namespace, err := hubNamespace(o)
	if err != nil {
		return err
	}
	ctx, cancel := bounded(ctx, f.timeout)
	defer cancel()
	style, show := o.Style(), linesTo(o.Out)
	for _, name := range names {
		if err := followRollout(ctx, reader, namespace, name, f.timeout, true, func(r fleet.Rollout) bool {
			show(name, fmt.Sprintf("%s %s/%s  %s", doneMark(style, r.Done), namespace, name, r.Line))
			return r.Ended()
		}); err != nil {
			return err
		}
	}
	return nil
}

// timedOut returns the error of a wait that has not ended in time, with the blocker of the first work.
func (f *waitFlags) timedOut(o *cli.Options, reader *fleet.Reader, cluster string, left []string) error {
	err := cli.Errorf("%s not %s after %s: %s", cli.Plural(len(left), "work of "+cluster+" is", "works of "+cluster+" are"), f.goal, f.timeout, strings.Join(left[:min(len(left), 5)], ", ")).
		WithCode(cli.ExitTimeout)
	if len(left) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // the other one has ended
	defer cancel()
	facts, readErr := reader.Facts(ctx, cluster, left[0])
	if readErr != nil {
		return err.Do("workctl get works -n %s", cluster)
	}
	if b := facts.State().Blocker; b != nil {
		_, _ = fmt.Fprintf(o.Err, "%s: %s, %s: %s\n", left[0], b.Cause, b.Object, cli.OneLine(b.Message))
		return err.Do("%s", b.Do)
	}
	return err.Do("workctl explain work %s -n %s", left[0], cluster)
}
