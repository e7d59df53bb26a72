package broker

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/workwire/workwire/test/kit"
)

// packet returns an MQTT packet with a body of n bytes.
func packet(n int) []byte {
	out := []byte{0x30}
	for length := n; ; {
		b := byte(length & 0x7f)
		length >>= 7
		if length == 0 {
			out = append(out, b)
			break
		}
		out = append(out, b|0x80)
	}
	return append(out, make([]byte, n)...)
}

func TestFramer(t *testing.T) {
	for _, test := range []struct {
		sizes []int // bodies
		good  int   // packets that pass
	}{
		{nil, 0},
		{[]int{0, 0, 0}, 3},
		{[]int{10, 127, 128, 196, 197}, 5}, // 197 + 3 bytes are the 200 allowed
		{[]int{10, 198, 5}, 1},
		{[]int{1 << 20}, 0},
		{[]int{0, 268435455}, 1},
	} {
		var stream []byte
		pass := 0
		for i, n := range test.sizes {
			p := packet(min(n, 1000)) // the body of a packet that is too large does not matter
			if n > 1000 {
				p = packet(n)[:10]
			}
			if i < test.good {
				pass += len(p)
			}
			stream = append(stream, p...)
		}
		for chunk := 1; chunk <= 300; chunk++ { // however the network cuts it
			f := framer{max: 200}
			passed, begun, ok := 0, 0, true
			for rest := stream; len(rest) > 0 && ok; {
				n := min(chunk, len(rest))
				var good, more int
				good, more, ok = f.scan(rest[:n])
				passed, begun, rest = passed+good, begun+more, rest[n:]
			}
			if wantOK := test.good == len(test.sizes); ok != wantOK {
				t.Fatalf("%v in pieces of %d: ok %v", test.sizes, chunk, ok)
			}
			// Bytes of a header may have passed before its last byte told the size.
			if passed < pass || passed > pass+4 || ok && passed != pass {
				t.Fatalf("%v in pieces of %d: %d bytes passed, want %d", test.sizes, chunk, passed, pass)
			}
			if want := min(test.good+1, len(test.sizes)); begun != want {
				t.Fatalf("%v in pieces of %d: %d packets begun, want %d", test.sizes, chunk, begun, want)
			}
		}
	}
}

// FuzzFramer checks that the result does not depend on how the bytes are split.
func FuzzFramer(f *testing.F) {
	f.Add(append(packet(3), packet(300)...), uint8(3))
	f.Add([]byte{0x10, 0xff, 0xff, 0xff, 0xff, 0x01}, uint8(1))
	f.Add([]byte{0x10, 0x80, 0x00, 0x30, 0x01, 0x00}, uint8(2))
	f.Fuzz(func(t *testing.T, stream []byte, chunk uint8) {
		whole, pieces := framer{max: 200}, framer{max: 200}
		_, _, want := whole.scan(stream)
		got := true
		for rest := stream; len(rest) > 0 && got; {
			n := min(max(int(chunk), 1), len(rest))
			var good int
			good, _, got = pieces.scan(rest[:n])
			if good > n || got && good != n {
				t.Fatalf("%d of %d bytes passed, ok %v", good, n, got)
			}
			rest = rest[n:]
		}
		if got != want {
			t.Errorf("in pieces of %d: %v, whole: %v", chunk, got, want)
		}
	})
}

// TestRefusedPacket checks that a client can read the reason while it still sends a large packet.
func TestRefusedPacket(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	kit.NoError(t, err)
	defer func() { _ = l.Close() }()
	ended := make(chan error, 1)
	var got bytes.Buffer
	go func() {
		conn, err := l.Accept()
		if err != nil {
			ended <- err
			return
		}
		defer func() { _ = conn.Close() }()
		_, err = io.Copy(&got, &clientConn{Conn: conn, frames: framer{max: 100}})
		ended <- err
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	kit.NoError(t, err)
	defer func() { _ = conn.Close() }()
	first := packet(50)
	stream := append(bytes.Clone(first), packet(1<<20)...)
	go func() {
		_, _ = conn.Write(stream)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	answer, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(answer, []byte{0xE0, 2, 0x95, 0}) {
		t.Errorf("the client reads %x, %v", answer, err)
	}
	if err := <-ended; !errors.Is(err, errPacketTooLarge) {
		t.Errorf("reading ended with %v", err)
	}
	if !bytes.Equal(got.Bytes(), first) {
		t.Errorf("%d bytes passed, want the %d of the first packet", got.Len(), len(first))
	}
}
