package broker

import (
	"errors"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/session"
)

// clientSession connects a client to its session. The goroutine of the connection owns it; the
// sender goroutine only closes senderDone.
type clientSession struct {
	hook       *hook
	cl         *mqtt.Client
	id         acl.Identity
	sessionID  string
	connect    session.Connect
	disconnect session.Disconnect // from the client's DISCONNECT

	sess       *session.Conn // nil until the session is established
	present    bool          // the session existed before
	senderDone chan struct{} // nil until the sender runs
	done       chan struct{} // closed when everything has ended; nil before init
}

// init sets the fields that are known from the CONNECT.
func (c *clientSession) init(h *hook, cl *mqtt.Client, id acl.Identity, pk packets.Packet) {
	c.hook, c.cl, c.id, c.done = h, cl, id, make(chan struct{})
	c.sessionID = id.String() + "/" + cl.ID // an identity contains no slash
	c.connect = session.Connect{
		ID:             c.sessionID,
		Owner:          id.String(),
		CleanStart:     pk.Connect.Clean,
		Expiry:         pk.Properties.SessionExpiryInterval,
		ReceiveMaximum: pk.Properties.ReceiveMaximum,
		Will:           willOf(pk),
	}
}

// send writes the packets of the session. It runs in a goroutine of its own.
func (c *clientSession) send() {
	defer close(c.senderDone)
	for {
		packet, ok, err := c.sess.Next()
		if err != nil {
			c.hook.logger.Error("client disconnected, reading its messages failed", "session", c.sessionID, "error", err)
			_ = c.hook.server.DisconnectClient(c.cl, packets.ErrUnspecifiedError)
			return
		}
		if ok {
			if !c.write(packet) {
				return
			}
			continue
		}
		select {
		case <-c.sess.Wake():
		case <-c.sess.Done():
			if c.sess.EndReason() != session.Disconnected { // the router has ended the session
				_ = c.hook.server.DisconnectClient(c.cl, packets.ErrQuotaExceeded)
			}
			return
		}
	}
}

// write writes one packet and reports whether the connection can still be used.
func (c *clientSession) write(packet session.Packet) bool {
	switch err := c.cl.WritePacket(packetOf(packet)); {
	case err == nil:
	case errors.Is(err, packets.ErrPacketTooLarge) && packet.Message != nil:
		c.hook.logger.Warn("message dropped, client's maximum packet size exceeded", "session", c.sessionID, "topic", packet.Message.Topic, "maximumPacketSize", c.cl.Properties.Props.MaximumPacketSize)
		c.sess.Drop(packet.PacketID)
	default:
		c.cl.Stop(err)
		return false
	}
	return true
}

// finish disconnects the client from its session after the connection is closed, and waits for the
// sender.
func (c *clientConn) finish() {
	if c.done == nil {
		return // no CONNECT was accepted
	}
	defer close(c.done)
	defer c.hook.conns.CompareAndDelete(c.sessionID, c)
	if c.sess == nil {
		return
	}
	c.sess.Disconnect(c.disconnect)
	if c.senderDone != nil {
		<-c.senderDone
	}
	reason := "connection closed"
	if cause := c.cl.StopCause(); cause != nil {
		reason = cause.Error()
	}
	c.hook.logger.Info("client disconnected", "session", c.sessionID, "remote", c.cl.Net.Remote, "normal", c.disconnect.Normal, "reason", reason)
}
