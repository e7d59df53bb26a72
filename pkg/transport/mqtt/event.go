package mqtt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	mqttbinding "github.com/cloudevents/sdk-go/protocol/mqtt_paho/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
	"github.com/eclipse/paho.golang/paho"

	"github.com/workwire/workwire/pkg/transport"
)

// maxTextLength is the maximum length in bytes of a string in an MQTT packet. paho truncates longer
// ones silently.
const maxTextLength = 65535

// encode returns the packet for e in the binary content mode (docs/protocol.md, Encoding).
func encode(ctx context.Context, topic string, e *cloudevents.Event, qos byte) (*paho.Publish, error) {
	if err := checkTopic(topic); err != nil {
		return nil, err
	}
	if err := e.Validate(); err != nil {
		return nil, fmt.Errorf("invalid CloudEvent: %w", err)
	}
	p := &paho.Publish{QoS: qos, Topic: topic}
	ctx = binding.WithPreferredEventEncoding(ctx, binding.EncodingBinary)
	if err := mqttbinding.WritePubMessage(ctx, binding.ToMessage(e), p); err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	if seconds, ok := expiry(e, time.Now()); ok {
		p.Properties.MessageExpiry = &seconds
	}
	for _, attribute := range p.Properties.User {
		if err := checkText(attribute.Key, attribute.Value); err != nil {
			return nil, err
		}
	}
	return p, checkText("datacontenttype", p.Properties.ContentType)
}

// expiry returns for how many seconds a broker may keep e, at least one, and false if e has no
// extension expirytime (docs/protocol.md, Transport).
func expiry(e *cloudevents.Event, now time.Time) (uint32, bool) {
	at, err := types.ToTime(e.Extensions()["expirytime"])
	if err != nil {
		return 0, false
	}
	left := min(max(at.Sub(now), time.Second), maxExpiry)
	return uint32(left.Round(time.Second) / time.Second), true
}

// maxExpiry is the longest expiry of an event; MQTT allows 136 years.
const maxExpiry = 10 * 365 * 24 * time.Hour

func checkText(attribute, value string) error {
	attribute = strings.TrimPrefix(attribute, "ce-")
	switch {
	case len(value) > maxTextLength:
		return &transport.TooLargeError{Attribute: attribute, Size: len(value), Limit: maxTextLength}
	case !utf8.ValidString(value) || strings.ContainsRune(value, 0):
		return fmt.Errorf("event attribute %s must be UTF-8 without zero bytes", attribute)
	default:
		return nil
	}
}

func checkTopic(topic string) error {
	switch {
	case topic == "":
		return errors.New("the topic is empty")
	case strings.ContainsAny(topic, "+#"):
		return errors.New("the topic must not contain wildcards")
	default:
		return checkText("topic", topic)
	}
}

// packetSize returns the size in bytes of p on the wire.
func packetSize(p *paho.Publish) int {
	const lengthOfText, lengthOfPair = 2, 1 + 2 + 2
	properties := 0
	if p.Properties.ContentType != "" {
		properties += 1 + lengthOfText + len(p.Properties.ContentType)
	}
	if p.Properties.MessageExpiry != nil {
		properties += 1 + 4
	}
	for _, u := range p.Properties.User {
		properties += lengthOfPair + len(u.Key) + len(u.Value)
	}
	remaining := lengthOfText + len(p.Topic) + varIntSize(properties) + properties + len(p.Payload)
	if p.QoS > 0 {
		remaining += 2 // packet identifier
	}
	return 1 + varIntSize(remaining) + remaining
}

// varIntSize returns the size of n as a variable byte integer.
func varIntSize(n int) int {
	length := 1
	for ; n >= 128; n /= 128 {
		length++
	}
	return length
}

// decode returns the event in p, which may be in the binary or the structured content mode.
func decode(ctx context.Context, p *paho.Publish) (cloudevents.Event, error) {
	e, err := binding.ToEvent(ctx, mqttbinding.NewMessage(p))
	if err == nil {
		err = e.Validate()
	}
	if err != nil {
		return cloudevents.Event{}, fmt.Errorf("message on topic %s is not a CloudEvent: %w", p.Topic, err)
	}
	return *e, nil
}
