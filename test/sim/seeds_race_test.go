//go:build race

package sim

import "runtime"

// usualSeeds is how many seeds go test runs: the race detector makes each six times as long.
const usualSeeds = 8

// Two threads that send on channel timers of one bubble at the same time share a context of the race detector, and crash
// (runtime.(*timer).unlockAndRun of Go 1.26). What races in order of events is found on one thread as well.
func init() { runtime.GOMAXPROCS(1) }
