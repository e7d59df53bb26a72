package broker

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/session"
)

// hook connects mochi-mqtt to this broker. mochi-mqtt exchanges packets with the clients; the hook
// authenticates and authorizes them, and routes their messages. mochi-mqtt's own sessions and
// queues stay empty, because mochi-mqtt acknowledges messages before it stores them, reorders them
// when a client reconnects, and silently drops them above a limit.
//
// mochi-mqtt calls its methods from the goroutine of the client that they concern.
type hook struct {
	mqtt.HookBase
	cfg      Config
	auth     *authenticator
	router   *session.Router
	server   *mqtt.Server
	counters *counters
	logger   *slog.Logger
	stopping chan struct{} // closed when the broker begins to stop

	conns sync.Map // of *clientConn, by session id; a connection waits for the end of the previous one
}

// ID returns the name of the hook in mochi-mqtt's log.
func (h *hook) ID() string { return "workwire" }

// Provides reports whether mochi-mqtt calls a method.
func (h *hook) Provides(b byte) bool {
	switch b {
	case mqtt.OnConnect, mqtt.OnConnectAuthenticate, mqtt.OnSessionEstablish, mqtt.OnSessionEstablished,
		mqtt.OnACLCheck, mqtt.OnPacketRead, mqtt.OnPacketEncode,
		mqtt.OnPublish, mqtt.OnSubscribed, mqtt.OnUnsubscribed:
		return true
	}
	return false
}

// OnConnect authenticates a client, and sends it the reason if it refuses it.
func (h *hook) OnConnect(cl *mqtt.Client, pk packets.Packet) error {
	conn := cl.Net.Conn.(*clientConn)
	id, err := h.identify(conn, pk)
	if err != nil {
		h.counters.authFailed(err)
		return h.refuse(cl, packets.ErrBadUsernameOrPassword, err)
	}
	if pk.Connect.WillFlag && pk.Connect.WillRetain {
		return h.refuse(cl, packets.ErrRetainNotSupported, errors.New("the broker retains no messages, and the will asks for it"))
	}
	if pk.Connect.WillFlag && !acl.Allow(id, acl.Publish, pk.Connect.WillTopic) {
		h.counters.denied(acl.Publish)
		return h.refuse(cl, packets.ErrNotAuthorized, errors.New(id.String()+" may not publish to the topic of its will: "+pk.Connect.WillTopic))
	}
	conn.init(h, cl, id, pk)
	// Client ids of different identities are different sessions, so that no client can take over
	// the session of another identity or disturb it.
	cl.ID = conn.sessionID
	// mochi-mqtt removes the client with its connection.
	cl.Properties.Props.SessionExpiryInterval = 0
	cl.Properties.Props.SessionExpiryIntervalFlag = true
	cl.Properties.Will = mqtt.Will{}
	return nil
}

func (h *hook) identify(conn *clientConn, pk packets.Packet) (acl.Identity, error) {
	if pk.Connect.UsernameFlag {
		return h.auth.byPassword(string(pk.Connect.Username), pk.Connect.Password)
	}
	if certs := conn.peerCertificates(); len(certs) > 0 {
		return h.auth.byCertificate(certs[0])
	}
	return acl.Identity{}, errAnonymous
}

func (h *hook) refuse(cl *mqtt.Client, code packets.Code, reason error) error {
	h.logger.Warn("client refused", "clientId", cl.ID, "remote", cl.Net.Remote, "listener", cl.Net.Listener, "username", string(cl.Properties.Username), "reason", reason)
	_ = h.server.SendConnack(cl, code, false, nil) // fails if the client has gone
	return code
}

// OnConnectAuthenticate returns true: OnConnect has authenticated the client.
func (h *hook) OnConnectAuthenticate(*mqtt.Client, packets.Packet) bool { return true }

// OnSessionEstablish connects the client to its session. The CONNACK that follows reports whether
// the session existed.
func (h *hook) OnSessionEstablish(cl *mqtt.Client, _ packets.Packet) {
	conn := cl.Net.Conn.(*clientConn)
	if last, exists := h.conns.Swap(conn.sessionID, conn); exists {
		previous := last.(*clientConn)
		h.logger.Info("session taken over, disconnecting its previous client", "session", conn.sessionID, "remote", cl.Net.Remote)
		previous.shortenWrites() // the client may be dead with a full buffer
		_ = h.server.DisconnectClient(previous.cl, packets.ErrSessionTakenOver)
		<-previous.done
	}
	conn.sess, conn.present = h.router.Connect(conn.connect)
}

// OnSessionEstablished starts the sender after the CONNACK.
func (h *hook) OnSessionEstablished(cl *mqtt.Client, _ packets.Packet) {
	conn := cl.Net.Conn.(*clientConn)
	if conn.present {
		for _, sub := range conn.sess.Subscriptions() { // mochi-mqtt publishes $SYS by them
			filter := packets.Subscription{Filter: sub.Filter, Qos: sub.QoS, Identifier: sub.ID}
			h.server.Topics.Subscribe(cl.ID, filter)
			cl.State.Subscriptions.Add(sub.Filter, filter)
		}
	}
	args := []any{"session", conn.sessionID, "remote", cl.Net.Remote, "listener", cl.Net.Listener, "sessionPresent", conn.present}
	if certs := conn.peerCertificates(); len(certs) > 0 {
		args = append(args, "certificateIssuer", certs[0].Issuer.CommonName, "certificateExpires", certs[0].NotAfter)
	}
	h.logger.Info("client connected", args...)
	conn.senderDone = make(chan struct{})
	go conn.send()
}

// OnACLCheck authorizes subscriptions. OnPublish authorizes messages, because it can acknowledge
// them in order.
func (h *hook) OnACLCheck(cl *mqtt.Client, topic string, write bool) bool {
	if write {
		return true
	}
	conn := cl.Net.Conn.(*clientConn)
	if acl.Allow(conn.id, acl.Subscribe, topic) {
		return true
	}
	h.counters.denied(acl.Subscribe)
	h.logger.Warn("subscription refused, not authorized", "session", conn.sessionID, "filter", topic)
	return false
}

// OnPacketRead handles the packets that mochi-mqtt must not handle alone.
func (h *hook) OnPacketRead(cl *mqtt.Client, pk packets.Packet) (packets.Packet, error) {
	conn := cl.Net.Conn.(*clientConn)
	if conn.sess == nil {
		return pk, nil // CONNECT
	}
	switch pk.FixedHeader.Type {
	case packets.Puback:
		conn.sess.Ack(pk.PacketID, pk.ReasonCode)
	case packets.Disconnect:
		conn.disconnect = session.Disconnect{Normal: pk.ReasonCode != packets.CodeDisconnectWillMessage.Code}
		if pk.Properties.SessionExpiryIntervalFlag {
			return pk, h.changeExpiry(cl, conn, &pk)
		}
	case packets.Publish:
		if pk.FixedHeader.Qos > 1 {
			_ = h.server.DisconnectClient(cl, packets.ErrQosNotSupported)
			return pk, packets.ErrRejectPacket
		}
		if pk.FixedHeader.Retain {
			_ = h.server.DisconnectClient(cl, packets.ErrRetainNotSupported)
			return pk, packets.ErrRejectPacket
		}
		if !mqtt.IsValidFilter(pk.TopicName, true) && pk.FixedHeader.Qos == 1 {
			// $SYS: mochi-mqtt would drop it without an acknowledgement.
			h.denyPublish(conn, pk)
		}
	}
	return pk, nil
}

// changeExpiry handles a session expiry in a DISCONNECT and removes it from the packet, because
// mochi-mqtt rejects it: for mochi-mqtt the expiry is 0.
func (h *hook) changeExpiry(cl *mqtt.Client, conn *clientConn, pk *packets.Packet) error {
	expiry := pk.Properties.SessionExpiryInterval
	if expiry > 0 && conn.connect.Expiry == 0 {
		conn.disconnect = session.Disconnect{}
		_ = h.server.DisconnectClient(cl, packets.ErrProtocolViolationZeroNonZeroExpiry)
		return packets.ErrRejectPacket
	}
	conn.disconnect.Expiry = &expiry
	pk.Properties.SessionExpiryInterval, pk.Properties.SessionExpiryIntervalFlag = 0, false
	return nil
}

// OnPacketEncode completes the CONNACK: mochi-mqtt does not know the session and does not announce
// the maximum packet size.
func (h *hook) OnPacketEncode(cl *mqtt.Client, pk packets.Packet) packets.Packet {
	if pk.FixedHeader.Type == packets.Publish {
		// mochi-mqtt removes user properties from messages to a client that requests no problem
		// information. MQTT requires that for other packets only, and CloudEvents attributes are
		// user properties.
		pk.Mods.DisallowProblemInfo = false
	}
	if pk.FixedHeader.Type != packets.Connack {
		return pk
	}
	if conn := cl.Net.Conn.(*clientConn); conn.sess != nil {
		pk.SessionPresent = conn.present
	}
	pk.Properties.MaximumPacketSize = h.cfg.MaxPacketSize
	pk.Properties.RetainAvailable, pk.Properties.RetainAvailableFlag = 0, true
	return pk
}

// OnPublish authorizes and routes a message. It always returns ErrRejectPacket, so that mochi-mqtt
// does nothing more; the sender acknowledges the message.
func (h *hook) OnPublish(cl *mqtt.Client, pk packets.Packet) (packets.Packet, error) {
	conn := cl.Net.Conn.(*clientConn)
	if !acl.Allow(conn.id, acl.Publish, pk.TopicName) {
		h.denyPublish(conn, pk)
		return pk, packets.ErrRejectPacket
	}
	err := conn.sess.Publish(messageOf(pk, time.Now()), pk.PacketID)
	if errors.Is(err, session.ErrReceiveMaximum) {
		h.logger.Warn("client disconnected, receive maximum exceeded", "session", conn.sessionID, "receiveMaximum", h.cfg.ReceiveMaximum)
		_ = h.server.DisconnectClient(cl, packets.ErrReceiveMaximum)
	}
	return pk, packets.ErrRejectPacket
}

func (h *hook) denyPublish(conn *clientConn, pk packets.Packet) {
	h.counters.denied(acl.Publish)
	h.logger.Warn("message refused, not authorized", "session", conn.sessionID, "topic", pk.TopicName, "qos", pk.FixedHeader.Qos)
	if pk.FixedHeader.Qos > 0 {
		conn.sess.Refuse(pk.PacketID, packets.ErrNotAuthorized.Code)
	}
}

// OnSubscribed adds the subscriptions that mochi-mqtt granted. It returns when they are durable;
// mochi-mqtt sends the SUBACK after that.
func (h *hook) OnSubscribed(cl *mqtt.Client, pk packets.Packet, codes []byte) {
	conn := cl.Net.Conn.(*clientConn)
	for i, f := range pk.Filters {
		if codes[i] >= packets.ErrUnspecifiedError.Code {
			continue
		}
		err := conn.sess.Subscribe(session.Subscription{
			Filter: f.Filter, QoS: min(f.Qos, 1), ID: f.Identifier, NoLocal: f.NoLocal,
		})
		if err != nil {
			h.logger.Warn("subscription refused", "session", conn.sessionID, "filter", f.Filter, "reason", err)
			codes[i] = packets.ErrQuotaExceeded.Code
		}
	}
	select {
	case <-conn.sess.Durable():
	case <-conn.closed: // a disk that is full must not delay the end of the connection
	case <-h.stopping:
		cl.Stop(packets.ErrServerShuttingDown) // the subscriptions may not become durable
	}
}

// OnUnsubscribed removes subscriptions. mochi-mqtt calls it at the end of a connection too; then
// the session must keep its subscriptions.
func (h *hook) OnUnsubscribed(cl *mqtt.Client, pk packets.Packet) {
	if cl.Closed() {
		return
	}
	conn := cl.Net.Conn.(*clientConn)
	for _, f := range pk.Filters {
		conn.sess.Unsubscribe(f.Filter)
	}
}

// disconnectAll disconnects every client with the reason that the broker shuts down.
func (h *hook) disconnectAll() {
	for _, conn := range h.conns.Range {
		_ = h.server.DisconnectClient(conn.(*clientConn).cl, packets.ErrServerShuttingDown)
	}
}
