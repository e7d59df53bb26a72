package broker

import "time"

// recheckCertificates disconnects clients whose certificate is no longer accepted. TLS checks
// certificates only when a connection is made, and MQTT connections last for months. It visits
// every connection; a check is one comparison unless the TLS files have changed.
func (s *server) recheckCertificates(now time.Time) {
	states := map[*tlsFiles]*tlsState{}
	var rejected []*client
	for _, entry := range s.conns.Range {
		conn := entry.(*client)
		certs := conn.certs
		if conn.tls == nil || len(certs) == 0 {
			continue
		}
		state, known := states[conn.tls]
		if !known {
			state = conn.tls.current()
			states[conn.tls] = state
		}
		if conn.checkedBy == state && now.Before(conn.validUntil) {
			continue
		}
		var err error
		if conn.validUntil, err = state.verify(certs, now); err == nil {
			conn.checkedBy = state
			continue
		}
		s.logger.Warn("client disconnected, certificate no longer accepted", "session", conn.sessionID, "certificate", certs[0].Subject.String(), "reason", err)
		conn.shortenWrites() // of all first: a client that does not read delays nobody
		rejected = append(rejected, conn)
	}
	for _, conn := range rejected {
		conn.disconnect(errBadCertificate)
		s.router.RevokeSession(conn.sessionID)
	}
}
