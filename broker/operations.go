package broker

import (
	"time"
)

// operations keeps what a running broker takes from files: the configuration, and who is still
// accepted. One goroutine calls check.
type operations struct {
	reloader *reloader
	revoker  *revoker
	server   *server
}

func newOperations(s *server) *operations {
	s.drain(s.cfg.Drain)
	return &operations{
		server:  s,
		revoker: &revoker{server: s},
		reloader: newReloader(s.cfg, func(next Config) error {
			if err := s.auth.configure(next); err != nil {
				return err
			}
			s.limiter.Configure(next.Limits)
			s.router.SetLimits(next.sessionLimits())
			s.drain(next.Drain)
			return nil
		}),
	}
}

// check takes up what has changed. Call it each second.
func (o *operations) check(now time.Time) {
	o.reloader.check()
	o.server.recheckCertificates(now)
	o.revoker.check(now)
	o.server.sendAway()
}
