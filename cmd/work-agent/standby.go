package main

import (
	"sync/atomic"

	"github.com/workwire/workwire/pkg/agent"
)

// standby is the agent of this process, which has none until it leads. A replica on standby is
// healthy.
type standby struct{ agent atomic.Pointer[agent.Agent] }

// check returns the result of a check of the agent, nil if there is none.
func (s *standby) check(of func(*agent.Agent) error) error {
	if a := s.agent.Load(); a != nil {
		return of(a)
	}
	return nil
}
