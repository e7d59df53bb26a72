package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/controlplane/internal/plane"
)

func newHealth() *cobra.Command {
	var dir string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "health --dir=DIR",
		Short: "Tell whether a control plane is ready for use",
		Long: `health ends with status 0 when the control plane in DIR is ready for use, else
with status 1 and a sentence that says why not. It is meant for the health
checks of containers.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return errors.New("--dir is required")
			}
			if timeout <= 0 {
				return fmt.Errorf("--timeout=%s must be positive", timeout)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return plane.Health(ctx, dir)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the control plane's directory (required)")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "longest time to wait for an answer, as a duration like 5s")
	return cmd
}
