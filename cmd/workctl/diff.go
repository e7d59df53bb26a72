package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/direct"
	"github.com/workwire/workwire/pkg/wire"
)

// diffFlags are the flags of diff.
type diffFlags struct {
	files   fileFlags
	format  cli.FormatFlag
	timeout time.Duration
	keys    keyFlags
}

func diffCommand(o *cli.Options) *cobra.Command {
	var f diffFlags
	cmd := leaf(&cobra.Command{
		Use:   "diff -f FILE|DIR|- --transport=FILE [-n CLUSTER]",
		Short: "Show what ManifestWorks would change on their clusters, and store nothing",
		Long: "Has the agent of each cluster try a ManifestWork by dry runs of the cluster's API server: with its admission, its rights and the\n" +
			"executor of the work. Shows the fields that would change, conflicts with other field managers, and what is denied or refused.\n" +
			"A work of this name and of the source that the transport configuration names is what it is compared with.\n" +
			"The exit code is 0 if nothing would change, 4 if something would or would be refused, 3 if an agent does not answer,\n" +
			"1 if it cannot be asked: nobody listens for the cluster.",
		Example: "  workctl diff -f web.yaml --transport=hub.yaml -n cluster1\n" +
			"  workctl wrap -f deploy/ --name=web -n cluster1 | workctl diff -f - --transport=ops.yaml\n" +
			"  workctl diff -f web.yaml --transport=ops.yaml -n cluster1 --signing-key=ops.key --seal-keys=seal-keys --trusted-agents=trusted-agents.yaml",
	})
	fs := cmd.Flags()
	f.files.add(fs, "ManifestWorks", "")
	fs.DurationVar(&f.timeout, "timeout", time.Minute, "how long to wait for the answer about each work")
	f.keys.add(fs)
	f.format.Add(cmd, cli.Table, cli.JSON, cli.YAML, cli.JSONPath)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case len(f.files.paths) == 0:
			return usageError(cmd, cli.Usagef("-f is required: the ManifestWorks"))
		case f.timeout <= 0:
			return usageError(cmd, cli.Usagef("--timeout must be positive, got %s", f.timeout))
		}
		if err := f.keys.validate(); err != nil {
			return usageError(cmd, err)
		}
		return f.run(cmd.Context(), o)
	}
	cmd.AddCommand(diffSetCommand(o))
	return cmd
}

func (f *diffFlags) run(ctx context.Context, o *cli.Options) error {
	c := direct.DiffConfig{Timeout: f.timeout}
	var err error
	if c.Broker, err = o.Broker(); err != nil {
		return err
	}
	id, topics, err := direct.SourceOf(c.Broker.Topics)
	if err != nil {
		return err
	}
	if c.Works, err = f.files.works(o, id, topics); err != nil {
		return err
	}
	if c.Keys, err = f.keys.open(); err != nil {
		return err
	}
	if f.format.Format() == cli.Table {
		style := o.Style()
		c.Show = func(d direct.Difference) { showDifference(o.Out, style, &d) }
	}
	results, err := direct.Diff(ctx, c)
	if f.format.Format() != cli.Table {
		if err := cli.WriteJSON(o.Out, f.format.Format(), map[string]any{"works": results}); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	return verdict(results)
}

// verdict returns the error that the exit code comes from, nil if nothing would change.
func verdict(results []direct.Difference) error {
	code, changing := 0, 0
	var failures []string
	hint := ""
	for i := range results {
		switch d := &results[i]; {
		case d.Failure != "":
			failures = append(failures, fmt.Sprintf("%s/%s: %s", d.Cluster, d.Name, d.Failure))
			hint = cmp.Or(hint, d.Hint)
			if code = max(code, cli.ExitFailed); d.TimedOut {
				code = cli.ExitTimeout
			}
		case d.Changes():
			changing++
		}
	}
	switch {
	case len(failures) > 0:
		return cli.Errorf("%s", strings.Join(failures, "\n")).WithCode(code).Do("%s", hint)
	case changing > 0:
		return cli.Errorf("%d of %s would change something, or be refused", changing, cli.Plural(len(results), "work", "works")).WithCode(cli.ExitNo)
	default:
		return nil
	}
}

// marks are the signs and colors of results.
var marks = map[wire.DryRunResult]struct {
	sign  string
	color cli.Tone
	says  string
}{
	wire.DryRunCreated:   {"+", cli.Good, "would be created"},
	wire.DryRunChanged:   {"~", cli.Warn, "would be changed"},
	wire.DryRunRecreated: {"±", cli.Warn, "would be deleted and created again"},
	wire.DryRunUnchanged: {"=", cli.Dim, "stays as it is"},
	wire.DryRunReadOnly:  {"=", cli.Dim, "is only read"},
	wire.DryRunRemoved:   {"-", cli.Bad, "would be deleted"},
	wire.DryRunKept:      {"=", cli.Dim, "would be left alone"},
	wire.DryRunDenied:    {"✗", cli.Bad, "denied"},
	wire.DryRunConflict:  {"✗", cli.Bad, "conflicts with other field managers"},
	wire.DryRunRefused:   {"✗", cli.Bad, "refused"},
	wire.DryRunInvalid:   {"✗", cli.Bad, "invalid"},
	wire.DryRunUnknown:   {"?", cli.Warn, "cannot be told"},
}

// showDifference writes one line for each object, with more below it for what differs.
func showDifference(out io.Writer, style cli.Style, d *direct.Difference) {
	held := "new"
	if d.Generation > 0 {
		held = fmt.Sprintf("compared with generation %d", d.Generation)
	}
	if d.Failure != "" {
		held = style.Paint(cli.Bad, "✗ "+cli.OneLine(d.Failure))
	}
	fmt.Fprintf(out, "%s/%s  %s\n", d.Cluster, d.Name, held)
	showObjects(out, style, d.Objects)
}

func showObjects(out io.Writer, style cli.Style, objects []wire.DryRunObject) {
	for i := range objects {
		o := &objects[i]
		mark := marks[o.Result]
		if mark.sign == "" { // of a later version
			mark.sign, mark.says = "?", string(o.Result)
		}
		fmt.Fprintf(out, "  %s %s  %s\n", style.Paint(mark.color, mark.sign), cli.OneLine(objectName(o)), mark.says)
		if o.Message != "" {
			fmt.Fprintf(out, "      %s\n", cli.OneLine(o.Message))
		}
		for _, manager := range o.Managers {
			fmt.Fprintf(out, "      %s\n", cli.OneLine(manager))
		}
		for _, field := range o.Fields {
			fmt.Fprintf(out, "      %s\n", cli.OneLine(fieldLine(field)))
		}
		if o.OmittedFields > 0 {
			fmt.Fprintf(out, "      and %s\n", cli.Plural(o.OmittedFields, "more field", "more fields"))
		}
		for _, warning := range o.Warnings {
			fmt.Fprintf(out, "      %s %s\n", style.Paint(cli.Warn, "warning:"), cli.OneLine(warning))
		}
	}
}

func objectName(o *wire.DryRunObject) string {
	kind, name := o.Kind, o.Name
	if kind == "" {
		kind = o.Resource
	}
	if o.Namespace != "" {
		name = o.Namespace + "/" + name
	}
	if kind == "" && name == "" {
		return "a manifest without kind and name"
	}
	return strings.TrimSpace(strings.Join([]string{o.APIVersion, kind, name}, " "))
}

func fieldLine(f wire.DryRunField) string {
	switch {
	case f.From == "":
		return fmt.Sprintf("%s: + %s", f.Path, f.To)
	case f.To == "":
		return fmt.Sprintf("%s: - %s", f.Path, f.From)
	default:
		return fmt.Sprintf("%s: %s → %s", f.Path, f.From, f.To)
	}
}
