// Package memory returns memory to the operating system when a program is at rest:
//
//	group.Go(func() error { return memory.ReturnAtRest(ctx) })
package memory

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	lookEvery = 2 * time.Second
	// restful is how many bytes a program at rest allocates between two looks at most.
	restful = 512 << 10
	// enough is how many bytes, allocated since the last return, are worth another one; a quarter of the heap if that is more.
	enough = 4 << 20
	// seldom is the time between returns after less than that. Go collects garbage as often when there is little.
	seldom = 2 * time.Minute
)

// ReturnAtRest returns what the program does not need, each time that it rests after it has done much, and now and then while it
// rests: free memory of its heap, and, on Linux, the pages of its own file. Most of those were used by the start only, and count
// as resident memory for as long as they are mapped. What is used again is mapped again, from the page cache as a rule. It takes
// some milliseconds. It ends with ctx, and returns nil.
func ReturnAtRest(ctx context.Context) error {
	heap := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}}
	r := rest{since: time.Now()}
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		metrics.Read(heap)
		if r.look(time.Now(), heap[0].Value.Uint64(), heap[1].Value.Uint64()) {
			giveBack()
		}
	}
}

func giveBack() {
	debug.FreeOSMemory()
	unmapProgram()
}

// rest decides when a program is at rest.
type rest struct {
	last    uint64 // bytes allocated since the start, at the last look
	settled uint64 // likewise, at the last return
	since   time.Time
}

// look reports whether the program is at rest and there is something to return, which the caller does then. The program has
// allocated so many bytes since its start, and its heap holds so many.
func (r *rest) look(now time.Time, allocated, held uint64) bool {
	quiet := allocated-r.last <= restful
	r.last = allocated
	if !quiet || allocated-r.settled < max(enough, held/4) && now.Sub(r.since) < seldom {
		return false
	}
	r.settled, r.since = allocated, now
	return true
}
