package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/pkg/ctl/preview"
	"github.com/workwire/workwire/pkg/ctl/render"
	"github.com/workwire/workwire/pkg/hub/previews"
	"github.com/workwire/workwire/pkg/runtime/amount"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

const (
	// maxNamed is how many clusters of a group a table names.
	maxNamed = 5
	// progressInterval is how often progress is written at most.
	progressInterval = 2 * time.Second
)

// diffSetFlags are the flags of diff set.
type diffSetFlags struct {
	format   cli.FormatFlag
	files    fileFlags
	clusters []string
	sample   string
	atOnce   int
	timeout  time.Duration
	record   bool
	keys     keyFlags
	size     amount.Amount
}

func diffSetCommand(o *cli.Options) *cobra.Command {
	var f diffSetFlags
	cmd := leaf(&cobra.Command{
		Use:   "set [NAME] [-f FILE] [-n NAMESPACE] --transport=FILE",
		Short: "Show what the template of a set would change on its clusters, and store nothing",
		Long: "Has the agents of all clusters that the placements of a ManifestWorkReplicaSet select, or of some, try what its template and its\n" +
			"WorkOverrides make of their works, by dry runs, and groups equal answers: deletions first, then changes, refusals, and who is away.\n" +
			"--transport is that of the hub: agents compare with the works of this source. With -f the set, and what else of its WorkOverrides, ConfigMaps\n" +
			"and Secrets the files have, is that of the files; without -n also its namespace.\n" +
			"--record writes what was found to the set, whose rollout may wait for it (docs/preview.md).\n" +
			"The exit code is 0 if nothing would change, 4 if something would or would be refused, 3 if a cluster is away or does not answer, 1 if one cannot\n" +
			"tell. With --record it is 0 if the preview lets the rollout go on, and 4 if it does not.",
		Example: "  workctl diff set till -n default --transport=hub.yaml\n" +
			"  workctl diff set -f till.yaml --transport=hub.yaml --sample=10%\n" +
			"  workctl diff set till -n default --transport=hub.yaml --record",
		Aliases:           kindNames[sets][1:],
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeNames(o, sets),
	})
	fs := cmd.Flags()
	f.files.add(fs, "the set as it would be", " (default: the set that is stored)")
	fs.StringSliceVar(&f.clusters, "clusters", nil, "clusters to ask, comma-separated (default: all that the placements select)")
	fs.StringVar(&f.sample, "sample", "", "ask so many clusters, a number or a percentage such as 5%: always the same, chosen by a hash of their names (default: all)")
	fs.IntVar(&f.atOnce, "at-once", 32, "how many clusters to ask at a time")
	fs.DurationVar(&f.timeout, "timeout", time.Minute, "how long to wait for the answer of each cluster")
	fs.BoolVar(&f.record, "record", false, "write what was found to the set, in the annotation workwire.dev/previewed")
	f.keys.add(fs)
	f.format.Add(cmd, cli.Table, cli.JSON, cli.YAML, cli.JSONPath)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.validate(args); err != nil {
			return usageError(cmd, err)
		}
		return f.run(cmd.Context(), o, strings.Join(args, ""))
	}
	return cmd
}

// validate returns an error for flags that are invalid, and parses them.
func (f *diffSetFlags) validate(args []string) (err error) {
	f.size, _ = preview.ParseSize("100%")
	switch {
	case len(args) == 0 && len(f.files.paths) == 0:
		return cli.Usagef("name a set, or give -f with one")
	case f.record && len(f.files.paths) > 0:
		return cli.Usagef("--record is about the stored set: apply the files first; a set with workwire.dev/preview=Required waits for it")
	case f.sample != "" && len(f.clusters) > 0:
		return cli.Usagef("give --clusters or --sample, not both")
	case f.atOnce < 1:
		return cli.Usagef("--at-once must be at least 1, got %d", f.atOnce)
	case f.timeout <= 0:
		return cli.Usagef("--timeout must be positive, got %s", f.timeout)
	case f.sample != "":
		if f.size, err = preview.ParseSize(f.sample); err != nil {
			return cli.Usagef("--sample: %w", err)
		}
	}
	return f.keys.validate()
}

func (f *diffSetFlags) run(ctx context.Context, o *cli.Options, name string) error {
	ask := preview.AskConfig{Timeout: f.timeout, AtOnce: f.atOnce, Progress: progressTo(o.Err, time.Now)}
	var err error
	if ask.Broker, err = o.Broker(); err != nil {
		return err
	}
	if ask.Keys, err = f.keys.open(); err != nil {
		return err
	}
	reader, of, err := f.subject(o, name)
	if err != nil {
		return err
	}
	plan, err := preview.Read(ctx, reader, of)
	if err != nil {
		return err
	}
	if err := plan.Choose(f.clusters, f.size); err != nil {
		return cli.Usagef("--clusters: %w", err)
	}
	if err := plan.Ask(ctx, ask); err != nil {
		return err
	}
	user, _ := reader.User(ctx) // not all API servers tell
	record := plan.Record(user, time.Now())
	held, err := plan.Held(&record)
	if err != nil {
		return err
	}
	if f.record {
		if err := plan.Store(ctx, reader, &record); err != nil {
			return err
		}
	}
	if err := f.show(o, plan, &record, held); err != nil {
		return err
	}
	if f.record {
		return recorded(plan, held)
	}
	return judge(plan, &record)
}

// subject returns the reader of the hub's API, and what is previewed.
func (f *diffSetFlags) subject(o *cli.Options, name string) (*fleet.Reader, preview.Subject, error) {
	of := preview.Subject{Name: name, Anywhere: o.Namespace == ""}
	reader, namespace, err := hubNamespace(o)
	if of.Namespace = namespace; err != nil || len(f.files.paths) == 0 {
		return reader, of, err
	}
	files, err := f.files.read(o)
	if err == nil {
		of.Files, err = render.ParseSets(files)
	}
	return reader, of, err
}

// progressTo returns a function that writes how many clusters have answered, now and then.
func progressTo(out io.Writer, now func() time.Time) func(done, all int) {
	last := now()
	return func(done, all int) {
		if at := now(); at.Sub(last) >= progressInterval && done < all {
			last = at
			fmt.Fprintf(out, "%d of %d clusters asked\n", done, all)
		}
	}
}

// show writes the results.
func (f *diffSetFlags) show(o *cli.Options, plan *preview.Plan, record *previews.Record, held string) error {
	groups := preview.Groups(plan.Results)
	if f.format.Format() != cli.Table {
		return cli.WriteJSON(o.Out, f.format.Format(), map[string]any{
			"namespace": plan.Set.Namespace, "name": plan.Set.Name, "revision": plan.Revision, "summary": record, "held": held,
			"leaving": plan.Leaving, "groups": groups, "clusters": plan.Results,
		})
	}
	style := o.Style()
	for _, left := range plan.Leaving {
		fmt.Fprintf(o.Out, "%s/%s\n  %s the work would be deleted with its objects: no placement of the set selects the cluster\n", left.Cluster, left.Work, style.Paint(cli.Bad, "-"))
	}
	for i := range groups {
		showGroup(o.Out, style, &groups[i])
	}
	revision := ""
	if plan.Revision > 0 {
		revision = fmt.Sprintf(", revision %d", plan.Revision)
	}
	fmt.Fprintf(o.Out, "\nset %s/%s%s: of %s %s and %s, %s; %s; on one cluster at most %s would be changed and %d deleted\n",
		plan.Set.Namespace, plan.Set.Name, revision, cli.Plural(record.Clusters, "cluster", "clusters"), cli.Plural(record.Asked, "was asked", "were asked"),
		cli.Plural(record.Answered, "has answered", "have answered"), cli.Plural(record.Away, "is away", "are away"),
		cli.Plural(record.Refused, "refuses something", "refuse something"), cli.Plural(record.Changed, "object", "objects"), record.Deleted)
	if previews.Demanded(plan.Set.Annotations) && !f.record && len(f.files.paths) == 0 {
		fmt.Fprintln(o.Out, forecast(held))
	}
	return nil
}

// forecast says what the preview would mean for the rollout of a set that waits for it.
func forecast(held string) string {
	if held == "" {
		return "Recorded with --record, it lets the rollout go on."
	}
	return "Recorded with --record, it would hold the rollout: " + held
}

// showGroup writes a group: its clusters, and a line for each object with more below it.
func showGroup(out io.Writer, style cli.Style, g *preview.Group) {
	names := condition.First(g.Clusters, maxNamed, len(g.Clusters), ", ")
	says := ""
	switch {
	case g.State == preview.Away:
		says = "  " + style.Paint(cli.Warn, "away")
	case g.State != preview.Answered:
		says = "  " + style.Paint(cli.Bad, "✗ "+cli.OneLine(g.Message))
	case len(g.Objects) == 0:
		says = "  " + style.Paint(cli.Dim, "= nothing would change")
	}
	fmt.Fprintf(out, "%s: %s%s\n", cli.Plural(len(g.Clusters), "cluster", "clusters"), names, says)
	showObjects(out, style, g.Objects)
}

// recorded returns the error that the exit code of --record comes from, nil if the rollout may go on.
func recorded(plan *preview.Plan, held string) error {
	if held == "" {
		return nil
	}
	return cli.Errorf("the preview is recorded, and holds set %s/%s: %s", plan.Set.Namespace, plan.Set.Name, held).WithCode(cli.ExitNo)
}

// judge returns the error that the exit code comes from, nil if nothing would change.
func judge(plan *preview.Plan, record *previews.Record) error {
	switch {
	case record.Refused > 0 || record.Changed > 0 || record.Deleted > 0 || len(plan.Leaving) > 0:
		return cli.Errorf("something would change, or be refused").WithCode(cli.ExitNo)
	case record.Failed > 0:
		return cli.Errorf("%s cannot tell", cli.Plural(record.Failed, "cluster", "clusters"))
	case record.Answered < record.Clusters && record.Away > 0:
		return cli.Errorf("%s away", cli.Plural(record.Away, "cluster is", "clusters are")).WithCode(cli.ExitTimeout)
	}
	return nil
}
