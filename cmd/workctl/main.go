// Command workctl is the operator's command line. It issues and renews certificates (package
// certificates, docs/certificates.md), and makes and lists signing keys (package signing,
// docs/signing.md).
//
//	workctl certs ensure --config=certificates.yaml
//	workctl keys new --key=signing.key
package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/command"
	"github.com/workwire/workwire/pkg/version"
)

func main() { os.Exit(command.Main(newCommand(os.Stdout, os.Stderr))) }

// newCommand returns the command. It writes results to stdout, warnings and errors to stderr.
func newCommand(stdout, stderr io.Writer) *cobra.Command {
	root := group("workctl", "Operate an installation of Workwire")
	root.Version = version.Version
	root.CompletionOptions.DisableDefaultCmd = true
	certs := group("certs", "Issue and renew the certificates of hubs, brokers and agents from one authority")
	certs.AddCommand(ensureCommand(stdout, stderr), showCommand(stdout), secretCommand(stdout), rotateCommand(stdout, stderr), revokeCommand(stdout))
	root.AddCommand(certs, keysCommand(stdout))
	return root
}

// group returns a command that has only subcommands.
func group(name, short string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, SilenceUsage: true, SilenceErrors: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}
