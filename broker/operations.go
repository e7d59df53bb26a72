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

func (b *Broker) newOperations(res *resources, s *server) *operations {
	s.drain(b.cfg.Drain)
	o := &operations{
		server:  s,
		revoker: &revoker{auth: s.auth, router: res.router, tls: s.tlsFiles, logger: b.cfg.Logger},
		reloader: newReloader(b.cfg, func(next Config) error {
			if err := s.auth.configure(next); err != nil {
				return err
			}
			s.limiter.Configure(next.Limits)
			res.router.SetLimits(next.sessionLimits())
			s.drain(next.Drain)
			return nil
		}),
	}
	return o
}

// check takes up what has changed. Call it each second.
func (o *operations) check(now time.Time) {
	o.reloader.check()
	o.server.recheckCertificates(now)
	o.revoker.check(now)
	o.server.sendAway()
}
