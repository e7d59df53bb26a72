package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/render"
	"github.com/workwire/workwire/pkg/ctl/wrap"
)

func renderCommand(o *cli.Options) *cobra.Command {
	var (
		files    fileFlags
		clusters string
		format   cli.FormatFlag
	)
	cmd := leaf(&cobra.Command{
		Use:   "render -f FILE|DIR|- --clusters=FILE [-n CLUSTER]",
		Short: "Show what the WorkOverrides of a ManifestWorkReplicaSet make of its template",
		Long: "Prints the ManifestWork of each cluster, or of one with -n, as a hub makes it: from the ManifestWorkReplicaSets,\n" +
			"WorkOverrides, ConfigMaps and Secrets of the files, and the ManagedClusters of another. Other objects are left out, and\n" +
			"placements do not count. It needs no connection. If overrides fail for some clusters, it says why, prints the works of the\n" +
			"others, and ends with the exit code 1. The works have the name of their set; a hub adds a hash.",
		Example: "  kubectl get managedclusters -o yaml > clusters.yaml\n" +
			"  workctl render -f till/ --clusters=clusters.yaml -n berlin",
		RunE: func(*cobra.Command, []string) error {
			if len(files.paths) == 0 || clusters == "" {
				return cli.Usagef("-f and --clusters are required: the files with the set and its overrides, and the one with the ManagedClusters")
			}
			manifests, errFiles := files.read(o)
			of, errClusters := wrap.Read([]string{clusters}, o.In, false)
			if err := errors.Join(errFiles, errClusters); err != nil {
				return err
			}
			input, err := render.Parse(manifests, of)
			if err != nil {
				return err
			}
			works, err := input.Works(o.Namespace)
			return errors.Join(wrap.Write(o.Out, works, string(format.Format())), err)
		},
	})
	fs := cmd.Flags()
	files.add(fs, "the set, its overrides, and the ConfigMaps and Secrets that they refer to", "; required")
	fs.StringVar(&clusters, "clusters", "", "file with ManagedClusters, or directory, or - for stdin; required")
	format.Add(cmd, cli.YAML, cli.JSON)
	return cmd
}
