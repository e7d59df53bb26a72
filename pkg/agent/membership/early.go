package membership

import (
	"context"
	"math/big"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/workwire/workwire/pkg/security/enrolment"
	"github.com/workwire/workwire/pkg/transport"
)

// maxRefusalPause is the longest wait before a certificate is asked for in place of one that the broker refuses.
const maxRefusalPause = time.Hour

// renewal is that of a certificate before its time.
type renewal struct {
	serial *big.Int // of the certificate
	reason string
	pause  time.Duration // before it
}

// Refused has the certificate renewed because the broker has refused it: its authority may have been replaced while the cluster was away. It
// returns at once.
func (m *Membership) Refused() {
	if m == nil {
		return
	}
	pause := min(m.cfg.Patience<<min(m.refused.Add(1)-1, 16), maxRefusalPause)
	m.renewEarly("the broker refuses it", rand.N(pause)) //nolint:gosec // spreads load
}

// renewEarly has the certificate renewed after a pause, unless it is to be already.
func (m *Membership) renewEarly(reason string, pause time.Duration) {
	cert := m.certificate()
	if cert == nil {
		return
	}
	select {
	case m.renew <- renewal{cert.SerialNumber, reason, pause}:
	default:
	}
}

// Transport returns the connection of the agent, over which the hub also says that another authority issues certificates.
func (m *Membership) Transport(t transport.Transport) transport.Transport {
	if m == nil {
		return t
	}
	return listening{t, m}
}

type listening struct {
	transport.Transport
	m *Membership
}

// Run implements [transport.Transport].
func (l listening) Run(ctx context.Context, h transport.Handler) error {
	_, token := l.m.held()
	topics, err := enrolment.TopicsOf(token.Topics, token.Source)
	if err != nil {
		return err
	}
	topic := topics.Answers(string(l.m.cfg.Cluster))
	received, connected := h.Received, h.Connected
	h.Subscriptions = append(slices.Clone(h.Subscriptions), topic)
	h.Received = func(ctx context.Context, message transport.Message) {
		if message.Topic != topic {
			received(ctx, message)
			return
		}
		message.Ack()
		l.m.told(message)
	}
	h.Connected = func(ctx context.Context, c transport.Connection) {
		l.m.refused.Store(0)
		if connected != nil {
			connected(ctx, c)
		}
	}
	return l.Transport.Run(ctx, h)
}

// told handles a message of the hub that nobody has asked for. One that is repeated, by whomever, has no effect.
func (m *Membership) told(message transport.Message) {
	answer, err := m.readAnswer(message, enrolment.Request{ID: string(m.cfg.Cluster)})
	cert := m.certificate()
	switch {
	case err != nil:
		m.cfg.Logger.Warn("a message of the hub does not count", "error", err)
	case answer.Reason == enrolment.Renew && cert != nil && answer.Authority != enrolment.AuthorityOf(cert):
		m.renewEarly("its authority is replaced", 0)
	}
}
