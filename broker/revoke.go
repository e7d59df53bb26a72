package broker

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/workwire/workwire/broker/session"
)

// expiryInterval is how often the sessions of absent clients are checked for expired certificates.
const expiryInterval = time.Minute

// revoker ends the sessions of clients whose certificate or password is no longer accepted. One
// goroutine calls check.
type revoker struct {
	auth   *authenticator
	router *session.Router
	tls    []*tlsFiles
	logger *slog.Logger

	users   map[string]userState // of the last check
	states  []*tlsState
	checked time.Time
}

// check ends sessions if users, passwords or revocation lists have changed, or a minute has passed.
// It reads the times of the password files; only if it ends sessions, it visits all of them.
func (r *revoker) check(now time.Time) {
	users := r.auth.accounts.Load().states()
	var states []*tlsState
	v := validity{now: now, users: users}
	for _, files := range r.tls {
		state := files.current()
		states, v.revoked = append(states, state), append(v.revoked, state.ended)
	}
	if maps.Equal(users, r.users) && slices.Equal(states, r.states) && now.Sub(r.checked) < expiryInterval {
		return
	}
	r.users, r.states, r.checked = users, states, now
	if n := r.router.Revoke(v.ended); n > 0 {
		r.logger.Warn("sessions ended, their certificates or passwords are no longer accepted", "sessions", n)
	}
}
