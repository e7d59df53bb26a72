package broker

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/limits"
	"github.com/workwire/workwire/broker/packet"
	"github.com/workwire/workwire/broker/session"
	"github.com/workwire/workwire/pkg/runtime/tracing"
	"github.com/workwire/workwire/pkg/transport/websocket"
)

const (
	maxConnectSize = 64 << 10 // bytes of a CONNECT
	maxClientID    = 256      // bytes of a client id
	maxPieces      = 256      // reads that bring little of a CONNECT

	maxJoinerPacket = 32 << 10        // bytes of a joiner's packet after its CONNECT
	joinerIdle      = 2 * time.Minute // without a packet of a joiner, other than a ping, before its connection ends
)

// client serves one client: it reads the CONNECT, connects the client to its session, and then
// handles its packets, while the sender writes those of the session. The goroutine that reads owns
// it, but sending.
type client struct {
	conn
	server   *server
	listener string
	remote   string
	counted  *limits.Connection

	tls         *tlsFiles           // nil: plain TCP
	certs       []*x509.Certificate // the verified client certificate, if any, and the intermediate ones
	authorities []string            // that have issued it, by authorityKey
	checkedBy   acceptance          // of the client certificate, the last one; owned by recheckCertificates
	validUntil  time.Time           // when the client certificate expires; likewise

	id            acl.Identity
	role          *roleTraffic // of id; nil before the login
	credential    string       // see credential.go
	sessionID     string       // identity and client id; "" before the login
	assignedID    string       // the client id, if the broker has chosen it
	expiry        uint32       // session expiry in seconds
	noProblemInfo bool         // the client wants no reason strings
	disconnected  session.Disconnect
	listRefused   atomic.Pointer[string] // why its last revocation list was refused

	sess    *session.Conn // nil until the session is established
	sending sending
	done    chan struct{} // closed when everything has ended; nil before the login
}

// login reads and answers the CONNECT, and reports whether the client is connected.
func (c *client) login(ctx context.Context) bool {
	pk, size, err := c.readConnect()
	if err == nil {
		c.counted.Busy()
		err = c.authenticate(ctx, pk)
	}
	if err != nil {
		c.refuse(pk, err)
		return false
	}
	if c.throttle(limits.LoginMessages, size) != nil {
		return false
	}
	return c.establish(pk)
}

// readConnect reads the first packet, which must be a CONNECT of MQTT 5, and returns its size, too.
func (c *client) readConnect() (pk *packet.Connect, size int, err error) {
	pieces := 0
	c.admit = func(int) error {
		if pieces++; pieces > maxPieces {
			return errPieces
		}
		return nil
	}
	h, body, _, err := c.readPacket(min(int(c.server.cfg.MaxPacketSize), maxConnectSize))
	if h.Type() != packet.TypeConnect && (err == nil || isPacketError(err)) {
		return nil, 0, errNotConnect
	}
	if err != nil {
		return nil, 0, err
	}
	pk, err = packet.DecodeConnect(body)
	switch {
	case err != nil:
		return nil, 0, err
	case pk.Version < 5:
		return pk, 0, errOldVersion
	case pk.Version > 5:
		return pk, 0, &packet.Error{Code: packet.UnsupportedVersion, Text: "the protocol version is not 5"}
	case pk.HasAuth:
		return pk, 0, &packet.Error{Code: packet.BadAuthMethod, Text: "the client wants to authenticate by a method, and there is none"}
	case len(pk.ClientID) > maxClientID:
		return pk, 0, &packet.Error{Code: packet.BadClientID, Text: fmt.Sprintf("the client id has more than %d bytes", maxClientID)}
	}
	return pk, h.Size + h.Length, nil
}

// Errors of the first packet that are not answered with a CONNACK of MQTT 5.
var (
	errNotConnect = errors.New("the first packet is not a CONNECT")
	errOldVersion = errors.New("the client speaks MQTT 3")
	errPieces     = errors.New("the CONNECT comes in too many pieces")
)

func isPacketError(err error) bool { return errors.As(err, new(*packet.Error)) }

// authenticate sets the identity of the client, and checks that it may publish its will.
func (c *client) authenticate(ctx context.Context, pk *packet.Connect) error {
	who, err := c.identify(ctx, pk)
	if err != nil {
		c.server.counters.authFailed(err)
		return err
	}
	c.id, c.credential = who.id, who.credential
	if err := c.counted.LogIn(c.id); err != nil {
		return &packet.Error{Code: packet.QuotaExceeded, Text: err.Error()}
	}
	if elsewhere := c.server.draining.Load(); elsewhere != nil {
		return elsewhere
	}
	if pk.Will != nil && (c.id.Role == acl.Joiner || !acl.Allow(c.id, acl.Publish, pk.Will.Message.Topic)) {
		c.server.counters.denied(acl.Publish)
		return &packet.Error{Code: packet.NotAuthorized, Text: "not authorized: " + c.id.String() + " may not publish to the topic of its will, " + truncate(pk.Will.Message.Topic)}
	}
	return nil
}

func (c *client) identify(ctx context.Context, pk *packet.Connect) (login, error) {
	if pk.HasUsername {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		return c.server.auth.byPassword(ctx, c.counted.Address(), pk.Username, pk.Password)
	}
	if len(c.certs) > 0 {
		return c.server.auth.byCertificate(c.certs[0], c.authorities)
	}
	return login{}, errAnonymous
}

// refuse answers a CONNECT that is not accepted. pk is nil if there is none.
func (c *client) refuse(pk *packet.Connect, err error) {
	c.counted.Idle() // until it has read why
	var refusal *packet.Error
	switch {
	case errors.Is(err, errOldVersion):
		c.end(packet.RefuseOldVersion, err)
	case errors.As(err, &refusal):
		c.end(c.refusal(pk, refusal), err)
	case pk != nil: // the credentials: the client is not told more
		c.end(packet.AppendConnack(nil, packet.Connack{Code: packet.BadCredentials}), err)
	}
	if pk == nil {
		c.server.logger.Debug("connection ended before its login", "remote", c.remote, "listener", c.listener, "reason", err)
		return
	}
	c.audit("connect", accessDenied, "client refused", "clientId", truncate(pk.ClientID), "username", truncate(pk.Username), "reason", err)
}

// refusal returns the CONNACK that says why, or nil if the client does not accept its size.
func (c *client) refusal(pk *packet.Connect, why *packet.Error) []byte {
	if pk != nil {
		c.maxPacketSize = int(pk.MaximumPacketSize)
	}
	for _, text := range []string{truncate(why.Text), ""} {
		answer := packet.Connack{Code: why.Code, Reason: text}
		if text != "" {
			answer.Reference = why.Reference
		}
		if connack := packet.AppendConnack(nil, answer); c.fits(len(connack)) {
			return connack
		}
	}
	return nil
}

// establish connects the client to its session, after the previous client of that session is gone,
// and answers with the CONNACK.
func (c *client) establish(pk *packet.Connect) bool {
	if pk.ClientID == "" {
		c.assignedID = rand.Text()
		pk.ClientID = c.assignedID
	}
	// Client ids of different identities are different sessions, so that no client can take over
	// the session of another identity or disturb it.
	c.sessionID = c.id.String() + "/" + pk.ClientID // an identity contains no slash
	expiry := pk.SessionExpiry
	if c.id.Role == acl.Joiner { // all of them have one identity: none may have the session of another
		c.sessionID += "/" + rand.Text()
		expiry = 0
	}
	c.maxPacketSize, c.noProblemInfo = int(pk.MaximumPacketSize), pk.NoProblemInfo
	c.done = make(chan struct{})
	c.server.takeOver(c)
	sess, present := c.server.router.Connect(session.Connect{
		ID: c.sessionID, Owner: c.id.Account().String(), Credential: c.credential, CleanStart: pk.CleanStart, Expiry: expiry,
		ReceiveMaximum: pk.ReceiveMaximum, Will: pk.Will, Wake: c.wake,
	})
	c.sess, c.expiry = sess, sess.Expiry()
	c.role = c.server.counters.of(c.id.Role)
	c.role.clients.Inc()
	if c.revoked() { // while the login waited. The sessions that are there by then are ended by operations.
		c.server.router.RevokeSession(c.sessionID)
		c.refuse(pk, errRevoked)
		return false
	}
	c.admit = func(size int) error { return c.throttle(1, size) }
	c.idle = time.Duration(pk.KeepAlive) * time.Second * 3 / 2
	c.setReadDeadline(time.Time{})
	c.awaitJoiner()
	connack := packet.Connack{
		SessionPresent: present, AssignedClientID: c.assignedID,
		ReceiveMaximum: c.server.cfg.ReceiveMaximum, MaximumPacketSize: uint32(c.maxPacket()),
	}
	if c.expiry != pk.SessionExpiry {
		connack.SessionExpiry = &c.expiry
	}
	if err := c.answer(packet.AppendConnack(nil, connack)); err != nil {
		c.end(nil, err)
		return true // serve finds the connection ended
	}
	args := []any{"sessionPresent", present}
	if len(c.certs) > 0 {
		args = append(args, "certificateIssuer", c.certs[0].Issuer.CommonName, "certificateExpires", c.certs[0].NotAfter)
	}
	c.audit("connect", granted, "client connected", args...)
	c.sending.open()
	go c.send()
	return true
}

// revoked reports whether the password or the certificate of the login is no longer accepted.
func (c *client) revoked() bool {
	if c.server.auth.accounts.Load().ended(c.id.Account().String(), c.credential) {
		return true
	}
	if len(c.certs) == 0 {
		return false
	}
	_, err := c.server.recheck(c, c.tls.current(), time.Now())
	return err != nil
}

// serve handles packets until the connection ends.
func (c *client) serve() {
	err := c.handlePackets()
	if refusal := new(packet.Error); errors.As(err, &refusal) {
		c.disconnect(refusal)
	} else if isTimeout(err) && c.takenOver.Load() {
		c.disconnect(errTakenOver)
	} else if isTimeout(err) {
		c.disconnect(errKeepAlive)
	}
	c.server.log(slog.LevelInfo, "disconnected", "client disconnected", "session", c.sessionID, "remote", c.remote, "normal", c.disconnected.Normal, "reason", cmp.Or(c.endCause(), err))
}

var errLeft = errors.New("the client disconnected")

// handlePackets returns why there are no more packets.
func (c *client) handlePackets() error {
	for {
		h, body, owned, err := c.readPacket(c.maxPacket())
		if err != nil {
			return err
		}
		c.role.received.Add(float64(h.Size + h.Length))
		if c.server.inspect != nil {
			c.server.inspect(c.sessionID, h)
		}
		if err := c.handle(h, body, owned); err != nil {
			return err
		}
		if h.Type() != packet.TypePingreq {
			c.awaitJoiner()
		}
	}
}

// maxPacket returns the maximum size of a packet that the client may send after the login.
func (c *client) maxPacket() int {
	most := int(c.server.cfg.MaxPacketSize)
	if c.id.Role == acl.Joiner {
		return min(most, maxJoinerPacket)
	}
	return most
}

// awaitJoiner ends the connection of a joiner that sends nothing but pings from now on: idle ones must not
// keep out others.
func (c *client) awaitJoiner() {
	if c.id.Role == acl.Joiner {
		c.stopReading(joinerIdle)
	}
}

// throttle waits until the identity may send messages of size bytes together. Meanwhile nothing is
// read from this connection. It returns an error if the connection ends.
func (c *client) throttle(messages, size int) error {
	if wait := c.server.limiter.Take(c.id, messages, size); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.ending:
		case <-c.server.stopping:
		}
	}
	return c.endCause()
}

// handle handles one packet. An error ends the connection.
func (c *client) handle(h packet.Header, body []byte, owned bool) error {
	switch h.Type() {
	case packet.TypePublish:
		return c.publish(h, body, owned)
	case packet.TypePuback:
		id, code, err := packet.DecodePuback(body)
		if err == nil {
			c.sess.Ack(id, code)
		}
		return err
	case packet.TypeSubscribe:
		return c.subscribe(body)
	case packet.TypeUnsubscribe:
		return c.unsubscribe(body)
	case packet.TypePingreq:
		if h.Length > 0 {
			return &packet.Error{Code: packet.Malformed, Text: "PINGREQ with a body"}
		}
		return c.answer(packet.Pingresp)
	case packet.TypeDisconnect:
		return c.leave(body)
	}
	return &packet.Error{Code: packet.ProtocolError, Text: fmt.Sprintf("a packet of type %d is not expected", h.Type())}
}

// publish authorizes and routes a message. The sender acknowledges it.
func (c *client) publish(h packet.Header, body []byte, owned bool) error {
	m, id, expiry, err := packet.DecodePublish(h.Flags(), body)
	if err != nil {
		return err
	}
	c.role.messages.Inc()
	if !acl.Allow(c.id, acl.Publish, m.Topic) {
		c.server.counters.denied(acl.Publish)
		c.audit("publish", accessDenied, "message refused, not authorized", "topic", truncate(m.Topic), "qos", m.QoS)
		if m.QoS > 0 {
			err = c.sess.Refuse(id, packet.NotAuthorized)
		}
		return c.sessionError(err)
	}
	if acl.Revocations(m.Topic) {
		if code := c.revoke(m.Payload); m.QoS > 0 {
			err = c.sess.Refuse(id, code)
		}
		return c.sessionError(err)
	}
	if !owned {
		m.Payload = bytes.Clone(m.Payload)
	}
	if expiry != nil {
		m.Expires = time.Now().Unix() + int64(*expiry)
	}
	span := c.traceMessage(m)
	err = c.sess.Publish(m, id)
	span.End(tracing.FailedIf(err))
	return c.sessionError(err)
}

// sessionError turns an error of the session into the one that ends the connection.
func (c *client) sessionError(err error) error {
	if errors.Is(err, session.ErrReceiveMaximum) {
		return &packet.Error{Code: packet.ReceiveMaximum, Text: fmt.Sprintf("the client has more than %d unacknowledged messages", c.server.cfg.ReceiveMaximum)}
	}
	return err
}

// subscribe adds the subscriptions that the client may have, and answers once they are durable.
func (c *client) subscribe(body []byte) error {
	pk, err := packet.DecodeSubscribe(body)
	if err != nil {
		return err
	}
	if err := c.throttle(len(pk.Subscriptions)-1, 0); err != nil {
		return err
	}
	codes := make([]byte, len(pk.Subscriptions))
	refused, first := 0, ""
	for i, sub := range pk.Subscriptions {
		if codes[i] = c.subscribeTo(sub); codes[i] >= packet.Unspecified {
			refused++
			first = cmp.Or(first, sub.Filter)
		}
	}
	if refused > 0 { // one line, however many
		c.audit("subscribe", accessDenied, "subscription refused", "filter", truncate(first), "refused", refused, "of", len(codes))
	}
	select {
	case <-c.sess.Durable():
	case <-c.ending: // a disk that is full must not delay the end of the connection
		return c.cause
	case <-c.server.stopping:
		return errLeft // the subscriptions may not become durable
	}
	return c.answer(packet.AppendSubscribeAck(nil, packet.TypeSuback, pk.ID, codes))
}

// subscribeTo adds one subscription and returns its reason code.
func (c *client) subscribeTo(sub session.Subscription) byte {
	switch {
	case !packet.ValidFilter(sub.Filter):
		return packet.BadTopicFilter
	case !acl.Allow(c.id, acl.Subscribe, sub.Filter):
		c.server.counters.denied(acl.Subscribe)
		return packet.NotAuthorized
	case c.sess.Subscribe(sub) != nil:
		return packet.QuotaExceeded
	}
	return sub.QoS
}

// unsubscribe removes subscriptions.
func (c *client) unsubscribe(body []byte) error {
	pk, err := packet.DecodeUnsubscribe(body)
	if err != nil {
		return err
	}
	if err := c.throttle(len(pk.Subscriptions)-1, 0); err != nil {
		return err
	}
	codes := make([]byte, len(pk.Subscriptions))
	for i, sub := range pk.Subscriptions {
		switch {
		case !packet.ValidFilter(sub.Filter):
			codes[i] = packet.BadTopicFilter
		case !c.sess.Unsubscribe(sub.Filter):
			codes[i] = packet.NoSubscription
		}
	}
	return c.answer(packet.AppendSubscribeAck(nil, packet.TypeUnsuback, pk.ID, codes))
}

// leave handles a DISCONNECT. Its error says so, or what is wrong with it.
func (c *client) leave(body []byte) error {
	pk, err := packet.DecodeDisconnect(body)
	if err != nil {
		return err
	}
	if pk.Expiry != nil && *pk.Expiry > 0 && c.expiry == 0 {
		return &packet.Error{Code: packet.ProtocolError, Text: "DISCONNECT raises the session expiry from 0"}
	}
	c.disconnected = session.Disconnect{Normal: pk.Code == packet.Success, Expiry: pk.Expiry}
	return errLeft
}

// finish disconnects the client from its session, and waits for the sender. A client that takes the
// session over waits for it.
func (c *client) finish() {
	if c.done == nil {
		return // no CONNECT was accepted
	}
	defer close(c.done)
	defer c.server.conns.CompareAndDelete(c.sessionID, c)
	if c.sess == nil {
		return
	}
	c.role.clients.Dec()
	defer func() {
		if ended := c.sending.end(); ended != nil {
			c.shortenWrites()
			<-ended
		}
	}()
	c.sess.Disconnect(c.disconnected)
}

// close finishes and closes the connection, whatever happened.
func (c *client) close() {
	defer c.counted.Close()
	defer func() { _ = c.socket.Close() }()
	defer c.contain()
	c.finish()
	c.in.release()
	c.linger()
}

// contain ends the connection after a panic, which must not end the broker. Defer it.
func (c *client) contain() {
	if fault := recover(); fault != nil {
		c.server.counters.panics.Inc()
		c.server.logger.Error("serving a client failed, its connection ends", "session", c.sessionID, "remote", c.remote, "panic", fmt.Sprint(fault), "stack", string(debug.Stack()))
		c.disconnect(errFault)
	}
}

// setTLS records the TLS connection, after the handshake.
func (c *client) setTLS(secure *tls.Conn, files *tlsFiles) {
	c.socket, c.tls = secure, files
	state := secure.ConnectionState()
	c.certs, c.authorities = state.PeerCertificates, authoritiesOf(state.VerifiedChains)
}

// openWebSocket puts MQTT into a WebSocket, before the login.
func (c *client) openWebSocket(path string) error {
	socket, err := websocket.Server(c.socket, path, func() error { return c.admit(0) }) // set before the first packet is read
	if err == nil {
		c.socket = socket
	}
	return err
}

// truncate shortens text of a client for logs and reasons.
func truncate(s string) string {
	if len(s) > 256 {
		return strings.ToValidUTF8(s[:256], "") + "…"
	}
	return s
}
