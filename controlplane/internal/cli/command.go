// Package cli is the command line of controlplane.
//
//	err := cli.NewCommand().ExecuteContext(ctx)
package cli

import (
	"github.com/spf13/cobra"
)

// NewCommand returns the command controlplane; more are further commands. Errors are returned, not printed.
func NewCommand(more ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "controlplane",
		Short: "A real Kubernetes control plane in one binary",
		Long: `controlplane runs a real Kubernetes control plane (etcd, API server, controllers)
on this machine, for demos, tests, and hubs without a cluster.

It listens on 127.0.0.1 by default, and requires a certificate or token of
every client.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.CompletionOptions.HiddenDefaultCmd = true
	cmd.AddCommand(newUp(), newKubeconfig(), newHealth())
	cmd.AddCommand(more...)
	return cmd
}
