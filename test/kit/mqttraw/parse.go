package mqttraw

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// maxPacket is the largest packet that [Read] accepts, in bytes.
const maxPacket = 8 << 20

// Property is one property of a received packet.
type Property struct {
	ID    byte
	N     uint32 // of a number
	Key   string // of a user property
	Value string // of a string, binary data, or a user property
}

// Received is a packet that a broker sent.
type Received struct {
	Raw   []byte // all of it
	Type  byte   // CONNACK, PUBLISH, …
	Flags byte   // the lower four bits of the first byte

	ID      uint16 // packet identifier
	Codes   []byte // reason codes; one, 0 if left out, unless it is a SUBACK or UNSUBACK
	Present bool   // session present
	Topic   string
	Payload string
	Props   []Property
}

// Code returns the first reason code.
func (r *Received) Code() byte { return r.Codes[0] }

// QoS returns the QoS of a PUBLISH.
func (r *Received) QoS() byte { return r.Flags >> 1 & 3 }

// Prop returns the property id, and whether it is there.
func (r *Received) Prop(id byte) (Property, bool) {
	for _, p := range r.Props {
		if p.ID == id {
			return p, true
		}
	}
	return Property{}, false
}

// All returns the properties id in their order.
func (r *Received) All(id byte) (out []Property) {
	for _, p := range r.Props {
		if p.ID == id {
			out = append(out, p)
		}
	}
	return out
}

func (r *Received) String() string {
	return fmt.Sprintf("packet %02X codes %x topic %q payload of %d bytes properties %v (% x)", r.Type|r.Flags, r.Codes, r.Topic, len(r.Payload), r.Props, r.Raw[:min(len(r.Raw), 48)])
}

// Read reads one packet. It returns an error that is not of the network if MQTT does not allow a
// broker to send the packet.
func Read(r *bufio.Reader) (*Received, error) {
	first, err := r.ReadByte()
	if err != nil {
		return nil, err
	}
	raw := []byte{first}
	length := 0
	for shift := 0; ; shift += 7 {
		b, err := r.ReadByte()
		if err != nil {
			return nil, err
		}
		raw = append(raw, b)
		length |= int(b&0x7f) << shift
		if b < 0x80 {
			break
		}
		if shift == 21 {
			return nil, fmt.Errorf("remaining length of more than four bytes: % x", raw)
		}
	}
	if length > maxPacket {
		return nil, fmt.Errorf("a packet of %d bytes", length)
	}
	head := len(raw)
	raw = append(raw, make([]byte, length)...)
	if _, err := io.ReadFull(r, raw[head:]); err != nil {
		return nil, err
	}
	p := &Received{Raw: raw, Type: first & 0xF0, Flags: first & 0x0F}
	d := &decoder{rest: raw[head:]}
	p.parse(d)
	if d.err == nil && len(d.rest) > 0 {
		d.fail("%d bytes after the end", len(d.rest))
	}
	if d.err != nil {
		return nil, fmt.Errorf("malformed packet from the broker: %w: % x", d.err, raw[:min(len(raw), 200)])
	}
	return p, nil
}

// parse reads what follows the fixed header.
func (r *Received) parse(d *decoder) {
	if r.Flags != 0 && r.Type != PUBLISH {
		d.fail("flags %x", r.Flags)
	}
	switch r.Type {
	case CONNACK:
		flags := d.byte()
		if flags > 1 {
			d.fail("acknowledge flags %x", flags)
		}
		r.Present, r.Codes = flags == 1, []byte{d.byte()}
		r.Props = d.props(r.Type)
		if r.Present && r.Code() != 0 {
			d.fail("session present with reason %x", r.Code())
		}
	case PUBLISH:
		r.parsePublish(d)
	case PUBACK:
		r.ID = d.two()
		r.shortened(d)
	case SUBACK, UNSUBACK:
		r.ID = d.two()
		r.Props = d.props(r.Type)
		r.Codes, d.rest = d.rest, nil
		if len(r.Codes) == 0 {
			d.fail("no reason codes")
		}
	case DISCONNECT:
		r.shortened(d)
	case PINGRESP:
	default:
		d.fail("packet type %x", r.Type)
	}
}

func (r *Received) parsePublish(d *decoder) {
	if r.QoS() > 1 {
		d.fail("QoS %d", r.QoS())
	}
	if r.QoS() == 0 && r.Flags&Dup != 0 {
		d.fail("DUP with QoS 0")
	}
	r.Topic = d.str()
	if r.QoS() > 0 {
		if r.ID = d.two(); r.ID == 0 {
			d.fail("packet identifier 0")
		}
	}
	r.Props = d.props(r.Type)
	r.Payload, d.rest = string(d.rest), nil
}

// shortened parses a reason code and properties that may be left out.
func (r *Received) shortened(d *decoder) {
	r.Codes = []byte{0}
	if len(d.rest) > 0 {
		r.Codes[0] = d.byte()
	}
	if len(d.rest) > 0 {
		r.Props = d.props(r.Type)
	}
}

// allowed has the properties that a broker may send.
var allowed = map[byte][]byte{
	CONNACK: {
		SessionExpiry, ReceiveMaximum, MaximumQoS, RetainAvailable, MaximumPacket, AssignedClientID, TopicAliasMax, ReasonString, UserProperty,
		WildcardSubs, SubIDsAvailable, SharedSubs, ServerKeepAlive, ResponseInfo, ServerReference, AuthMethod, AuthData,
	},
	PUBLISH:    {PayloadFormat, MessageExpiry, ContentType, ResponseTopic, CorrelationData, SubscriptionID, UserProperty},
	PUBACK:     {ReasonString, UserProperty},
	SUBACK:     {ReasonString, UserProperty},
	UNSUBACK:   {ReasonString, UserProperty},
	DISCONNECT: {ReasonString, UserProperty, ServerReference},
}

// decoder reads from rest. After an error it returns zero values.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
	d.rest = nil
}

func (d *decoder) next(n int) []byte {
	if n > len(d.rest) {
		d.fail("it ends too early")
		return make([]byte, n)
	}
	out := d.rest[:n]
	d.rest = d.rest[n:]
	return out
}

func (d *decoder) byte() byte   { return d.next(1)[0] }
func (d *decoder) two() uint16  { return binary.BigEndian.Uint16(d.next(2)) }
func (d *decoder) four() uint32 { return binary.BigEndian.Uint32(d.next(4)) }

func (d *decoder) binary() string { return string(d.next(int(d.two()))) }

func (d *decoder) str() string {
	s := d.binary()
	if !utf8.ValidString(s) {
		d.err = errors.Join(d.err, errors.New("a string that is not UTF-8"))
	}
	return s
}

func (d *decoder) varint() int {
	n := 0
	for shift := 0; shift <= 21; shift += 7 {
		b := d.byte()
		n |= int(b&0x7f) << shift
		if b < 0x80 {
			return n
		}
	}
	d.fail("a variable byte integer of more than four bytes")
	return 0
}

func (d *decoder) props(packet byte) (out []Property) {
	block := &decoder{rest: d.next(d.varint())}
	seen := map[byte]bool{}
	for len(block.rest) > 0 {
		p := block.prop()
		known := false
		for _, id := range allowed[packet] {
			known = known || id == p.ID
		}
		if !known {
			block.fail("property %x in packet %x", p.ID, packet)
		}
		if seen[p.ID] && p.ID != UserProperty && (p.ID != SubscriptionID || packet != PUBLISH) {
			block.fail("property %x twice", p.ID)
		}
		seen[p.ID] = true
		out = append(out, p)
	}
	d.err = errors.Join(d.err, block.err)
	return out
}

func (d *decoder) prop() (p Property) {
	switch p.ID = d.byte(); p.ID {
	case PayloadFormat, RequestProblem, RequestResponse, MaximumQoS, RetainAvailable, WildcardSubs, SubIDsAvailable, SharedSubs:
		p.N = uint32(d.byte())
		if p.N > 1 {
			d.fail("property %x has the value %d", p.ID, p.N)
		}
	case ServerKeepAlive, ReceiveMaximum, TopicAliasMax, TopicAlias:
		p.N = uint32(d.two())
	case MessageExpiry, SessionExpiry, WillDelay, MaximumPacket:
		p.N = d.four()
	case SubscriptionID:
		p.N = uint32(d.varint())
	case CorrelationData, AuthData:
		p.Value = d.binary()
	case ContentType, ResponseTopic, AssignedClientID, AuthMethod, ResponseInfo, ServerReference, ReasonString:
		p.Value = d.str()
	case UserProperty:
		p.Key, p.Value = d.str(), d.str()
	default:
		d.fail("property %x", p.ID)
	}
	if p.N == 0 && (p.ID == ReceiveMaximum || p.ID == MaximumPacket || p.ID == SubscriptionID) {
		d.fail("property %x is 0", p.ID)
	}
	return p
}
