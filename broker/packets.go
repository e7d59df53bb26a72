package broker

import (
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/workwire/workwire/broker/session"
)

// messageOf returns the message of a PUBLISH that arrived at the time now.
func messageOf(pk packets.Packet, now time.Time) *session.Message {
	m := &session.Message{
		Topic:           pk.TopicName,
		Payload:         pk.Payload,
		QoS:             pk.FixedHeader.Qos,
		ContentType:     pk.Properties.ContentType,
		ResponseTopic:   pk.Properties.ResponseTopic,
		CorrelationData: pk.Properties.CorrelationData,
		UTF8:            pk.Properties.PayloadFormat == 1,
		User:            propertiesOf(pk.Properties.User),
	}
	if interval := pk.Properties.MessageExpiryInterval; interval > 0 {
		m.Expires = now.Unix() + int64(interval)
	}
	return m
}

// willOf returns the will of a CONNECT, or nil.
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
			ContentType:     props.ContentType,
			ResponseTopic:   props.ResponseTopic,
			CorrelationData: props.CorrelationData,
			UTF8:            props.PayloadFormat == 1,
			User:            propertiesOf(props.User),
		},
	}
}

// packetOf returns the MQTT packet for out.
func packetOf(out session.Packet) packets.Packet {
	m := out.Message
	if m == nil {
		ack := packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Puback}, PacketID: out.PacketID, ReasonCode: out.Code}
		switch out.Code {
		case packets.ErrNotAuthorized.Code:
			ack.Properties.ReasonString = "this client may not publish to this topic"
		case packets.ErrQuotaExceeded.Code:
			ack.Properties.ReasonString = "this client has more than its share of a queue"
		}
		return ack
	}
	pk := packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: out.QoS, Dup: out.Dup},
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
