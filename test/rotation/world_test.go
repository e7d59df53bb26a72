// Package rotation replaces certificates, and the authority behind them, under a hub
// and an agent that are at work: real API server, real brokers.
package rotation

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/brokertest"
	"github.com/workwire/workwire/broker/mosquitto"
	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/pkg/certificates"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit/controlplane"
)

// plane is the hub's API and the cluster alike.
var plane *controlplane.Plane

func TestMain(m *testing.M) {
	controlplane.Main(m, controlplane.Hub, func(p *controlplane.Plane) error {
		plane = p
		return crds.Install(context.Background(), p.REST(), append(crds.Hub(), crds.Spoke()...)...)
	})
}

const (
	wait   = 60 * time.Second
	reload = 50 * time.Millisecond // how often clients look at their files

	hubName = "hub1"
)

// world is a broker, and the certificates of all who use it.
type world struct {
	*testing.T
	ctx     context.Context
	dir     string
	manager *certificates.Manager
	broker  *brokertest.Running
	cluster string
	log     *logBuffer // the broker's
}

// brokers start the broker on the certificates of a world.
var brokers = map[string]func(*world) *brokertest.Running{
	"work-broker": func(w *world) *brokertest.Running {
		return brokertest.Start(w, broker.Config{
			Listeners: []broker.Listener{{Address: "127.0.0.1:0", TLS: &broker.ListenerTLS{
				CertFile: w.path("broker/tls.crt"), KeyFile: w.path("broker/tls.key"), ClientCAFile: w.path("broker/ca.crt"),
				CRLFile: w.path("broker/ca.crl"), RequireClientCert: true,
			}}},
			// The name that Mosquitto's rules want for a source.
			Certificates: []broker.Certificate{{CommonName: "source." + hubName, Role: acl.Source, ID: hubName}},
			Logger:       slog.New(slog.NewTextHandler(w.log, nil)),
		})
	},
	"mosquitto": func(w *world) *brokertest.Running {
		return brokertest.StartMosquittoWith(w, mosquitto.Config{
			Users: []broker.User{{Username: "source." + hubName, Role: acl.Source, ID: hubName}, {Username: w.cluster, Role: acl.Agent}},
			TLS: &mosquitto.TLS{
				CertFile: w.path("broker/tls.crt"), KeyFile: w.path("broker/tls.key"), ClientCAFile: w.path("broker/ca.crt"), CRLFile: w.path("broker/ca.crl"),
			},
		})
	},
}

func onBothBrokers(t *testing.T, test func(w *world)) {
	t.Parallel()
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
			t.Cleanup(cancel)
			w := &world{T: t, ctx: ctx, dir: t.TempDir(), cluster: plane.Namespace(t, "cluster"), log: &logBuffer{}}
			w.configure()
			w.broker = start(w)
			test(w)
		})
	}
}

// configure has the certificates of broker, hub and agent kept, and others, which are
// lines of the list.
func (w *world) configure(others ...string) {
	w.Helper()
	text := fmt.Sprintf(`certificates:
- {name: broker, role: broker, hosts: [127.0.0.1]}
- {name: hub, role: source, commonName: source.%s}
- {name: %s, role: agent}
%s`, hubName, w.cluster, strings.Join(others, "\n"))
	list, err := certificates.Parse([]byte(text))
	if err != nil {
		w.Fatalf("%v\n%s", err, text)
	}
	if w.manager, err = certificates.New(certificates.ManagerConfig{Config: list, Dir: w.dir}); err != nil {
		w.Fatal(err)
	}
	w.keep(w.manager.Ensure())
}

// keep fails the test when keeping certificates did, and has the broker take them.
func (w *world) keep(_ certificates.Report, err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
	// Mosquitto has to be told; see broker/mosquitto/mosquitto.conf for the way.
	if w.broker != nil && w.broker.Broker == nil {
		w.broker.Restart(w)
	}
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// link is a connection with the certificate called name, as a transport file would
// configure it.
func (w *world) link(name, clientID string, log *slog.Logger) *counted {
	w.Helper()
	t, err := mqtt.New(mqtt.Config{
		ClientID: clientID, Logger: log, ReloadInterval: reload,
		Broker: config.Config{
			BrokerHost: w.broker.Addr, CA: config.PEM{File: w.path(name + "/ca.crt")},
			ClientCert: config.PEM{File: w.path(name + "/tls.crt")}, ClientKey: config.PEM{File: w.path(name + "/tls.key")},
		},
	})
	if err != nil {
		w.Fatal(err)
	}
	return &counted{Transport: t, cluster: w.cluster, sent: map[string]bool{}, received: map[string]bool{}}
}

func topics() wire.Topics {
	return wire.Topics{
		SourceEvents: "sources/" + hubName + "/clusters/+/sourceevents", AgentEvents: "sources/" + hubName + "/clusters/+/agentevents",
		SourceBroadcast: "sources/+/sourcebroadcast", AgentBroadcast: "clusters/+/agentbroadcast",
	}
}

func (w *world) eventually(what string, check func() error) {
	w.Helper()
	deadline := time.Now().Add(wait)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("%s: not within %v: %v", what, wait, err)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-w.ctx.Done():
			w.Fatalf("%s: %v: %v", what, w.ctx.Err(), err)
		}
	}
}

// counted is a transport that counts the events it has carried of one cluster: the hub
// sends to those of other tests as well.
type counted struct {
	transport.Transport
	cluster string

	mu       sync.Mutex
	sent     map[string]bool // by id: taken by the broker
	received map[string]bool
	resumed  []bool // for each connection
}

// Publish counts what the broker has taken.
func (c *counted) Publish(ctx context.Context, topic string, e cloudevents.Event) error {
	err := c.Transport.Publish(ctx, topic, e)
	if _, rest, ok := strings.Cut(topic, "/clusters/"); err != nil || ok && !strings.HasPrefix(rest, c.cluster+"/") {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent[e.ID()] = true
	return nil
}

// begin forgets what was sent so far, when the other end was not there perhaps.
func (c *counted) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = map[string]bool{}
}

// Run counts connections and what comes.
func (c *counted) Run(ctx context.Context, h transport.Handler) error {
	received, connected := h.Received, h.Connected
	h.Received = func(ctx context.Context, m transport.Message) {
		c.mu.Lock()
		c.received[m.Event.ID()] = true
		c.mu.Unlock()
		received(ctx, m)
	}
	h.Connected = func(ctx context.Context, how transport.Connection) {
		c.mu.Lock()
		c.resumed = append(c.resumed, how.Resumed)
		c.mu.Unlock()
		if connected != nil {
			connected(ctx, how)
		}
	}
	return c.Transport.Run(ctx, h)
}

func (c *counted) connections() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.resumed)
}

// lost counts what c sent and to did not receive.
func (c *counted) lost(to *counted) (lost, sent int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to.mu.Lock()
	defer to.mu.Unlock()
	for id := range c.sent {
		if !to.received[id] {
			lost++
		}
	}
	return lost, len(c.sent)
}

// sessionsLost counts connections, after the first, that found no session.
func (c *counted) sessionsLost() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	lost := 0
	for _, resumed := range c.resumed[1:] {
		if !resumed {
			lost++
		}
	}
	return lost
}

// logBuffer keeps a log.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends to the log.
func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String gives the log.
func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
