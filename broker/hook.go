package broker

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/session"
)

// hook is where mochi-mqtt and this broker meet. mochi-mqtt speaks MQTT with the clients; who
// they are, what they may do, and every message between them is decided here. mochi-mqtt's
// own sessions and queues stay empty, because it acknowledges messages before it keeps them,
// reorders them when a client reconnects, and drops them beyond a limit without a word.
//
// Its methods are called by mochi-mqtt from the goroutine of the client they concern.
type hook struct {
	mqtt.HookBase
	cfg      Config
	auth     *authenticator
	router   *session.Router
	server   *mqtt.Server
	counters *counters
	log      *slog.Logger
	stopping <-chan struct{} // closed when the broker begins to stop

	mu    sync.Mutex
	conns map[string]*clientConn // by session; a connection waits for the one before it to end
}

// ID names the hook in mochi-mqtt's log.
func (h *hook) ID() string { return "workwire" }

// Provides tells mochi-mqtt which methods to call.
func (h *hook) Provides(b byte) bool {
	switch b {
	case mqtt.OnConnect, mqtt.OnConnectAuthenticate, mqtt.OnSessionEstablish, mqtt.OnSessionEstablished,
		mqtt.OnACLCheck, mqtt.OnPacketRead, mqtt.OnPacketEncode,
		mqtt.OnPublish, mqtt.OnSubscribed, mqtt.OnUnsubscribed:
		return true
	}
	return false
}

// OnConnect decides whether a client may connect, and tells it when it may not.
func (h *hook) OnConnect(cl *mqtt.Client, pk packets.Packet) error {
	conn := cl.Net.Conn.(*clientConn)
	id, err := h.identify(conn, pk)
	if err != nil {
		h.counters.refused(err)
		return h.refuse(cl, packets.ErrBadUsernameOrPassword, err)
	}
	if pk.Connect.WillFlag && !acl.Allow(id, acl.Publish, pk.Connect.WillTopic) {
		h.counters.denied(acl.Publish)
		return h.refuse(cl, packets.ErrNotAuthorized, errors.New("its will goes to a topic that "+id.String()+" may not publish to: "+pk.Connect.WillTopic))
	}
	conn.begin(h, cl, id, pk)
	// A client id belongs to the identity that uses it: nobody can take over, or keep away
	// from, the session of another by using its client id.
	cl.ID = conn.sessionID
	// mochi-mqtt is to forget a client with its connection.
	cl.Properties.Props.SessionExpiryInterval = 0
	cl.Properties.Props.SessionExpiryIntervalFlag = true
	cl.Properties.Will = mqtt.Will{}
	return nil
}

func (h *hook) identify(conn *clientConn, pk packets.Packet) (acl.Identity, error) {
	if pk.Connect.UsernameFlag {
		return h.auth.byPassword(string(pk.Connect.Username), pk.Connect.Password)
	}
	if cert := conn.peerCertificate(); cert != nil {
		return h.auth.byCertificate(cert)
	}
	return acl.Identity{}, errAnonymous
}

func (h *hook) refuse(cl *mqtt.Client, code packets.Code, why error) error {
	h.log.Warn("client refused", "clientID", cl.ID, "remote", cl.Net.Remote, "listener", cl.Net.Listener, "username", string(cl.Properties.Username), "reason", why)
	_ = h.server.SendConnack(cl, code, false, nil) // the client may be gone, which is as well
	return code
}

// OnConnectAuthenticate agrees: OnConnect has decided.
func (h *hook) OnConnectAuthenticate(*mqtt.Client, packets.Packet) bool { return true }

// OnSessionEstablish puts the client on its session, before the CONNACK that says whether
// there was one.
func (h *hook) OnSessionEstablish(cl *mqtt.Client, _ packets.Packet) {
	conn := cl.Net.Conn.(*clientConn)
	if former := h.enter(conn); former != nil {
		h.log.Info("client takes its session over from another connection", "session", conn.sessionID, "remote", cl.Net.Remote)
		former.hurry() // it may be dead with a full buffer
		_ = h.server.DisconnectClient(former.cl, packets.ErrSessionTakenOver)
		<-former.done
	}
	conn.sess, conn.present = h.router.Connect(conn.connect)
}

// enter makes conn the connection of its session and returns the one before, if there is one.
func (h *hook) enter(conn *clientConn) (former *clientConn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	former = h.conns[conn.sessionID]
	h.conns[conn.sessionID] = conn
	return former
}

// exit undoes enter, unless another connection has entered since.
func (h *hook) exit(conn *clientConn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conns[conn.sessionID] == conn {
		delete(h.conns, conn.sessionID)
	}
}

// OnSessionEstablished starts sending, after the CONNACK.
func (h *hook) OnSessionEstablished(cl *mqtt.Client, _ packets.Packet) {
	conn := cl.Net.Conn.(*clientConn)
	if conn.present {
		for _, sub := range conn.sess.Subscriptions() { // mochi-mqtt serves $SYS by them
			filter := packets.Subscription{Filter: sub.Filter, Qos: sub.QoS, Identifier: sub.ID}
			h.server.Topics.Subscribe(cl.ID, filter)
			cl.State.Subscriptions.Add(sub.Filter, filter)
		}
	}
	args := []any{"session", conn.sessionID, "remote", cl.Net.Remote, "listener", cl.Net.Listener, "sessionPresent", conn.present}
	if cert := conn.peerCertificate(); cert != nil {
		args = append(args, "certificateIssuer", cert.Issuer.CommonName, "certificateExpires", cert.NotAfter)
	}
	h.log.Info("client connected", args...)
	conn.startPump()
}

// OnACLCheck decides about subscriptions. About publishing OnPublish does, which can answer
// in order.
func (h *hook) OnACLCheck(cl *mqtt.Client, topic string, write bool) bool {
	if write {
		return true
	}
	conn := cl.Net.Conn.(*clientConn)
	if acl.Allow(conn.id, acl.Subscribe, topic) {
		return true
	}
	h.counters.denied(acl.Subscribe)
	h.log.Warn("subscription refused: not a topic of this client", "session", conn.sessionID, "filter", topic)
	return false
}

// OnPacketRead sees every packet first.
func (h *hook) OnPacketRead(cl *mqtt.Client, pk packets.Packet) (packets.Packet, error) {
	conn := cl.Net.Conn.(*clientConn)
	if conn.sess == nil {
		return pk, nil // CONNECT
	}
	switch pk.FixedHeader.Type {
	case packets.Puback:
		conn.sess.Ack(pk.PacketID, pk.ReasonCode)
	case packets.Disconnect:
		conn.leave = session.Disconnect{Normal: pk.ReasonCode != packets.CodeDisconnectWillMessage.Code}
		if pk.Properties.SessionExpiryIntervalFlag {
			return pk, h.changeExpiry(cl, conn, &pk)
		}
	case packets.Publish:
		if pk.FixedHeader.Qos > 1 {
			_ = h.server.DisconnectClient(cl, packets.ErrQosNotSupported)
			return pk, packets.ErrRejectPacket
		}
		if !mqtt.IsValidFilter(pk.TopicName, true) && pk.FixedHeader.Qos == 1 {
			// $SYS; mochi-mqtt would drop it without an answer.
			h.denyPublish(conn, pk)
		}
	}
	return pk, nil
}

// changeExpiry takes a new session expiry out of a DISCONNECT, since mochi-mqtt believes
// that it was 0.
func (h *hook) changeExpiry(cl *mqtt.Client, conn *clientConn, pk *packets.Packet) error {
	expiry := pk.Properties.SessionExpiryInterval
	if expiry > 0 && conn.connect.Expiry == 0 {
		conn.leave = session.Disconnect{}
		_ = h.server.DisconnectClient(cl, packets.ErrProtocolViolationZeroNonZeroExpiry)
		return packets.ErrRejectPacket
	}
	conn.leave.Expiry = &expiry
	pk.Properties.SessionExpiryInterval, pk.Properties.SessionExpiryIntervalFlag = 0, false
	return nil
}

// OnPacketEncode completes the CONNACK: mochi-mqtt does not know about the session, and does
// not announce its maximum packet size.
func (h *hook) OnPacketEncode(cl *mqtt.Client, pk packets.Packet) packets.Packet {
	if pk.FixedHeader.Type == packets.Publish {
		// mochi-mqtt strips user properties from messages to a client that wants no problem
		// information. MQTT does not mean those, and CloudEvents lives in them.
		pk.Mods.DisallowProblemInfo = false
	}
	if pk.FixedHeader.Type != packets.Connack {
		return pk
	}
	if conn := cl.Net.Conn.(*clientConn); conn.sess != nil {
		pk.SessionPresent = conn.present
	}
	pk.Properties.MaximumPacketSize = h.cfg.MaxPacketSize
	return pk
}

// OnPublish routes a message. It always returns ErrRejectPacket, which tells mochi-mqtt to
// do nothing more; the pump acknowledges.
func (h *hook) OnPublish(cl *mqtt.Client, pk packets.Packet) (packets.Packet, error) {
	conn := cl.Net.Conn.(*clientConn)
	if !acl.Allow(conn.id, acl.Publish, pk.TopicName) {
		h.denyPublish(conn, pk)
		return pk, packets.ErrRejectPacket
	}
	err := conn.sess.Publish(messageOf(pk, time.Now()), pk.PacketID)
	if errors.Is(err, session.ErrReceiveMaximum) {
		h.log.Warn("client disconnected: it sent more messages than the receive maximum allows before they were acknowledged", "session", conn.sessionID, "receiveMaximum", h.cfg.ReceiveMaximum)
		_ = h.server.DisconnectClient(cl, packets.ErrReceiveMaximum)
	}
	return pk, packets.ErrRejectPacket
}

func (h *hook) denyPublish(conn *clientConn, pk packets.Packet) {
	h.counters.denied(acl.Publish)
	h.log.Warn("message refused: not a topic of this client", "session", conn.sessionID, "topic", pk.TopicName, "qos", pk.FixedHeader.Qos)
	if pk.FixedHeader.Qos > 0 {
		conn.sess.Refuse(pk.PacketID, packets.ErrNotAuthorized.Code)
	}
}

// OnSubscribed adds the subscriptions that mochi-mqtt granted. The SUBACK is sent when it
// returns, which is when they are durable.
func (h *hook) OnSubscribed(cl *mqtt.Client, pk packets.Packet, codes []byte) {
	conn := cl.Net.Conn.(*clientConn)
	for i, f := range pk.Filters {
		if codes[i] >= packets.ErrUnspecifiedError.Code {
			continue
		}
		err := conn.sess.Subscribe(session.Subscription{
			Filter: f.Filter, QoS: min(f.Qos, 1), ID: f.Identifier,
			NoLocal: f.NoLocal, RetainAsPublished: f.RetainAsPublished, RetainHandling: f.RetainHandling,
		})
		if err != nil {
			h.log.Warn("subscription refused", "session", conn.sessionID, "filter", f.Filter, "reason", err)
			codes[i] = packets.ErrQuotaExceeded.Code
		}
	}
	select {
	case <-conn.sess.Durable():
	case <-h.stopping:
		cl.Stop(packets.ErrServerShuttingDown) // rather than promise what may not hold
	}
}

// OnUnsubscribed removes subscriptions. mochi-mqtt also calls it when a connection ends, to
// clean up after itself, which must not touch the session.
func (h *hook) OnUnsubscribed(cl *mqtt.Client, pk packets.Packet) {
	if cl.Closed() {
		return
	}
	conn := cl.Net.Conn.(*clientConn)
	for _, f := range pk.Filters {
		conn.sess.Unsubscribe(f.Filter)
	}
}

// goodbye tells every client that the broker shuts down, and ends its connection.
func (h *hook) goodbye() {
	for _, conn := range h.connections() {
		_ = h.server.DisconnectClient(conn.cl, packets.ErrServerShuttingDown)
	}
}

func (h *hook) connections() []*clientConn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.conns))
}
