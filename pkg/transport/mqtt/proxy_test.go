package mqtt_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/transport/transporttest"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/webproxy"
)

// TestOnlyHTTPS: where only a proxy is reached, which connects to port 443 and wants a password, events are
// exchanged with a broker whose name nobody but the proxy can look up, with MQTT in TLS and in a WebSocket in TLS.
func TestOnlyHTTPS(t *testing.T) {
	const host = "broker.example.test"
	for name, test := range map[string]struct{ path, brokerHost, header string }{
		"MQTT":                      {"", host + ":443", ""},
		"WebSocket":                 {"/mqtt", "wss://" + host + "/mqtt", ""},
		"with a transfer encoding":  {"", host + ":443", "Transfer-Encoding: chunked\r\n"},
		"with the length of a body": {"", host + ":443", "Content-Length: 7\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			ca, dir := newAuthority(t), folder{t, t.TempDir()}
			cert, key := ca.issueFor(host)
			b := brokertest.Start(t, broker.Config{Users: users, Listeners: []broker.Listener{{Address: "127.0.0.1:0", WebSocketPath: test.path,
				TLS: &broker.ListenerTLS{CertFile: dir.write("server.crt", cert), KeyFile: dir.write("server.key", key)}}}})
			p := webproxy.Start(t, host, b.Addr)
			p.Header = test.header
			t.Setenv("HTTPS_PROXY", p.URL())
			connected := func(user string, filters ...string) *transporttest.Client {
				c := transporttest.Start(t, client(t, test.brokerHost, user, func(c *mqtt.Config) { c.Broker.CA = config.PEM{Data: ca.pem} }), filters...)
				c.WaitConnected()
				return c
			}
			agent, hub := connected(transporttest.Cluster, transporttest.ClusterSpecs), connected(transporttest.Hub)
			hub.MustPublish(transporttest.ClusterSpecs, transporttest.Event("1", 100_000))
			agent.Expect("1")
			if n := p.Connected(); n != 2 {
				t.Errorf("%d connections through the proxy, want 2", n)
			}
		})
	}
}

// TestProxyRefuses: errors name the proxy, never its password, and what to do.
func TestProxyRefuses(t *testing.T) {
	p := webproxy.Start(t, "broker.example.test", "127.0.0.1:1")
	for name, test := range map[string]struct {
		proxy, brokerHost string
		want              []string
	}{
		"wrong password":    {"http://edge:wr0ng@" + p.Addr, "broker.example.test:443", []string{"407", "proxy " + p.Addr, "into HTTPS_PROXY"}},
		"another port":      {p.URL(), "broker.example.test:8883", []string{"403", "CONNECT"}},
		"unknown host":      {p.URL(), "other.example.test:443", []string{"502", "check brokerHost"}},
		"nobody is there":   {p.URL(), "broker.example.test:443", []string{"502"}},
		"no proxy answers":  {"http://edge:s3cret@127.0.0.1:1", "broker.example.test:443", []string{"proxy 127.0.0.1:1", "check HTTPS_PROXY"}},
		"another scheme":    {"socks5://edge:s3cret@" + p.Addr, "broker.example.test:443", []string{`"socks5" is not supported`}},
		"no URL":            {"http://edge:s3cret@%zz", "broker.example.test:443", []string{"HTTPS_PROXY: is no URL"}},
		"it does not speak": {"http://edge:s3cret@" + silent(t), "broker.example.test:443", []string{"proxy", "deadline"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("HTTPS_PROXY", test.proxy)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := mqtt.Dial(ctx, config.Config{BrokerHost: test.brokerHost, TLSRequired: true}, "x", nil)
			if err == nil {
				t.Fatal("connected")
			}
			text := err.Error() + "; " + mqtt.Advice(err)
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in %q", want, text)
				}
			}
			if strings.Contains(text, "s3cret") || strings.Contains(text, "wr0ng") {
				t.Errorf("a password is in %q", text)
			}
		})
	}
}

// silent returns the address of a listener that accepts connections and says nothing.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	kit.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// TestNoWebSocketThere: what is at the URL is something else.
func TestNoWebSocketThere(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users, Listeners: []broker.Listener{{Address: "127.0.0.1:0", WebSocketPath: "/mqtt"}}})
	_, err := mqtt.Dial(t.Context(), config.Config{BrokerHost: "ws://" + b.Addr + "/other"}, "x", nil)
	if err == nil || !strings.Contains(err.Error(), "404 Not Found") || !strings.Contains(mqtt.Advice(err), "check the path in brokerHost") {
		t.Errorf("another path: %v; %s", err, mqtt.Advice(err))
	}
	_, err = mqtt.Dial(t.Context(), brokerAt(b.Addr), "x", nil)
	if err == nil || mqtt.Advice(err) == "" {
		t.Errorf("without WebSocket: %v; %s", err, mqtt.Advice(err))
	}
}
