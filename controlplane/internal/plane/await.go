package plane

import (
	"context"
	"fmt"
	"time"
)

// await calls check until it returns nil. When ctx ends first, the error
// says what was waited for and what check said last.
func await(ctx context.Context, what string, check func(context.Context) error) error {
	const pause = 25 * time.Millisecond
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, err)
		case <-ticker.C:
		}
	}
}
