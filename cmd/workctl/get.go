package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/fleet"
)

// getFlags are the flags of get.
type getFlags struct {
	format   cli.FormatFlag
	all      bool
	selector string
	blocked  bool
}

func getCommand(o *cli.Options) *cobra.Command {
	var f getFlags
	cmd := leaf(&cobra.Command{
		Use:   "get works|clusters|sets [NAME...] [-n NAMESPACE|-A]",
		Short: "List works, clusters or sets",
		Long: "Lists works with how far each has got and what blocks it, clusters with their presence and their works, or sets with\n" +
			"their rollout. -o wide adds objects and messages; json, yaml and name print the objects of the API.",
		Example:           "  workctl get works -A --blocked -o wide\n  workctl get clusters\n  workctl get set shop -n default -o yaml",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: complete(o, works, clusters, sets),
	})
	fs := cmd.Flags()
	fs.BoolVarP(&f.all, "all-namespaces", "A", false, "works and sets of all namespaces")
	fs.StringVarP(&f.selector, "selector", "l", "", "label selector, such as app=web")
	fs.BoolVar(&f.blocked, "blocked", false, "only works that are blocked or on their way")
	f.format.Add(cmd, cli.Table, cli.Wide, cli.JSON, cli.YAML, cli.Name)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t, err := parseTarget(cmd, args, works, clusters, sets)
		if err != nil {
			return err
		}
		reader, namespace, err := hubNamespace(o)
		if err != nil {
			return err
		}
		if f.all {
			namespace = ""
		}
		if f.all && len(t.names) > 0 {
			return usageError(cmd, cli.Usagef("names and -A exclude each other: name the namespace with -n"))
		}
		if format := f.format.Format(); format != cli.Table && format != cli.Wide {
			objects, err := reader.Objects(cmd.Context(), string(t.kind), namespace, f.selector, t.names)
			if err != nil {
				return err
			}
			return writeObjects(o, format, len(t.names) == 1, objects)
		}
		return f.table(cmd.Context(), o, reader, t, namespace)
	}
	return cmd
}

func writeObjects(o *cli.Options, format cli.Format, single bool, objects []runtime.Object) error {
	return cli.WriteObjects(o.Out, format, single, objects...)
}

// table prints a table.
func (f *getFlags) table(ctx context.Context, o *cli.Options, reader *fleet.Reader, t target, namespace string) error {
	snapshot := &fleet.Snapshot{Time: time.Now()}
	var err error
	wide := f.format.Format() == cli.Wide
	width, _, _ := o.Terminal()
	if wide {
		width = 0
	}
	var rows *cli.Rows
	switch t.kind {
	case works:
		if snapshot, err = reader.WorkSnapshot(ctx, namespace, f.selector, t.names); err != nil {
			return err
		}
		lines := fleet.WorkLines(snapshot)
		if f.blocked {
			lines = slices.DeleteFunc(lines, func(l fleet.WorkLine) bool { return l.Cause == "" && l.Delivered == "True" })
		}
		rows = fleet.WorkTable(lines, snapshot.Time, wide)
	case clusters:
		if snapshot, err = reader.ClusterSnapshot(ctx, f.selector, t.names); err != nil {
			return err
		}
		rows = fleet.ClusterTable(fleet.ClusterLines(snapshot, fleet.WorkLines(snapshot)), snapshot.Time, wide)
	case sets:
		found, err := reader.Sets(ctx, namespace, f.selector, t.names)
		if err != nil {
			return err
		}
		lines := make([]fleet.SetLine, len(found))
		for i := range found {
			lines[i] = fleet.NewSetLine(&found[i])
		}
		rows = fleet.SetTable(lines, snapshot.Time, wide)
	}
	if len(rows.Rows) == 0 {
		_, err := o.Err.Write([]byte("none found" + where(t.kind, namespace) + "\n"))
		return err
	}
	return rows.Write(o.Out, o.Style(), width)
}

// where names the namespace that was looked at.
func where(k kind, namespace string) string {
	if k == clusters || namespace == "" {
		return ""
	}
	return " in namespace " + namespace + "; -A shows all"
}
