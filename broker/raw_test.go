package broker_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
)

// frame returns a packet of up to 2 MiB with the shortest header.
func frame(first byte, body ...string) []byte {
	all := strings.Join(body, "")
	return append(binary.AppendUvarint([]byte{first}, uint64(len(all))), all...) // the same encoding
}

// text returns a string with its length before it.
func text(s string) string { return string(binary.BigEndian.AppendUint16(nil, uint16(len(s)))) + s }

// connect returns a CONNECT of c1 with a password. properties are those without their length.
func connect(flags byte, properties, clientID, will string) []byte {
	head := string(binary.AppendUvarint([]byte("\x00\x04MQTT\x05"+string([]byte{0xc2 | flags})+"\x00\x3c"), uint64(len(properties)))) + properties
	return frame(0x10, head, text(clientID), will, text("c1"), text(password))
}

// ends are connections that the broker must end, with what they send and the reason they receive.
type ends map[string]struct {
	send []byte
	want int // -1: none
}

// TestFirstPacket checks what the broker answers to a first packet that it does not accept, and that
// it goes on to serve others.
func TestFirstPacket(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users()})
	other := dial(t, b.Addr, options{user: "c2"})
	for name, test := range (ends{
		"length of five bytes":            {[]byte("\x10\xff\xff\xff\xff\x00" + strings.Repeat("x", 1000)), 0x81},
		"length over the limit":           {[]byte("\x10\xff\xff\xff\x7f"), 0x95},
		"length not in its shortest form": {[]byte("\x10\x80\x00"), 0x81},
		"PINGREQ":                         {[]byte{0xc0, 0}, -1},
		"PUBLISH":                         {frame(0x30, text(specTopic), "\x00x"), -1},
		"AUTH":                            {[]byte{0xf0, 0}, -1},
		"HTTP":                            {[]byte("GET / HTTP/1.1\r\n\r\n"), -1},
		"TLS":                             {[]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("x", 200)), 0x81},
		"client id of 257 bytes":          {connect(0, "", strings.Repeat("x", 257), ""), 0x85},
		"authentication method":           {connect(0, "\x15"+text("SCRAM-SHA-1"), "x", ""), 0x8c},
		"receive maximum 0":               {connect(0, "\x21\x00\x00", "x", ""), 0x82},
		"receive maximum twice":           {connect(0, "\x21\x00\x01\x21\x00\x01", "x", ""), 0x82},
		"65 user properties":              {connect(0, strings.Repeat("\x26\x00\x00\x00\x00", 65), "x", ""), 0x97},
		"retained will":                   {connect(0x24, "", "x", "\x00"+text("clusters/c1/agentbroadcast")+text("x")), 0x9a},
		"will with QoS 2":                 {connect(0x14, "", "x", "\x00"+text("clusters/c1/agentbroadcast")+text("x")), 0x9b},
		"will to a long topic":            {connect(4, "", "x", "\x00"+text("clusters/"+strings.Repeat("x", 33000)+"/agentbroadcast")+text("x")), 0x87},
		"another version":                 {frame(0x10, "\x00\x04MQTT\x06\x02\x00\x3c\x00\x00\x01x"), 0x84},
	}) {
		raw := dialRaw(t, b.Addr, "c1")
		if _, err := raw.Write(test.send); err != nil {
			t.Fatal(err)
		}
		if test.want >= 0 {
			if connack, ok := raw.Next().(*packets.Connack); !ok || int(connack.ReasonCode) != test.want {
				t.Errorf("%s: answered with %v, want CONNACK 0x%02x", name, connack, test.want)
			}
		}
		raw.ExpectEnd()
	}
	if code := other.publish("clusters/c2/agentbroadcast", "x"); code >= 0x80 {
		t.Errorf("another client: 0x%x", code)
	}
}

// TestForbiddenPackets checks how the broker ends the connections of clients that violate MQTT or
// its limits after their login, and that it goes on to serve others.
func TestForbiddenPackets(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users(), HTTPAddress: "127.0.0.1:0"})
	other := dial(t, b.Addr, options{user: "c2"})
	const own = "clusters/c1/agentbroadcast"
	for name, test := range (ends{
		"packet type 0":                       {[]byte{0, 0}, 0x81},
		"second CONNECT":                      {connect(0, "", "c1", ""), 0x82},
		"CONNACK":                             {[]byte("\x20\x03\x00\x00\x00"), 0x82},
		"unsolicited AUTH":                    {[]byte("\xf0\x00"), 0x82},
		"PUBREL":                              {[]byte("\x62\x02\x00\x01"), 0x82},
		"PINGREQ with a length of five bytes": {[]byte("\xc0\x80\x80\x80\x80\x00"), 0x81},
		"PINGREQ with a body":                 {[]byte("\xc0\x01x"), 0x81},
		"PUBLISH over the maximum size":       {[]byte("\x32\xff\xff\xff\x07"), 0x95},
		"PUBLISH with QoS 2":                  {frame(0x34, text(own), "\x00\x01\x00"), 0x9b},
		"PUBLISH with QoS 3":                  {frame(0x36, text(own), "\x00\x01\x00"), 0x81},
		"PUBLISH retained":                    {frame(0x33, text(own), "\x00\x01\x00"), 0x9a},
		"PUBLISH retained, 33,000 bytes":      {frame(0x33, text("clusters/"+strings.Repeat("x", 33000)+"/agentbroadcast"), "\x00\x01\x00"), 0x9a},
		"PUBLISH with packet id 0":            {frame(0x32, text(own), "\x00\x00\x00"), 0x82},
		"PUBLISH with a topic alias":          {frame(0x32, text(own), "\x00\x01\x03\x23\x00\x01"), 0x94},
		"PUBLISH with a wildcard":             {frame(0x32, text("a/#"), "\x00\x01\x00"), 0x90},
		"PUBLISH with a wildcard to answer":   {frame(0x32, text(own), "\x00\x01\x06\x08"+text("a/#")), 0x82},
		"PUBLISH with 200,000 properties":     {frame(0x32, text(own), "\x00\x01\xc0\x84\x3d"+strings.Repeat("\x26\x00\x00\x00\x00", 200_000)), 0x97},
		"SUBSCRIBE of mochi's issue 501":      {[]byte("\x82\x06\x00\x00\x00\x00\x01\x24"), 0x82},
		"SUBSCRIBE with reserved bits":        {frame(0x82, "\x00\x01\x00", text(specFilter), "\x41"), 0x81},
		"SUBSCRIBE with retain handling 3":    {frame(0x82, "\x00\x01\x00", text(specFilter), "\x31"), 0x82},
		"SUBSCRIBE with subscription id 0":    {frame(0x82, "\x00\x01\x02\x0b\x00", text(specFilter), "\x01"), 0x82},
		"SUBSCRIBE without a filter":          {frame(0x82, "\x00\x01\x00"), 0x82},
		"SUBSCRIBE with 1001 filters":         {frame(0x82, "\x00\x01\x00", strings.Repeat(text("x")+"\x01", 1001)), 0x97},
		"UNSUBSCRIBE without a filter":        {frame(0xa2, "\x00\x01\x00"), 0x82},
		"DISCONNECT with a server's code":     {[]byte("\xe0\x01\x8e"), 0x82},
	}) {
		raw := dialRaw(t, b.Addr, "c1")
		raw.Connect("c1", 0)
		if _, err := raw.Write(test.send); err != nil {
			t.Fatal(err)
		}
		if answer, ok := raw.Next().(*packets.Disconnect); !ok || int(answer.ReasonCode) != test.want {
			t.Errorf("%s: answered with %v, want DISCONNECT 0x%02x", name, answer, test.want)
		}
		raw.ExpectEnd()
	}
	if code := other.publish("clusters/c2/agentbroadcast", "x"); code >= 0x80 {
		t.Errorf("another client: 0x%x", code)
	}
	if got := scrape(t, b, "workwire_broker_client_panics_total"); got != 0 {
		t.Errorf("%v panics", got)
	}
}

// TestRefusedFilters checks that filters that a client may not use are refused one by one, and cost
// one line in the log for each packet.
func TestRefusedFilters(t *testing.T) {
	var log kit.Log
	b := brokertest.Start(t, broker.Config{Users: users(), HTTPAddress: "127.0.0.1:0", Logger: log.Logger()})
	raw := dialRaw(t, b.Addr, "c1")
	raw.Connect("c1", 0)
	var filters strings.Builder
	want := bytes.Repeat([]byte{0x87}, 998)
	for i := range want {
		filters.WriteString(text(fmt.Sprint("other/", i)) + "\x01")
	}
	for _, filter := range []string{"$SYS/" + strings.Repeat("/", 60_000), "a#"} {
		filters.WriteString(text(filter) + "\x01")
		want = append(want, 0x8f)
	}
	if _, err := raw.Write(frame(0x82, "\x00\x01\x00", filters.String())); err != nil {
		t.Fatal(err)
	}
	if suback, ok := raw.Next().(*packets.Suback); !ok || !bytes.Equal(suback.Reasons, want) {
		t.Errorf("answered with %v", suback)
	}
	if n := strings.Count(log.String(), "subscription refused"); n != 1 {
		t.Errorf("%d lines in the log, want 1", n)
	}
	if got := scrape(t, b, "workwire_broker_acl_denials_total", "action=subscribe"); got != 998 {
		t.Errorf("denials counted: %v, want 998", got)
	}
	raw.Subscribe(specFilter)
	raw.Send(&packets.Unsubscribe{PacketID: 2, Properties: &packets.Properties{}, Topics: []string{specFilter, specFilter}})
	for {
		if unsuback, ok := raw.Next().(*packets.Unsuback); ok {
			if !bytes.Equal(unsuback.Reasons, []byte{0, 0x11}) {
				t.Errorf("UNSUBACK %x", unsuback.Reasons)
			}
			return
		}
	}
}

// TestKeepAlive checks long and short keep alives.
func TestKeepAlive(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users()})
	for _, keepAlive := range []uint16{0, 43691, 65535} {
		raw := dialRaw(t, b.Addr, "c1")
		raw.Send(&packets.Connect{
			ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: "x", KeepAlive: keepAlive, Properties: &packets.Properties{},
			UsernameFlag: true, Username: "c1", PasswordFlag: true, Password: []byte(password),
		})
		if connack, ok := raw.Next().(*packets.Connack); !ok || connack.ReasonCode != 0 {
			t.Fatalf("keep alive %d: %v", keepAlive, connack)
		}
		raw.Send(&packets.Pingreq{})
		if _, ok := raw.Next().(*packets.Pingresp); !ok {
			t.Errorf("keep alive %d: no PINGRESP", keepAlive)
		}
	}
	raw := dialRaw(t, b.Addr, "c1")
	raw.Send(&packets.Connect{
		ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: "silent", KeepAlive: 1, Properties: &packets.Properties{},
		UsernameFlag: true, Username: "c1", PasswordFlag: true, Password: []byte(password),
	})
	if connack, ok := raw.Next().(*packets.Connack); !ok || connack.ReasonCode != 0 {
		t.Fatalf("keep alive 1: %v", connack)
	}
	if answer, ok := raw.Next().(*packets.Disconnect); !ok || answer.ReasonCode != 0x8d {
		t.Errorf("keep alive 1: answered with %v, want DISCONNECT 0x8d", answer)
	}
	raw.ExpectEnd()
}

// TestWillOnTheWire checks wills without a payload, and both forms of a DISCONNECT that asks for the
// will.
func TestWillOnTheWire(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users()})
	source := dial(t, b.Addr, options{user: "hub1"})
	source.mustSubscribe("clusters/+/agentbroadcast")
	for i, disconnect := range []string{"\xe0\x01\x04", "\xe0\x02\x04\x00", "\xe0\x01\x80"} {
		raw := dialRaw(t, b.Addr, "c1")
		if _, err := raw.Write(connect(0x0c, "", "x", "\x00"+text("clusters/c1/agentbroadcast")+text(""))); err != nil {
			t.Fatal(err)
		}
		if connack, ok := raw.Next().(*packets.Connack); !ok || connack.ReasonCode != 0 {
			t.Fatalf("a will without a payload: %v", connack)
		}
		if _, err := raw.Write([]byte(disconnect)); err != nil {
			t.Fatal(err)
		}
		raw.ExpectEnd()
		if got := source.payloads(i + 1); len(got) != i+1 || got[i] != "" {
			t.Errorf("%x: %q", disconnect, got)
		}
	}
}

// TestWillOfAClientThatReturns checks that a client which disconnects normally and connects again at
// once, in another connection, leaves no will: its DISCONNECT may be unread when the CONNECT comes.
func TestWillOfAClientThatReturns(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users()})
	source := dial(t, b.Addr, options{user: "hub1"})
	source.mustSubscribe("clusters/+/agentbroadcast")
	will := connect(0x0c, "", "x", "\x00"+text("clusters/c1/agentbroadcast")+text("gone"))
	raw := dialRaw(t, b.Addr, "c1")
	for i := range 50 {
		if _, err := raw.Write(will); err != nil {
			t.Fatal(err)
		}
		if connack, ok := raw.Next().(*packets.Connack); !ok || connack.ReasonCode != 0 {
			t.Fatalf("connection %d: %v", i, connack)
		}
		next := dialRaw(t, b.Addr, "c1")
		if _, err := raw.Write([]byte("\xe0\x00")); err != nil {
			t.Fatal(err)
		}
		raw = next
	}
	if _, err := raw.Write(will); err != nil {
		t.Fatal(err)
	}
	_ = raw.Next()
	if _, err := raw.Write([]byte("\xe0\x01\x04")); err != nil { // with its will
		t.Fatal(err)
	}
	raw.ExpectEnd()
	if got := source.payloads(1); len(got) != 1 {
		t.Errorf("%d wills, want 1", len(got))
	}
}

// TestMessageOverClientMaximum checks that a message is dropped whole if its user properties make
// it too large for a client, and counted.
func TestMessageOverClientMaximum(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users(), HTTPAddress: "127.0.0.1:0"})
	agent := dial(t, b.Addr, options{user: "c1", maxPacketSize: 200, expiry: 3600})
	agent.mustSubscribe(specFilter)
	source := dial(t, b.Addr, options{user: "hub1"})
	properties := paho.UserProperties{{Key: "ce-id", Value: strings.Repeat("x", 200)}}
	source.publishPacket(&paho.Publish{Topic: specTopic, QoS: 1, Payload: []byte("large"), Properties: &paho.PublishProperties{User: properties}})
	source.publish(specTopic, "small")
	if got := agent.payloads(1); got[0] != "small" {
		t.Errorf("received %q", got)
	}
	if got := scrape(t, b, "workwire_broker_messages_dropped_total", "reason=too_large"); got != 1 {
		t.Errorf("dropped messages counted: %v, want 1", got)
	}
	kit.True(t, "the acknowledgement", func() bool { return scrape(t, b, "workwire_broker_messages_queued") == 0 })
}

// TestSmallMaximum checks that no packet is larger than its client accepts, whatever that is.
func TestSmallMaximum(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users()})
	for n := 1; n <= 60; n++ {
		raw := dialRaw(t, b.Addr, "c1")
		maximum := string(binary.BigEndian.AppendUint32([]byte{0x27}, uint32(n)))
		sent := slices.Concat(connect(0, maximum, "x", ""), frame(0x82, "\x00\x01\x00", text(specFilter), "\x01"),
			frame(0x32, text(specTopic), "\x00\x01\x00"), []byte("\xc0\x00\xc0\x01x"))
		if _, err := raw.Write(sent); err != nil {
			t.Fatal(err)
		}
		received, err := io.ReadAll(raw.Reader)
		kit.NoError(t, err)
		for rest := received; len(rest) > 0; {
			if size := int(rest[1]) + 2; rest[1] > 127 || size > n {
				t.Fatalf("maximum %d: a packet of %d bytes in %x", n, size, received)
			} else {
				rest = rest[size:]
			}
		}
		if answered := len(received) > 0 && received[0] == 0x20; answered != (n >= 22) { // the size of the CONNACK
			t.Errorf("maximum %d: received %x", n, received)
		}
	}
}

// TestWillExpires checks that a will has its message expiry from its publication on.
func TestWillExpires(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users()})
	source := dial(t, b.Addr, options{user: "hub1"})
	source.mustSubscribe("clusters/+/agentbroadcast")
	raw := dialRaw(t, b.Addr, "c1")
	if _, err := raw.Write(connect(0x0c, "", "x", "\x05\x02\x00\x00\x03\xe8"+text("clusters/c1/agentbroadcast")+text("gone"))); err != nil {
		t.Fatal(err)
	}
	if connack, ok := raw.Next().(*packets.Connack); !ok || connack.ReasonCode != 0 {
		t.Fatalf("%v", connack)
	}
	_ = raw.Close()
	source.payloads(1)
	if expiry := source.received[0].Properties.MessageExpiry; expiry == nil || *expiry > 1000 || *expiry < 500 {
		t.Errorf("message expiry %v, want just below 1000", expiry)
	}
}
