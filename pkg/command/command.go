// Package command makes the project's commands alike: flags in groups, every
// fault of the flags reported at once, a clean end on SIGINT and SIGTERM.
//
//	func main() {
//		os.Exit(command.Main(command.New(command.Config{
//			Use: "work-agent --cluster-name=NAME", Sections: o.sections(), Validate: o.validate, Run: o.run,
//		})))
//	}
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workwire/workwire/pkg/version"
)

// Section is a group of flags in the help.
type Section struct {
	// Title stands above them.
	Title string
	// Bind adds the flags; their order is kept.
	Bind func(*pflag.FlagSet)
}

// Config says what a command is. All fields but Aliases are required.
type Config struct {
	// Use is the command's name and its usual flags; Short and Long describe it.
	Use, Short, Long string
	// Sections are its flags.
	Sections []Section
	// Aliases are other names of flags, by those, without dashes.
	Aliases map[string]string
	// Validate reports every fault of the flags, each by its flag and with what to
	// do. It is called before Run.
	Validate func() []error
	// Run does the command's work until ctx ends, and returns nil then.
	Run func(ctx context.Context) error
}

// New makes the command.
func New(c Config) *cobra.Command {
	cmd := &cobra.Command{
		Use: c.Use, Short: c.Short, Long: c.Long, Version: version.Version,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true, DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if faults := c.Validate(); len(faults) > 0 {
				return fmt.Errorf("%w\nSee %s --help", errors.Join(faults...), cmd.CommandPath())
			}
			return c.Run(cmd.Context())
		},
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
		fmt.Fprintf(&help, "\nOther names for the same flags, as OCM has them:\n  %s\n", strings.Join(list(c.Aliases), "\n  "))
		cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, flag string) pflag.NormalizedName {
			if ours, ok := c.Aliases[flag]; ok {
				flag = ours
			}
			return pflag.NormalizedName(flag)
		})
	}
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		_, err := fmt.Fprintf(cmd.OutOrStderr(), "Usage:\n  %s\n%s", cmd.UseLine(), help.String())
		return err
	})
	return cmd
}

// list gives aliases for the help, sorted.
func list(aliases map[string]string) []string {
	lines := make([]string, 0, len(aliases))
	for other, ours := range aliases {
		lines = append(lines, "--"+other+" (--"+ours+")")
	}
	slices.Sort(lines)
	return lines
}

// Main runs cmd until it ends or the process is told to, and returns the exit
// code. An error is printed to standard error.
func Main(cmd *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", cmd.Name(), err)
		return 1
	}
	return 0
}
