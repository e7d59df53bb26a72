package main

import (
	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/pkg/workstate/explain"
)

func explainCommand(o *cli.Options) *cobra.Command {
	var format cli.FormatFlag
	cmd := leaf(&cobra.Command{
		Use:   "explain work NAME -n CLUSTER",
		Short: "Tell how far a work has got, and what blocks it",
		Long: "Prints the way of the newest generation of a work, hop by hop with times: accepted by the hub, published, acknowledged\n" +
			"by the broker, received and applied by the agent, ready. Then the one thing that blocks it, and what to do about it.",
		Example:           "  workctl explain work web -n cluster1",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: complete(o, works),
	})
	format.Add(cmd, cli.Table, cli.JSON, cli.YAML, cli.JSONPath)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t, err := parseTarget(cmd, args, works)
		if err != nil {
			return err
		}
		if len(t.names) != 1 {
			return usageError(cmd, cli.Usagef("name one work"))
		}
		reader, cluster, err := hubNamespace(o)
		if err != nil {
			return err
		}
		facts, err := reader.Facts(cmd.Context(), cluster, t.names[0])
		if err != nil {
			return err
		}
		e := explain.Explain(facts)
		if format.Format() != cli.Table {
			return cli.WriteJSON(o.Out, format.Format(), e)
		}
		return fleet.WriteExplanation(o.Out, o.Style(), facts.Now, &e)
	}
	return cmd
}
