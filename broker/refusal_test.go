package broker_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
)

// TestRefusals checks that work-broker refuses with MQTT's reason code, logs and counts each
// refusal, and does not end the connection.
func TestRefusals(t *testing.T) {
	var log kit.Log
	b := brokertest.Start(t, broker.Config{Users: withMonitor(), HTTPAddress: "127.0.0.1:0", Logger: log.Logger()})
	c := dial(t, b.Addr, options{user: "c1"})
	for _, filter := range []string{"#", "sources/+/clusters/+/sourceevents", "$share/g/sources/+/clusters/c2/sourceevents", "$SYS/#"} {
		if code := c.subscribe(filter); code != 0x87 {
			t.Errorf("subscribe to %s: reason 0x%x, want 0x87 (not authorised)", filter, code)
		}
		if !strings.Contains(log.String(), "filter="+filter) && !strings.Contains(log.String(), `filter="`+filter) {
			t.Errorf("the log does not mention %s", filter)
		}
	}
	for _, topic := range []string{specTopic, "other", "$SYS/broker/version"} {
		if code := c.publish(topic, "the-payload"); code != 0x87 {
			t.Errorf("publish to %s: reason 0x%x, want 0x87 (not authorised)", topic, code)
		}
		if !strings.Contains(log.String(), "topic="+topic) {
			t.Errorf("the log does not mention %s", topic)
		}
	}
	if _, err := c.Publish(t.Context(), &paho.Publish{Topic: specTopic, Payload: []byte("the-payload")}); err != nil {
		t.Fatal(err)
	}
	if code := c.publish("clusters/c1/agentbroadcast", "x"); code != 0x10 {
		t.Errorf("after all that, its own topic, which nobody subscribes to: reason 0x%x", code)
	}
	for _, action := range []string{"publish", "subscribe"} {
		if got := scrape(t, b, "workwire_broker_acl_denials_total", "action="+action); got != 4 {
			t.Errorf("denials of %s counted: %v, want 4", action, got)
		}
	}

	_, err := tryDial(t, b.Addr, options{user: "c1", clientID: "w", will: &paho.WillMessage{Topic: specTopic, QoS: 1, Payload: []byte("the-payload")}})
	if err == nil || !strings.Contains(err.Error(), "ot authorized") {
		t.Errorf("a will to another's topic: %v, want not authorised", err)
	}
	for name, o := range map[string]options{
		"anonymous": {anonymous: true, clientID: "x"},
		"password":  {user: "c1", password: "the-wrong-password"},
	} {
		refused, err := tryDial(t, b.Addr, o)
		if err == nil || refused.connack == nil || refused.connack.ReasonCode != 0x86 {
			t.Errorf("%s: %v, want CONNACK 0x86", name, err)
		}
		if got := scrape(t, b, "workwire_broker_auth_failures_total", "reason="+name); got != 1 {
			t.Errorf("%s failures counted: %v", name, got)
		}
	}
	for _, line := range [][]string{ // docs/brokers.md, Who was given access
		{`msg="client connected"`, "audit=connect", "decision=granted", "identity=agent:c1"},
		{`msg="client refused"`, "audit=connect", "decision=refused", `identity=""`, "username=c1"},
		{`msg="client refused"`, "audit=connect", "decision=refused", "identity=agent:c1"},
		{`msg="message refused`, "audit=publish", "decision=refused", "identity=agent:c1", "remote=127.0.0.1:"},
		{`msg="subscription refused"`, "audit=subscribe", "decision=refused", "identity=agent:c1"},
	} {
		if len(log.Lines(line...)) == 0 {
			t.Errorf("there is no line with %q", line)
		}
	}
	for _, secret := range []string{"the-payload", "the-wrong-password", password} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log contains %q", secret)
		}
	}
}

// TestAcknowledgementsInOrder checks that acknowledgements have the order of the messages, whether
// these are accepted or refused, as MQTT requires.
func TestAcknowledgementsInOrder(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users()})
	agent := dial(t, b.Addr, options{user: "c1", expiry: 3600})
	agent.mustSubscribe(specFilter)
	agent.drop()
	raw := dialRaw(t, b.Addr, "hub1")
	raw.Connect("hub1", 0)
	for id := uint16(1); id <= 100; id++ {
		topic := specTopic // goes to disk
		if id%2 == 0 {
			topic = "sources/hub2/sourcebroadcast" // refused at once
		}
		kit.NoError(t, raw.Publish(id, topic, nil))
	}
	for id := uint16(1); id <= 100; id++ {
		ack, ok := raw.Next().(*packets.Puback)
		if !ok || ack.PacketID != id || (ack.ReasonCode == 0x87) != (id%2 == 0) {
			t.Fatalf("acknowledgement %d is %v", id, ack)
		}
	}
}

func TestPacketSize(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users()})
	source := dial(t, b.Addr, options{user: "hub1"})
	if got := source.connack.Properties.MaximumPacketSize; got == nil || *got != broker.DefaultMaxPacketSize {
		t.Fatalf("maximum packet size announced: %v, want %d", got, broker.DefaultMaxPacketSize)
	}
	agent := dial(t, b.Addr, options{user: "c1"})
	agent.mustSubscribe(specFilter)
	small := dial(t, b.Addr, options{user: "c1", clientID: "small", maxPacketSize: 1000})
	small.mustSubscribe(specFilter)

	// A large work has 500 KiB. A client with a smaller maximum misses this message only.
	source.publish(specTopic, strings.Repeat("x", 500<<10))
	source.publish(specTopic, "end")
	if got := agent.payloads(2); len(got[0]) != 500<<10 || got[1] != "end" {
		t.Error("500 KiB did not come through")
	}
	if got := small.payloads(1); got[0] != "end" {
		t.Errorf("the client with a small maximum got %d bytes", len(got[0]))
	}

	for _, test := range []struct {
		over int
		want byte
	}{{0, 0}, {1, 0x95}} {
		raw := dialRaw(t, b.Addr, "hub1")
		raw.Connect("raw", 0)
		publish := packets.Publish{Topic: specTopic, QoS: 1, PacketID: 1, Properties: &packets.Properties{}}
		overhead := 1 + 3 + 2 + len(specTopic) + 2 + 1 // type, length, topic, packet id, properties
		publish.Payload = make([]byte, broker.DefaultMaxPacketSize-overhead+test.over)
		raw.Send(&publish)
		switch answer := raw.Next().(type) {
		case *packets.Puback:
			if test.want != 0 {
				t.Errorf("a packet %d bytes too large was taken", test.over)
			}
		case *packets.Disconnect:
			if answer.ReasonCode != test.want {
				t.Errorf("%d bytes over: disconnected with 0x%x, want 0x%x", test.over, answer.ReasonCode, test.want)
			}
			raw.ExpectEnd()
		default:
			t.Errorf("answered with %v", answer)
		}
	}
}

func TestConnectTooLarge(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users(), MaxPacketSize: 2000})
	raw := dialRaw(t, b.Addr, "hub1")
	raw.Send(&packets.Connect{ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: strings.Repeat("x", 3000), Properties: &packets.Properties{}})
	if answer, ok := raw.Next().(*packets.Connack); !ok || answer.ReasonCode != 0x95 {
		t.Errorf("answered with %v, want CONNACK 0x95", answer)
	}
	raw.ExpectEnd()
}

func TestReceiveMaximum(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users(), ReceiveMaximum: 5})
	agent := dial(t, b.Addr, options{user: "c1", expiry: 3600})
	agent.mustSubscribe(specFilter)
	agent.drop()
	raw := dialRaw(t, b.Addr, "hub1")
	connack := raw.Connect("hub1", 0)
	if got := connack.Properties.ReceiveMaximum; got == nil || *got != 5 {
		t.Errorf("receive maximum announced: %v, want 5", got)
	}
	// 100 messages at once exceed the maximum: the disk is slower.
	var burst bytes.Buffer
	for id := uint16(1); id <= 100; id++ {
		_, _ = (&packets.Publish{Topic: specTopic, QoS: 1, PacketID: id, Properties: &packets.Properties{}}).WriteTo(&burst)
	}
	if _, err := raw.Write(burst.Bytes()); err != nil {
		t.Fatal(err)
	}
	for {
		switch answer := raw.Next().(type) {
		case *packets.Puback:
			continue
		case *packets.Disconnect:
			if answer.ReasonCode != 0x93 {
				t.Errorf("disconnected with 0x%x, want 0x93 (receive maximum exceeded)", answer.ReasonCode)
			}
		default:
			t.Errorf("answered with %v", answer)
		}
		return
	}
}

func TestNoQoS2(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users()})
	agent := dial(t, b.Addr, options{user: "c1"})
	ack, err := agent.Subscribe(t.Context(), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: specFilter, QoS: 2}}})
	if err != nil || ack.Reasons[0] != 1 {
		t.Errorf("a subscription with QoS 2 is granted %v, %v; want QoS 1", ack, err)
	}
	raw := dialRaw(t, b.Addr, "hub1")
	if connack := raw.Connect("hub1", 0); connack.Properties.MaximumQOS == nil || *connack.Properties.MaximumQOS != 1 {
		t.Error("the maximum QoS announced is not 1")
	}
	raw.Send(&packets.Publish{Topic: specTopic, QoS: 2, PacketID: 1, Properties: &packets.Properties{}})
	if answer, ok := raw.Next().(*packets.Disconnect); !ok || answer.ReasonCode != 0x9b {
		t.Errorf("answered with %v, want DISCONNECT 0x9b (QoS not supported)", answer)
	}
}

func TestOldProtocolVersion(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users()})
	raw := dialRaw(t, b.Addr, "c1")
	// MQTT 3.1.1: protocol name, version 4, flags, keep alive, client id.
	if _, err := raw.Write([]byte{0x10, 13, 0, 4, 'M', 'Q', 'T', 'T', 4, 2, 0, 60, 0, 1, 'x'}); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 4)
	if _, err := raw.Reader.Read(answer); err != nil || answer[0] != 0x20 || answer[3] != 1 {
		t.Errorf("answered with %x, %v; want CONNACK with return code 1 (unacceptable protocol version)", answer, err)
	}
}

// TestMonitoring checks metrics and health, and that the role of what reads them has no topic.
func TestMonitoring(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: withMonitor(), HTTPAddress: "127.0.0.1:0"})
	watch := dial(t, b.Addr, options{user: "watch", expiry: 3600})
	for _, filter := range []string{"$SYS/#", "sources/+/sourcebroadcast"} {
		if code := watch.subscribe(filter); code != 0x87 {
			t.Errorf("a monitor subscribes to %s: reason 0x%x, want 0x87 (not authorised)", filter, code)
		}
	}
	agent := dial(t, b.Addr, options{user: "c1"})
	agent.mustSubscribe(specFilter)
	source := dial(t, b.Addr, options{user: "hub1"})
	source.publish("sources/hub1/sourcebroadcast", "x")
	for metric, want := range map[string]float64{
		"workwire_broker_clients_connected":       3,
		"workwire_broker_sessions":                3,
		"workwire_broker_subscriptions":           1,
		"workwire_broker_messages_received_total": 1,
		"workwire_broker_messages_queued":         0,
	} {
		if got := scrape(t, b, metric); got != want {
			t.Errorf("%s is %v, want %v", metric, got, want)
		}
	}
	if scrape(t, b, "workwire_broker_bytes_received_total") == 0 || scrape(t, b, "workwire_broker_bytes_sent_total") == 0 {
		t.Error("bytes are not counted")
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		body, err := io.ReadAll(get(t, b, path))
		if err != nil || string(body) != "ok\n" {
			t.Errorf("%s returns %q, %v", path, body, err)
		}
	}
}
