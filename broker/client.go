package broker

import (
	"errors"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/session"
)

// attachment is the broker's side of one client's connection. All of it belongs to the
// connection's goroutine; pumped is closed by the pump.
type attachment struct {
	hook      *hook
	cl        *mqtt.Client
	id        acl.Identity
	sessionID string
	connect   session.Connect
	leave     session.Disconnect // how the client said it leaves

	sess    *session.Conn // nil until the session is established
	present bool          // there was a session
	pumped  chan struct{} // nil until the pump runs
	done    chan struct{} // closed when all is over; nil before begin
}

// begin records who has connected.
func (a *attachment) begin(h *hook, cl *mqtt.Client, id acl.Identity, pk packets.Packet) {
	a.hook, a.cl, a.id, a.done = h, cl, id, make(chan struct{})
	a.sessionID = id.String() + "/" + cl.ID // an identity contains no slash
	a.connect = session.Connect{
		ID:             a.sessionID,
		Owner:          id.String(),
		CleanStart:     pk.Connect.Clean,
		Expiry:         pk.Properties.SessionExpiryInterval,
		ReceiveMaximum: pk.Properties.ReceiveMaximum,
		Will:           willOf(pk),
	}
}

// startPump begins to write what the session has for the client.
func (a *attachment) startPump() {
	a.pumped = make(chan struct{})
	go func() {
		defer close(a.pumped)
		a.pump()
	}()
}

func (a *attachment) pump() {
	for {
		out, ok, err := a.sess.Next()
		if err != nil {
			a.hook.log.Error("client disconnected: its messages cannot be read", "session", a.sessionID, "error", err)
			_ = a.hook.server.DisconnectClient(a.cl, packets.ErrUnspecifiedError)
			return
		}
		if ok {
			if !a.write(out) {
				return
			}
			continue
		}
		select {
		case <-a.sess.Wake():
		case <-a.sess.Done():
			a.farewell()
			return
		}
	}
}

// write sends one packet. false means that the connection is of no more use.
func (a *attachment) write(out session.Packet) bool {
	err := a.cl.WritePacket(packetOf(out))
	if errors.Is(err, packets.ErrPacketTooLarge) && out.Message != nil {
		a.hook.log.Warn("message dropped: larger than the client's maximum packet size", "session", a.sessionID, "topic", out.Message.Topic, "maximumPacketSize", a.cl.Properties.Props.MaximumPacketSize)
		a.sess.Drop(out.PacketID)
		return true
	}
	if err != nil {
		a.cl.Stop(err)
		return false
	}
	return true
}

// farewell disconnects a client whose session the router has ended.
func (a *attachment) farewell() {
	if a.sess.EndReason() != session.Disconnected {
		_ = a.hook.server.DisconnectClient(a.cl, packets.ErrQuotaExceeded)
	}
}

// finish takes the client off its session when the connection is closed, and waits for
// the pump.
func (c *clientConn) finish() {
	if c.done == nil {
		return // it never got as far as a CONNECT
	}
	defer close(c.done)
	defer c.hook.exit(c)
	if c.sess == nil {
		return
	}
	c.sess.Disconnect(c.leave)
	if c.pumped != nil {
		<-c.pumped
	}
	c.hook.log.Info("client disconnected", "session", c.sessionID, "remote", c.cl.Net.Remote, "inGoodOrder", c.leave.Normal, "reason", reasonOf(c.cl.StopCause()))
}

func reasonOf(cause error) string {
	if cause == nil {
		return "connection closed"
	}
	return cause.Error()
}

// messageOf converts a PUBLISH that arrived now.
func messageOf(pk packets.Packet, now time.Time) *session.Message {
	return &session.Message{
		Topic:           pk.TopicName,
		Payload:         pk.Payload,
		QoS:             pk.FixedHeader.Qos,
		Retain:          pk.FixedHeader.Retain,
		ContentType:     pk.Properties.ContentType,
		ResponseTopic:   pk.Properties.ResponseTopic,
		CorrelationData: pk.Properties.CorrelationData,
		UTF8:            pk.Properties.PayloadFormat == 1,
		User:            propertiesOf(pk.Properties.User),
		Expires:         expiresAt(pk.Properties.MessageExpiryInterval, now),
	}
}

// willOf returns the will in a CONNECT, or nil.
func willOf(pk packets.Packet) *session.Will {
	if !pk.Connect.WillFlag {
		return nil
	}
	props := pk.Connect.WillProperties
	return &session.Will{
		Delay: props.WillDelayInterval,
		Message: session.Message{
			Topic:           pk.Connect.WillTopic,
			Payload:         pk.Connect.WillPayload,
			QoS:             pk.Connect.WillQos,
			Retain:          pk.Connect.WillRetain,
			ContentType:     props.ContentType,
			ResponseTopic:   props.ResponseTopic,
			CorrelationData: props.CorrelationData,
			UTF8:            props.PayloadFormat == 1,
			User:            propertiesOf(props.User),
		},
	}
}

// packetOf converts what is to be sent into a packet.
func packetOf(out session.Packet) packets.Packet {
	m := out.Message
	if m == nil {
		ack := packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Puback}, PacketID: out.PacketID, ReasonCode: out.Code}
		switch out.Code {
		case packets.ErrNotAuthorized.Code:
			ack.Properties.ReasonString = "this client may not publish to this topic"
		case packets.ErrQuotaExceeded.Code:
			ack.Properties.ReasonString = "the broker retains no more messages"
		}
		return ack
	}
	pk := packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: out.QoS, Retain: out.Retain, Dup: out.Dup},
		PacketID:    out.PacketID,
		TopicName:   m.Topic,
		Payload:     m.Payload,
		Expiry:      m.Expires,
		Properties: packets.Properties{
			ContentType:            m.ContentType,
			ResponseTopic:          m.ResponseTopic,
			CorrelationData:        m.CorrelationData,
			SubscriptionIdentifier: out.SubIDs,
		},
	}
	if m.UTF8 {
		pk.Properties.PayloadFormat, pk.Properties.PayloadFormatFlag = 1, true
	}
	for _, p := range m.User {
		pk.Properties.User = append(pk.Properties.User, packets.UserProperty{Key: p.Key, Val: p.Value})
	}
	return pk
}

func propertiesOf(user []packets.UserProperty) []session.Property {
	var out []session.Property
	for _, p := range user {
		out = append(out, session.Property{Key: p.Key, Value: p.Val})
	}
	return out
}

// expiresAt returns the Unix time at which a message expires; an interval of 0 is never.
func expiresAt(interval uint32, now time.Time) int64 {
	if interval == 0 {
		return 0
	}
	return now.Unix() + int64(interval)
}
