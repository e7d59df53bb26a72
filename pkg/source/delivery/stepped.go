package delivery

import (
	"context"
	"time"

	"github.com/workwire/workwire/pkg/transport"
)

// Stepped is a source in one thread, for a simulator: the same core and the same actions as those of an [Engine],
// without its goroutines and timers. Nothing happens but in a call, and what happens follows from the calls, from
// [Config].Clock, from what the WorkStore returns, and in which order, and from what the methods of the Transport
// return; its Run is not called.
//
//	for s.Do(ctx) { // publish, ask, store
//	}
//	clock.SetTime(s.NextDue())
//	s.TimePassed()
//
// A Stepped is not safe for concurrent use. Run must not be called.
type Stepped struct {
	*Engine
	connection uint64
}

// NewStepped returns a source like [New], which has read its identity and the works of the store.
func NewStepped(ctx context.Context, config Config) (*Stepped, error) {
	e, err := New(config)
	if err != nil {
		return nil, err
	}
	e.stepped, e.fail = true, func(error) {}
	return &Stepped{Engine: e}, e.begin(ctx)
}

// Connect tells that there is a connection, and Lost that there is none any more.
func (s *Stepped) Connect(c transport.Connection) { s.connection = s.connect(c) }

// Lost tells that the connection was lost.
func (s *Stepped) Lost(reason error) {
	s.step(disconnected{s.connection})
	s.lost(reason)
}

// Receive handles a message from an agent and acknowledges it.
func (s *Stepped) Receive(ctx context.Context, m transport.Message) { s.receive(ctx, m) }

// Do carries out the next one of the actions that have begun, in their order. It returns false if there is none.
func (s *Stepped) Do(ctx context.Context) bool {
	select {
	case a := <-s.begun:
		s.carryOut(ctx, a)
		return true
	default:
		return false
	}
}

// NextDue returns when [Stepped.TimePassed] has something to do; zero: never.
func (s *Stepped) NextDue() time.Time { return s.core.nextDue() }

// TimePassed does what is due.
func (s *Stepped) TimePassed() { s.step(timePassed{}) }
