package integration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/world"
)

// TestRefusals connects with invalid certificates, and checks the logs of both sides.
func TestRefusals(t *testing.T) {
	onBothSecuredBrokers(t, func(w *secured) {
		w.configure("- {name: revoked, role: agent}", "- {name: former, role: agent}")
		former := w.pair("former")
		for _, step := range []certificates.Step{certificates.Trust, certificates.Issue} {
			w.use(w.manager.Rotate(step))
		}
		w.accepted(former)
		w.use(w.manager.Rotate(certificates.Drop))
		w.refused("former authority", former, "does not trust the authority of this client's certificate", "CN=former", "unknown authority")
		w.accepted(w.pair("former"))

		foreign := &secured{World: &world.World{TB: w, Source: w.Source, Clusters: w.Clusters}, dir: w.TempDir()}
		foreign.configure()
		w.refused("foreign authority", foreign.pair(w.cluster()), "does not trust the authority of this client's certificate", "CN="+w.cluster(), "unknown authority")
		w.refused("no certificate", pair{}, "the broker wants a client certificate", "didn't provide a certificate")
		w.refused("a server's certificate", w.pair("broker"), "refused this client's certificate", "incompatible key usage")

		fresh := w.pair("revoked")
		w.accepted(fresh)
		if _, err := w.manager.Revoke("revoked"); err != nil {
			w.Fatal(err)
		}
		w.use(certificates.Report{}, nil)
		w.refused("revoked", fresh, "revoked", "is revoked")
		w.configure("- {name: brief, role: agent, validity: 2s}")
		brief := w.pair("brief")
		kit.Eventually(w, "the certificate expires", func() error {
			if now := time.Now(); now.Before(brief.notAfter(w)) {
				return fmt.Errorf("it is %s", now)
			}
			return nil
		})
		w.refused("expired", brief, "has expired: renew it", "expired")
	})
}

// TestBrokerRefused connects to a broker with an invalid certificate.
func TestBrokerRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		age  time.Duration // of the certificate that the broker shows
		name string        // of it
		want string
	}{
		"expired":                 {48 * time.Hour, "broker", "renew the broker's certificate"},
		"a client in its place":   {0, "agent", "a name that the broker's certificate holds"},
		"of an unknown authority": {0, "", "set caFile (or caData) to the authority"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := "certificates:\n- {name: broker, role: broker, hosts: [127.0.0.1], validity: 24h}\n- {name: agent, role: agent, validity: 24h}\n"
			list, err := certificates.Parse([]byte(text))
			kit.NoError(t, err)
			ours, other := &secured{World: &world.World{TB: t}, dir: t.TempDir()}, &secured{World: &world.World{TB: t}, dir: t.TempDir()}
			for _, w := range []*secured{ours, other} {
				manager, err := certificates.New(certificates.ManagerConfig{Config: list, Dir: w.dir, Now: func() time.Time { return time.Now().Add(-test.age) }})
				kit.NoError(t, err)
				w.use(manager.Ensure())
			}
			shown := ours.pair("broker")
			switch test.name {
			case "":
				shown = other.pair("broker")
			case "agent":
				shown = ours.pair("agent")
			}
			keyPair, err := tls.X509KeyPair(shown.cert, shown.key)
			kit.NoError(t, err)
			listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{keyPair}})
			kit.NoError(t, err)
			t.Cleanup(func() { _ = listener.Close() })
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					go func() { _ = conn.(*tls.Conn).Handshake(); _ = conn.Close() }()
				}
			}()
			ours.connect(listener.Addr().String(), pair{}, test.want)
		})
	}
}

// pair is a certificate and its key, read at some time.
type pair struct{ cert, key []byte }

func (w *secured) pair(name string) pair {
	w.Helper()
	cert, certErr := os.ReadFile(w.path(name + "/tls.crt"))
	key, keyErr := os.ReadFile(w.path(name + "/tls.key"))
	if certErr != nil || keyErr != nil {
		w.Fatal(certErr, keyErr)
	}
	return pair{cert, key}
}

func (p pair) notAfter(w *secured) time.Time {
	w.Helper()
	keyPair, err := tls.X509KeyPair(p.cert, p.key)
	kit.NoError(w, err)
	cert, err := x509.ParseCertificate(keyPair.Certificate[0])
	kit.NoError(w, err)
	return cert.NotAfter
}

func (w *secured) accepted(p pair) {
	w.Helper()
	w.connect(w.Broker.Addr, p, "connected to the broker")
}

// refused checks that the client's log has the advice, and the log of work-broker a line with the reason, which no earlier
// refusal has left there.
func (w *secured) refused(what string, p pair, advice string, reason ...string) {
	w.Helper()
	w.Log(what)
	if lines := w.log.Lines(reason...); len(lines) > 0 {
		w.Fatalf("the broker's log has the reason before: %q", lines)
	}
	w.connect(w.Broker.Addr, p, advice)
	if w.Broker.Broker == nil {
		return
	}
	kit.True(w, fmt.Sprintf("the broker's log has %q", reason), func() bool { return len(w.log.Lines(reason...)) > 0 })
}

// connect connects with p until the client's log holds want.
func (w *secured) connect(addr string, p pair, want string) {
	w.Helper()
	var log kit.Log
	tr, err := mqtt.New(mqtt.Config{ClientID: "tester", Logger: slog.New(slog.NewTextHandler(&log, nil)), Broker: config.Config{
		BrokerHost: addr, CA: config.PEM{File: w.path("broker/ca.crt")}, ClientCert: config.PEM{Data: p.cert}, ClientKey: config.PEM{Data: p.key},
	}})
	kit.NoError(w, err)
	stop := kit.Run(w, "the client", func(ctx context.Context) error {
		return tr.Run(ctx, transport.Handler{Received: func(context.Context, transport.Message) {}})
	})
	defer stop()
	log.Await(w, regexp.QuoteMeta(want))
}
