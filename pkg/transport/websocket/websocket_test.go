package websocket_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/transport/websocket"
	"github.com/workwire/workwire/test/kit"
)

// pair returns both ends of a WebSocket.
func pair(t *testing.T) (client, server *websocket.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	kit.NoError(t, err)
	defer func() { _ = l.Close() }()
	type end struct {
		*websocket.Conn
		err error
	}
	accepted := make(chan end, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			accepted <- end{nil, err}
			return
		}
		server, err := websocket.Server(conn, "/mqtt", nil)
		accepted <- end{server, err}
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	kit.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	defer cancel()
	client, err = websocket.Client(ctx, conn, "ws://"+l.Addr().String()+"/mqtt")
	kit.NoError(t, err)
	other := kit.Receive(t, "the server's end", accepted)
	kit.NoError(t, other.err)
	t.Cleanup(func() { _, _ = client.Close(), other.Close() })
	return client, other.Conn
}

// TestStream: what one end writes, in whatever pieces, the other end reads, and then the end.
func TestStream(t *testing.T) {
	client, server := pair(t)
	for name, ends := range map[string]struct{ from, to *websocket.Conn }{"up": {client, server}, "down": {server, client}} {
		want := bytes.Repeat([]byte("0123456789abcdef"), 20_000) // more than any buffer
		go func() {
			for rest, n := want, 1; len(rest) > 0; n *= 3 {
				n = min(n, len(rest))
				if _, err := ends.from.Write(rest[:n]); err != nil {
					return // the other end misses it
				}
				rest = rest[n:]
			}
		}()
		kit.NoError(t, ends.to.SetReadDeadline(time.Now().Add(kit.Patience)))
		got := make([]byte, len(want))
		if _, err := io.ReadFull(ends.to, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: not what was written: %v", name, err)
		}
	}
	kit.NoError(t, server.CloseWrite())
	if rest, err := io.ReadAll(client); len(rest) > 0 || err != nil {
		t.Errorf("at the end: %d bytes, %v", len(rest), err)
	}
}

// TestWriteDeadline: it ends a write that nobody reads, also one in progress.
func TestWriteDeadline(t *testing.T) {
	for name, limit := range map[string]func(*websocket.Conn){
		"before it": func(c *websocket.Conn) { kit.NoError(t, c.SetWriteDeadline(time.Now().Add(50*time.Millisecond))) },
		"during it": func(c *websocket.Conn) {
			time.AfterFunc(50*time.Millisecond, func() { _ = c.SetWriteDeadline(time.Now()) })
		},
	} {
		client, server := pair(t)
		for end, conn := range map[string]*websocket.Conn{"client": client, "server": server} {
			limit(conn)
			ended := make(chan error, 1)
			go func() {
				_, err := conn.Write(make([]byte, 64<<20))
				ended <- err
			}()
			if err := kit.Receive(t, "the end of the write", ended); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s, %s: %v", end, name, err)
			}
		}
	}
}
