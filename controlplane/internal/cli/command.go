// Package cli is the command line of controlplane: flags in, one call, and
// what it says.
//
//	err := cli.NewCommand(names).ExecuteContext(ctx)
package cli

import (
	"github.com/spf13/cobra"
)

// NewCommand returns the command controlplane. assets are the names under
// which the binary is another program. Errors are returned, not printed.
func NewCommand(assets []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "controlplane",
		Short: "A real Kubernetes control plane in one binary",
		Long: `controlplane runs a real Kubernetes control plane (etcd, API server, controllers)
on this machine, for demos, tests, and hubs without a cluster.

It listens on 127.0.0.1 unless told otherwise, and asks every client for a
certificate or token.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.CompletionOptions.HiddenDefaultCmd = true
	cmd.AddCommand(newUp(), newKubeconfig(), newHealth(), newAssets(assets))
	return cmd
}
