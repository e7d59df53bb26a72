// Command demo starts the whole of Workwire on this machine and shows a work
// going from the hub to a cluster and its status coming back.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/demo"
)

func main() { os.Exit(run()) }

// run is main with deferred calls; it returns the exit code.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	return 0
}

func command() *cobra.Command {
	options := demo.Options{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a hub, a broker, a cluster and its agent, and apply the examples",
		Long: "Starts a hub API, a hub, a broker, a spoke cluster and its agent on this machine, applies the examples,\n" +
			"shows their status as it arrives, and goes on until Ctrl-C. Everything listens on loopback only.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.Out = cmd.OutOrStdout()
			return demo.Run(cmd.Context(), options)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&options.Once, "once", false, "end once the examples are available with feedback, or fail after --timeout")
	flags.StringVar(&options.Dir, "dir", ".demo", "folder for data and logs; what an earlier demo left there is removed")
	flags.StringVar(&options.Bin, "bin", "bin", "folder of the binaries")
	flags.DurationVar(&options.Timeout, "timeout", demo.DefaultTimeout, "how long the examples may take to become available")
	return cmd
}
