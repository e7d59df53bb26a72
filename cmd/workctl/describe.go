package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/fleet"
)

func describeCommand(o *cli.Options) *cobra.Command {
	cmd := leaf(&cobra.Command{
		Use:   "describe work|cluster|set NAME [-n NAMESPACE]",
		Short: "Show everything about a work, a cluster or a set",
		Long: "Shows of a work what explain tells, its manifests with their feedback, conditions and events; of a cluster its presence, and of a set its\n" +
			"rollout, and of both the works that need attention, conditions and events.",
		Example:           "  workctl describe work web -n cluster1\n  workctl describe cluster cluster1",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: complete(o, works, clusters, sets),
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t, err := parseTarget(cmd, args, works, clusters, sets)
		if err != nil {
			return err
		}
		if len(t.names) != 1 {
			return usageError(cmd, cli.Usagef("name one %s", t.kind))
		}
		reader, namespace, err := hubNamespace(o)
		if err != nil {
			return err
		}
		d := fleet.Description{Out: o.Out, Style: o.Style(), Now: time.Now()}
		switch t.kind {
		case works:
			return reader.DescribeWork(cmd.Context(), d, namespace, t.names[0])
		case clusters:
			return reader.DescribeCluster(cmd.Context(), d, t.names[0])
		}
		return reader.DescribeSet(cmd.Context(), d, namespace, t.names[0])
	}
	return cmd
}
