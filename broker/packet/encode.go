package packet

import (
	"encoding/binary"

	"github.com/workwire/workwire/broker/session"
)

// Connack is a CONNACK packet.
type Connack struct {
	SessionPresent bool
	Code           byte

	Reason    string // "": none
	Reference string // another server; "": none

	// What follows is sent with Success only.
	AssignedClientID  string // "": the client named itself
	SessionExpiry     *uint32
	ReceiveMaximum    uint16
	MaximumPacketSize uint32
}

// AppendConnack appends a CONNACK to buf. It announces that the broker has QoS 1 as its maximum, no
// retained messages, no topic aliases and no subscription identifiers.
func AppendConnack(buf []byte, c Connack) []byte {
	var props []byte
	if c.Code == Success {
		props = appendUint16(append(props, propReceiveMaximum), c.ReceiveMaximum)
		props = append(props, propMaximumQoS, 1, propRetainAvailable, 0, propTopicAliasMaximum, 0, 0, propSubIDsAvailable, 0)
		props = binary.BigEndian.AppendUint32(append(props, propMaximumPacketSize), c.MaximumPacketSize)
		if c.SessionExpiry != nil {
			props = binary.BigEndian.AppendUint32(append(props, propSessionExpiry), *c.SessionExpiry)
		}
		if c.AssignedClientID != "" {
			props = appendText(append(props, propAssignedClientID), c.AssignedClientID)
		}
	}
	props = appendReasonAndReference(props, c.Reason, c.Reference)
	present := byte(0)
	if c.SessionPresent {
		present = 1
	}
	buf = appendHeader(buf, byte(TypeConnack)<<4, 2+varintSize(len(props))+len(props))
	buf = append(buf, present, c.Code)
	return append(appendVarint(buf, len(props)), props...)
}

// RefuseOldVersion is the CONNACK of MQTT 3.1.1 for a client of MQTT 3: unacceptable protocol
// version.
var RefuseOldVersion = []byte{byte(TypeConnack) << 4, 2, 0, 1}

// AppendPublish appends the PUBLISH of p, whose Message must not be nil, to buf. now is the Unix
// time in seconds, from which the rest of the message expiry interval results.
func AppendPublish(buf []byte, p session.Packet, now int64) []byte {
	m := p.Message
	first := byte(TypePublish)<<4 | p.QoS<<1
	if p.Dup {
		first |= 8
	}
	props := publishPropertiesSize(m)
	size := 2 + len(m.Topic) + varintSize(props) + props + len(m.Payload)
	if p.QoS > 0 {
		size += 2
	}
	buf = appendText(appendHeader(buf, first, size), m.Topic)
	if p.QoS > 0 {
		buf = appendUint16(buf, p.PacketID)
	}
	buf = appendVarint(buf, props)
	if m.UTF8 {
		buf = append(buf, propPayloadFormat, 1)
	}
	if m.Expires > 0 {
		rest := min(max(m.Expires-now, 0), 1<<32-1)
		buf = binary.BigEndian.AppendUint32(append(buf, propMessageExpiry), uint32(rest))
	}
	if m.ContentType != "" {
		buf = appendText(append(buf, propContentType), m.ContentType)
	}
	if m.ResponseTopic != "" {
		buf = appendText(append(buf, propResponseTopic), m.ResponseTopic)
	}
	if len(m.CorrelationData) > 0 {
		buf = appendText(append(buf, propCorrelationData), m.CorrelationData)
	}
	for _, u := range m.User {
		buf = appendText(appendText(append(buf, propUser), u.Key), u.Value)
	}
	return append(buf, m.Payload...)
}

// publishPropertiesSize returns the number of bytes of the properties of a PUBLISH.
func publishPropertiesSize(m *session.Message) int {
	n := 0
	if m.UTF8 {
		n += 2
	}
	if m.Expires > 0 {
		n += 5
	}
	for _, size := range []int{len(m.ContentType), len(m.ResponseTopic), len(m.CorrelationData)} {
		if size > 0 {
			n += 3 + size
		}
	}
	for _, u := range m.User {
		n += 5 + len(u.Key) + len(u.Value)
	}
	return n
}

// AppendPuback appends a PUBACK to buf. text is the reason string, "" for none.
func AppendPuback(buf []byte, id uint16, code byte, text string) []byte {
	if code == Success {
		return appendUint16(append(buf, byte(TypePuback)<<4, 2), id)
	}
	if text == "" {
		return append(appendUint16(append(buf, byte(TypePuback)<<4, 3), id), code)
	}
	props := appendReasonAndReference(nil, text, "")
	buf = appendHeader(buf, byte(TypePuback)<<4, 3+varintSize(len(props))+len(props))
	return append(appendVarint(append(appendUint16(buf, id), code), len(props)), props...)
}

// AppendSubscribeAck appends a SUBACK or an UNSUBACK to buf.
func AppendSubscribeAck(buf []byte, t Type, id uint16, codes []byte) []byte {
	buf = appendUint16(appendHeader(buf, byte(t)<<4, 3+len(codes)), id)
	return append(append(buf, 0), codes...)
}

// Pingresp is a PINGRESP.
var Pingresp = []byte{byte(TypePingresp) << 4, 0}

// AppendDisconnect appends a DISCONNECT to buf. text is the reason string, reference another server;
// both may be "".
func AppendDisconnect(buf []byte, code byte, text, reference string) []byte {
	props := appendReasonAndReference(nil, text, reference)
	if len(props) == 0 {
		return append(buf, byte(TypeDisconnect)<<4, 1, code)
	}
	buf = appendHeader(buf, byte(TypeDisconnect)<<4, 1+varintSize(len(props))+len(props))
	return append(appendVarint(append(buf, code), len(props)), props...)
}

// appendReasonAndReference appends a reason string and a server reference, each unless it is empty.
func appendReasonAndReference(props []byte, text, reference string) []byte {
	if text != "" {
		props = appendText(append(props, propReasonString), text)
	}
	if reference != "" {
		props = appendText(append(props, propServerReference), reference)
	}
	return props
}

func appendHeader(buf []byte, first byte, length int) []byte {
	return appendVarint(append(buf, first), length)
}

func appendVarint(buf []byte, n int) []byte {
	for ; n > 0x7F; n >>= 7 {
		buf = append(buf, byte(n)|0x80)
	}
	return append(buf, byte(n))
}

func varintSize(n int) int {
	size := 1
	for ; n > 0x7F; n >>= 7 {
		size++
	}
	return size
}

func appendUint16(buf []byte, n uint16) []byte { return binary.BigEndian.AppendUint16(buf, n) }

func appendText[T string | []byte](buf []byte, s T) []byte {
	return append(appendUint16(buf, uint16(len(s))), s...)
}
