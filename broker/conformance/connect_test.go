package conformance_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/test/kit/mqttraw"
)

// TestConnectRefused checks CONNECT packets that a server must not accept.
func TestConnectRefused(t *testing.T) {
	t.Parallel()
	addr := start(t)
	with := func(change func(*mqttraw.Connect)) []byte {
		c := as("c1")
		change(&c)
		return c.Bytes()
	}
	props := func(p ...[]byte) []byte { return with(func(c *mqttraw.Connect) { c.Props = p }) }
	will := func(w mqttraw.Will) []byte {
		if w.Topic == "" {
			w.Topic = up("c1")
		}
		return with(func(c *mqttraw.Connect) { c.Will = &w })
	}
	flags := func(f byte) []byte { return with(func(c *mqttraw.Connect) { c.Flags = f }) }
	valid := as("c1").Bytes()
	raw := mqttraw.Bytes
	const silent, answered = true, false
	for _, test := range []struct {
		name   string // and the number of the statement
		packet []byte
		silent bool // closing without a CONNACK is allowed
		codes  []byte
	}{
		{"PINGREQ first, MQTT-3.1.0-1", mqttraw.Ping, silent, []byte{0x81, 0x82}},
		{"PUBLISH first, MQTT-3.1.0-1", mqttraw.Publish(0, 0, up("c1"), "x"), silent, []byte{0x81, 0x82}},
		{"AUTH first, MQTT-3.1.0-1", mqttraw.Packet(mqttraw.AUTH), silent, []byte{0x81, 0x82}},
		{"DISCONNECT first, MQTT-3.1.0-1", mqttraw.Disconnect(0), silent, []byte{0x81, 0x82}},
		{"HTTP", []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), silent, []byte{0x81, 0x82, 0x95}},
		{"protocol name, MQTT-3.1.2-1", with(func(c *mqttraw.Connect) { c.Name = "MQTX" }), silent, []byte{0x81, 0x82, 0x84}},
		{"protocol name in lower case, MQTT-3.1.2-1", with(func(c *mqttraw.Connect) { c.Name = "mqtt" }), silent, []byte{0x81, 0x82, 0x84}},
		{"version 3, MQTT-3.1.2-2", with(func(c *mqttraw.Connect) { c.Name, c.Version = "MQIsdp", 3 }), silent, []byte{0x01, 0x81, 0x84}},
		{"version 6, MQTT-3.1.2-2", with(func(c *mqttraw.Connect) { c.Version = 6 }), silent, []byte{0x84}},
		{"reserved flag, MQTT-3.1.2-3", flags(1), silent, []byte{0x81}},
		{"fixed header flags, MQTT-2.1.3-1", raw([]byte{valid[0] | 2}, valid[1:]), silent, []byte{0x81, 0x82}},
		{"will QoS without will, MQTT-3.1.2-11", flags(0x08), silent, []byte{0x81, 0x82}},
		{"will retain without will, MQTT-3.1.2-13", flags(0x20), silent, []byte{0x81, 0x82}},
		{"will QoS 3, MQTT-3.1.2-12", will(mqttraw.Will{QoS: 3}), silent, []byte{0x81, 0x82}},
		{"will QoS 2, MQTT-3.2.2-12", will(mqttraw.Will{QoS: 2}), answered, []byte{0x9B}},
		{"will retain, MQTT-3.2.2-13", will(mqttraw.Will{Retain: true, Payload: "x"}), answered, []byte{0x9A}},
		{"will topic of another", will(mqttraw.Will{Topic: up("c2")}), answered, []byte{0x87}},
		{"will topic with a wildcard", will(mqttraw.Will{Topic: "sources/+/clusters/c1/agentevents"}), silent, []byte{0x81, 0x82, 0x87, 0x90}},
		{"will response topic with a wildcard", will(mqttraw.Will{Props: [][]byte{mqttraw.PropStr(mqttraw.ResponseTopic, "a/#")}}), silent, []byte{0x81, 0x82, 0x90}},
		{"will payload format 2", will(mqttraw.Will{Props: [][]byte{mqttraw.PropByte(mqttraw.PayloadFormat, 2)}}), silent, []byte{0x81, 0x82}},
		{"will delay twice", will(mqttraw.Will{Props: [][]byte{mqttraw.PropFour(mqttraw.WillDelay, 1), mqttraw.PropFour(mqttraw.WillDelay, 1)}}), silent, []byte{0x81, 0x82}},
		{"will property of CONNECT", will(mqttraw.Will{Props: [][]byte{mqttraw.PropTwo(mqttraw.ReceiveMaximum, 1)}}), silent, []byte{0x81, 0x82}},
		{"user name flag without user name, MQTT-3.1.2-17", mqttraw.Connect{ClientID: "x", Flags: 0x80}.Bytes(), silent, []byte{0x81}},
		{"user name without flag, MQTT-3.1.2-16", raw([]byte{0x10}, mqttraw.Packet(0, mqttraw.Str("MQTT"), []byte{5, 0, 0, 60, 0}, mqttraw.Str("x"), mqttraw.Str("c1"))[1:]), silent, []byte{0x81, 0x82, 0x86, 0x87}},
		{"no user name", mqttraw.Connect{ClientID: "x"}.Bytes(), answered, []byte{0x86, 0x87}},
		{"wrong password", with(func(c *mqttraw.Connect) { c.Password = "wrong" }), answered, []byte{0x86}},
		{"receive maximum 0", props(mqttraw.PropTwo(mqttraw.ReceiveMaximum, 0)), silent, []byte{0x81, 0x82}},
		{"maximum packet size 0", props(mqttraw.PropFour(mqttraw.MaximumPacket, 0)), silent, []byte{0x81, 0x82}},
		{"session expiry twice", props(mqttraw.PropFour(mqttraw.SessionExpiry, 1), mqttraw.PropFour(mqttraw.SessionExpiry, 1)), silent, []byte{0x81, 0x82}},
		{"receive maximum twice", props(mqttraw.PropTwo(mqttraw.ReceiveMaximum, 9), mqttraw.PropTwo(mqttraw.ReceiveMaximum, 9)), silent, []byte{0x81, 0x82}},
		{"maximum packet size twice", props(mqttraw.PropFour(mqttraw.MaximumPacket, 999), mqttraw.PropFour(mqttraw.MaximumPacket, 999)), silent, []byte{0x81, 0x82}},
		{"topic alias maximum twice", props(mqttraw.PropTwo(mqttraw.TopicAliasMax, 9), mqttraw.PropTwo(mqttraw.TopicAliasMax, 9)), silent, []byte{0x81, 0x82}},
		{"request problem information 2", props(mqttraw.PropByte(mqttraw.RequestProblem, 2)), silent, []byte{0x81, 0x82}},
		{"request problem information twice", props(mqttraw.PropByte(mqttraw.RequestProblem, 1), mqttraw.PropByte(mqttraw.RequestProblem, 1)), silent, []byte{0x81, 0x82}},
		{"request response information 2", props(mqttraw.PropByte(mqttraw.RequestResponse, 2)), silent, []byte{0x81, 0x82}},
		{"authentication data without method", props(mqttraw.PropStr(mqttraw.AuthData, "x")), silent, []byte{0x81, 0x82}},
		{"authentication method, MQTT-4.12.0-1", props(mqttraw.PropStr(mqttraw.AuthMethod, "SCRAM-SHA-1")), answered, []byte{0x8C}},
		{"property of PUBLISH", props(mqttraw.PropTwo(mqttraw.TopicAlias, 1)), silent, []byte{0x81, 0x82}},
		{"property of CONNACK", props(mqttraw.PropByte(mqttraw.MaximumQoS, 1)), silent, []byte{0x81, 0x82}},
		{"unknown property", props([]byte{0x7f, 0}), silent, []byte{0x81, 0x82}},
		{"property cut off", props([]byte{mqttraw.SessionExpiry, 0}), silent, []byte{0x81, 0x82}},
		{"properties longer than the packet", raw([]byte{0x10}, mqttraw.Packet(0, mqttraw.Str("MQTT"), []byte{5, 2, 0, 60, 0x7f}, mqttraw.Str("x"))[1:]), silent, []byte{0x81, 0x82}},
		{"properties of a five byte length, MQTT-1.5.5-1", mqttraw.Packet(0x10, mqttraw.Str("MQTT"), []byte{5, 2, 0, 60, 0x80, 0x80, 0x80, 0x80, 0}, mqttraw.Str("x")), silent, []byte{0x81, 0x82}},
		{"client id that is not UTF-8, MQTT-1.5.4-1", with(func(c *mqttraw.Connect) { c.ClientID = "a\xc3\x28" }), silent, []byte{0x81, 0x85}},
		{"client id with a surrogate, MQTT-1.5.4-1", with(func(c *mqttraw.Connect) { c.ClientID = "\xed\xa0\x80" }), silent, []byte{0x81, 0x85}},
		{"client id with U+0000, MQTT-1.5.4-2", with(func(c *mqttraw.Connect) { c.ClientID = "a\x00b" }), silent, []byte{0x81, 0x85}},
		{"user name with U+0000, MQTT-1.5.4-2", with(func(c *mqttraw.Connect) { c.User = "c\x001" }), silent, []byte{0x81, 0x86}},
		{"client id of 257 bytes", with(func(c *mqttraw.Connect) { c.ClientID = strings.Repeat("x", 257) }), answered, []byte{0x85}},
		{"no payload", mqttraw.Packet(0x10, mqttraw.Str("MQTT"), []byte{5, 2, 0, 60, 0}), silent, []byte{0x81}},
		{"bytes after the payload", mqttraw.Packet(0x10, valid[2:], []byte("more")), silent, []byte{0x81, 0x82}},
		{"remaining length of five bytes, MQTT-1.5.5-1", []byte{0x10, 0xff, 0xff, 0xff, 0xff, 0}, silent, []byte{0x81, 0x95}},
		{"packet over the maximum", []byte{0x10, 0xff, 0xff, 0xff, 0x7f, 0}, silent, []byte{0x95}},
		{"packet type 0", []byte{0, 0}, silent, []byte{0x81, 0x82}},
	} {
		t.Run(test.name, func(t *testing.T) { refused(t, addr, test.silent, test.packet, test.codes...) })
	}
	newOracle(t, addr).served()
}

// TestConnack checks what the broker announces.
func TestConnack(t *testing.T) {
	t.Parallel()
	addr := start(t)
	c := connect(t, addr, as("c1"))
	number := func(id byte) int {
		p, ok := c.connack.Prop(id)
		if !ok {
			return -1
		}
		return int(p.N)
	}
	for name, ok := range map[string]bool{
		"maximum QoS is 1":                           number(mqttraw.MaximumQoS) == 1,
		"retained messages are not available":        number(mqttraw.RetainAvailable) == 0,
		"no topic aliases":                           number(mqttraw.TopicAliasMax) <= 0,
		"receive maximum":                            number(mqttraw.ReceiveMaximum) > 0,
		"maximum packet size":                        number(mqttraw.MaximumPacket) > 0,
		"wildcards are available":                    number(mqttraw.WildcardSubs) != 0,
		"subscription identifiers are not available": number(mqttraw.SubIDsAvailable) == 0,
		"shared subscriptions are available":         number(mqttraw.SharedSubs) != 0,
		"no response information, MQTT-3.1.2-28":     number(mqttraw.ResponseInfo) == -1,
		"no assigned client id":                      number(mqttraw.AssignedClientID) == -1,
		"no authentication method, MQTT-4.12.0-6":    number(mqttraw.AuthMethod) == -1,
		"no session present, MQTT-3.2.2-3":           !c.connack.Present,
		"the client's keep alive is kept":            number(mqttraw.ServerKeepAlive) == -1,
	} {
		if !ok {
			t.Errorf("not so: %s (%v)", name, c.connack)
		}
	}
}

// TestConnectAccepted checks CONNECT packets that look odd and are allowed.
func TestConnectAccepted(t *testing.T) {
	t.Parallel()
	addr := start(t)
	for name, change := range map[string]func(*mqttraw.Connect){
		"client id of 256 bytes":   func(c *mqttraw.Connect) { c.ClientID = strings.Repeat("x", 256) },
		"client id of other signs": func(c *mqttraw.Connect) { c.ClientID = "a b/+#$é𝄞" },
		"user properties twice":    func(c *mqttraw.Connect) { c.Props = [][]byte{mqttraw.User("a", "b"), mqttraw.User("a", "b")} },
		"empty user property":      func(c *mqttraw.Connect) { c.Props = [][]byte{mqttraw.User("", "")} },
		"every property": func(c *mqttraw.Connect) {
			c.Props = [][]byte{
				mqttraw.PropFour(mqttraw.SessionExpiry, 10), mqttraw.PropTwo(mqttraw.ReceiveMaximum, 1), mqttraw.PropFour(mqttraw.MaximumPacket, 1<<28),
				mqttraw.PropTwo(mqttraw.TopicAliasMax, 65535), mqttraw.PropByte(mqttraw.RequestResponse, 1), mqttraw.PropByte(mqttraw.RequestProblem, 0),
			}
		},
		"will without payload": func(c *mqttraw.Connect) { c.Will = &mqttraw.Will{Topic: up("c1"), QoS: 1} },
		"will with every property": func(c *mqttraw.Connect) {
			c.Will = &mqttraw.Will{Topic: up("c1"), Payload: "gone", Props: [][]byte{
				mqttraw.PropFour(mqttraw.WillDelay, 1), mqttraw.PropByte(mqttraw.PayloadFormat, 1), mqttraw.PropFour(mqttraw.MessageExpiry, 9),
				mqttraw.PropStr(mqttraw.ContentType, "t"), mqttraw.PropStr(mqttraw.ResponseTopic, "r"), mqttraw.PropStr(mqttraw.CorrelationData, "\x00\xff"), mqttraw.User("a", "b"),
			}}
		},
		"keep alive 0":       func(c *mqttraw.Connect) { c.KeepAlive = 0 },
		"session for ever":   func(c *mqttraw.Connect) { c.Props = [][]byte{mqttraw.PropFour(mqttraw.SessionExpiry, 0xFFFFFFFF)} },
		"packets in a burst": func(*mqttraw.Connect) {},
	} {
		t.Run(name, func(t *testing.T) {
			connecting := as("c1")
			change(&connecting)
			connect(t, addr, connecting).ping()
		})
	}
	t.Run("one byte at a time, MQTT-4.2-1", func(t *testing.T) {
		c := mqttraw.Dial(t, addr)
		for _, b := range mqttraw.Bytes(as("c1").Bytes(), mqttraw.Ping, mqttraw.Publish(mqttraw.QoS1, 1, up("c1"), "x")) {
			c.Send([]byte{b})
		}
		c.Expect(mqttraw.CONNACK)
		c.Expect(mqttraw.PINGRESP)
		c.Expect(mqttraw.PUBACK)
	})
	t.Run("all in one segment", func(t *testing.T) {
		c := mqttraw.Dial(t, addr)
		c.Send(as("c1").Bytes(), mqttraw.Ping, mqttraw.Ping)
		c.Expect(mqttraw.CONNACK)
		c.Expect(mqttraw.PINGRESP)
		c.Expect(mqttraw.PINGRESP)
	})
}

// TestAssignedClientID checks MQTT-3.1.3-6, 3.1.3-7 and 3.2.2-16.
func TestAssignedClientID(t *testing.T) {
	t.Parallel()
	addr := start(t)
	nameless := as("c1")
	nameless.ClientID, nameless.Clean = "", true
	seen := map[string]bool{}
	for range 3 {
		c := connect(t, addr, nameless)
		id, ok := c.connack.Prop(mqttraw.AssignedClientID)
		if !ok || id.Value == "" || seen[id.Value] {
			t.Fatalf("assigned client id %q, after %v", id.Value, seen)
		}
		seen[id.Value] = true
		defer c.ping() // none took over another
	}

	// The id can be used for the session.
	nameless.Clean = false
	c := connect(t, addr, durable(nameless))
	id, _ := c.connack.Prop(mqttraw.AssignedClientID)
	c.leave()
	again := as("c1")
	again.ClientID = id.Value
	if !connect(t, addr, again).connack.Present {
		t.Errorf("the assigned id %q does not name the session", id.Value)
	}
}

// TestKeepAlive checks that a silent client is disconnected after 1.5 times its keep alive, not
// before, and that large values do not overflow (MQTT-3.1.2-22).
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	addr := start(t)
	for _, seconds := range []uint16{43691, 43690, 32768, 65535} {
		c := as("c1")
		c.KeepAlive = seconds
		client := connect(t, addr, c).mustSubscribe(downFilter("c1"))
		client.ping()
		client.mustPublish(up("c1"), "x")
		client.ping()
	}
	expires := func(t *testing.T, silence func(*client)) {
		connecting := as("c2")
		connecting.KeepAlive = 1
		c := connect(t, addr, connecting)
		start := time.Now()
		silence(c)
		var last *mqttraw.Received
		for {
			p, err := mqttraw.Read(c.Reader)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal("the connection stays open")
			}
			if err != nil {
				break
			}
			last = p
		}
		if took := time.Since(start); took < 1400*time.Millisecond {
			t.Errorf("disconnected after %v with a keep alive of 1 s", took)
		}
		if last != nil && last.Code() != 0x8D {
			t.Errorf("disconnected with %v, want reason 8d", last)
		}
	}
	t.Run("silent", func(t *testing.T) { expires(t, func(*client) {}) })
	t.Run("silent in the middle of a packet", func(t *testing.T) {
		expires(t, func(c *client) { c.Send([]byte{0x32, 100, 0}) })
	})
	t.Run("bytes without end", func(t *testing.T) { // bytes are no packet
		stop, stopped := make(chan struct{}), make(chan struct{})
		t.Cleanup(func() { close(stop); <-stopped })
		expires(t, func(c *client) {
			c.Send([]byte{0x30, 0xff, 0xff, 0x07})
			go func() {
				defer close(stopped)
				for {
					select {
					case <-stop:
						return
					case <-time.After(50 * time.Millisecond):
						c.Send([]byte{0})
					}
				}
			}()
		})
	})
}
