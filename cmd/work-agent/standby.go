package main

import (
	"sync/atomic"

	"github.com/workwire/workwire/pkg/agent"
)

// standby is the agent of this process: none until it leads. A replica that
// stands by is ready for that.
type standby struct{ agent atomic.Pointer[agent.Agent] }

func (s *standby) set(a *agent.Agent) { s.agent.Store(a) }

func (s *standby) check(of func(*agent.Agent) error) error {
	if a := s.agent.Load(); a != nil {
		return of(a)
	}
	return nil
}
