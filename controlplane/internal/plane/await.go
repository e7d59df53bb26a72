package plane

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// often is the interval of questions to a program that is starting.
const often = 25 * time.Millisecond

// await calls check at this interval until it returns nil. If ctx ends first, the error has what was awaited and the last
// error of check from before that.
func await(ctx context.Context, interval time.Duration, what string, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if last == nil || ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", what, cmp.Or(last, err))
	}
	return nil
}
