package broker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/iotest"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/limits"
	"github.com/workwire/workwire/broker/packet"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/mqttkit"
)

// stream is a socket that a test has written already.
type stream struct {
	net.Conn
	io.Reader
}

func (s stream) Read(p []byte) (int, error) { return s.Reader.Read(p) }

// TestReadPacket reads packets of all sizes, however the network cuts them.
func TestReadPacket(t *testing.T) {
	var data []byte
	var bodies [][]byte
	for i, n := range []int{0, 1, 100, smallInput - 3, smallInput, smallInput + 1, 2000, largeInput - 4, largeInput, largeInput + 1, 300_000, 5} {
		body := bytes.Repeat([]byte{byte(i)}, n)
		bodies = append(bodies, body)
		data = append(packetOf(data, n), body...)
	}
	for name, cut := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "halves": iotest.HalfReader, "with the end": iotest.DataErrReader,
	} {
		c := &conn{socket: stream{Reader: cut(bytes.NewReader(data))}, traffic: &traffic{}}
		for i, want := range bodies {
			h, body, _, err := c.readPacket(1 << 20)
			if err != nil || h.Length != len(want) || !bytes.Equal(body, want) {
				t.Fatalf("%s: packet %d: %+v, %d bytes, %v", name, i, h, len(body), err)
			}
		}
		if _, _, _, err := c.readPacket(1 << 20); !errors.Is(err, io.EOF) {
			t.Errorf("%s: at the end: %v", name, err)
		}
		if got := c.traffic.received.Load(); got != int64(len(data)) {
			t.Errorf("%s: %d bytes counted, want %d", name, got, len(data))
		}
	}
}

// TestSmallPieces checks that reads which bring little are counted: of a client that is logged in, and
// before that, where they end the connection.
func TestSmallPieces(t *testing.T) {
	data := append(packetOf(nil, 30_000), make([]byte, 30_000)...)
	for name, test := range map[string]struct {
		cut         io.Reader
		least, most int
	}{
		"whole":         {bytes.NewReader(data), 1, 1},
		"segments":      {&pieces{data, 1400}, 1, 1},
		"small records": {&pieces{data, 128}, 100, 130},
		"byte by byte":  {iotest.OneByteReader(bytes.NewReader(data)), 29_000, 30_010},
	} {
		calls, size := 0, 0
		c := &conn{socket: stream{Reader: test.cut}, traffic: &traffic{}, admit: func(n int) error {
			calls++
			size += n
			return nil
		}}
		if _, _, _, err := c.readPacket(1 << 20); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if calls < test.least || calls > test.most || size != len(data) {
			t.Errorf("%s: admitted %d times, %d bytes, want %d to %d times", name, calls, size, test.least, test.most)
		}
	}
	c := &client{conn: conn{socket: stream{Reader: iotest.OneByteReader(bytes.NewReader(packetOf(nil, 5000)))}, traffic: &traffic{}}, server: &server{cfg: Config{MaxPacketSize: 1 << 20}}}
	c.socket = stream{Reader: iotest.OneByteReader(bytes.NewReader(append([]byte{0x10, 0x88, 0x27}, make([]byte, 5000)...)))}
	if _, _, err := c.readConnect(); !errors.Is(err, errPieces) {
		t.Errorf("a CONNECT byte by byte: %v", err)
	}
}

// packetOf appends the header of a packet with a body of n bytes.
func packetOf(data []byte, n int) []byte {
	data = append(data, 0x30)
	for ; n > 0x7f; n >>= 7 {
		data = append(data, byte(n)|0x80)
	}
	return append(data, byte(n))
}

// TestPromisedBytes checks that memory grows with what arrives, not with what a header promises.
func TestPromisedBytes(t *testing.T) {
	var c *conn
	allocated := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			c = &conn{socket: stream{Reader: bytes.NewReader(packetOf(nil, 200<<20))}, traffic: &traffic{}}
			if _, _, _, err := c.readPacket(256 << 20); !errors.Is(err, io.EOF) {
				b.Fatal(err)
			}
		}
	}).AllocedBytesPerOp()
	if allocated > 128<<10 {
		t.Errorf("%d bytes for a header", allocated)
	}
}

// FuzzReadPacket checks that the result does not depend on how the bytes are cut.
func FuzzReadPacket(f *testing.F) {
	f.Add(append(packetOf(nil, 3), 1, 2, 3), uint8(2))
	f.Add([]byte{0x10, 0xff, 0xff, 0xff, 0xff, 0x01}, uint8(1))
	f.Add(append(packetOf(nil, smallInput), make([]byte, smallInput)...), uint8(100))
	f.Fuzz(func(t *testing.T, data []byte, size uint8) {
		read := func(r io.Reader) (out [][]byte) {
			c := &conn{socket: stream{Reader: r}, traffic: &traffic{}}
			for {
				_, body, _, err := c.readPacket(1000)
				if err != nil {
					return out
				}
				out = append(out, bytes.Clone(body))
			}
		}
		whole, cut := read(bytes.NewReader(data)), read(&pieces{data, int(size)})
		if len(whole) != len(cut) || !bytes.Equal(bytes.Join(whole, nil), bytes.Join(cut, nil)) {
			t.Errorf("in pieces of %d: %x, whole: %x", size, cut, whole)
		}
	})
}

// pieces reads at most size bytes at a time.
type pieces struct {
	data []byte
	size int
}

func (p *pieces) Read(out []byte) (int, error) {
	if len(p.data) == 0 {
		return 0, io.EOF
	}
	n := copy(out[:min(len(out), max(p.size, 1))], p.data)
	p.data = p.data[n:]
	return n, nil
}

// TestPanicIsContained lets the broker panic while it serves a client: its connection ends, its will
// is published, its session stays, and others are served.
func TestPanicIsContained(t *testing.T) {
	var log kit.Log
	b, err := New(Config{
		Listeners: []Listener{{Address: "127.0.0.1:0"}}, Logger: log.Logger(),
		Users: []User{{Username: "c1", Password: "x", Role: acl.Agent}, {Username: "hub1", Password: "x", Role: acl.Source}},
	})
	kit.NoError(t, err)
	b.inspect = func(session string, h packet.Header) {
		if session == "agent:c1/c1" && h.Type() == packet.TypePingreq {
			panic("as the test wants")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	<-b.Ready()

	source := mqttkit.Dial(t, b.Addr(), "hub1", "x")
	source.Connect("hub1", 0)
	source.Subscribe("clusters/+/agentbroadcast")
	agent := mqttkit.Dial(t, b.Addr(), "c1", "x")
	expiry := uint32(3600)
	agent.Send(&packets.Connect{
		ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: "c1", UsernameFlag: true, Username: "c1", PasswordFlag: true, Password: []byte("x"),
		Properties: &packets.Properties{SessionExpiryInterval: &expiry},
		WillFlag:   true, WillTopic: "clusters/c1/agentbroadcast", WillMessage: []byte("gone"), WillQOS: 1, WillProperties: &packets.Properties{},
	})
	if connack, ok := agent.Next().(*packets.Connack); !ok || connack.ReasonCode != 0 {
		t.Fatalf("%v", connack)
	}
	agent.Send(&packets.Pingreq{})
	if answer, ok := agent.Next().(*packets.Disconnect); !ok || answer.ReasonCode != 0x83 {
		t.Errorf("answered with %v, want DISCONNECT 0x83", answer)
	}
	agent.ExpectEnd()
	if will, ok := source.Next().(*packets.Publish); !ok || string(will.Payload) != "gone" {
		t.Errorf("instead of the will: %v", will)
	}
	again := mqttkit.Dial(t, b.Addr(), "c1", "x")
	if !again.Connect("c1", 3600).SessionPresent {
		t.Error("the session is lost")
	}
	log.Await(t, "as the test wants")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestLastPacketIsRead checks that a client can read why its connection ends while it still sends a
// large packet, and that a client that reads nothing delays nobody.
func TestLastPacketIsRead(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	kit.NoError(t, err)
	defer func() { _ = l.Close() }()
	ended := make(chan error, 1)
	go func() {
		socket, err := l.Accept()
		if err != nil {
			ended <- err
			return
		}
		limiter := limits.New(limits.Config{})
		counted, err := limiter.Accept(socket.RemoteAddr(), func() {})
		if err != nil {
			ended <- err
			return
		}
		c := &client{counted: counted, conn: conn{socket: socket, traffic: &traffic{}, ending: make(chan struct{})}, server: &server{limiter: limiter, logger: slog.New(slog.DiscardHandler)}}
		c.connected = true
		_, _, _, err = c.readPacket(100)
		c.disconnect(errPacketTooLarge)
		c.close()
		ended <- err
	}()
	socket, err := net.Dial("tcp", l.Addr().String())
	kit.NoError(t, err)
	defer func() { _ = socket.Close() }()
	_ = socket.SetDeadline(time.Now().Add(kit.Patience))
	go func() {
		_, _ = socket.Write(append(packetOf(nil, 1<<20), make([]byte, 1<<20)...))
		_ = socket.(*net.TCPConn).CloseWrite()
	}()
	p, err := packets.ReadPacket(socket)
	kit.NoError(t, err)
	if d, ok := p.Content.(*packets.Disconnect); !ok || d.ReasonCode != packet.TooLarge {
		t.Errorf("the client reads %v", p)
	}
	if err := <-ended; !errors.Is(err, errPacketTooLarge) {
		t.Errorf("reading ended with %v", err)
	}
}
