package agentbench

import (
	"context"
	"fmt"
	"time"

	"github.com/workwire/workwire/test/bench/procs"
)

// profile takes a CPU profile of the agent for about d, in the first run, when
// profiles are wanted. The function it gives waits for the profile.
func (w *world) profile(ctx context.Context, run int, name string, d time.Duration) (stop func()) {
	if w.Profile == "" || run > 0 || !w.own {
		return func() {}
	}
	return procs.Profile(ctx, w.listen, w.Profile, "agent-"+name, max(d, time.Second), w.Progress)
}

// heap takes a profile of the agent's memory.
func (w *world) heap(ctx context.Context, run int, name string) {
	if w.Profile == "" || run > 0 || !w.own {
		return
	}
	for _, kind := range []string{"heap", "allocs"} {
		if err := procs.Fetch(ctx, fmt.Sprintf("http://%s/debug/pprof/%s", w.listen, kind), w.Profile, fmt.Sprintf("agent-%s-%s", name, kind)); err != nil {
			w.Progress("no profile: %v", err)
		}
	}
}
