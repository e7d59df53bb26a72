package conformance_test

import (
	"strings"
	"testing"

	"github.com/workwire/workwire/test/kit/mqttraw"
)

// violation is a packet that a connected client must not send.
type violation struct {
	name   string // and the number of the statement
	packet []byte
	codes  []byte // reasons of the DISCONNECT that are right
}

// Reasons of several violations.
var (
	malformed = []byte{0x81}
	protocol  = []byte{0x82}
	either    = []byte{0x81, 0x82} // the specification names none, or a class
)

// TestViolations checks that the broker ends the connection of a client that breaks the protocol,
// with the reason (MQTT-4.13.1-1), without the packet having an effect, and serves others.
func TestViolations(t *testing.T) {
	t.Parallel()
	addr := start(t)
	o := newOracle(t, addr)
	watcher := connect(t, addr, as("hub1")).mustSubscribe(upFilter)
	agent := connect(t, addr, as("c2"))
	for _, list := range [][]violation{headerViolations(), publishViolations(), subscribeViolations(), otherViolations()} {
		for _, v := range list {
			t.Run(v.name, func(t *testing.T) {
				c := connect(t, addr, as("c1"))
				c.Send(v.packet, mqttraw.Publish(0, 0, up("c1"), "after the violation"), mqttraw.Ping)
				c.ExpectDisconnect(v.codes...)
			})
		}
	}
	agent.mustPublish(up("c2"), "fence")
	watcher.mustReceive("fence")
	o.served()
}

func headerViolations() []violation {
	subscribe := mqttraw.Subscribe(1, nil, mqttraw.Filter{Topic: downFilter("c1")})
	unsubscribe := mqttraw.Unsubscribe(1, "a")
	first := func(b byte, packet []byte) []byte { return mqttraw.Bytes([]byte{b}, packet[1:]) }
	return []violation{
		{"remaining length of five bytes, MQTT-1.5.5-1", []byte{0xC0, 0x80, 0x80, 0x80, 0x80, 0}, malformed},
		{"remaining length of five large bytes", []byte{0x30, 0xff, 0xff, 0xff, 0xff, 0x7f}, []byte{0x81, 0x95}},
		{"packet type 0", []byte{0, 0}, either},
		{"flags of SUBSCRIBE, MQTT-3.8.1-1", first(0x80, subscribe), malformed},
		{"flags of UNSUBSCRIBE, MQTT-3.10.1-1", first(0xA0, unsubscribe), malformed},
		{"flags of PINGREQ, MQTT-2.1.3-1", []byte{0xC1, 0}, malformed},
		{"flags of DISCONNECT, MQTT-3.14.1-1", []byte{0xE1, 0}, malformed},
		{"flags of PUBACK, MQTT-2.1.3-1", []byte{0x41, 2, 0, 1}, malformed},
		{"PINGREQ with a body", []byte{0xC0, 1, 0}, either},
		{"second CONNECT, MQTT-3.1.0-2", as("c1").Bytes(), protocol},
		{"CONNACK of a client", []byte{0x20, 3, 0, 0, 0}, either},
		{"SUBACK of a client", []byte{0x90, 4, 0, 1, 0, 0}, either},
		{"UNSUBACK of a client", []byte{0xB0, 4, 0, 1, 0, 0}, either},
		{"PINGRESP of a client", []byte{0xD0, 0}, either},
		{"AUTH unasked, short", []byte{0xF0, 0}, protocol},
		{"AUTH unasked", mqttraw.Packet(mqttraw.AUTH, []byte{0x19}, mqttraw.Props(mqttraw.PropStr(mqttraw.AuthMethod, "x"))), protocol},
	}
}

func publishViolations() []violation {
	topic := up("c1")
	props := func(p ...[]byte) []byte { return mqttraw.Publish(mqttraw.QoS1, 1, topic, "x", p...) }
	twice := func(p []byte) []byte { return props(p, p) }
	return []violation{
		{"QoS 3, MQTT-3.3.1-4", mqttraw.Publish(mqttraw.QoS1|mqttraw.QoS2, 1, topic, "x"), either},
		{"QoS 2, MQTT-3.2.2-11", mqttraw.Publish(mqttraw.QoS2, 1, topic, "x"), []byte{0x9B}},
		{"retained, MQTT-3.2.2-14", mqttraw.Publish(mqttraw.QoS1|mqttraw.Retain, 1, topic, "x"), []byte{0x9A}},
		{"retained with QoS 0, MQTT-3.2.2-14", mqttraw.Publish(mqttraw.Retain, 1, topic, "x"), []byte{0x9A}},
		{"DUP with QoS 0, MQTT-3.3.1-2", mqttraw.Publish(mqttraw.Dup, 0, topic, "x"), either},
		{"packet identifier 0, MQTT-2.2.1-3", mqttraw.Publish(mqttraw.QoS1, 0, topic, "x"), either},
		{"no topic", mqttraw.Publish(mqttraw.QoS1, 1, "", "x"), []byte{0x82}},
		{"topic with +, MQTT-3.3.2-2", mqttraw.Publish(mqttraw.QoS1, 1, "sources/+/clusters/c1/agentevents", "x"), []byte{0x81, 0x82, 0x90}},
		{"topic with #, MQTT-3.3.2-2", mqttraw.Publish(0, 1, "#", "x"), []byte{0x81, 0x82, 0x90}},
		{"topic that is not UTF-8, MQTT-3.3.2-1", mqttraw.Publish(mqttraw.QoS1, 1, "a\xff", "x"), []byte{0x81, 0x90}},
		{"topic with U+0000, MQTT-1.5.4-2", mqttraw.Publish(mqttraw.QoS1, 1, "a\x00", "x"), []byte{0x81, 0x90}},
		{"topic cut off", mqttraw.Packet(0x30, []byte{0, 200}, []byte("sources")), malformed},
		{"no identifier", mqttraw.Packet(0x32, mqttraw.Str(topic)), malformed},
		{"no properties", mqttraw.Packet(0x32, mqttraw.Str(topic), mqttraw.Two(1)), malformed},
		{"empty packet", []byte{0x30, 0}, malformed},
		{"topic alias 0, MQTT-3.3.2-8", props(mqttraw.PropTwo(mqttraw.TopicAlias, 0)), []byte{0x81, 0x82, 0x94}},
		{"topic alias over the maximum, MQTT-3.3.2-9", props(mqttraw.PropTwo(mqttraw.TopicAlias, 1)), []byte{0x94}},
		{"topic alias without a topic", mqttraw.Publish(mqttraw.QoS1, 1, "", "x", mqttraw.PropTwo(mqttraw.TopicAlias, 1)), []byte{0x94}},
		{"subscription identifier, MQTT-3.3.4-6", props(mqttraw.PropVar(mqttraw.SubscriptionID, 1)), protocol},
		{"response topic with +, MQTT-3.3.2-14", props(mqttraw.PropStr(mqttraw.ResponseTopic, "a/+")), []byte{0x81, 0x82, 0x90}},
		{"response topic with #, MQTT-3.3.2-14", props(mqttraw.PropStr(mqttraw.ResponseTopic, "#")), []byte{0x81, 0x82, 0x90}},
		{"response topic that is not UTF-8, MQTT-3.3.2-13", props(mqttraw.PropStr(mqttraw.ResponseTopic, "\xff")), []byte{0x81, 0x90}},
		{"payload format 2", props(mqttraw.PropByte(mqttraw.PayloadFormat, 2)), either},
		{"payload format twice", twice(mqttraw.PropByte(mqttraw.PayloadFormat, 1)), either},
		{"message expiry twice", twice(mqttraw.PropFour(mqttraw.MessageExpiry, 1)), either},
		{"content type twice", twice(mqttraw.PropStr(mqttraw.ContentType, "a")), either},
		{"response topic twice", twice(mqttraw.PropStr(mqttraw.ResponseTopic, "a")), either},
		{"correlation data twice", twice(mqttraw.PropStr(mqttraw.CorrelationData, "a")), either},
		{"topic alias twice", twice(mqttraw.PropTwo(mqttraw.TopicAlias, 1)), []byte{0x81, 0x82, 0x94}},
		{"content type that is not UTF-8, MQTT-3.3.2-19", props(mqttraw.PropStr(mqttraw.ContentType, "\xc0\x80")), malformed},
		{"user property that is not UTF-8", props(mqttraw.User("a", "\xff")), malformed},
		{"user property with U+0000, MQTT-1.5.4-2", props(mqttraw.User("a\x00", "b")), malformed},
		{"property of CONNECT", props(mqttraw.PropFour(mqttraw.SessionExpiry, 1)), either},
		{"unknown property", props([]byte{0x7f}), either},
		{"property identifier of two bytes", props([]byte{0x81, 0x01, 1}), either},
		{"properties longer than the packet", mqttraw.Packet(0x30, mqttraw.Str(topic), []byte{0xff, 0x7f}), malformed},
		{"user property cut off", mqttraw.Packet(0x30, mqttraw.Str(topic), mqttraw.Props([]byte{0x26, 0, 1, 'a', 0, 9, 'b'})), malformed},
	}
}

func subscribeViolations() []violation {
	topic := downFilter("c1")
	options := func(o byte) []byte { return mqttraw.Subscribe(1, nil, mqttraw.Filter{Topic: topic, Options: o}) }
	props := func(p ...[]byte) []byte {
		return mqttraw.Subscribe(1, mqttraw.Bytes(p...), mqttraw.Filter{Topic: topic, Options: 1})
	}
	return []violation{
		{"six bytes that ended mochi-mqtt's process", []byte{0x82, 6, 0, 0, 0, 0, 1, 0x24}, either},
		{"packet identifier 0, MQTT-2.2.1-3", mqttraw.Subscribe(0, nil, mqttraw.Filter{Topic: topic}), either},
		{"no filter, MQTT-3.8.3-2", mqttraw.Subscribe(1, nil), either},
		{"empty filter, MQTT-4.7.3-1", mqttraw.Subscribe(1, nil, mqttraw.Filter{}), []byte{0x81, 0x82, 0x8F}},
		{"filter without options", mqttraw.Packet(0x82, mqttraw.Two(1), mqttraw.Props(), mqttraw.Str(topic)), malformed},
		{"filter that is not UTF-8, MQTT-3.8.3-1", mqttraw.Subscribe(1, nil, mqttraw.Filter{Topic: "a\xff"}), malformed},
		{"filter with U+0000, MQTT-4.7.3-2", mqttraw.Subscribe(1, nil, mqttraw.Filter{Topic: "a\x00"}), []byte{0x81, 0x8F}},
		{"QoS 3", options(3), either},
		{"reserved option 0x40, MQTT-3.8.3-5", options(0x41), either},
		{"reserved option 0x80, MQTT-3.8.3-5", options(0x81), either},
		{"retain handling 3", options(0x31), either},
		{"no local and shared, MQTT-3.8.3-4", mqttraw.Subscribe(1, nil, mqttraw.Filter{Topic: "$share/g/" + topic, Options: mqttraw.NoLocal}), protocol},
		{"subscription identifier", props(mqttraw.PropVar(mqttraw.SubscriptionID, 1)), []byte{0xA1}},
		{"subscription identifier 268435455", props(mqttraw.PropVar(mqttraw.SubscriptionID, 268435455)), []byte{0xA1}},
		{"subscription identifier 0", props(mqttraw.PropVar(mqttraw.SubscriptionID, 0)), either},
		{"subscription identifier twice", props(mqttraw.PropVar(mqttraw.SubscriptionID, 1), mqttraw.PropVar(mqttraw.SubscriptionID, 2)), either},
		{"subscription identifier of five bytes", props(mqttraw.PropVar(mqttraw.SubscriptionID, 1<<28)), malformed},
		{"property of PUBLISH", props(mqttraw.PropByte(mqttraw.PayloadFormat, 1)), either},
		{"empty packet", []byte{0x82, 0}, malformed},
		{"identifier only", []byte{0x82, 2, 0, 1}, malformed},
		{"UNSUBSCRIBE with identifier 0, MQTT-2.2.1-3", mqttraw.Unsubscribe(0, "a"), either},
		{"UNSUBSCRIBE without a filter, MQTT-3.10.3-2", mqttraw.Unsubscribe(1), either},
		{"UNSUBSCRIBE cut off", mqttraw.Packet(0xA2, mqttraw.Two(1), mqttraw.Props(), []byte{0, 9, 'a'}), malformed},
		{"UNSUBSCRIBE that is not UTF-8, MQTT-3.10.3-1", mqttraw.Unsubscribe(1, "\xff"), malformed},
		{"UNSUBSCRIBE with a property of SUBSCRIBE", mqttraw.Packet(0xA2, mqttraw.Two(1), mqttraw.Props(mqttraw.PropVar(mqttraw.SubscriptionID, 1)), mqttraw.Str("a")), either},
	}
}

func otherViolations() []violation {
	return []violation{
		{"PUBACK cut off", []byte{0x40, 1, 0}, malformed},
		{"PUBACK with an unknown property", mqttraw.Packet(mqttraw.PUBACK, mqttraw.Two(1), []byte{0}, mqttraw.Props([]byte{0x7f})), either},
		{"PUBACK with identifier 0", mqttraw.Puback(0), either},
		{"DISCONNECT with the property of PUBLISH", mqttraw.Disconnect(0, mqttraw.PropByte(mqttraw.PayloadFormat, 1)), either},
		{"DISCONNECT with a server reference", mqttraw.Disconnect(0, mqttraw.PropStr(mqttraw.ServerReference, "elsewhere")), either},
		{"DISCONNECT with two reason strings", mqttraw.Disconnect(0, mqttraw.PropStr(mqttraw.ReasonString, "a"), mqttraw.PropStr(mqttraw.ReasonString, "a")), either},
		{"DISCONNECT with a session expiry after none", mqttraw.Disconnect(0, mqttraw.PropFour(mqttraw.SessionExpiry, 9)), protocol},
		{"DISCONNECT with properties cut off", mqttraw.Packet(mqttraw.DISCONNECT, []byte{0, 9, mqttraw.ReasonString}), malformed},
		{"reason string that is not UTF-8", mqttraw.Disconnect(0, mqttraw.PropStr(mqttraw.ReasonString, "\xff")), malformed},
		{"packet over the maximum", []byte{0x30, 0xff, 0xff, 0xff, 0x7f}, []byte{0x95}},
	}
}

// TestOddButAllowed checks packets that look like violations and are none: the connection goes on.
func TestOddButAllowed(t *testing.T) {
	t.Parallel()
	addr := start(t)
	c := connect(t, addr, as("c1"))
	ok := func(name string, packet []byte, kind byte) {
		t.Helper()
		c.Send(packet)
		if p := c.Next(); p.Type != kind || len(p.Codes) > 0 && p.Code() >= 0x80 {
			t.Fatalf("%s: %v", name, p)
		}
	}
	long := []byte{0xC0, 0x80, 0x00} // two bytes where one would do
	for range 3 {
		c.Send(long)
		p, err := mqttraw.Read(c.Reader)
		if err != nil || p.Type != mqttraw.PINGRESP { // MQTT-1.5.5-1 forbids it: the end is right too
			c = connect(t, addr, as("c1"))
		}
	}
	ok("user properties of SUBSCRIBE", mqttraw.Subscribe(2, mqttraw.Bytes(mqttraw.User("a", "b"), mqttraw.User("a", "b")), mqttraw.Filter{Topic: downFilter("c1")}), mqttraw.SUBACK)
	ok("message expiry 0", mqttraw.Publish(mqttraw.QoS1, 3, up("c1"), "x", mqttraw.PropFour(mqttraw.MessageExpiry, 0)), mqttraw.PUBACK)
	ok("identifier 65535", mqttraw.Publish(mqttraw.QoS1, 65535, up("c1"), "x"), mqttraw.PUBACK)
	ok("identifier used again", mqttraw.Publish(mqttraw.QoS1, 65535, up("c1"), "x"), mqttraw.PUBACK)
	ok("payload that is not UTF-8", mqttraw.Publish(mqttraw.QoS1, 4, up("c1"), "\xff\x00"), mqttraw.PUBACK)
	ok("response topic with spaces", mqttraw.Publish(mqttraw.QoS1, 5, up("c1"), "", mqttraw.PropStr(mqttraw.ResponseTopic, "a b/$c//")), mqttraw.PUBACK)
	ok("long user property", mqttraw.Publish(mqttraw.QoS1, 6, up("c1"), "", mqttraw.User(strings.Repeat("k", 65535), strings.Repeat("v", 65535))), mqttraw.PUBACK)
	c.Send(mqttraw.Puback(77), mqttraw.Packet(mqttraw.PUBACK, mqttraw.Two(78), []byte{0x80}), mqttraw.Packet(mqttraw.PUBACK, mqttraw.Two(79), []byte{0}, mqttraw.Props(mqttraw.PropStr(mqttraw.ReasonString, "why"), mqttraw.User("a", "b"))))
	c.ping() // acknowledgements of messages that were not sent are ignored
}
