package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/direct"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/pkg/wire"
)

// directFlags are the flags of apply and delete.
type directFlags struct {
	files   fileFlags
	format  cli.FormatFlag
	wait    bool
	goal    string
	timeout time.Duration
	keys    keyFlags
}

const aboutDirect = "The transport configuration names the source; the works belong to it and to no hub. Nothing is kept between two runs,\n" +
	"so give this source an id of its own: never that of a hub or of a running program. Agents must listen to it.\n"

func applyCommand(o *cli.Options) *cobra.Command {
	var f directFlags
	cmd := leaf(&cobra.Command{
		Use:   "apply -f FILE|DIR|- --transport=FILE [-n CLUSTER]",
		Short: "Send ManifestWorks straight to their clusters, as a source without a hub",
		Long:  "Sends ManifestWorks over the broker and waits for the agents' answers, with a line for each change.\n" + aboutDirect,
		Example: "  workctl apply -f web.yaml --transport=ops.yaml -n cluster1\n" +
			"  workctl wrap -f deploy/ --name=web -n cluster1 | workctl apply -f - --transport=ops.yaml --for=ready\n" +
			"  workctl apply -f web.yaml --transport=ops.yaml -n cluster1 --signing-key=ops.key --seal-keys=seal-keys --trusted-agents=trusted-agents.yaml",
	})
	f.add(cmd, "wait for the agents; otherwise end when the broker has acknowledged the works")
	cmd.Flags().StringVar(&f.goal, "for", "applied", "goal to wait for: delivered, applied, available, ready or condition=TYPE[=STATUS]")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		goal, err := fleet.ParseGoal(f.goal)
		if err == nil && f.goal == "deleted" {
			err = cli.Usagef("--for=deleted is what workctl delete waits for")
		}
		if err == nil && len(f.files.paths) == 0 {
			err = cli.Usagef("-f is required: the ManifestWorks")
		}
		if err != nil {
			return usageError(cmd, err)
		}
		return f.run(cmd.Context(), cmd, o, nil, direct.Config{Goal: goal})
	}
	return cmd
}

func deleteCommand(o *cli.Options) *cobra.Command {
	var f directFlags
	cmd := leaf(&cobra.Command{
		Use:   "delete work NAME... -n CLUSTER --transport=FILE | delete -f FILE --transport=FILE",
		Short: "Delete works that apply has sent",
		Long:  "Has agents delete works of this source with their objects, and waits until they are gone.\n" + aboutDirect,
		Example: "  workctl delete work web --transport=ops.yaml -n cluster1\n" +
			"  workctl delete -f web.yaml --transport=ops.yaml -n cluster1 --wait=false",
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return []string{string(works)}, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
	})
	f.add(cmd, "wait until the objects are gone; otherwise end when the broker has acknowledged the deletions")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var names []string
		if len(args) > 0 {
			t, err := parseTarget(cmd, args, works)
			if err != nil {
				return err
			}
			names = t.names
		}
		if (len(names) == 0) == (len(f.files.paths) == 0) {
			return usageError(cmd, cli.Usagef("name works, or give -f"))
		}
		if len(names) > 0 && o.Namespace == "" {
			return usageError(cmd, cli.Usagef("-n is required: the cluster"))
		}
		return f.run(cmd.Context(), cmd, o, names, direct.Config{Delete: true})
	}
	return cmd
}

func (f *directFlags) add(cmd *cobra.Command, wait string) {
	fs := cmd.Flags()
	f.files.add(fs, "ManifestWorks", "")
	fs.BoolVar(&f.wait, "wait", true, wait)
	fs.DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long to wait; 0 means forever")
	f.keys.add(fs)
	f.format.Add(cmd, cli.Table, cli.JSON, cli.YAML)
}

func (f *directFlags) run(ctx context.Context, cmd *cobra.Command, o *cli.Options, names []string, c direct.Config) error {
	if f.timeout < 0 {
		return usageError(cmd, cli.Usagef("--timeout must not be negative, got %s", f.timeout))
	}
	if err := f.keys.validate(); err != nil {
		return usageError(cmd, err)
	}
	var err error
	if c.Broker, err = o.Broker(); err != nil {
		return err
	}
	id, topics, err := direct.SourceOf(c.Broker.Topics)
	if err != nil {
		return err
	}
	if c.Works, err = f.works(o, names, id, topics); err != nil {
		return err
	}
	if c.Keys, err = f.keys.open(); err != nil {
		return err
	}
	if f.wait {
		var cancel context.CancelFunc
		ctx, cancel = bounded(ctx, f.timeout)
		defer cancel()
	}
	c.Wait = f.wait
	if f.format.Format() == cli.Table {
		show, style := linesTo(o.Out), o.Style()
		c.Show = func(r direct.Result) { show(r.Cluster+"/"+r.Name, resultLine(style, r)) }
	}
	results, err := direct.Run(ctx, c)
	if f.format.Format() != cli.Table {
		if err := cli.WriteJSON(o.Out, f.format.Format(), map[string]any{"works": results}); err != nil {
			return err
		}
	}
	if failed := direct.Failed(results); failed != nil {
		return failed
	}
	// A connection that is not made in time is not among these: it has a time of its own.
	if f.wait && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return timedOut(results, f.timeout)
	}
	return err
}

// works returns the works of the files, or those that the names identify.
func (f *directFlags) works(o *cli.Options, names []string, id wire.SourceID, topics wire.SourceTopics) ([]*workv1.ManifestWork, error) {
	if len(names) == 0 {
		return f.files.works(o, id, topics)
	}
	if _, err := topics.Specs(wire.ClusterName(o.Namespace)); err != nil {
		return nil, err
	}
	var all []*workv1.ManifestWork
	for _, name := range names {
		all = append(all, &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: name, UID: wire.UIDFor(id, o.Namespace, name)}})
	}
	return all, nil
}

func resultLine(style cli.Style, r direct.Result) string {
	mark, message := doneMark(style, r.Done), r.Message
	if r.Failure != "" {
		mark, message = style.Paint(cli.Bad, "✗"), r.Failure
	}
	return fmt.Sprintf("%s %s/%s  %s", mark, r.Cluster, r.Name, cli.OneLine(message))
}

// timedOut returns the error of a run whose time is over.
func timedOut(results []direct.Result, timeout time.Duration) error {
	open := 0
	hint := "look at the agent's log; what the broker has acknowledged is delivered when the agent is back, within 24 hours"
	for i := len(results) - 1; i >= 0; i-- {
		if r := &results[i]; !r.Done {
			if open++; r.Hint != "" {
				hint = r.Hint
			}
		}
	}
	return cli.Errorf("%s not done after %s", cli.Plural(open, "work is", "works are"), timeout).WithCode(cli.ExitTimeout).Do("%s", hint)
}
