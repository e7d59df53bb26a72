package packet

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/eclipse/paho.golang/packets"
	"github.com/google/go-cmp/cmp"

	"github.com/workwire/workwire/broker/session"
	"github.com/workwire/workwire/test/kit"
)

func TestParseHeader(t *testing.T) {
	for in, want := range map[string]struct {
		length int  // -1: not complete
		code   byte // of the error
	}{
		"":                         {-1, 0},
		"\x10":                     {-1, 0},
		"\x10\x80":                 {-1, 0},
		"\x10\x00":                 {0, 0},
		"\x10\x7f":                 {127, 0},
		"\x10\x80\x01":             {128, 0},
		"\x10\xff\xff\xff\x7f":     {268435455, 0},
		"\x10\xff\xff\xff":         {-1, 0},
		"\x10\xff\xff\xff\xff":     {0, Malformed},
		"\x10\xff\xff\xff\xff\x00": {0, Malformed},
		"\xc0\x80\x80\x80\x80\x00": {0, Malformed},
		"\xc0\x80\x00":             {0, Malformed},
		"\x00\x00":                 {0, Malformed},
		"\x11\x00":                 {0, Malformed},
		"\x20\x00":                 {0, ProtocolError},
		"\x90\x00":                 {0, ProtocolError},
		"\x80\x00":                 {0, Malformed},
		"\x82\x00":                 {0, 0},
		"\x30\x00":                 {0, 0},
		"\x31\x00":                 {0, RetainUnsupported},
		"\x32\x00":                 {0, 0},
		"\x3a\x00":                 {0, 0},
		"\x34\x00":                 {0, QoSUnsupported},
		"\x36\x00":                 {0, Malformed},
		"\x38\x00":                 {0, Malformed},
		"\xf1\x00":                 {0, Malformed},
	} {
		h, ok, err := ParseHeader([]byte(in))
		if code := codeOf(t, err); code != want.code || code == 0 && (ok != (want.length >= 0) || ok && h.Length != want.length) {
			t.Errorf("%x: %+v, %v, %v", in, h, ok, err)
		}
	}
}

// codeOf returns the reason code of an error of this package, 0 for nil.
func codeOf(t *testing.T, err error) byte {
	t.Helper()
	if err == nil {
		return 0
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("an error of another type: %v", err)
	}
	return e.Code
}

// decode decodes the packet at the start of data as the broker does.
func decode(data []byte) (any, error) {
	h, ok, err := ParseHeader(data)
	if err != nil || !ok || len(data) < h.Size+h.Length {
		return nil, err
	}
	body := data[h.Size : h.Size+h.Length]
	switch h.Type() {
	case TypeConnect:
		return DecodeConnect(body)
	case TypePublish:
		m, id, expiry, err := DecodePublish(h.Flags(), body)
		return publish{m, id, expiry}, err
	case TypePuback:
		id, code, err := DecodePuback(body)
		return puback{id, code}, err
	case TypeSubscribe:
		return DecodeSubscribe(body)
	case TypeUnsubscribe:
		return DecodeUnsubscribe(body)
	case TypeDisconnect:
		return DecodeDisconnect(body)
	}
	return nil, nil
}

// puback is what DecodePuback returns.
type puback struct {
	ID   uint16
	Code byte
}

type publish struct {
	*session.Message
	id     uint16
	expiry *uint32
}

func TestDecodeRefuses(t *testing.T) {
	const connect = "\x00\x04MQTT\x05"
	for name, test := range map[string]struct {
		first byte
		body  string
		want  byte
	}{
		"CONNECT, another protocol":         {0x10, "\x00\x04MQTX\x05\x02\x00\x3c\x00\x00\x00", UnsupportedVersion},
		"CONNECT, reserved flag":            {0x10, connect + "\x01\x00\x3c\x00\x00\x00", Malformed},
		"CONNECT, will QoS without a will":  {0x10, connect + "\x08\x00\x3c\x00\x00\x00", Malformed},
		"CONNECT, retain without a will":    {0x10, connect + "\x20\x00\x3c\x00\x00\x00", Malformed},
		"CONNECT, will QoS 3":               {0x10, connect + "\x1c\x00\x3c\x00\x00\x00\x00\x00\x01t\x00\x00", Malformed},
		"CONNECT, will QoS 2":               {0x10, connect + "\x14\x00\x3c\x00\x00\x00\x00\x00\x01t\x00\x00", QoSUnsupported},
		"CONNECT, retained will":            {0x10, connect + "\x24\x00\x3c\x00\x00\x00\x00\x00\x01t\x00\x00", RetainUnsupported},
		"CONNECT, will with a wildcard":     {0x10, connect + "\x04\x00\x3c\x00\x00\x00\x00\x00\x01#\x00\x00", BadTopicName},
		"CONNECT, will without a topic":     {0x10, connect + "\x04\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00", BadTopicName},
		"CONNECT, Receive Maximum 0":        {0x10, connect + "\x02\x00\x3c\x03\x21\x00\x00\x00\x00", ProtocolError},
		"CONNECT, Receive Maximum twice":    {0x10, connect + "\x02\x00\x3c\x06\x21\x00\x01\x21\x00\x01\x00\x00", ProtocolError},
		"CONNECT, Maximum Packet Size 0":    {0x10, connect + "\x02\x00\x3c\x05\x27\x00\x00\x00\x00\x00\x00", ProtocolError},
		"CONNECT, problem information 2":    {0x10, connect + "\x02\x00\x3c\x02\x17\x02\x00\x00", ProtocolError},
		"CONNECT, a property of PUBLISH":    {0x10, connect + "\x02\x00\x3c\x03\x23\x00\x01\x00\x00", Malformed},
		"CONNECT, property 127":             {0x10, connect + "\x02\x00\x3c\x02\x7f\x00\x00\x00", Malformed},
		"CONNECT, auth data without method": {0x10, connect + "\x02\x00\x3c\x03\x16\x00\x00\x00\x00", ProtocolError},
		"CONNECT, client id not UTF-8":      {0x10, connect + "\x02\x00\x3c\x00\x00\x01\xff", Malformed},
		"CONNECT, client id with null":      {0x10, connect + "\x02\x00\x3c\x00\x00\x01\x00", Malformed},
		"CONNECT, more than its fields":     {0x10, connect + "\x02\x00\x3c\x00\x00\x00x", Malformed},
		"CONNECT, less than its fields":     {0x10, connect + "\x82\x00\x3c\x00\x00\x00", Malformed},
		"CONNECT, properties beyond it":     {0x10, connect + "\x02\x00\x3c\x7f\x00\x00", Malformed},

		"PUBLISH, no topic":             {0x30, "\x00\x00\x00", ProtocolError},
		"PUBLISH, topic alias":          {0x30, "\x00\x00\x03\x23\x00\x01", BadTopicAlias},
		"PUBLISH, topic alias 0":        {0x30, "\x00\x01t\x03\x23\x00\x00", BadTopicAlias},
		"PUBLISH, wildcard":             {0x30, "\x00\x03a/+\x00", BadTopicName},
		"PUBLISH, topic not UTF-8":      {0x30, "\x00\x02\xc0\x80\x00", Malformed},
		"PUBLISH, packet id 0":          {0x32, "\x00\x01t\x00\x00\x00", ProtocolError},
		"PUBLISH, subscription id":      {0x30, "\x00\x01t\x02\x0b\x01", ProtocolError},
		"PUBLISH, payload format 2":     {0x30, "\x00\x01t\x02\x01\x02", ProtocolError},
		"PUBLISH, content type twice":   {0x30, "\x00\x01t\x08\x03\x00\x01a\x03\x00\x01a", ProtocolError},
		"PUBLISH, response topic #":     {0x30, "\x00\x01t\x04\x08\x00\x01#", ProtocolError},
		"PUBLISH, empty":                {0x30, "", Malformed},
		"PUBLISH, 65 user properties":   {0x30, "\x00\x01t\xc5\x02" + strings.Repeat("\x26\x00\x00\x00\x00", 65), QuotaExceeded},
		"PUBLISH, properties too long":  {0x30, "\x00\x01t\x80\x80\x80\x80\x01", Malformed},
		"PUBLISH, properties beyond it": {0x30, "\x00\x01t\x05\x01", Malformed},

		"PUBACK, packet id 0":   {0x40, "\x00\x00", ProtocolError},
		"PUBACK, reason 1":      {0x40, "\x00\x01\x01", ProtocolError},
		"PUBACK, a topic alias": {0x40, "\x00\x01\x00\x03\x23\x00\x01", Malformed},

		"SUBSCRIBE, mochi's issue 501":       {0x82, "\x00\x00\x00\x00\x01\x24", ProtocolError},
		"SUBSCRIBE, without options":         {0x82, "\x00\x01\x00\x00\x01\x24", Malformed},
		"SUBSCRIBE, packet id 0":             {0x82, "\x00\x00\x00\x00\x01t\x00", ProtocolError},
		"SUBSCRIBE, no filter":               {0x82, "\x00\x01\x00", ProtocolError},
		"SUBSCRIBE, empty filter":            {0x82, "\x00\x01\x00\x00\x00\x00", Malformed},
		"SUBSCRIBE, subscription id":         {0x82, "\x00\x01\x02\x0b\x07\x00\x01t\x00", SubIDsUnsupported},
		"SUBSCRIBE, subscription id 0":       {0x82, "\x00\x01\x02\x0b\x00\x00\x01t\x00", ProtocolError},
		"SUBSCRIBE, subscription id twice":   {0x82, "\x00\x01\x04\x0b\x01\x0b\x02\x00\x01t\x00", ProtocolError},
		"SUBSCRIBE, QoS 3":                   {0x82, "\x00\x01\x00\x00\x01t\x03", ProtocolError},
		"SUBSCRIBE, retain handling 3":       {0x82, "\x00\x01\x00\x00\x01t\x30", ProtocolError},
		"SUBSCRIBE, reserved bits":           {0x82, "\x00\x01\x00\x00\x01t\x40", Malformed},
		"SUBSCRIBE, shared with No Local":    {0x82, "\x00\x01\x00\x00\x0a$share/g/t\x04", ProtocolError},
		"SUBSCRIBE, more than 1000 filters":  {0x82, "\x00\x01\x00" + strings.Repeat("\x00\x01t\x00", 1001), QuotaExceeded},
		"UNSUBSCRIBE, no filter":             {0xa2, "\x00\x01\x00", ProtocolError},
		"UNSUBSCRIBE, a subscription id":     {0xa2, "\x00\x01\x02\x0b\x01\x00\x01t", Malformed},
		"DISCONNECT, reason of servers":      {0xe0, "\x8e", ProtocolError},
		"DISCONNECT, a server reference":     {0xe0, "\x00\x03\x1c\x00\x00", Malformed},
		"DISCONNECT, session expiry twice":   {0xe0, "\x00\x0a\x11\x00\x00\x00\x01\x11\x00\x00\x00\x01", ProtocolError},
		"DISCONNECT, more than its property": {0xe0, "\x00\x00x", Malformed},
	} {
		_, err := decode(append(appendHeader(nil, test.first, len(test.body)), test.body...))
		if got := codeOf(t, err); got != test.want {
			t.Errorf("%s: 0x%02X (%v), want 0x%02X", name, got, err, test.want)
		}
	}
}

// TestDecode decodes what paho's codec encodes.
func TestDecode(t *testing.T) {
	two, hour := uint16(2), uint32(3600)
	for _, test := range []struct {
		in   packets.Packet
		want any
	}{
		{&packets.Connect{
			ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: "c", KeepAlive: 43691, CleanStart: true,
			UsernameFlag: true, Username: "u", PasswordFlag: true, Password: []byte("p\x00"),
			Properties: &packets.Properties{SessionExpiryInterval: &hour, ReceiveMaximum: &two, RequestProblemInfo: new(byte)},
			WillFlag:   true, WillTopic: "w", WillQOS: 1, WillProperties: &packets.Properties{WillDelayInterval: &hour},
		}, &Connect{
			Version: 5, ClientID: "c", CleanStart: true, KeepAlive: 43691, HasUsername: true, Username: "u", Password: []byte("p\x00"),
			SessionExpiry: 3600, ReceiveMaximum: 2, NoProblemInfo: true,
			Will: &session.Will{Delay: 3600, Message: session.Message{Topic: "w", Payload: []byte{}, QoS: 1}},
		}},
		{&packets.Subscribe{PacketID: 3, Properties: &packets.Properties{}, Subscriptions: []packets.SubOptions{
			{Topic: "a/+", QoS: 2, NoLocal: true}, {Topic: "#", RetainHandling: 2, RetainAsPublished: true},
		}}, Subscribe{ID: 3, Subscriptions: []session.Subscription{{Filter: "a/+", QoS: 1, NoLocal: true}, {Filter: "#"}}}},
		{&packets.Unsubscribe{PacketID: 4, Properties: &packets.Properties{}, Topics: []string{"a", "b"}},
			Subscribe{ID: 4, Subscriptions: []session.Subscription{{Filter: "a"}, {Filter: "b"}}}},
		{&packets.Puback{PacketID: 5, ReasonCode: 0x97, Properties: &packets.Properties{ReasonString: "full"}}, puback{5, 0x97}},
		{&packets.Disconnect{ReasonCode: 4, Properties: &packets.Properties{SessionExpiryInterval: &hour}}, Disconnect{4, &hour}},
	} {
		var data bytes.Buffer
		_, err := test.in.WriteTo(&data)
		kit.NoError(t, err)
		got, err := decode(data.Bytes())
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("%T: %v\n%s", test.in, err, diff)
		}
	}
	for body, want := range map[string]Disconnect{"": {}, "\x04": {Code: 4}, "\x04\x00": {Code: 4}} {
		if got, err := DecodeDisconnect([]byte(body)); err != nil || got != want {
			t.Errorf("DISCONNECT %x: %+v, %v", body, got, err)
		}
	}
	for body, want := range map[string]puback{"\x00\x01": {1, 0}, "\x00\x01\x10": {1, 0x10}, "\x00\x01\x00\x00": {1, 0}} {
		if id, code, err := DecodePuback([]byte(body)); err != nil || (puback{id, code}) != want {
			t.Errorf("PUBACK %x: %d, %#x, %v", body, id, code, err)
		}
	}
}

// TestEncode decodes with paho's codec what this package encodes.
func TestEncode(t *testing.T) {
	hour := uint32(3600)
	m := &session.Message{
		Topic: "a/b", Payload: bytes.Repeat([]byte("x"), 300), ContentType: "json", ResponseTopic: "r", CorrelationData: []byte{0, 1}, UTF8: true,
		User: []session.Property{{Key: "k", Value: "v"}, {Key: "k", Value: ""}}, Expires: 1100,
	}
	for _, test := range []struct {
		data  []byte
		check func(packets.Packet) bool
	}{
		{AppendConnack(nil, Connack{SessionPresent: true, AssignedClientID: "id", SessionExpiry: &hour, ReceiveMaximum: 5, MaximumPacketSize: 1000}), func(p packets.Packet) bool {
			c := p.(*packets.Connack)
			return c.SessionPresent && c.ReasonCode == 0 && c.Properties.AssignedClientID == "id" && *c.Properties.SessionExpiryInterval == 3600 &&
				*c.Properties.ReceiveMaximum == 5 && *c.Properties.MaximumPacketSize == 1000 &&
				*c.Properties.MaximumQOS == 1 && *c.Properties.RetainAvailable == 0 && *c.Properties.TopicAliasMaximum == 0 && *c.Properties.SubIDAvailable == 0
		}},
		{AppendConnack(nil, Connack{Code: 0x9c, Reason: "full", Reference: "other:1"}), func(p packets.Packet) bool {
			c := p.(*packets.Connack)
			return c.ReasonCode == 0x9c && c.Properties.ReasonString == "full" && c.Properties.ServerReference == "other:1"
		}},
		{AppendPublish(nil, session.Packet{Message: m, PacketID: 7, QoS: 1, Dup: true}, 1000), func(p packets.Packet) bool {
			c := p.(*packets.Publish)
			return c.Topic == "a/b" && c.QoS == 1 && c.Duplicate && c.PacketID == 7 && bytes.Equal(c.Payload, m.Payload) &&
				c.Properties.ContentType == "json" && c.Properties.ResponseTopic == "r" && bytes.Equal(c.Properties.CorrelationData, m.CorrelationData) &&
				*c.Properties.PayloadFormat == 1 && *c.Properties.MessageExpiry == 100 &&
				slices.Equal(c.Properties.User, []packets.User{{Key: "k", Value: "v"}, {Key: "k"}})
		}},
		{AppendPublish(nil, session.Packet{Message: &session.Message{Topic: "t"}}, 0), func(p packets.Packet) bool {
			c := p.(*packets.Publish)
			return c.Topic == "t" && c.QoS == 0 && len(c.Payload) == 0
		}},
		{AppendPuback(nil, 300, 0, ""), func(p packets.Packet) bool { return p.(*packets.Puback).PacketID == 300 }},
		{AppendPuback(nil, 300, 0x97, "full"), func(p packets.Packet) bool {
			c := p.(*packets.Puback)
			return c.PacketID == 300 && c.ReasonCode == 0x97 && c.Properties.ReasonString == "full"
		}},
		{AppendSubscribeAck(nil, TypeSuback, 3, []byte{1, 0x87}), func(p packets.Packet) bool {
			c := p.(*packets.Suback)
			return c.PacketID == 3 && bytes.Equal(c.Reasons, []byte{1, 0x87})
		}},
		{AppendSubscribeAck(nil, TypeUnsuback, 3, []byte{0, 0x11}), func(p packets.Packet) bool {
			c := p.(*packets.Unsuback)
			return c.PacketID == 3 && bytes.Equal(c.Reasons, []byte{0, 0x11})
		}},
		{AppendDisconnect(nil, 0x9d, "moved", "other:1"), func(p packets.Packet) bool {
			c := p.(*packets.Disconnect)
			return c.ReasonCode == 0x9d && c.Properties.ReasonString == "moved" && c.Properties.ServerReference == "other:1"
		}},
		{AppendDisconnect(nil, 0x8b, "", ""), func(p packets.Packet) bool { return p.(*packets.Disconnect).ReasonCode == 0x8b }},
		{Pingresp, func(p packets.Packet) bool { _, ok := p.(*packets.Pingresp); return ok }},
	} {
		rest := bytes.NewReader(test.data)
		p, err := packets.ReadPacket(rest)
		if err != nil || rest.Len() > 0 || !test.check(p.Content) {
			t.Errorf("%x: %v, %v", test.data, p, err)
		}
	}
}

func TestValidFilter(t *testing.T) {
	for filter, want := range map[string]bool{
		"a": true, "a/b": true, "#": true, "+": true, "a/+/b": true, "a/#": true, "/": true, "a//b": true, "+/#": true, "$share/g/a": true, "$share/g//": true,
		"": false, "a#": false, "a/#/b": false, "#/": false, "a+": false, "+a/b": false, "$share": false, "$share/g": false, "$share/g/": false, "$share//a": false,
		"$share/+/a": false, "$share/g/a#": false, "$shares": true,
		strings.Repeat("/", 15): true, strings.Repeat("/", 16): false, strings.Repeat("x", 512): true, strings.Repeat("x", 513): false,
	} {
		if got := ValidFilter(filter); got != want {
			t.Errorf("%.20q: %v", filter, got)
		}
	}
}

// FuzzDecode checks that no input panics, and that the messages of accepted packets are those that
// paho's codec sees.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"\x10\x0d\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x00", "\x82\x06\x00\x00\x00\x00\x01\x24", "\x10\xff\xff\xff\xff\x00",
		"\x30\x0c\x00\x01t\x07\x26\x00\x01k\x00\x01vx", "\x32\x08\x00\x01t\x00\x01\x00xy", "\x40\x02\x00\x01", "\xe0\x01\x04",
		"\x82\x09\x00\x01\x00\x00\x03a/#\x01", "\xa2\x06\x00\x01\x00\x00\x01t", "\xe0\x07\x00\x05\x11\x00\x00\x00\x01",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decode(data)
		if codeOf(t, err) != 0 {
			return
		}
		switch got := got.(type) {
		case publish:
			p, err := packets.ReadPacket(bytes.NewReader(data))
			if err != nil {
				t.Fatalf("%x: accepted, and refused by paho: %v", data, err)
			}
			want := p.Content.(*packets.Publish)
			if want.Topic != got.Topic || want.QoS != got.QoS || want.PacketID != got.id || !bytes.Equal(want.Payload, got.Payload) || len(want.Properties.User) != len(got.User) {
				t.Errorf("%x: %+v, want %v", data, got, want)
			}
		case Subscribe:
			if len(got.Subscriptions) == 0 || got.ID == 0 {
				t.Errorf("%x: %+v", data, got)
			}
		}
	})
}

// TestFilterLimits checks the limits of length and levels, which exist here only.
func TestFilterLimits(t *testing.T) {
	for filter, want := range map[string]bool{
		strings.Repeat("/", 15): true, strings.Repeat("/", 16): false,
		strings.Repeat("x", 512): true, strings.Repeat("x", 513): false,
		"$share/g/" + strings.Repeat("/", 13): true, "$share/g/" + strings.Repeat("/", 14): false,
	} {
		if got := ValidFilter(filter); got != want {
			t.Errorf("%.20q, %d bytes: %v", filter, len(filter), got)
		}
	}
}
