package main

import (
	"errors"
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

// TestExamples checks that each command line in the help names a command and flags that exist.
func TestExamples(t *testing.T) {
	root := newCommand("workctl", cli.Streams{})
	root.InitDefaultCompletionCmd()
	found := 0
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			line, _, _ = strings.Cut(line, " > ")
			line, _, _ = strings.Cut(line, " | ")
			words := strings.Fields(strings.ReplaceAll(line, "'", ""))
			if len(words) == 0 || words[0] != "workctl" {
				continue
			}
			found++
			named, args, err := root.Find(words[1:])
			if err == nil && named == root {
				err = errors.New("it names no command")
			}
			if err == nil {
				err = named.ParseFlags(args)
			}
			if err != nil {
				t.Errorf("%s: example %s: %v", cmd.CommandPath(), strings.TrimSpace(line), err)
			}
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
	if found < 20 {
		t.Errorf("%d examples are found", found)
	}
}
