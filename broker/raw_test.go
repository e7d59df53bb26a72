package broker_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/workwire/workwire/broker/brokertest"
)

// rawClient writes and reads single packets, also wrong ones.
type rawClient struct {
	net.Conn
	r    *bufio.Reader
	user string
}

func rawDial(t testing.TB, addr, user string) *rawClient {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return &rawClient{Conn: conn, r: bufio.NewReader(conn), user: user}
}

func (c *rawClient) send(t testing.TB, p packets.Packet) {
	t.Helper()
	if _, err := p.WriteTo(c.Conn); err != nil {
		t.Fatalf("send: %v", err)
	}
}

// next reads one packet.
func (c *rawClient) next(t testing.TB) packets.Packet {
	t.Helper()
	p, err := packets.ReadPacket(c.r)
	if err != nil {
		t.Fatalf("read a packet: %v", err)
	}
	return p.Content
}

// expectEnd fails unless the broker closes the connection.
func (c *rawClient) expectEnd(t testing.TB) {
	t.Helper()
	if p, err := packets.ReadPacket(c.r); err == nil {
		t.Errorf("the connection goes on with %v", p)
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the broker does not close the connection")
	}
}

func (c *rawClient) connect(t testing.TB, clientID string, expiry uint32) *packets.Connack {
	t.Helper()
	c.send(t, &packets.Connect{
		ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: clientID, KeepAlive: 60,
		UsernameFlag: true, Username: c.user, PasswordFlag: true, Password: []byte(password),
		Properties: &packets.Properties{SessionExpiryInterval: &expiry},
	})
	connack, ok := c.next(t).(*packets.Connack)
	if !ok || connack.ReasonCode != 0 {
		t.Fatalf("connect: %v", connack)
	}
	return connack
}

func (c *rawClient) subscribe(t testing.TB, filter string) {
	t.Helper()
	c.send(t, &packets.Subscribe{PacketID: 1, Properties: &packets.Properties{}, Subscriptions: []packets.SubOptions{{Topic: filter, QoS: 1}}})
	if suback, ok := c.next(t).(*packets.Suback); !ok || suback.Reasons[0] > 1 {
		t.Fatalf("subscribe: %v", suback)
	}
}

// scrape reads one metric of a broker that serves them.
func scrape(t *testing.T, b *brokertest.Running, metric string) float64 {
	t.Helper()
	for _, line := range strings.Split(get(t, b, "/metrics"), "\n") {
		if value, ok := strings.CutPrefix(line, metric+" "); ok {
			f, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
	}
	t.Fatalf("there is no metric %s", metric)
	return 0
}

func get(t *testing.T, b *brokertest.Running, path string) string {
	t.Helper()
	response, err := http.Get(fmt.Sprintf("http://%s%s", b.Broker.HTTPAddr(), path))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s, %v", path, response.Status, err)
	}
	return string(body)
}

// waitFor polls what cannot be waited for.
func waitFor(ctx context.Context, t *testing.T, what string, ok func() bool) {
	t.Helper()
	for !ok() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s: not in time", what)
		}
	}
}
