package mqttraw

import (
	"bufio"
	"bytes"
	"testing"
)

func TestRead(t *testing.T) {
	for name, packet := range map[string][]byte{
		"flags of PUBACK":          {0x41, 2, 0, 1},
		"QoS 2":                    Publish(QoS2, 1, "a", "x"),
		"DUP with QoS 0":           Publish(Dup, 0, "a", "x"),
		"identifier 0":             Publish(QoS1, 0, "a", "x"),
		"topic that is not UTF-8":  Publish(0, 0, "\xff", "x"),
		"property of CONNECT":      Publish(0, 0, "a", "x", PropFour(SessionExpiry, 1)),
		"property twice":           Publish(0, 0, "a", "x", PropStr(ContentType, "a"), PropStr(ContentType, "a")),
		"property cut off":         Publish(0, 0, "a", "x", []byte{ContentType, 0}),
		"length of five bytes":     {0xD0, 0x80, 0x80, 0x80, 0x80, 0},
		"bytes after PINGRESP":     {0xD0, 1, 0},
		"session with a refusal":   Packet(CONNACK, []byte{1, 0x80}, Props()),
		"receive maximum 0":        Packet(CONNACK, []byte{0, 0}, Props(PropTwo(ReceiveMaximum, 0))),
		"SUBACK without codes":     Packet(SUBACK, Two(1), Props()),
		"a packet of clients only": Subscribe(1, nil, Filter{Topic: "a"}),
	} {
		if p, err := Read(bufio.NewReader(bytes.NewReader(packet))); err == nil {
			t.Errorf("%s: read as %v", name, p)
		}
	}
	packet := Publish(QoS1|Dup, 7, "a/b", "payload", User("k", "v"), PropVar(SubscriptionID, 300), User("k", "w"), PropFour(MessageExpiry, 5))
	p, err := Read(bufio.NewReader(bytes.NewReader(packet)))
	if err != nil || p.Type != PUBLISH || p.QoS() != 1 || p.ID != 7 || p.Topic != "a/b" || p.Payload != "payload" || len(p.Props) != 4 || !bytes.Equal(p.Raw, packet) {
		t.Fatalf("read %v, %v", p, err)
	}
	if user := p.All(UserProperty); len(user) != 2 || user[1].Value != "w" {
		t.Errorf("user properties %v", user)
	}
	if id, ok := p.Prop(SubscriptionID); !ok || id.N != 300 {
		t.Errorf("subscription identifier %v", id)
	}
}

// FuzzRead checks that no bytes make Read panic, and that it keeps what it reads.
func FuzzRead(f *testing.F) {
	f.Add(Packet(CONNACK, []byte{0, 0}, Props(PropByte(MaximumQoS, 1), PropStr(ReasonString, "x"))))
	f.Add(Publish(QoS1, 7, "a/b", "payload", User("k", "v")))
	f.Add([]byte{0x40, 2, 0, 1})
	f.Add(Packet(SUBACK, Two(1), Props(), []byte{0, 0x87}))
	f.Add([]byte{0xE0, 2, 0x8E, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Read(bufio.NewReader(bytes.NewReader(data)))
		if err == nil && !bytes.HasPrefix(data, p.Raw) {
			t.Errorf("read %x of %x", p.Raw, data)
		}
	})
}
