package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/test/kit"
)

// TestPage checks that docs/workctl.md names every command and every flag. certs and keys have pages
// of their own.
func TestPage(t *testing.T) {
	data, err := os.ReadFile("../../docs/workctl.md")
	kit.NoError(t, err)
	page := string(data)
	root := newCommand("workctl", cli.Streams{})
	flags := func(path string, set *pflag.FlagSet) {
		set.VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(page, "`--"+f.Name) {
				t.Errorf("docs/workctl.md does not name the flag --%s of %s", f.Name, path)
			}
		})
	}
	flags("workctl", root.PersistentFlags())
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if name := sub.Name(); name == "certs" || name == "keys" || name == "help" {
				continue
			}
			if !sub.HasSubCommands() && !strings.Contains(page, "`"+sub.CommandPath()) {
				t.Errorf("docs/workctl.md does not name `%s`", sub.CommandPath())
			}
			flags(sub.CommandPath(), sub.LocalNonPersistentFlags())
			visit(sub)
		}
	}
	visit(root)
}
