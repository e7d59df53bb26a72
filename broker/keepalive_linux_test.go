package broker

import (
	"log/slog"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/workwire/workwire/test/kit"
)

// TestRareKeepAlivesOfTCP: a client whose keep-alive of MQTT is rarer than that of Go's listeners gets no packets besides.
func TestRareKeepAlivesOfTCP(t *testing.T) {
	l, err := listen(Listener{Address: "127.0.0.1:0"}, nil, slog.New(slog.DiscardHandler))
	kit.NoError(t, err)
	defer func() { _ = l.socket.Close() }()
	client, err := net.Dial("tcp", l.socket.Addr().String())
	kit.NoError(t, err)
	defer func() { _ = client.Close() }()
	accepted, err := l.socket.Accept()
	kit.NoError(t, err)
	defer func() { _ = accepted.Close() }()
	raw, err := accepted.(*net.TCPConn).SyscallConn()
	kit.NoError(t, err)
	var idle int
	var failed error
	kit.NoError(t, raw.Control(func(fd uintptr) {
		idle, failed = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE)
	}))
	kit.NoError(t, failed)
	if least := 4 * time.Minute; time.Duration(idle)*time.Second <= least { // agents on metered links, see docs/agent.md
		t.Errorf("TCP asks after %d s", idle)
	}
}
