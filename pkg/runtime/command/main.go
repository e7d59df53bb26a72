//go:build !manpages

package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Main runs cmd until it ends, or until the process receives SIGINT or SIGTERM; a second one ends the process at once. It prints an error
// to standard error and returns the exit code: 1, or what the error's method ExitCode returns. In a
// container with a memory limit, the runtime keeps to 90 % of it.
func Main(cmd *cobra.Command) int {
	setMemoryLimit()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", cmd.DisplayName(), err)
		if coded, ok := errors.AsType[interface {
			error
			ExitCode() int
		}](err); ok {
			return coded.ExitCode()
		}
		return 1
	}
	return 0
}
