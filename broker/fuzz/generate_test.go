package fuzz

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/workwire/workwire/test/kit/mqttraw"
)

// generator makes scripts. The same seed makes the same scripts.
type generator struct {
	*rand.Rand
	corpus []script
}

func newGenerator(seed uint64, corpus map[string]script) *generator {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x5eed))}
	for _, name := range slices.Sorted(mapKeys(corpus)) {
		g.corpus = append(g.corpus, corpus[name])
	}
	return g
}

func mapKeys(m map[string]script) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

// chance reports true in one of n cases.
func (g *generator) chance(n int) bool { return g.IntN(n) == 0 }

// script returns the next script.
func (g *generator) script() script {
	if g.chance(5) && len(g.corpus) > 0 {
		return g.mutated(pick(g, g.corpus...))
	}
	var s script
	for conn := range 1 + g.IntN(3) {
		s = append(s, g.connection(conn)...)
	}
	if g.chance(2) { // what the connections do is mixed, each in its order
		slices.SortStableFunc(s, func(a, b step) int { return g.IntN(2)*(a.conn-b.conn) - g.IntN(2) })
	}
	return s
}

// mutated returns a script of the corpus with changed bytes.
func (g *generator) mutated(s script) script {
	out := slices.Clone(s)
	for range 1 + g.IntN(3) {
		i := g.IntN(len(out))
		if out[i].op == opSend {
			out[i].data = g.mutate(out[i].data)
			out[i].times = min(out[i].times, 1+g.IntN(200))
		}
	}
	return out
}

// connection returns what one connection does.
func (g *generator) connection(conn int) (s script) {
	send := func(data []byte) { s = append(s, step{conn: conn, op: opSend, data: data, times: 1}) }
	switch g.IntN(10) {
	case 0: // bytes without a CONNECT
		for range 1 + g.IntN(4) {
			send(g.bytes(g.IntN(300)))
		}
	case 1: // packets without a CONNECT
		for range 1 + g.IntN(4) {
			send(g.maybeMutated(g.packet(), 2))
		}
	case 2, 3: // a CONNECT that may be wrong
		send(g.mutate(g.connect()))
		send(g.packet())
	default:
		send(g.connect())
		for range 1 + g.IntN(15) {
			send(g.maybeMutated(g.packet(), 3))
			if g.chance(8) {
				s[len(s)-1].times = 1 + g.IntN(300)
			}
			if g.chance(10) {
				s = append(s, step{conn: conn, op: opPause, times: 1})
			}
		}
	}
	if g.chance(8) {
		s = append(s, step{conn: conn, op: pick(g, opHalf, opReset), times: 1})
	}
	if g.chance(8) {
		s = append(s, step{conn: conn, op: opDeaf, times: 1})
	}
	return s
}

func (g *generator) bytes(n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(g.Uint32())
		if g.chance(3) {
			out[i] = pick[byte](g, 0, 1, 2, 4, 0x10, 0x20, 0x30, 0x32, 0x7f, 0x80, 0x82, 0xff)
		}
	}
	return out
}

func (g *generator) maybeMutated(p []byte, n int) []byte {
	if g.chance(n) {
		return g.mutate(p)
	}
	return p
}

// mutate returns a changed copy of p.
func (g *generator) mutate(p []byte) []byte {
	out := slices.Clone(p)
	for range 1 + g.IntN(3) {
		if len(out) == 0 {
			return g.bytes(1 + g.IntN(20))
		}
		at := g.IntN(min(len(out), 200))
		to := min(len(out), at+1+g.IntN(16))
		switch g.IntN(10) {
		case 0:
			out[at] ^= 1 << g.IntN(8)
		case 1:
			out[at] = byte(g.Uint32())
		case 2:
			out = slices.Delete(out, at, to)
		case 3:
			out = slices.Insert(out, at, g.bytes(1+g.IntN(8))...)
		case 4:
			out = slices.Insert(out, at, out[at:to]...)
		case 5:
			out = out[:at]
		case 6: // another remaining length
			out = append(append([]byte{out[0]}, pick(g, []byte{0}, []byte{1}, []byte{0x7f}, []byte{0xff, 0x7f}, []byte{0xff, 0xff, 0x3f}, []byte{0xff, 0xff, 0xff, 0x7f},
				[]byte{0x80, 0}, []byte{0x80, 0x80, 0x80, 0x80, 0}, []byte{0xff, 0xff, 0xff, 0xff, 0x01})...), out[min(len(out), 2):]...)
		case 7: // the same body with another type
			out[0] = byte(g.Uint32())
		case 8:
			copy(out[at:to], pick(g, []byte{0, 0}, []byte{0xff, 0xff}, []byte{0xff, 0xff, 0xff, 0xff}, []byte{0, 1}, []byte{0x7f, 0xff}))
		case 9:
			out = append(out, g.packet()...)
		}
	}
	return out
}

// str returns a string that may be hard to handle.
func (g *generator) str() string {
	switch g.IntN(12) {
	case 0:
		return ""
	case 1:
		return strings.Repeat(pick(g, "/", "a", "+/", "é", "$share/g/"), 1+g.IntN(pick(g, 10, 300, 7000)))
	case 2:
		return strings.Repeat("x", pick(g, 63, 64, 255, 256, 257, 32753, 32754, 32768, 65534, 65535))
	case 3:
		return string(g.bytes(g.IntN(30)))
	case 4:
		return pick(g, "a\x00b", "\xff", "\xed\xa0\x80", "\xc0\x80", "\ufeff", "\ufffe")
	default:
		return g.topic()
	}
}

// topic returns a topic or a filter, often one that the attackers may use.
func (g *generator) topic() string {
	return pick(g,
		"sources/hub1/clusters/c1/sourceevents", "sources/hub1/clusters/c1/agentevents", "sources/+/clusters/c1/sourceevents", "sources/hub1/clusters/+/agentevents",
		"sources/hub1/sourcebroadcast", "clusters/c1/agentbroadcast", "sources/+/sourcebroadcast", "clusters/+/agentbroadcast",
		"$share/g/sources/+/clusters/c1/sourceevents", "$share/g/sources/hub1/clusters/+/agentevents", "$share/g/sources/+/sourcebroadcast", "$share//a", "$share/g", "$share/+/a",
		"sources/hub2/clusters/c3/sourceevents", "sources/hub2/clusters/c3/agentevents", "sources/hub2/sourcebroadcast", "$SYS/#", "$SYS/+/+", "#", "+", "/", "a//b", "$SYS/broker/uptime",
	)
}

// connect returns a CONNECT packet of an attacker who holds credentials of three identities.
func (g *generator) connect() []byte {
	c := mqttraw.Connect{
		User: pick(g, "c1", "c1", "hub1", "hub1", "watch"), Password: password, Clean: g.chance(2), KeepAlive: pick[uint16](g, 0, 1, 60, 43691, 65535),
		ClientID: pick(g, "", "a", "b", "c", "d", "victim", g.str()),
	}
	if g.chance(10) {
		c.User = pick(g, "", "nobody", "hub2", g.str())
		c.Password = "wrong" // nobody has the credentials of those that must be served
	}
	for _, p := range [][]byte{
		mqttraw.PropFour(mqttraw.SessionExpiry, pick[uint32](g, 0, 1, 3600, 0xFFFFFFFF)), mqttraw.PropTwo(mqttraw.ReceiveMaximum, pick[uint16](g, 0, 1, 2, 65535)),
		mqttraw.PropFour(mqttraw.MaximumPacket, pick[uint32](g, 0, 1, 5, 20, 60, 1000, 0xFFFFFFFF)), mqttraw.PropTwo(mqttraw.TopicAliasMax, 10),
		mqttraw.PropByte(mqttraw.RequestProblem, byte(g.IntN(3))), g.property(),
	} {
		if g.chance(4) {
			c.Props = append(c.Props, p)
		}
	}
	if g.chance(3) {
		c.Will = &mqttraw.Will{Topic: g.topic(), Payload: g.payload(), QoS: byte(g.IntN(3)), Retain: g.chance(6), Props: [][]byte{
			mqttraw.PropFour(mqttraw.WillDelay, pick[uint32](g, 0, 1, 3600, 0xFFFFFFFF)),
		}}
		if g.chance(2) {
			c.Will.Props = append(c.Will.Props, g.property())
		}
	}
	return c.Bytes()
}

func (g *generator) payload() string {
	return strings.Repeat("p", pick(g, 0, 1, 10, 100, 1000, 20_000, 70_000))
}

// packet returns a packet that is well formed, but perhaps not allowed.
func (g *generator) packet() []byte {
	id := pick(g, 1, 1, 2, 3, uint16(g.Uint32()), 0, 65535)
	switch g.IntN(14) {
	case 0, 1, 2, 3:
		flags := pick(g, 0, 0, mqttraw.QoS1, mqttraw.QoS1, mqttraw.QoS1, mqttraw.Retain, mqttraw.QoS2, byte(g.IntN(16)))
		return mqttraw.Publish(flags, id, g.str(), g.payload(), g.properties()...)
	case 4, 5, 6:
		var filters []mqttraw.Filter
		for range pick(g, 0, 1, 1, 2, 5, 200) {
			filters = append(filters, mqttraw.Filter{Topic: g.str(), Options: pick(g, 0, 1, 2, 0x2D, byte(g.Uint32()))})
		}
		var props []byte
		if g.chance(3) {
			props = mqttraw.Bytes(g.properties()...)
		}
		return mqttraw.Subscribe(id, props, filters...)
	case 7:
		var filters []string
		for range pick(g, 0, 1, 3, 200) {
			filters = append(filters, g.str())
		}
		return mqttraw.Unsubscribe(id, filters...)
	case 8, 9:
		return mqttraw.Packet(pick(g, mqttraw.PUBACK, mqttraw.PUBACK, mqttraw.PUBACK, mqttraw.PUBREC, mqttraw.PUBREL|2, mqttraw.PUBCOMP), mqttraw.Two(id),
			pick(g, nil, []byte{0}, []byte{0x80}, mqttraw.Bytes([]byte{0}, mqttraw.Props(g.properties()...))))
	case 10:
		return mqttraw.Ping
	case 11:
		return mqttraw.Disconnect(pick[byte](g, 0, 4, 0x81, 0xff), g.properties()...)
	case 12:
		return mqttraw.Packet(mqttraw.AUTH, []byte{0x18}, mqttraw.Props(g.properties()...))
	default:
		return g.connect()
	}
}

func (g *generator) properties() (out [][]byte) {
	for range pick(g, 0, 0, 0, 1, 2, 5, 300) {
		out = append(out, g.property())
	}
	return out
}

func (g *generator) property() []byte {
	switch g.IntN(5) {
	case 0:
		return mqttraw.User(g.str(), g.str())
	case 1:
		return mqttraw.User("", "")
	case 2:
		return mqttraw.PropStr(pick(g, mqttraw.ContentType, mqttraw.ResponseTopic, mqttraw.CorrelationData, mqttraw.ReasonString, mqttraw.AuthMethod, mqttraw.AuthData), g.str())
	case 3:
		return mqttraw.PropFour(pick(g, mqttraw.MessageExpiry, mqttraw.SessionExpiry, mqttraw.WillDelay, mqttraw.MaximumPacket), pick(g, 0, 1, 0xFFFFFFFF, g.Uint32()))
	default:
		return pick(g, mqttraw.PropByte(mqttraw.PayloadFormat, byte(g.IntN(3))), mqttraw.PropVar(mqttraw.SubscriptionID, pick(g, 0, 1, 268435455, 268435456)),
			mqttraw.PropTwo(mqttraw.TopicAlias, uint16(g.IntN(3))), g.bytes(1+g.IntN(6)))
	}
}
