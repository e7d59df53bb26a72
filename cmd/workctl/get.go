package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/fleet"
)

// getFlags are the flags of get.
type getFlags struct {
	format   cli.FormatFlag
	all      bool
	selector string
	blocked  bool
	watch    bool
}

func getCommand(o *cli.Options) *cobra.Command {
	var f getFlags
	cmd := leaf(&cobra.Command{
		Use:   "get works|clusters|sets [NAME...] [-n NAMESPACE|-A]",
		Short: "List works, clusters or sets",
		Long: "Lists works with how far each has got and what blocks it, clusters with their presence and their works, or sets with\n" +
			"their rollout. -o wide adds objects and messages; json, yaml, jsonpath and name print the objects of the API.",
		Example: "  workctl get works -A --blocked -o wide\n  workctl get clusters --watch\n  workctl get set shop -n default -o yaml\n" +
			"  workctl get works -n cluster1 -o jsonpath='{.items[*].metadata.name}'",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: complete(o, works, clusters, sets),
	})
	fs := cmd.Flags()
	fs.BoolVarP(&f.all, "all-namespaces", "A", false, "works and sets of all namespaces")
	fs.StringVarP(&f.selector, "selector", "l", "", "label selector, such as app=web")
	fs.BoolVar(&f.blocked, "blocked", false, "only works that are blocked or on their way")
	fs.BoolVarP(&f.watch, "watch", "w", false, "print the lines that change until interrupted, at most once per second; with table and wide only")
	f.format.Add(cmd, cli.Table, cli.Wide, cli.JSON, cli.YAML, cli.JSONPath, cli.Name)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t, err := parseTarget(cmd, args, works, clusters, sets)
		if err != nil {
			return err
		}
		if err := f.validate(t); err != nil {
			return usageError(cmd, err)
		}
		reader, namespace, err := hubNamespace(o)
		if err != nil {
			return err
		}
		if f.all {
			namespace = ""
		}
		switch format := f.format.Format(); {
		case f.watch:
			return f.follow(cmd.Context(), o, reader, t, namespace)
		case format != cli.Table && format != cli.Wide:
			objects, err := reader.Objects(cmd.Context(), string(t.kind), namespace, f.selector, t.names)
			if err != nil {
				return err
			}
			return cli.WriteObjects(o.Out, format, len(t.names) == 1, objects...)
		}
		return f.table(cmd.Context(), o, reader, t, namespace)
	}
	return cmd
}

// validate returns an error for flags that exclude each other.
func (f *getFlags) validate(t target) error {
	format := f.format.Format()
	switch {
	case f.all && len(t.names) > 0:
		return cli.Usagef("names and -A exclude each other: name the namespace with -n")
	case f.blocked && t.kind != works:
		return cli.Usagef("--blocked has no effect on %ss", t.kind)
	case f.blocked && format != cli.Table && format != cli.Wide:
		return cli.Usagef("--blocked chooses lines of -o table and wide, got -o %s", format)
	case f.watch && format != cli.Table && format != cli.Wide:
		return cli.Usagef("--watch prints lines of -o table and wide, got -o %s: follow whole objects with kubectl get %s --watch -o %s",
			format, kindNames[t.kind][len(kindNames[t.kind])-1], format)
	}
	return nil
}

// table prints a table.
func (f *getFlags) table(ctx context.Context, o *cli.Options, reader *fleet.Reader, t target, namespace string) error {
	snapshot := &fleet.Snapshot{Time: time.Now()}
	var err error
	switch t.kind {
	case works:
		snapshot, err = reader.WorkSnapshot(ctx, namespace, f.selector, t.names)
	case clusters:
		snapshot, err = reader.ClusterSnapshot(ctx, f.selector, t.names)
	case sets:
		snapshot.Sets, err = reader.Sets(ctx, namespace, f.selector, t.names)
	}
	if err != nil {
		return err
	}
	rows := f.rows(t.kind, snapshot)(snapshot.Time)
	if len(rows.Rows) == 0 {
		_, err := o.Err.Write([]byte("none found" + where(t.kind, namespace) + "\n"))
		return err
	}
	return rows.Write(o.Out, o.Style(), f.width(o))
}

// width is that of the terminal, to which lines are cut; 0 with -o wide.
func (f *getFlags) width(o *cli.Options) int {
	if f.format.Format() == cli.Wide {
		return 0
	}
	width, _, _ := o.Terminal()
	return width
}

// rows returns the table of a kind of the snapshot's objects, for the ages that they have at a time.
func (f *getFlags) rows(k kind, snapshot *fleet.Snapshot) (at func(time.Time) *cli.Rows) {
	wide := f.format.Format() == cli.Wide
	switch k {
	case works:
		lines := fleet.WorkLines(snapshot)
		if f.blocked {
			lines = slices.DeleteFunc(lines, func(l fleet.WorkLine) bool { return l.Done() })
		}
		return func(now time.Time) *cli.Rows { return fleet.WorkTable(lines, now, wide) }
	case clusters:
		lines := fleet.ClusterLines(snapshot, fleet.WorkLines(snapshot))
		return func(now time.Time) *cli.Rows { return fleet.ClusterTable(lines, now, wide) }
	}
	lines := make([]fleet.SetLine, len(snapshot.Sets))
	for i := range snapshot.Sets {
		lines[i] = fleet.NewSetLine(&snapshot.Sets[i])
	}
	return func(now time.Time) *cli.Rows { return fleet.SetTable(lines, now, wide) }
}

// rowsEvery is the least time between two prints of rows that have changed.
const rowsEvery = time.Second

// follow prints a table, and then each row that changes, until ctx ends.
func (f *getFlags) follow(ctx context.Context, o *cli.Options, reader *fleet.Reader, t target, namespace string) error {
	selector, err := labels.Parse(f.selector)
	if err != nil {
		return cli.Usagef("--selector %q: %w", f.selector, err)
	}
	if t.kind == clusters {
		namespace = ""
	}
	last := changes{gone: "gone"}
	if f.blocked {
		last.gone = "no longer blocked"
	}
	return follow(ctx, o, reader, namespace, t.kind, func(ctx context.Context, changed <-chan struct{}, snapshot func() *fleet.Snapshot) error {
		p := pace{interval: rowsEvery}
		return p.run(ctx, changed, o.Terminal, snapshot, func(s *fleet.Snapshot) error {
			choose(s, t, selector)
			at := f.rows(t.kind, s)
			// Without a time, ages stay as they are, so that only changes count.
			rows := last.next(at(time.Time{}), at(s.Time))
			if len(rows.Rows) == 0 {
				return nil
			}
			return rows.Write(o.Out, o.Style(), f.width(o))
		})
	})
}

// choose removes the objects of the target's kind that it does not name and those that the selector does not match.
func choose(s *fleet.Snapshot, t target, selector labels.Selector) {
	unwanted := func(m *metav1.ObjectMeta) bool {
		return len(t.names) > 0 && !slices.Contains(t.names, m.Name) || !selector.Matches(labels.Set(m.Labels))
	}
	switch t.kind {
	case works:
		s.Works = slices.DeleteFunc(s.Works, func(w workv1.ManifestWork) bool { return unwanted(&w.ObjectMeta) })
	case clusters:
		s.Clusters = slices.DeleteFunc(s.Clusters, func(c clusterv1.ManagedCluster) bool { return unwanted(&c.ObjectMeta) })
	case sets:
		s.Sets = slices.DeleteFunc(s.Sets, func(s workv1alpha1.ManifestWorkReplicaSet) bool { return unwanted(&s.ObjectMeta) })
	}
}

// changes finds the rows of a table that are not as they were.
type changes struct {
	gone  string              // the last cell of rows that are gone
	out   *cli.Rows           // what was printed; nil before the first time
	cells map[string][]string // of the rows without ages, by their cells up to NAME
}

// next returns the rows of shown of which compared has other cells than before, and a row for each that is gone.
func (c *changes) next(compared, shown *cli.Rows) *cli.Rows {
	if c.out == nil {
		c.out = &cli.Rows{Header: shown.Header}
	}
	c.out.Rows = nil
	named := slices.Index(shown.Header, "NAME") + 1
	now := make(map[string][]string, len(compared.Rows))
	for i, row := range compared.Rows {
		cells := make([]string, len(row))
		for j := range row {
			cells[j] = row[j].Text
		}
		key := strings.Join(cells[:named], "/")
		if now[key] = cells; !slices.Equal(cells, c.cells[key]) {
			c.out.Rows = append(c.out.Rows, shown.Rows[i])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.cells)) {
		if now[key] == nil {
			row := make([]any, len(shown.Header))
			for i := range row {
				row[i] = ""
				if i < named {
					row[i] = c.cells[key][i]
				}
			}
			row[len(row)-1] = cli.Cell{Text: c.gone, Tone: cli.Dim}
			c.out.Add(row...)
		}
	}
	c.cells = now
	return c.out
}

// where names the namespace that was looked at.
func where(k kind, namespace string) string {
	if k == clusters || namespace == "" {
		return ""
	}
	return " in namespace " + namespace + "; -A shows all"
}
