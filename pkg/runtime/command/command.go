// Package command builds the commands of the project in one way: flags in sections, all errors of
// flags reported at once, and a graceful end on SIGINT and SIGTERM.
//
//	func main() {
//		os.Exit(command.Main(command.New(command.Config{
//			Use: "work-agent --cluster-name=NAME", Sections: o.sections(), Validate: o.validate, Run: o.run,
//		})))
//	}
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workwire/workwire/pkg/runtime/version"
)

// Section is a group of flags in the help.
type Section struct {
	// Title is the heading of the section.
	Title string
	// Bind adds the flags; the help keeps their order.
	Bind func(*pflag.FlagSet)
}

// Config is the configuration of a command. All fields except Aliases are required.
type Config struct {
	// Use is the name of the command and its usual flags; Short and Long describe it.
	Use, Short, Long string
	// Sections are its flags.
	Sections []Section
	// Aliases maps other names of flags to the names of flags, without dashes.
	Aliases map[string]string
	// Validate returns an error for each invalid flag, with what to do. It is called before Run.
	Validate func() []error
	// Run runs the command until it is done or ctx ends.
	Run func(ctx context.Context) error
}

// New returns the command.
func New(c Config) *cobra.Command {
	cmd := &cobra.Command{
		Use: c.Use, Short: c.Short, Long: c.Long, Version: version.Version,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true, DisableFlagsInUseLine: true,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if errs := c.Validate(); len(errs) > 0 {
				return fmt.Errorf("%w\nSee %s --help", errors.Join(errs...), cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return c.Run(cmd.Context()) },
	}
	var help strings.Builder
	for _, section := range c.Sections {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.SortFlags = false
		section.Bind(flags)
		cmd.Flags().AddFlagSet(flags)
		fmt.Fprintf(&help, "\n%s:\n%s", section.Title, flags.FlagUsages())
	}
	cmd.Flags().SortFlags = false
	if len(c.Aliases) > 0 {
		fmt.Fprintf(&help, "\nAliases, as in OCM:\n  %s\n", strings.Join(aliasLines(c.Aliases), "\n  "))
		cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, flag string) pflag.NormalizedName {
			return pflag.NormalizedName(cmp.Or(c.Aliases[flag], flag))
		})
	}
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		_, err := fmt.Fprintf(cmd.OutOrStderr(), "Usage:\n  %s\n%s", cmd.UseLine(), help.String())
		return err
	})
	return cmd
}

// aliasLines returns the lines of the help for aliases, sorted.
func aliasLines(aliases map[string]string) []string {
	lines := make([]string, 0, len(aliases))
	for alias, flag := range aliases {
		lines = append(lines, "--"+alias+" (--"+flag+")")
	}
	slices.Sort(lines)
	return lines
}
