package mqtt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	mqttbinding "github.com/cloudevents/sdk-go/protocol/mqtt_paho/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/eclipse/paho.golang/paho"

	"github.com/workwire/workwire/pkg/transport"
)

// maxText is the greatest length in bytes of a string in an MQTT packet. paho
// cuts longer ones off without a word, so they must not get there.
const maxText = 65535

// encode gives the packet that carries e in MQTT's binary mode
// (docs/protocol.md, Encoding).
func encode(ctx context.Context, topic string, e *cloudevents.Event, qos byte) (*paho.Publish, error) {
	if err := checkTopic(topic); err != nil {
		return nil, err
	}
	if err := e.Validate(); err != nil {
		return nil, fmt.Errorf("it is no valid CloudEvent: %w", err)
	}
	p := &paho.Publish{QoS: qos, Topic: topic}
	ctx = binding.WithPreferredEventEncoding(ctx, binding.EncodingBinary)
	if err := mqttbinding.WritePubMessage(ctx, binding.ToMessage(e), p); err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	for _, attribute := range p.Properties.User {
		if err := checkText(attribute.Key, attribute.Value); err != nil {
			return nil, err
		}
	}
	return p, checkText("datacontenttype", p.Properties.ContentType)
}

func checkText(attribute, value string) error {
	attribute = strings.TrimPrefix(attribute, "ce-")
	switch {
	case len(value) > maxText:
		return &transport.TooLargeError{Attribute: attribute, Size: len(value), Limit: maxText}
	case !utf8.ValidString(value) || strings.ContainsRune(value, 0):
		return fmt.Errorf("event attribute %s is no UTF-8 text, or holds a zero byte, which MQTT can not carry", attribute)
	default:
		return nil
	}
}

func checkTopic(topic string) error {
	switch {
	case topic == "":
		return errors.New("the topic is empty")
	case strings.ContainsAny(topic, "+#"):
		return errors.New("the topic holds a wildcard: fill in the ids first")
	default:
		return checkText("topic", topic)
	}
}

// packetSize is the length in bytes of p on the wire.
func packetSize(p *paho.Publish) int {
	const lengthOfText, lengthOfPair = 2, 1 + 2 + 2
	properties := 0
	if p.Properties.ContentType != "" {
		properties += 1 + lengthOfText + len(p.Properties.ContentType)
	}
	for _, u := range p.Properties.User {
		properties += lengthOfPair + len(u.Key) + len(u.Value)
	}
	remaining := lengthOfText + len(p.Topic) + lengthOfNumber(properties) + properties + len(p.Payload)
	if p.QoS > 0 {
		remaining += 2 // packet identifier
	}
	return 1 + lengthOfNumber(remaining) + remaining
}

// lengthOfNumber is the length of n as MQTT's variable byte integer.
func lengthOfNumber(n int) int {
	length := 1
	for ; n >= 128; n /= 128 {
		length++
	}
	return length
}

// decode gives the event that p carries, in binary or structured mode.
func decode(ctx context.Context, p *paho.Publish) (cloudevents.Event, error) {
	e, err := binding.ToEvent(ctx, mqttbinding.NewMessage(p))
	if err == nil {
		err = e.Validate()
	}
	if err != nil {
		return cloudevents.Event{}, fmt.Errorf("message on topic %s is no CloudEvent: %w", p.Topic, err)
	}
	return *e, nil
}
