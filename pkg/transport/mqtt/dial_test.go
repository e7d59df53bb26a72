package mqtt

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/workwire/workwire/pkg/transport/config"
)

func TestAttemptOrder(t *testing.T) {
	addresses := []string{"a:1", "b:1", "c:1"}
	first := map[string]int{}
	for range 1000 {
		order := attemptOrder(addresses, "", rand.Shuffle)
		first[order[0]]++
		if sorted := slices.Sorted(slices.Values(order)); !slices.Equal(sorted, addresses) {
			t.Fatalf("order is %v", order)
		}
		if order = attemptOrder(addresses, "b:1", rand.Shuffle); order[2] != "b:1" {
			t.Fatalf("the last one is not last: %v", order)
		}
	}
	if len(first) != 3 || !slices.Equal(addresses, []string{"a:1", "b:1", "c:1"}) {
		t.Errorf("first were %v, addresses are %v", first, addresses)
	}
}

// closeCounter counts the connections that are closed.
type closeCounter struct {
	net.Conn
	closed *atomic.Int32
}

func (c closeCounter) Close() error { c.closed.Add(1); return nil }

func TestRace(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	var closed atomic.Int32
	started := make(chan struct{})
	for name, test := range map[string]struct {
		addresses []string
		want      string
		closed    int32
	}{
		"one":                    {[]string{"good"}, "good", 0},
		"the first":              {[]string{"good", "bad"}, "good", 0},
		"after two bad ones":     {[]string{"bad", "worse", "good"}, "good", 0},
		"one hangs":              {[]string{"hangs", "good"}, "good", 0},
		"one comes late":         {[]string{"late", "good once late"}, "good once late", 1},
		"bad, and another hangs": {[]string{"hangs", "bad", "good"}, "good", 0},
		"all bad":                {[]string{"worse", "bad"}, "", 0},
		"the only one":           {[]string{"bad"}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			closed.Store(0)
			got, err := race(t.Context(), test.addresses, func(ctx context.Context, address string) (dialed, error) {
				switch address {
				case "bad", "worse":
					return dialed{}, errors.Join(errors.New(address), refused)
				case "hangs":
					<-ctx.Done()
					return dialed{}, ctx.Err()
				case "late": // connects although another one has won
					close(started)
					<-ctx.Done()
				case "good once late":
					<-started
				}
				return dialed{endpoint: endpoint{host: address}, raw: closeCounter{nil, &closed}}, nil
			})
			if got.endpoint.host != test.want || closed.Load() != test.closed {
				t.Errorf("got %q, %v, %d closed", got.endpoint.host, err, closed.Load())
			}
			if test.want == "" && (!isNotListening(err) || adviceFor(err) == "" || !strings.HasPrefix(err.Error(), "bad")) {
				t.Errorf("got the error %v", err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := race(ctx, []string{"a", "b"}, func(ctx context.Context, _ string) (dialed, error) { return dialed{}, ctx.Err() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}

// TestDialLookup: a name is tried at every IP address that it has, with the server name of the
// configuration.
func TestDialLookup(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // not on ::1, which localhost may be as well
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	host := net.JoinHostPort("localhost", port)
	broker := config.Config{BrokerHost: "[::1]:1," + host}.WithDefaults()
	for range 5 {
		d, err := dial(t.Context(), broker, endpoint{host: host, address: l.Addr().String()})
		if err != nil {
			t.Fatal(err)
		}
		if d.endpoint != (endpoint{host, l.Addr().String()}) {
			t.Errorf("connected to %+v", d.endpoint)
		}
		_ = d.raw.Close()
	}
	settings, err := broker.TLSConfig(host, config.Certificates{})
	if err != nil || settings.ServerName != "localhost" {
		t.Errorf("TLS configuration %+v, %v", settings, err)
	}
}
