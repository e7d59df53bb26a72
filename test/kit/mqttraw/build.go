package mqttraw

import "encoding/binary"

// Packet types, as the upper four bits of the first byte.
const (
	CONNECT     byte = 0x10
	CONNACK     byte = 0x20
	PUBLISH     byte = 0x30
	PUBACK      byte = 0x40
	PUBREC      byte = 0x50
	PUBREL      byte = 0x60
	PUBCOMP     byte = 0x70
	SUBSCRIBE   byte = 0x80
	SUBACK      byte = 0x90
	UNSUBSCRIBE byte = 0xA0
	UNSUBACK    byte = 0xB0
	PINGREQ     byte = 0xC0
	PINGRESP    byte = 0xD0
	DISCONNECT  byte = 0xE0
	AUTH        byte = 0xF0
)

// Flags of a PUBLISH.
const (
	Retain byte = 1
	QoS1   byte = 2
	QoS2   byte = 4
	Dup    byte = 8
)

// Property identifiers.
const (
	PayloadFormat    byte = 0x01
	MessageExpiry    byte = 0x02
	ContentType      byte = 0x03
	ResponseTopic    byte = 0x08
	CorrelationData  byte = 0x09
	SubscriptionID   byte = 0x0B
	SessionExpiry    byte = 0x11
	AssignedClientID byte = 0x12
	ServerKeepAlive  byte = 0x13
	AuthMethod       byte = 0x15
	AuthData         byte = 0x16
	RequestProblem   byte = 0x17
	WillDelay        byte = 0x18
	RequestResponse  byte = 0x19
	ResponseInfo     byte = 0x1A
	ServerReference  byte = 0x1C
	ReasonString     byte = 0x1F
	ReceiveMaximum   byte = 0x21
	TopicAliasMax    byte = 0x22
	TopicAlias       byte = 0x23
	MaximumQoS       byte = 0x24
	RetainAvailable  byte = 0x25
	UserProperty     byte = 0x26
	MaximumPacket    byte = 0x27
	WildcardSubs     byte = 0x28
	SubIDsAvailable  byte = 0x29
	SharedSubs       byte = 0x2A
)

// Ping is a PINGREQ.
var Ping = []byte{PINGREQ, 0}

// Bytes returns the concatenation of parts.
func Bytes(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// VarInt returns n as a variable byte integer. n may exceed what MQTT allows.
func VarInt(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

// Two returns n as a two byte integer.
func Two(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }

// Str returns s with its length, as MQTT encodes strings and binary data.
func Str(s string) []byte { return append(Two(uint16(len(s))), s...) }

// Packet returns a packet with the first byte first and the right remaining length.
func Packet(first byte, body ...[]byte) []byte {
	b := Bytes(body...)
	return Bytes([]byte{first}, VarInt(len(b)), b)
}

// Props returns properties with their length.
func Props(props ...[]byte) []byte {
	b := Bytes(props...)
	return Bytes(VarInt(len(b)), b)
}

// PropByte returns a property with a byte.
func PropByte(id, v byte) []byte { return []byte{id, v} }

// PropTwo returns a property with a two byte integer.
func PropTwo(id byte, v uint16) []byte { return Bytes([]byte{id}, Two(v)) }

// PropFour returns a property with a four byte integer.
func PropFour(id byte, v uint32) []byte { return binary.BigEndian.AppendUint32([]byte{id}, v) }

// PropVar returns a property with a variable byte integer.
func PropVar(id byte, v int) []byte { return Bytes([]byte{id}, VarInt(v)) }

// PropStr returns a property with a string or binary data.
func PropStr(id byte, s string) []byte { return Bytes([]byte{id}, Str(s)) }

// User returns a user property.
func User(key, value string) []byte { return Bytes([]byte{UserProperty}, Str(key), Str(value)) }

// Will is the will of a [Connect].
type Will struct {
	Topic   string
	Payload string
	QoS     byte
	Retain  bool
	Props   [][]byte
}

// Connect holds the fields of a CONNECT packet. The zero value has clean start 0, keep alive 0 and
// no user name.
type Connect struct {
	ClientID       string
	User, Password string // no such field if empty
	Clean          bool
	KeepAlive      uint16 // seconds
	Props          [][]byte
	Will           *Will

	Flags   byte   // combined with those of the other fields by exclusive or
	Name    string // default MQTT
	Version byte   // default 5
}

// Bytes returns the packet.
func (c Connect) Bytes() []byte {
	if c.Name == "" {
		c.Name = "MQTT"
	}
	if c.Version == 0 {
		c.Version = 5
	}
	flags := c.Flags
	payload := Str(c.ClientID)
	if c.Clean {
		flags ^= 2
	}
	if w := c.Will; w != nil {
		flags ^= 4 | w.QoS<<3
		if w.Retain {
			flags ^= 0x20
		}
		payload = Bytes(payload, Props(w.Props...), Str(w.Topic), Str(w.Payload))
	}
	if c.User != "" {
		flags ^= 0x80
		payload = Bytes(payload, Str(c.User))
	}
	if c.Password != "" {
		flags ^= 0x40
		payload = Bytes(payload, Str(c.Password))
	}
	return Packet(CONNECT, Str(c.Name), []byte{c.Version, flags}, Two(c.KeepAlive), Props(c.Props...), payload)
}

// Publish returns a PUBLISH packet. It has an identifier if flags has a QoS.
func Publish(flags byte, id uint16, topic, payload string, props ...[]byte) []byte {
	var number []byte
	if flags&(QoS1|QoS2) != 0 {
		number = Two(id)
	}
	return Packet(PUBLISH|flags, Str(topic), number, Props(props...), []byte(payload))
}

// Puback returns the short form of a PUBACK with reason 0.
func Puback(id uint16) []byte { return Packet(PUBACK, Two(id)) }

// Filter is a topic filter with its subscription options.
type Filter struct {
	Topic   string
	Options byte // QoS, and the bits below
}

// Bits of subscription options.
const (
	NoLocal           byte = 4
	RetainAsPublished byte = 8
)

// Subscribe returns a SUBSCRIBE packet; props are encoded properties.
func Subscribe(id uint16, props []byte, filters ...Filter) []byte {
	body := Bytes(Two(id), Props(props))
	for _, f := range filters {
		body = Bytes(body, Str(f.Topic), []byte{f.Options})
	}
	return Packet(SUBSCRIBE|2, body)
}

// Unsubscribe returns an UNSUBSCRIBE packet.
func Unsubscribe(id uint16, filters ...string) []byte {
	body := Bytes(Two(id), Props())
	for _, f := range filters {
		body = Bytes(body, Str(f))
	}
	return Packet(UNSUBSCRIBE|2, body)
}

// Disconnect returns the long form of a DISCONNECT.
func Disconnect(code byte, props ...[]byte) []byte {
	return Packet(DISCONNECT, []byte{code}, Props(props...))
}
