// Package monitoring runs a hub, a broker and an agent with a real Prometheus, and tests what
// deploy/monitoring and docs/metrics.md say about their metrics.
package monitoring

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/pkg/agent"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/pkg/runtime/serve"
	"github.com/workwire/workwire/pkg/runtime/tracing/otlp"
	"github.com/workwire/workwire/pkg/security/audit"
	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/keykit"
	"github.com/workwire/workwire/test/kit/world"
)

var hubPlane, spokePlane *controlplane.Plane

func TestMain(m *testing.M) {
	controlplane.Main(m, controlplane.Planes{Hub: &hubPlane, Spoke: &spokePlane})
}

const source = "hub1"

// monitored is a world with certificates, signatures and the registries that the commands of its hub and
// agent would serve.
type monitored struct {
	*world.World
	cluster    string
	dir        string // of certificates and keys
	hub, agent *recorder
}

// start starts the three programs and waits until the agent is connected.
func start(t *testing.T) *monitored {
	t.Helper()
	w := &monitored{World: world.New(t, world.Options{Hub: hubPlane, Spokes: []*controlplane.Plane{spokePlane}, Source: source}),
		dir: t.TempDir(), hub: newRecorder(), agent: newRecorder()}
	w.cluster = string(w.Clusters[0])
	w.makeCertificates()
	w.makeKeys()
	w.Broker = brokertest.Start(t, broker.Config{HTTPAddress: "127.0.0.1:0", Listeners: []broker.Listener{{
		Address: "127.0.0.1:0", TLS: &broker.ListenerTLS{
			CertFile: w.path("broker/tls.crt"), KeyFile: w.path("broker/tls.key"), ClientCAFile: w.path("broker/ca.crt"), RequireClientCert: true,
		}}}})
	w.startHub()
	w.startAgent()
	kit.True(t, "the agent is connected", func() bool { return kit.Metric(t, w.agent, "workwire_transport_connected") == 1 })
	return w
}

func (w *monitored) path(name string) string { return filepath.Join(w.dir, name) }

func (w *monitored) makeCertificates() {
	list, err := certificates.Parse(fmt.Appendf(nil,
		"certificates:\n- {name: broker, role: broker, hosts: [127.0.0.1]}\n- {name: hub1, role: source}\n- {name: %s, role: agent}\n", w.cluster))
	kit.NoError(w, err)
	manager, err := certificates.New(certificates.ManagerConfig{Config: list, Dir: w.dir})
	kit.NoError(w, err)
	_, err = manager.Ensure()
	kit.NoError(w, err)
}

func (w *monitored) makeKeys() {
	keykit.Write(w, w.path("signing.key"), w.path("trusted-keys.yaml"), signing.TrustedKey{Sources: []wire.SourceID{source}})
	sealingKey, err := sealing.NewKey()
	kit.NoError(w, err)
	private, err := sealingKey.PEM()
	kit.NoError(w, err)
	kit.NoError(w, os.WriteFile(w.path("unseal.key"), private, 0o600))
	kit.NoError(w, os.Mkdir(w.path("seal-keys"), 0o700))
	kit.NoError(w, os.WriteFile(w.path("seal-keys/"+w.cluster+".pub"), sealingKey.Public().PEM(), 0o600))
}

func (w *monitored) startHub() {
	signer, err := signing.NewSigner(signing.SignerConfig{KeyFile: w.path("signing.key"), Logger: kit.Logger(w)})
	kit.NoError(w, err)
	sealer, err := sealing.NewSealer(sealing.SealerConfig{Dir: w.path("seal-keys"), Secret: signer.Secret, Registerer: w.hub, Logger: kit.Logger(w)})
	kit.NoError(w, err)
	w.exportTraces(w.hub)
	h := w.NewHub(func(c *hub.Config) {
		kit.NoError(w, kube.CountRequests(c.REST, w.hub))
		c.Transport, c.Sign, c.Seal, c.Audit, c.Registerer = w.transport(w.hub, source), signer.Sign, sealer, w.records(w.hub), w.hub
		c.AutoRegister, c.AutoAccept = true, true
		c.Joining = &hub.Joining{ // for its metrics
			Transport: memory.NewBroker().Client("joins"), Namespace: "default", Certificate: func() (tls.Certificate, error) { return tls.Certificate{}, nil },
			Trust: func() ([]byte, error) { return nil, nil },
		}
	})
	_, err = h.Dashboard(hub.DashboardOptions{}) // for its metrics
	kit.NoError(w, err)
	h.Start()
}

func (w *monitored) startAgent() {
	trusted, err := signing.OpenTrustedKeys(signing.TrustedKeysConfig{File: w.path("trusted-keys.yaml"), Logger: kit.Logger(w)})
	kit.NoError(w, err)
	unsealer, err := sealing.NewUnsealer(sealing.UnsealerConfig{Files: []string{w.path("unseal.key")}, Registerer: w.agent, Logger: kit.Logger(w)})
	kit.NoError(w, err)
	w.exportTraces(w.agent)
	w.StartAgent(0, func(c *agent.Config) {
		kit.NoError(w, kube.CountRequests(c.Kube, w.agent))
		c.Transport, c.TrustedKeys, c.Unseal, c.Audit, c.Registerer = w.transport(w.agent, w.cluster), trusted, unsealer, w.records(w.agent), w.agent
	})
}

func (w *monitored) transport(r prometheus.Registerer, user string) transport.Transport {
	tr, err := mqtt.New(mqtt.Config{ClientID: user, Logger: kit.Logger(w), Registerer: r, Broker: config.Config{
		BrokerHost: w.Broker.Addr, Topics: w.Topics, CA: config.PEM{File: w.path(user + "/ca.crt")},
		ClientCert: config.PEM{File: w.path(user + "/tls.crt")}, ClientKey: config.PEM{File: w.path(user + "/tls.key")},
	}})
	kit.NoError(w, err)
	return tr
}

func (w *monitored) records(r prometheus.Registerer) *audit.Log {
	log, err := audit.Open(audit.Config{Path: filepath.Join(w.TempDir(), "audit.log"), Program: "test", Registerer: r, Logger: kit.Logger(w)})
	kit.NoError(w, err)
	kit.Run(w, "audit log", func(ctx context.Context) error { log.Run(ctx); return nil })
	return log
}

// exportTraces registers the metrics of an exporter, which sends nothing.
func (w *monitored) exportTraces(r prometheus.Registerer) {
	_, err := otlp.New(otlp.Config{Options: otlp.Options{Endpoint: "http://127.0.0.1:4318"}, Service: "test", Registerer: r})
	kit.NoError(w, err)
}

// serveMetrics serves a registry as the commands do, without TLS and token, and returns the
// address.
func serveMetrics(t *testing.T, g prometheus.Gatherer) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	kit.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{}))
	kit.Run(t, "metrics", func(ctx context.Context) error { return serve.HTTP(ctx, listener, mux, kit.Logger(t)) })
	return listener.Addr().String()
}
