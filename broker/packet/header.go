package packet

// Type is the type of an MQTT packet.
type Type byte

// The packet types.
const (
	TypeConnect     Type = 1
	TypeConnack     Type = 2
	TypePublish     Type = 3
	TypePuback      Type = 4
	TypePubrec      Type = 5
	TypePubrel      Type = 6
	TypePubcomp     Type = 7
	TypeSubscribe   Type = 8
	TypeSuback      Type = 9
	TypeUnsubscribe Type = 10
	TypeUnsuback    Type = 11
	TypePingreq     Type = 12
	TypePingresp    Type = 13
	TypeDisconnect  Type = 14
	TypeAuth        Type = 15
)

// MaxHeader is the maximum size of a fixed header in bytes.
const MaxHeader = 5

// Header is the fixed header of a packet.
type Header struct {
	First  byte // type and flags
	Size   int  // of the header in bytes
	Length int  // of the rest of the packet in bytes
}

// Type returns the type of the packet.
func (h Header) Type() Type { return Type(h.First >> 4) }

// Flags returns the lower four bits of the first byte.
func (h Header) Flags() byte { return h.First & 0xF }

// ParseHeader decodes the fixed header at the start of data. ok is false if data ends before the
// header does. The error is of type [*Error]: the type or its flags are not those of a packet that
// a client may send, or the length has more than four bytes or more than it needs.
func ParseHeader(data []byte) (h Header, ok bool, err error) {
	if len(data) == 0 {
		return h, false, nil
	}
	h.First = data[0]
	if err := h.check(); err != nil {
		return h, false, err
	}
	for i, b := range data[1:min(len(data), MaxHeader)] {
		h.Length |= int(b&0x7F) << (7 * i)
		if b&0x80 != 0 {
			continue
		}
		if b == 0 && i > 0 {
			return h, false, malformed("the length of a packet is not encoded in the fewest bytes")
		}
		h.Size = i + 2
		return h, true, nil
	}
	if len(data) >= MaxHeader {
		return h, false, malformed("the length of a packet has more than four bytes")
	}
	return h, false, nil
}

// check checks type and flags of a packet from a client.
func (h Header) check() error {
	want := byte(0)
	switch h.Type() {
	case 0:
		return malformed("packet type 0")
	case TypeConnack, TypeSuback, TypeUnsuback, TypePingresp:
		return violation("a packet that only servers send")
	case TypePublish:
		return checkPublishFlags(h.Flags())
	case TypePubrel, TypeSubscribe, TypeUnsubscribe:
		want = 2
	}
	if h.Flags() != want {
		return malformed("reserved flags of a packet are set")
	}
	return nil
}

func checkPublishFlags(flags byte) error {
	switch qos := flags >> 1 & 3; {
	case qos == 3:
		return malformed("PUBLISH with QoS 3")
	case qos == 2:
		return &Error{Code: QoSUnsupported, Text: "PUBLISH with QoS 2"}
	case qos == 0 && flags&8 != 0:
		return malformed("PUBLISH with QoS 0 and DUP")
	case flags&1 != 0:
		return &Error{Code: RetainUnsupported, Text: "PUBLISH with RETAIN"}
	}
	return nil
}
