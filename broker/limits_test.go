package broker_test

import (
	"errors"
	"net"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/limits"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
)

// TestConnectionLimits: one identity has its number of connections, and an address its number of
// those that have not logged in. Both are free again when connections end.
func TestConnectionLimits(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users(), HTTPAddress: "127.0.0.1:0", Limits: limits.Config{ConnectionsPerIdentity: 2, PendingPerAddress: 3}})
	one := dial(t, b.Addr, options{user: "c1", clientID: "1"})
	dial(t, b.Addr, options{user: "c1", clientID: "2"})
	if c, err := tryDial(t, b.Addr, options{user: "c1", clientID: "3"}); err == nil || c.connack == nil || c.connack.ReasonCode != 0x97 {
		t.Errorf("the third connection: %v, %+v", err, c.connack)
	}
	dial(t, b.Addr, options{user: "c2"})
	one.leave()
	kit.Eventually(t, "a connection to be free", func() error {
		_, err := tryDial(t, b.Addr, options{user: "c1", clientID: "3"})
		return err
	})
	kit.True(t, "refused ones to leave", func() bool { return scrape(t, b, "workwire_broker_connections_pending") == 0 })
	var silent []net.Conn
	for range 3 {
		conn, err := net.Dial("tcp", b.Addr)
		kit.NoError(t, err)
		defer func() { _ = conn.Close() }()
		silent = append(silent, conn)
	}
	kit.True(t, "silent ones to count", func() bool { return scrape(t, b, "workwire_broker_connections_pending") == 3 })
	dial(t, b.Addr, options{user: "hub1"})
	_ = silent[0].SetReadDeadline(time.Now().Add(kit.Patience))
	if _, err := silent[0].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest silent one: %v, want it closed", err)
	}
	if got := scrape(t, b, "workwire_broker_connections_refused_total", "reason=pending_address"); got != 1 {
		t.Errorf("%v refused", got)
	}
}

// TestRateLimit: an agent that sends too fast is read more slowly, and loses nothing.
func TestRateLimit(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users(), HTTPAddress: "127.0.0.1:0", Limits: limits.Config{Agent: limits.Rate{MessagesPerSecond: 30}}})
	hub := dial(t, b.Addr, options{user: "hub1"})
	hub.mustSubscribe("clusters/+/agentbroadcast")
	var payloads []string
	for i := range 90 {
		payloads = append(payloads, strconv.Itoa(i))
	}
	start := time.Now()
	dial(t, b.Addr, options{user: "c1"}).publishMany("clusters/c1/agentbroadcast", payloads)
	if took := time.Since(start); took < 900*time.Millisecond {
		t.Errorf("90 messages took %v at 30/s after 20 at once", took)
	}
	if got := hub.payloads(90); !slices.Equal(got, payloads) {
		t.Errorf("received %v", got)
	}
	if got := scrape(t, b, "workwire_broker_throttled_packets_total"); got == 0 {
		t.Error("no pause was counted")
	}
}
