package wire_test

import (
	_ "embed"
	"slices"
	"strings"
	"testing"

	mqtt "github.com/cloudevents/sdk-go/protocol/mqtt_paho/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/eclipse/paho.golang/paho"

	"github.com/workwire/workwire/pkg/wire"
)

//go:embed testdata/exchange.txt
var exchange string

// packet is a message as it stands on a broker.
type packet struct {
	topic      string
	properties map[string]string
	payload    string
}

// fixtures reads testdata/exchange.txt.
func fixtures(t testing.TB) map[string]packet {
	t.Helper()
	packets := map[string]packet{}
	for line := range strings.Lines(exchange) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.SplitN(line, "|", 4)
		if len(parts) != 4 {
			t.Fatalf("testdata/exchange.txt: %.60q has not four parts", line)
		}
		p := packet{topic: parts[1], properties: map[string]string{}, payload: parts[3]}
		for _, property := range strings.Split(" "+parts[2], " ce-")[1:] {
			name, value, _ := strings.Cut(property, ":")
			p.properties["ce-"+name] = value
		}
		packets[parts[0]] = p
	}
	return packets
}

func fixture(t testing.TB, name string) packet {
	t.Helper()
	p, ok := fixtures(t)[name]
	if !ok {
		t.Fatalf("testdata/exchange.txt has no message %q", name)
	}
	return p
}

// event reads the packet with the binding that the MQTT transport uses.
func (p packet) event(t testing.TB) cloudevents.Event {
	t.Helper()
	publish := &paho.Publish{Topic: p.topic, Properties: &paho.PublishProperties{ContentType: "application/json"}}
	if p.payload != "" {
		publish.Payload = []byte(p.payload)
	}
	for name, value := range p.properties {
		publish.Properties.User.Add(name, value)
	}
	e, err := binding.ToEvent(t.Context(), mqtt.NewMessage(publish))
	if err != nil {
		t.Fatalf("read the packet as an event: %v", err)
	}
	return *e
}

// packetOf writes e with the binding that the MQTT transport uses.
func packetOf(t testing.TB, topic string, e cloudevents.Event) packet {
	t.Helper()
	if err := e.Validate(); err != nil {
		t.Fatalf("event is not valid: %v", err)
	}
	publish := &paho.Publish{}
	if err := mqtt.WritePubMessage(t.Context(), binding.ToMessage(&e), publish); err != nil {
		t.Fatalf("write the event as a packet: %v", err)
	}
	p := packet{topic: topic, properties: map[string]string{}, payload: string(publish.Payload)}
	for _, property := range publish.Properties.User {
		if _, twice := p.properties[property.Key]; twice {
			t.Errorf("user property %s is there twice", property.Key)
		}
		p.properties[property.Key] = property.Value
	}
	return p
}

func decoded(t testing.TB, name string) wire.Message {
	t.Helper()
	m, err := wire.Decode(fixture(t, name).event(t))
	if err != nil {
		t.Fatalf("Decode(%s): %v", name, err)
	}
	return m
}

// names lists the fixtures in order.
func names(t testing.TB) []string {
	t.Helper()
	var all []string
	for name := range fixtures(t) {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
