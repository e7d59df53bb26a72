package mqtt

import (
	"net"
	"syscall"
	"testing"

	"github.com/workwire/workwire/test/kit"
)

// TestNoKeepAlivesOfTCP: on an idle connection they would be most of the packets.
func TestNoKeepAlivesOfTCP(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	kit.NoError(t, err)
	defer func() { _ = listener.Close() }()
	dialed, err := way{host: listener.Addr().String()}.dial(t.Context(), listener.Addr().String())
	kit.NoError(t, err)
	defer func() { _ = dialed.raw.Close() }()
	raw, err := dialed.raw.(*net.TCPConn).SyscallConn()
	kit.NoError(t, err)
	var sends int
	var failed error
	kit.NoError(t, raw.Control(func(fd uintptr) {
		sends, failed = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_KEEPALIVE)
	}))
	kit.NoError(t, failed)
	if sends != 0 {
		t.Error("the connection sends keep-alives of TCP")
	}
}
