package integration

import (
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
	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/mosquittokit"
	"github.com/workwire/workwire/test/kit/world"
)

// secured is a world whose broker, hub and agent have certificates. It uses the second cluster.
type secured struct {
	*world.World
	dir     string // of the certificates
	manager *certificates.Manager
	log     kit.Log // of the broker
}

// securedBrokers start the broker with the certificates of a world.
var securedBrokers = map[string]func(*secured) *brokertest.Running{
	"work-broker": func(w *secured) *brokertest.Running {
		return brokertest.Start(w, broker.Config{
			Listeners: []broker.Listener{{Address: "127.0.0.1:0", TLS: &broker.ListenerTLS{
				CertFile: w.path("broker/tls.crt"), KeyFile: w.path("broker/tls.key"), ClientCAFile: w.path("broker/ca.crt"),
				CRLFile: w.path("broker/ca.crl"), RequireClientCert: true,
			}}},
			// The rules of Mosquitto need this common name for a source.
			Certificates: []broker.Certificate{{CommonName: "source." + string(w.Source), Role: acl.Source, ID: string(w.Source)}},
			Logger:       slog.New(slog.NewTextHandler(&w.log, nil)),
		})
	},
	"mosquitto": func(w *secured) *brokertest.Running {
		return brokertest.StartMosquittoWith(w, mosquittokit.Config{
			Users: []broker.User{{Username: "source." + string(w.Source), Role: acl.Source, ID: string(w.Source)}, {Username: w.cluster(), Role: acl.Agent}},
			TLS: &mosquittokit.TLS{
				CertFile: w.path("broker/tls.crt"), KeyFile: w.path("broker/tls.key"), ClientCAFile: w.path("broker/ca.crt"), CRLFile: w.path("broker/ca.crl"),
			},
		})
	},
}

func onBothSecuredBrokers(t *testing.T, test func(w *secured)) {
	t.Parallel()
	for name, start := range securedBrokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &secured{World: newWorld(t), dir: t.TempDir()}
			w.configure()
			w.Broker = start(w)
			test(w)
		})
	}
}

func (w *secured) cluster() string { return string(w.Clusters[1]) }

// configure creates the certificates of broker, hub and agent, and others, which are lines of the
// configuration.
func (w *secured) configure(others ...string) {
	w.Helper()
	text := fmt.Sprintf(`certificates:
- {name: broker, role: broker, hosts: [127.0.0.1, broker.example.test]}
- {name: hub, role: source, commonName: source.%s}
- {name: %s, role: agent}
%s`, w.Source, w.cluster(), strings.Join(others, "\n"))
	list, err := certificates.Parse([]byte(text))
	if err != nil {
		w.Fatalf("%v\n%s", err, text)
	}
	if w.manager, err = certificates.New(certificates.ManagerConfig{Config: list, Dir: w.dir}); err != nil {
		w.Fatal(err)
	}
	w.use(w.manager.Ensure())
}

// use makes the broker use the certificates that a call of the manager has written. It fails the
// test when the call failed.
func (w *secured) use(_ certificates.Report, err error) {
	w.Helper()
	kit.NoError(w, err)
	// Mosquitto does not watch its files; broker/mosquitto/mosquitto.conf describes how to reload
	// them.
	if w.Broker != nil && w.Broker.Broker == nil {
		w.Broker.Restart(w)
	}
}

func (w *secured) path(name string) string { return filepath.Join(w.dir, name) }

// certified returns a transport with the certificate called name, as a transport file would
// configure it.
func (w *secured) certified(name, clientID string) *countingTransport {
	w.Helper()
	tr, err := mqtt.New(mqtt.Config{
		ClientID: clientID, Logger: kit.Logger(w).With("client", clientID), ReloadInterval: 50 * time.Millisecond,
		Broker: config.Config{
			BrokerHost: w.Broker.Addr, CA: config.PEM{File: w.path(name + "/ca.crt")},
			ClientCert: config.PEM{File: w.path(name + "/tls.crt")}, ClientKey: config.PEM{File: w.path(name + "/tls.key")},
		},
	})
	kit.NoError(w, err)
	return &countingTransport{Transport: tr, cluster: w.cluster(), sent: map[string]bool{}, received: map[string]bool{}}
}

// countingTransport counts the events of one cluster: the hub publishes works of other tests as
// well.
type countingTransport struct {
	transport.Transport
	cluster string

	mu       sync.Mutex
	sent     map[string]bool // by id: acknowledged by the broker
	received map[string]bool
	resumed  []bool // for each connection
}

// Publish counts the events that the broker has acknowledged.
func (c *countingTransport) Publish(ctx context.Context, topic string, e cloudevents.Event) error {
	err := c.Transport.Publish(ctx, topic, e)
	if _, rest, ok := strings.Cut(topic, "/clusters/"); err != nil || ok && !strings.HasPrefix(rest, c.cluster+"/") {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent[e.ID()] = true
	return nil
}

// begin forgets the events sent so far, when the peer may not have been connected.
func (c *countingTransport) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = map[string]bool{}
}

// Run counts connections and received events.
func (c *countingTransport) Run(ctx context.Context, h transport.Handler) error {
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

func (c *countingTransport) connections() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.resumed)
}

// lost returns the number of events that c sent and to did not receive, and of all that c sent.
func (c *countingTransport) lost(to *countingTransport) (lost, sent int) {
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

// sessionsLost returns the number of connections after the first that found no session.
func (c *countingTransport) sessionsLost() int {
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
