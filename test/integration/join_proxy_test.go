package integration

import (
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/agent"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/webproxy"
)

// TestJoinThroughProxy: a fresh cluster that reaches nothing but an HTTP proxy, which connects to port 443 only, joins and gets its works.
func TestJoinThroughProxy(t *testing.T) { //nolint:paralleltest // sets the environment
	w := newJoining(t, nil)
	proxy := webproxy.Start(t, "broker.example.test", w.Broker.Addr)
	t.Setenv("HTTPS_PROXY", proxy.URL())
	name := w.Clusters[1]
	token := w.token(name, nil)
	token.Broker = "broker.example.test:443"
	w.Create(w.Works(1), w.Work(1, "web", "1", "a"))

	began := time.Now()
	m := w.device(name, token).joined()
	joined := time.Since(began)
	tr, err := w.connect(m.Broker(), string(name)+"-agent")
	kit.NoError(t, err)
	w.StartAgent(1, func(c *agent.Config) { c.Transport, c.Topics = m.Transport(tr), m.Broker().Topics })
	w.Applied(w.Works(1), "web")
	t.Logf("through a proxy: joined after %s, the first work applied after %s", joined.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	if n := proxy.Connected(); n < 2 {
		t.Errorf("%d connections through the proxy, want that of joining and that of the agent", n)
	}
}
