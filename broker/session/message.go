package session

import (
	"encoding/binary"
	"errors"
)

// Message is an application message. It must not be modified after it is published.
type Message struct {
	Topic   string
	Payload []byte
	QoS     byte // 0 or 1

	// Properties of MQTT 5 that are forwarded unchanged.
	ContentType     string
	ResponseTopic   string
	CorrelationData []byte
	UTF8            bool // the payload format indicator
	User            []Property

	// Expires is the Unix time in seconds after which the message is not delivered; 0 means never.
	Expires int64
}

// Property is an MQTT user property. CloudEvents attributes are user properties.
type Property struct{ Key, Value string }

// size returns the size in bytes that counts against limits: what the message needs in memory,
// besides a fixed part that its place in a queue counts.
func (m *Message) size() int64 {
	n := len(m.Topic) + len(m.Payload) + len(m.ContentType) + len(m.ResponseTopic) + len(m.CorrelationData)
	for _, p := range m.User {
		n += propertyBytes + len(p.Key) + len(p.Value)
	}
	return int64(n)
}

// messageVersion is the first byte of an encoded message.
const messageVersion = 1

const (
	flagQoS1 = 1 << iota
	_        // was retain
	flagUTF8
)

// encode encodes m for the database: version, flags, expiry, then each field prefixed with its
// length.
func (m *Message) encode() []byte {
	buf := make([]byte, 0, int(m.size())+64)
	var flags byte
	if m.QoS > 0 {
		flags |= flagQoS1
	}
	if m.UTF8 {
		flags |= flagUTF8
	}
	buf = append(buf, messageVersion, flags)
	buf = binary.AppendUvarint(buf, uint64(m.Expires))
	buf = appendBytes(buf, m.Topic)
	buf = appendBytes(buf, m.ContentType)
	buf = appendBytes(buf, m.ResponseTopic)
	buf = appendBytes(buf, m.CorrelationData)
	buf = binary.AppendUvarint(buf, uint64(len(m.User)))
	for _, p := range m.User {
		buf = appendBytes(buf, p.Key)
		buf = appendBytes(buf, p.Value)
	}
	return appendBytes(buf, m.Payload)
}

func appendBytes[T string | []byte](buf []byte, s T) []byte {
	return append(binary.AppendUvarint(buf, uint64(len(s))), s...)
}

var errBadMessage = errors.New("the stored message cannot be decoded")

// decodeMessage decodes an encoded message. The message refers to data.
func decodeMessage(data []byte) (*Message, error) {
	expires, err := decodeExpiry(data)
	if err != nil || data[1] > 2*flagUTF8-1 {
		return nil, errBadMessage
	}
	d := decoder{data: data[2:]}
	d.number() // the expiry
	m := &Message{UTF8: data[1]&flagUTF8 != 0, QoS: data[1] & flagQoS1, Expires: expires}
	m.Topic = string(d.bytes())
	m.ContentType = string(d.bytes())
	m.ResponseTopic = string(d.bytes())
	m.CorrelationData = d.bytes()
	count := d.number()
	if count > uint64(len(d.data))/2 { // a property has at least two bytes
		return nil, errBadMessage
	}
	for range count {
		m.User = append(m.User, Property{Key: string(d.bytes()), Value: string(d.bytes())})
	}
	m.Payload = d.bytes()
	if d.bad || len(d.data) > 0 {
		return nil, errBadMessage
	}
	return m, nil
}

// decodeExpiry returns Message.Expires of an encoded message.
func decodeExpiry(data []byte) (int64, error) {
	if len(data) < 3 || data[0] != messageVersion {
		return 0, errBadMessage
	}
	d := decoder{data: data[2:]}
	at := int64(d.number())
	if d.bad || at < 0 {
		return 0, errBadMessage
	}
	return at, nil
}

// decoder reads fields from data. After an error it sets bad and returns zero values.
type decoder struct {
	data []byte
	bad  bool
}

func (d *decoder) number() uint64 {
	n, size := binary.Uvarint(d.data)
	if size <= 0 {
		d.bad, d.data = true, nil
		return 0
	}
	d.data = d.data[size:]
	return n
}

func (d *decoder) bytes() []byte {
	n := d.number()
	if n > uint64(len(d.data)) {
		d.bad, d.data = true, nil
	}
	if d.bad || n == 0 {
		return nil
	}
	out := d.data[:n:n]
	d.data = d.data[n:]
	return out
}
