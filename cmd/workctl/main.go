// Command workctl does for an operator what no program that runs all the time
// does. So far it keeps certificates: see package certificates and
// docs/certificates.md.
//
//	workctl certs ensure --config=certificates.yaml
package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/command"
	"github.com/workwire/workwire/pkg/version"
)

func main() { os.Exit(command.Main(newCommand(os.Stdout, os.Stderr))) }

// newCommand makes the command; it writes what was asked for to out, and what else
// there is to say to complaints.
func newCommand(out, complaints io.Writer) *cobra.Command {
	root := group("workctl", "Do the operator's part: certificates")
	root.Version = version.Version
	root.CompletionOptions.DisableDefaultCmd = true
	certs := group("certs", "Keep the certificates of hubs, brokers and agents, all from one authority")
	certs.AddCommand(ensureCommand(out, complaints), showCommand(out), secretCommand(out), rotateCommand(out, complaints), revokeCommand(out))
	root.AddCommand(certs)
	return root
}

// group is a command that only has others.
func group(name, short string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, SilenceUsage: true, SilenceErrors: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}
