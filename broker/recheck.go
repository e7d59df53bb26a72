package broker

import (
	"context"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

// recheckInterval is how long a connection may outlive the client certificate it was made with.
const recheckInterval = time.Second

// recheckCertificates ends connections whose client certificate is not good any more, until
// ctx ends. TLS looks at certificates when a connection begins, and MQTT connections last for
// months.
func (h *hook) recheckCertificates(ctx context.Context) {
	ticker := time.NewTicker(recheckInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			h.recheck(time.Now())
		}
	}
}

// recheck goes over all connections, which costs a comparison each, unless files have changed.
func (h *hook) recheck(now time.Time) {
	states := map[*tlsFiles]*tlsState{}
	var ended []*clientConn
	for _, conn := range h.connections() {
		certs := conn.peerCertificates()
		if conn.tls == nil || len(certs) == 0 {
			continue
		}
		state, known := states[conn.tls]
		if !known {
			state = conn.tls.current()
			states[conn.tls] = state
		}
		if conn.checked == state && now.Before(conn.until) {
			continue
		}
		var err error
		if conn.until, err = state.admits(certs, now); err == nil {
			conn.checked = state
			continue
		}
		h.log.Warn("client disconnected: its certificate is not accepted any more", "session", conn.sessionID, "certificate", certs[0].Subject.String(), "reason", err)
		conn.hurry() // all at once, so that clients that do not read hold up nobody
		ended = append(ended, conn)
	}
	for _, conn := range ended {
		_ = h.server.DisconnectClient(conn.cl, packets.ErrNotAuthorized)
	}
}
