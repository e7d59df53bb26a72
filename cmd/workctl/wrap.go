package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/direct"
	"github.com/workwire/workwire/pkg/ctl/wrap"
	"github.com/workwire/workwire/pkg/wire"
)

// brokerCommands returns the commands about the broker and clusters.
func brokerCommands(o *cli.Options) []*cobra.Command {
	return []*cobra.Command{wrapCommand(o), renderCommand(o), diffCommand(o), applyCommand(o), deleteCommand(o), doctorCommand(o), tailCommand(o), joinCommand(o)}
}

// fileFlags are the flags of commands that read objects of files.
type fileFlags struct {
	paths     []string
	recursive bool
}

// add adds the flags; content says what a file has, and more what else there is to know.
func (f *fileFlags) add(fs *pflag.FlagSet, content, more string) {
	fs.StringArrayVarP(&f.paths, "filename", "f", nil, "file with "+content+", or directory with *.yaml, *.yml and *.json, or - for stdin; may be repeated"+more)
	fs.BoolVarP(&f.recursive, "recursive", "R", false, "read the directories in a directory, too")
}

func (f *fileFlags) read(o *cli.Options) ([]wrap.Manifest, error) {
	return wrap.Read(f.paths, o.In, f.recursive)
}

// works returns the ManifestWorks of the files for a source.
func (f *fileFlags) works(o *cli.Options, id wire.SourceID, topics wire.SourceTopics) ([]*workv1.ManifestWork, error) {
	manifests, err := f.read(o)
	if err != nil {
		return nil, err
	}
	return direct.Works(manifests, id, topics, o.Namespace)
}

func wrapCommand(o *cli.Options) *cobra.Command {
	var (
		files  fileFlags
		format cli.FormatFlag
		config wrap.Config
	)
	cmd := leaf(&cobra.Command{
		Use:   "wrap -f FILE|DIR|- --name=NAME [-n CLUSTER]",
		Short: "Make ManifestWorks of plain manifests",
		Long: "Prints one ManifestWork with all manifests of the files, sorted so that they can be applied: CRDs, namespaces, RBAC,\n" +
			"configuration, workloads, the rest. It prints several, NAME-1, NAME-2 and so on, if one cannot hold all. It needs no\n" +
			"connection. Without -n the works have no namespace, for kubectl apply -n.",
		Example: "  workctl wrap -f deploy/ --name=web -n cluster1 | kubectl apply --server-side -f -",
		RunE: func(*cobra.Command, []string) error {
			if len(files.paths) == 0 || config.Name == "" {
				return cli.Usagef("-f and --name are required: the manifests, and the name of the work")
			}
			config.Cluster = o.Namespace
			manifests, err := files.read(o)
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
	files.add(fs, "manifests", "; required")
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
