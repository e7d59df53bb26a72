//go:build !linux

package budget

import "time"

var begun = time.Now()

// threadTime is the clock where threads do not say what they have used.
func threadTime() time.Duration { return time.Since(begun) }
