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
		Short: "Check whether a control plane is ready",
		Long: `health ends with status 0 if the control plane in DIR is ready, else with
status 1 and an error. It is the health check of containers.`,
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
	cmd.Flags().StringVar(&dir, "dir", "", "directory of the control plane; required")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "maximum time until the response")
	return cmd
}
