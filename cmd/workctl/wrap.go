package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/wrap"
)

// brokerCommands returns the commands about the broker and clusters.
func brokerCommands(o *cli.Options) []*cobra.Command {
	return []*cobra.Command{wrapCommand(o), renderCommand(o), diffCommand(o), applyCommand(o), deleteCommand(o), doctorCommand(o), tailCommand(o), joinCommand(o)}
}

func wrapCommand(o *cli.Options) *cobra.Command {
	var (
		paths     []string
		recursive bool
		format    cli.FormatFlag
		config    wrap.Config
	)
	cmd := leaf(&cobra.Command{
		Use:   "wrap -f FILE|DIR|- --name=NAME [-n CLUSTER]",
		Short: "Make ManifestWorks of plain manifests",
		Long: "Prints one ManifestWork with all manifests of the files, sorted so that they can be applied: CRDs, namespaces, RBAC,\n" +
			"configuration, workloads, the rest. It prints several, NAME-1, NAME-2 and so on, if one cannot hold all. It needs no\n" +
			"connection. Without -n the works have no namespace, for kubectl apply -n.",
		Example: "  workctl wrap -f deploy/ --name=web -n cluster1 | kubectl apply --server-side -f -",
		RunE: func(*cobra.Command, []string) error {
			if len(paths) == 0 || config.Name == "" {
				return cli.Usagef("-f and --name are required: the manifests, and the name of the work")
			}
			config.Cluster = o.Namespace
			manifests, err := wrap.Read(paths, o.In, recursive)
			if err != nil {
				return err
			}
			works, warnings, err := wrap.Works(manifests, config)
			for _, w := range warnings {
				_, _ = fmt.Fprintln(o.Err, "warning:", w)
			}
			if err != nil {
				return err
			}
			return wrap.Write(o.Out, works, string(format.Format()))
		},
	})
	fs := cmd.Flags()
	fs.StringArrayVarP(&paths, "filename", "f", nil, "file with manifests, or directory with *.yaml, *.yml and *.json, or - for stdin; may be repeated; required")
	fs.BoolVarP(&recursive, "recursive", "R", false, "read the directories in a directory, too")
	fs.StringVar(&config.Name, "name", "", "name of the work; required")
	fs.StringVar(&config.ObjectNamespace, "object-namespace", "", "namespace of objects that need one and have none (default: such an object is an error)")
	fs.BoolVar(&config.Feedback, "feedback", true, "report the well-known values of each object whose kind has some, such as ReadyReplicas")
	fs.BoolVar(&config.Readiness, "readiness", true, "report the conditions Progressing and Degraded")
	fs.BoolVar(&config.Hooks, "hooks", false, "wrap the hooks of Helm charts, objects with the annotation helm.sh/hook, like any other object (default: they are left out and named)")
	fs.IntVar(&config.MaxBytes, "max-bytes", 0, "maximum bytes of a work's manifests as JSON (default: 512000, the most that agents take)")
	fs.IntVar(&config.MaxManifests, "max-manifests", 0, "maximum number of a work's manifests (default: 5000, the most that agents take)")
	format.Add(cmd, cli.YAML, cli.JSON)
	return cmd
}
