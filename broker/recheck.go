package broker

import (
	"fmt"
	"strings"
	"time"
)

// acceptance is what a client certificate was accepted by.
type acceptance struct {
	tls      *tlsState
	accounts *accounts // map certificates to identities
}

// recheckCertificates disconnects clients whose certificate is no longer accepted, or is that of
// another identity now, and ends their sessions. TLS checks certificates only when a connection is
// made, and MQTT connections last for months. It visits every connection; a check is one comparison
// unless the TLS files or the configuration have changed.
func (s *server) recheckCertificates(now time.Time) {
	states, users := map[*tlsFiles]*tlsState{}, s.auth.accounts.Load()
	var rejected []*client
	for _, entry := range s.conns.Range {
		conn := entry.(*client)
		if conn.tls == nil || len(conn.certs) == 0 {
			continue
		}
		state, known := states[conn.tls]
		if !known {
			state = conn.tls.current()
			states[conn.tls] = state
		}
		by := acceptance{state, users}
		if conn.checkedBy == by && now.Before(conn.validUntil) {
			continue
		}
		validUntil, err := s.recheck(conn, state, now)
		if err == nil {
			conn.checkedBy, conn.validUntil = by, validUntil
			continue
		}
		s.logger.Warn("client disconnected, certificate no longer accepted", "session", conn.sessionID, "certificate", conn.certs[0].Subject.String(), "reason", err)
		conn.shortenWrites() // of all first: a client that does not read delays nobody
		rejected = append(rejected, conn)
	}
	for _, conn := range rejected {
		s.router.RevokeSession(conn.sessionID) // before the connection ends, which would publish the will
		conn.disconnect(errBadCertificate)
	}
}

// recheck returns until when the certificate of a client is valid, or why it is no longer accepted.
func (s *server) recheck(conn *client, state *tlsState, now time.Time) (validUntil time.Time, err error) {
	if validUntil, err = state.verify(conn.certs, now); err != nil {
		return validUntil, err
	}
	if kind, _, _ := strings.Cut(conn.credential, ":"); kind != "certificate" {
		return validUntil, nil // it has logged in with a password, too
	}
	who, err := s.auth.byCertificate(conn.certs[0], conn.authorities)
	if err == nil && who.id != conn.id {
		err = fmt.Errorf("the certificate is that of %s now", who.id)
	}
	return validUntil, err
}
