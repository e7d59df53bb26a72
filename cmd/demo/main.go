// Command demo starts all components of Workwire on this machine, and shows how a work is delivered
// from the hub to a cluster, and its status back.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/cmd/demo/internal/demo"
	"github.com/workwire/workwire/pkg/runtime/command"
)

func main() { os.Exit(command.Main(newCommand())) }

func newCommand() *cobra.Command {
	options := demo.Options{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a hub, a broker, clusters and their agents, and apply the examples",
		Long: "Starts a hub API, a hub, a broker, a spoke cluster and its agent on this machine, applies the examples and\n" +
			"shows their status as it arrives. Then, with --walk, it starts two clusters more and walks through a rollout:\n" +
			"stages, of which the canary fails and goes back, its fix, which is approved, and a cluster that is off and back.\n" +
			"It goes on until Ctrl-C, and starts a broker, hub or agent that ends again. Everything listens on loopback only.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.Out = cmd.OutOrStdout()
			return demo.Run(cmd.Context(), options)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&options.Once, "once", false, "exit when the examples are available with feedback, or with an error after --timeout")
	flags.BoolVar(&options.Walk, "walk", true, "after the examples, walk through a rollout to three clusters; takes 1 GB of memory more (not with --once)")
	flags.StringVar(&options.Dir, "dir", ".demo", "directory for data and logs; files of an earlier demo are removed")
	flags.StringVar(&options.Bin, "bin", "bin", "directory of the binaries")
	flags.DurationVar(&options.Timeout, "timeout", demo.DefaultTimeout, "maximum time until the examples are available")
	return cmd
}
