package broker_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/limits"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/mqttraw"
)

// login sends a header of a load balancer and CONNECT, and returns the answer, nothing if the connection was ended.
func login(t *testing.T, addr, header string) []byte {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	kit.NoError(t, err)
	defer func() { _ = conn.Close() }()
	kit.NoError(t, conn.SetDeadline(time.Now().Add(kit.Patience)))
	_, err = io.WriteString(conn, header+string(mqttraw.Connect{ClientID: "x", User: "c1", Password: password}.Bytes()))
	if err != nil && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Fatal(err)
	}
	_ = conn.(*net.TCPConn).CloseWrite() // fails if the broker has ended it
	answer := make([]byte, 4)
	n, _ := io.ReadFull(conn, answer) // ended: with an error
	return answer[:n]
}

func TestProxyProtocol(t *testing.T) {
	const header = "PROXY TCP4 192.0.2.9 127.0.0.1 5555 1883\r\n"
	start := func(from string) (string, *kit.Log) {
		log := &kit.Log{}
		return brokertest.Start(t, broker.Config{
			Users: users(), Logger: log.Logger(), Listeners: []broker.Listener{{Address: "127.0.0.1:0", ProxyProtocolFrom: []string{from}}},
		}).Addr, log
	}
	for from, trusted := range map[string]bool{"127.0.0.1": true, "127.0.0.0/8": true, "192.0.2.0/24": false} {
		addr, log := start(from)
		with, without := len(login(t, addr, header)) > 0, len(login(t, addr, "")) > 0
		if with != trusted || without == trusted {
			t.Errorf("from %s: served with a header %v, without %v", from, with, without)
		}
		for _, text := range []string{"remote=192.0.2.9:5555", "no header of the PROXY protocol"} {
			if trusted {
				kit.True(t, "the log says "+text, func() bool { return strings.Contains(log.String(), text) })
			} else if strings.Contains(log.String(), text) {
				t.Errorf("from %s: the log says %s:\n%s", from, text, log)
			}
		}
	}
	addr, _ := start("127.0.0.1")
	for name, broken := range map[string]string{
		"cut": "PROXY TCP4 192.0.2.9", "no address": "PROXY TCP4 x 127.0.0.1 5555 1883\r\n", "long": "PROXY " + strings.Repeat("x", 10_000) + "\r\n",
		"binary": "\r\n\r\n\x00\r\nQUIT\n\x21\x11\xff\xff",
	} {
		if answer := login(t, addr, broken); len(answer) > 0 {
			t.Errorf("%s: answered with %x", name, answer)
		}
	}
}

// TestProxyProtocolLimits: limits of an address are those of the client, not of the load balancer.
func TestProxyProtocolLimits(t *testing.T) {
	addr := brokertest.Start(t, broker.Config{
		Users: users(), Limits: limits.Config{PendingPerAddress: 1},
		Listeners: []broker.Listener{{Address: "127.0.0.1:0", ProxyProtocolFrom: []string{"127.0.0.1"}}},
	}).Addr
	open := func(header string) net.Conn {
		conn, err := net.Dial("tcp", addr)
		kit.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		kit.NoError(t, conn.SetDeadline(time.Now().Add(kit.Patience)))
		_, err = io.WriteString(conn, header)
		kit.NoError(t, err)
		return conn
	}
	slow := open("PROXY TCP4 192.0.2.10 127.0.0.1 5555 1883\r\n")
	const others = 6
	ended := make(chan struct{}, others)
	for range others {
		conn := open("PROXY TCP4 192.0.2.9 127.0.0.1 5555 1883\r\n")
		go func() {
			_, _ = conn.Read(make([]byte, 1)) // until it ends
			ended <- struct{}{}
		}()
	}
	for range others - 1 { // each takes the place of another one
		<-ended
	}
	_, err := slow.Write(mqttraw.Connect{ClientID: "x", User: "c1", Password: password}.Bytes())
	kit.NoError(t, err)
	if answer := make([]byte, 4); !reads(slow, answer) || answer[0] != mqttraw.CONNACK || answer[3] != 0 {
		t.Errorf("another client is answered with %x", answer)
	}
}

func reads(conn net.Conn, all []byte) bool {
	_, err := io.ReadFull(conn, all)
	return err == nil
}

// TestHAProxy runs haproxy/haproxy.cfg: a client is known by its certificate, and by its address.
func TestHAProxy(t *testing.T) {
	program := kit.HAProxy.Require(t)
	ca, log := newAuthority(t), &kit.Log{}
	l := ca.write(t, t.TempDir(), 1)
	l.ProxyProtocolFrom = []string{"127.0.0.1"}
	b := brokertest.Start(t, broker.Config{Listeners: []broker.Listener{l}, Users: users(), Logger: log.Logger()})

	front, err := net.Listen("tcp", "127.0.0.1:0")
	kit.NoError(t, err)
	defer func() { _ = front.Close() }()
	socket, err := front.(*net.TCPListener).File()
	kit.NoError(t, err)
	defer func() { _ = socket.Close() }()
	text, err := os.ReadFile("haproxy/haproxy.cfg")
	kit.NoError(t, err)
	config := filepath.Join(t.TempDir(), "haproxy.cfg")
	kit.NoError(t, os.WriteFile(config, []byte(strings.NewReplacer("bind :443", "bind fd@3", "broker.internal:8883", b.Addr).Replace(string(text))), 0o600))
	haproxy := exec.CommandContext(t.Context(), program, "-db", "-f", config)
	said := &kit.Log{}
	haproxy.Stdout, haproxy.Stderr, haproxy.ExtraFiles = said, said, []*os.File{socket}
	kit.NoError(t, haproxy.Start())
	defer func() {
		_ = haproxy.Process.Kill()
		_ = haproxy.Wait() // it was killed
		if t.Failed() {
			t.Logf("HAProxy: %s", said)
		}
	}()

	secure := ca.client(t, "c1", "agents")
	dialer := tls.Dialer{Config: secure, NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}}
	conn, err := dialer.DialContext(t.Context(), "tcp", front.Addr().String())
	kit.NoError(t, err)
	defer func() { _ = conn.Close() }()
	kit.NoError(t, conn.SetDeadline(time.Now().Add(kit.Patience)))
	_, err = conn.Write(mqttraw.Connect{ClientID: "x"}.Bytes())
	kit.NoError(t, err)
	answer := make([]byte, 4)
	if !reads(conn, answer) || answer[0] != mqttraw.CONNACK || answer[3] != 0 {
		t.Errorf("answered with %x", answer)
	}
	for _, want := range []string{"identity=agent:c1", "remote=127.0.0.2:"} {
		kit.True(t, "the broker logs "+want, func() bool { return strings.Contains(log.String(), want) })
	}
}
