package broker

import (
	"maps"
	"slices"
	"time"
)

// expiryInterval is how often the sessions of absent clients are checked for expired certificates.
const expiryInterval = time.Minute

// revoker ends the sessions of clients whose certificate or password is no longer accepted. One
// goroutine calls check.
type revoker struct {
	server *server

	users    map[string]userState // of the last check
	accounts *accounts
	states   []*tlsState
	checked  time.Time
}

// check ends sessions if users, passwords, certificate mappings, authorities or revocation lists have
// changed, or a minute has passed.
// It reads the times of the password files; only if it ends sessions, it visits all of them.
func (r *revoker) check(now time.Time) {
	accounts := r.server.auth.accounts.Load()
	users := accounts.states()
	var states []*tlsState
	v := validity{now: now, users: users, mapped: accounts.certs}
	for _, files := range r.server.tlsFiles {
		state := files.current()
		states, v.revoked, v.authorities = append(states, state), append(v.revoked, state.ended), append(v.authorities, state.authorities)
	}
	if accounts == r.accounts && maps.Equal(users, r.users) && slices.Equal(states, r.states) && now.Sub(r.checked) < expiryInterval {
		return
	}
	r.users, r.accounts, r.states, r.checked = users, accounts, states, now
	if n := r.server.router.Revoke(v.ended); n > 0 {
		r.server.logger.Warn("sessions ended, their certificates or passwords are no longer accepted", "sessions", n)
	}
}
