package packet

import (
	"slices"

	"github.com/workwire/workwire/broker/session"
)

// Connect is a CONNECT packet.
type Connect struct {
	// Version is the protocol version. If it is not 5, all other fields are zero.
	Version byte

	ClientID    string
	CleanStart  bool
	KeepAlive   uint16 // seconds; 0: none
	HasUsername bool
	Username    string
	Password    []byte
	Will        *session.Will
	HasAuth     bool // it wants to authenticate by a method

	SessionExpiry     uint32
	ReceiveMaximum    uint16 // 0: not set
	MaximumPacketSize uint32 // 0: no limit
	NoProblemInfo     bool   // the client wants no reason strings
}

// DecodeConnect decodes a CONNECT without its fixed header. The error is of type [*Error].
func DecodeConnect(body []byte) (*Connect, error) {
	c := &cursor{s: string(body)}
	name := c.text()
	out := &Connect{Version: c.byte()}
	switch {
	case c.err != nil:
		return nil, c.err
	case name == "MQIsdp" && out.Version == 3:
		return out, nil
	case name != "MQTT":
		return nil, &Error{Code: UnsupportedVersion, Text: "the protocol is not MQTT"}
	case out.Version != 5:
		return out, nil
	}
	flags := c.byte()
	if flags&1 != 0 {
		c.fail(malformed("the reserved flag of a CONNECT is set"))
	}
	out.CleanStart, out.KeepAlive = flags&2 != 0, c.uint16()
	p := c.properties(connectProperties)
	out.SessionExpiry = p.number[propSessionExpiry]
	out.ReceiveMaximum = uint16(p.number[propReceiveMaximum])
	out.MaximumPacketSize = p.number[propMaximumPacketSize]
	out.NoProblemInfo = p.set.has(propRequestProblemInfo) && p.number[propRequestProblemInfo] == 0
	out.HasAuth = p.set.has(propAuthMethod)
	if p.set.has(propAuthData) && !out.HasAuth {
		c.fail(violation("authentication data without a method"))
	}
	out.ClientID = c.text()
	out.Will = c.will(flags)
	if out.HasUsername = flags&0x80 != 0; out.HasUsername {
		out.Username = c.text()
	}
	if flags&0x40 != 0 {
		out.Password = []byte(c.binary())
	}
	return out, c.end()
}

// will reads the will of a CONNECT, if flags say that there is one.
func (c *cursor) will(flags byte) *session.Will {
	qos, retain := flags>>3&3, flags&0x20 != 0
	if flags&4 == 0 {
		if qos != 0 || retain {
			c.fail(malformed("flags of a will without a will"))
		}
		return nil
	}
	p := c.properties(willProperties)
	topic := c.text()
	payload := []byte(c.binary())
	switch {
	case qos == 3:
		c.fail(malformed("a will with QoS 3"))
	case c.err == nil && !validName(topic):
		c.fail(&Error{Code: BadTopicName, Text: "the topic of the will is empty or has a wildcard"})
	case qos == 2:
		c.fail(&Error{Code: QoSUnsupported, Text: "a will with QoS 2"})
	case retain:
		c.fail(&Error{Code: RetainUnsupported, Text: "a retained will"})
	}
	w := &session.Will{Delay: p.number[propWillDelay], Expiry: p.messageExpiry(), Message: p.message}
	w.Message.Topic, w.Message.Payload, w.Message.QoS = topic, payload, qos
	w.Message.UTF8 = p.number[propPayloadFormat] == 1
	return w
}

// DecodePublish decodes a PUBLISH without its fixed header, and returns the message, the packet
// identifier (0 with QoS 0) and the message expiry interval in seconds (nil: none). flags are those
// of a header that [ParseHeader] accepts. The payload refers to body. The error is of type
// [*Error].
func DecodePublish(flags byte, body []byte) (m *session.Message, id uint16, expiry *uint32, err error) {
	head := publishHead(flags, body)
	c := &cursor{s: string(body[:head])}
	topic := c.text()
	if flags&6 != 0 {
		id = c.id()
	}
	p := c.properties(publishProperties)
	switch {
	case c.err != nil:
	case p.set.has(propTopicAlias):
		c.fail(&Error{Code: BadTopicAlias, Text: "a topic alias, although the maximum is 0"})
	case p.set.has(propSubscriptionID):
		c.fail(violation("a client's PUBLISH with a subscription identifier"))
	case topic == "":
		c.fail(violation("PUBLISH without a topic"))
	case !validName(topic):
		c.fail(&Error{Code: BadTopicName, Text: "the topic of a PUBLISH has a wildcard"})
	}
	if err := c.end(); err != nil {
		return nil, 0, nil, err
	}
	message := p.message
	m = &message
	m.Topic, m.Payload, m.QoS = topic, body[head:], flags>>1&3
	m.UTF8 = p.number[propPayloadFormat] == 1
	return m, id, p.messageExpiry(), nil
}

// publishHead returns the size of the part of body before the payload. It is len(body) if body is
// malformed.
func publishHead(flags byte, body []byte) int {
	if len(body) < 2 {
		return len(body)
	}
	head := 2 + int(body[0])<<8 + int(body[1])
	if flags&6 != 0 {
		head += 2
	}
	for i := 0; i < 4 && head+i < len(body); i++ {
		if body[head+i]&0x80 != 0 {
			continue
		}
		c := cursor{s: string(body[head : head+i+1])}
		return min(head+i+1+c.varint(), len(body))
	}
	return len(body)
}

// DecodePuback decodes a PUBACK without its fixed header, and returns the packet identifier and the reason code. The error
// is of type [*Error].
func DecodePuback(body []byte) (id uint16, code byte, err error) {
	c := &cursor{s: string(body)}
	id = c.id()
	if c.s != "" {
		code = c.byte()
		if c.err == nil && !slices.Contains(pubackCodes, code) {
			c.fail(violation("a reason code that a PUBACK cannot have"))
		}
	}
	if c.s != "" {
		c.properties(pubackProperties)
	}
	return id, code, c.end()
}

var pubackCodes = []byte{Success, NoMatchingSubs, Unspecified, ImplementationError, NotAuthorized, BadTopicName, PacketIDInUse, QuotaExceeded, BadPayloadFormat}

// MaxFilters limits the filters of a SUBSCRIBE or UNSUBSCRIBE.
const MaxFilters = 1000

// Subscribe is a SUBSCRIBE or UNSUBSCRIBE packet. An UNSUBSCRIBE has filters only.
type Subscribe struct {
	ID            uint16
	Subscriptions []session.Subscription // with a QoS of at most 1; filters may be invalid
}

// DecodeSubscribe decodes a SUBSCRIBE without its fixed header. The error is of type [*Error].
func DecodeSubscribe(body []byte) (Subscribe, error) {
	c := &cursor{s: string(body)}
	out := Subscribe{ID: c.id()}
	if c.properties(subscribeProperties).set.has(propSubscriptionID) {
		c.fail(&Error{Code: SubIDsUnsupported, Text: "a subscription identifier, although the broker has none"})
	}
	for first := true; first || c.s != ""; first = false {
		sub := c.filter(&out)
		options := c.byte()
		sub.QoS, sub.NoLocal = min(options&3, 1), options&4 != 0
		switch {
		case options&0xC0 != 0:
			c.fail(malformed("reserved bits of a subscription are set"))
		case options&3 == 3:
			c.fail(violation("a subscription with QoS 3"))
		case options>>4&3 == 3:
			c.fail(violation("a subscription with retain handling 3"))
		case sub.NoLocal && len(sub.Filter) > 7 && sub.Filter[:7] == "$share/":
			c.fail(violation("a shared subscription with No Local"))
		}
		out.Subscriptions = append(out.Subscriptions, sub)
	}
	return out, c.end()
}

// DecodeUnsubscribe decodes an UNSUBSCRIBE without its fixed header. The error is of type [*Error].
func DecodeUnsubscribe(body []byte) (Subscribe, error) {
	c := &cursor{s: string(body)}
	out := Subscribe{ID: c.id()}
	c.properties(unsubscribeProperties)
	for first := true; first || c.s != ""; first = false {
		out.Subscriptions = append(out.Subscriptions, c.filter(&out))
	}
	return out, c.end()
}

// filter reads the next topic filter of a packet.
func (c *cursor) filter(packet *Subscribe) session.Subscription {
	switch {
	case c.err == nil && c.s == "":
		c.fail(violation("no topic filter"))
	case len(packet.Subscriptions) == MaxFilters:
		c.fail(&Error{Code: QuotaExceeded, Text: "more than 1000 topic filters"})
	}
	filter := c.text()
	if c.err == nil && filter == "" {
		c.fail(malformed("an empty topic filter"))
	}
	return session.Subscription{Filter: filter}
}

// Disconnect is a DISCONNECT packet of a client.
type Disconnect struct {
	Code   byte
	Expiry *uint32 // the new session expiry in seconds; nil: unchanged
}

// DecodeDisconnect decodes a DISCONNECT without its fixed header. The error is of type [*Error].
func DecodeDisconnect(body []byte) (Disconnect, error) {
	c := &cursor{s: string(body)}
	var out Disconnect
	if c.s != "" {
		out.Code = c.byte()
		if !slices.Contains(disconnectCodes, out.Code) {
			c.fail(violation("a reason code that a client's DISCONNECT cannot have"))
		}
	}
	if c.s != "" {
		if p := c.properties(disconnectProperties); p.set.has(propSessionExpiry) {
			expiry := p.number[propSessionExpiry]
			out.Expiry = &expiry
		}
	}
	return out, c.end()
}

var disconnectCodes = []byte{
	Success, DisconnectWithWill, Unspecified, Malformed, ProtocolError, ImplementationError, BadTopicName, ReceiveMaximum,
	BadTopicAlias, TooLarge, RateTooHigh, QuotaExceeded, AdministrativeEnd, BadPayloadFormat,
}
