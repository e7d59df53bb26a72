package broker

import (
	"time"

	"github.com/workwire/workwire/broker/limits"
)

// operations keeps what a running broker takes from files: the configuration, and who is still
// accepted. One goroutine calls check.
type operations struct {
	reloader *reloader
	revoker  *revoker
}

func (b *Broker) newOperations(res *resources, auth *authenticator, limiter *limits.Limiter) *operations {
	o := &operations{
		revoker: &revoker{auth: auth, router: res.router, logger: b.cfg.Logger},
		reloader: newReloader(b.cfg, func(next Config) error {
			if err := auth.configure(next); err != nil {
				return err
			}
			limiter.Configure(next.Limits)
			b.reference.Store(&next.ServerReference)
			res.router.SetLimits(next.sessionLimits())
			return nil
		}),
	}
	for _, l := range res.listeners {
		if l.tls != nil {
			o.revoker.tls = append(o.revoker.tls, l.tls)
		}
	}
	return o
}

// check takes up what has changed. Call it each second.
func (o *operations) check(now time.Time) {
	o.reloader.check()
	o.revoker.check(now)
}
