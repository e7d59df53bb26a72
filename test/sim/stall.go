package sim

import (
	"fmt"
	"sync"
	"time"
)

// stall is what hangs between a program and its API server: nothing is refused, and nothing is answered. It is safe for concurrent use.
type stall struct {
	mu       sync.Mutex
	goesOn   chan struct{} // closed when it ends; nil: nothing hangs
	requests bool          // and watches; else watches alone
	resource string        // alone; empty: all
}

// begin has something hang, unless it does already.
func (s *stall) begin(requests bool, resource string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.goesOn != nil {
		return false
	}
	s.goesOn, s.requests, s.resource = make(chan struct{}), requests, resource
	return true
}

func (s *stall) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.goesOn)
	s.goesOn = nil
}

// stuck returns what is closed when requests about a resource, or its watches, go on; nil: they do.
func (s *stall) stuck(resource string, watch bool) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.goesOn == nil || !watch && !s.requests || s.resource != "" && s.resource != resource {
		return nil
	}
	return s.goesOn
}

// hang has the API server of a program answer nothing for a while, as while it is stopped (SIGSTOP): it reads what it was sent when it goes on.
func (w *World) hang() {
	p := w.anyHub()
	if w.random.chance(60) {
		p = w.anyCluster().agent
	}
	if p.stall.begin(true, "") {
		w.trace.note("network", "the API server hangs for "+p.name)
		w.later(100*time.Second, func() {
			w.trace.note("network", "the API server answers "+p.name+" again")
			p.stall.end()
		})
	}
}

// muteWatches has watches of a program, of all resources or of one, stay open and show nothing for minutes. Then they go on, or end.
func (w *World) muteWatches() {
	p, api, resources := w.anyHub(), w.hubAPI, []string{"", "manifestworks", "managedclusters"}
	if w.random.chance(60) {
		c := w.anyCluster()
		p, api, resources = c.agent, c.api, []string{"", "configmaps", "appliedmanifestworks"}
	}
	resource, end := resources[w.random.intN(3)], w.random.chance(50)
	if !p.stall.begin(false, resource) {
		return
	}
	w.trace.note("network", fmt.Sprintf("watches of %s show nothing more, of %q alone if that is not empty", p.name, resource))
	w.later(2*maxOutage, func() {
		if end {
			api.BreakWatches()
		}
		w.trace.note("network", fmt.Sprintf("watches of %s do not hang any longer; they end: %v", p.name, end))
		p.stall.end()
	})
}

// lagBehind has API servers answer lists for a while as of up to some hundred changes ago, as far as clients allow that.
func (w *World) lagBehind() {
	w.trace.note("network", "API servers answer lists from the past")
	w.flaky.setBehind(500)
	w.later(maxOutage, func() { w.flaky.setBehind(0) })
}

func (f *flaky) setBehind(changes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.behind = changes
}

// fromThePast returns by how many changes a list is too old.
func (f *flaky) fromThePast(what string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.behind == 0 {
		return 0
	}
	return int64(f.random.of(what).intN(f.behind))
}
