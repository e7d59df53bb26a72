package broker_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
)

// certified is a broker whose certificates, and those of its clients, a manager issues.
type certified struct {
	*testing.T
	dir     string
	data    string // of the broker
	manager *certificates.Manager
	broker  *brokertest.Running
	log     *kit.Log
}

func startCertified(t *testing.T, certs ...certificates.Certificate) *certified {
	t.Helper()
	return startCertifiedWith(t, broker.Config{}, certs...)
}

// startCertifiedWith is like startCertified with a configuration, to which it adds what the certificates need.
func startCertifiedWith(t *testing.T, cfg broker.Config, certs ...certificates.Certificate) *certified {
	t.Helper()
	k := &certified{T: t, dir: t.TempDir(), data: t.TempDir(), log: &kit.Log{}}
	k.configure(certs...)
	cfg.Listeners = []broker.Listener{{Address: "127.0.0.1:0", TLS: &broker.ListenerTLS{
		CertFile: k.path("broker/tls.crt"), KeyFile: k.path("broker/tls.key"), ClientCAFile: k.path("broker/ca.crt"),
		CRLFile: k.path("broker/ca.crl"), RequireClientCert: true,
	}}}
	cfg.Users, cfg.DataDir, cfg.Logger, cfg.HTTPAddress = users(), k.data, k.log.Logger(), "127.0.0.1:0"
	k.broker = brokertest.Start(t, cfg)
	return k
}

// leave makes a session and leaves it.
func (k *certified) leave(clientID string, config *tls.Config) {
	k.Helper()
	c, err := tryDial(k.T, k.broker.Addr, options{clientID: clientID, anonymous: true, tls: config, expiry: 3600})
	kit.NoError(k, err)
	c.drop()
	kit.True(k, "the client to leave", func() bool { return len(k.log.Lines("client disconnected", "/"+clientID)) > 0 })
}

func (k *certified) path(name string) string { return filepath.Join(k.dir, name) }

// configure issues certs and the certificate of the broker.
func (k *certified) configure(certs ...certificates.Certificate) {
	k.Helper()
	certs = append(certs, certificates.Certificate{Name: "broker", Role: certificates.Broker, Hosts: []string{"127.0.0.1"}})
	for i := range certs {
		certs[i].Directory, certs[i].CommonName = certs[i].Name, certs[i].Name
		if certs[i].Validity.Duration == 0 {
			certs[i].Validity.Duration = time.Hour
		}
	}
	var err error
	k.manager, err = certificates.New(certificates.ManagerConfig{Dir: k.dir, Config: certificates.Config{
		Authority:    certificates.Authority{Directory: "authority", Name: "test", Validity: metav1.Duration{Duration: 24 * time.Hour}},
		Certificates: certs,
	}})
	kit.NoError(k, err)
	if _, err := k.manager.Ensure(); err != nil {
		k.Fatal(err)
	}
}

func (k *certified) rotate(step certificates.Step) {
	k.Helper()
	if _, err := k.manager.Rotate(step); err != nil {
		k.Fatal(err)
	}
}

// tls returns the configuration of a client with the current certificate called name.
func (k *certified) tls(name string) *tls.Config {
	k.Helper()
	pair, err := tls.LoadX509KeyPair(k.path(name+"/tls.crt"), k.path(name+"/tls.key"))
	kit.NoError(k, err)
	trusted, err := os.ReadFile(k.path(name + "/ca.crt"))
	kit.NoError(k, err)
	config := &tls.Config{
		ServerName: "127.0.0.1", RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{pair},
		// A resumed TLS session must not replace the certificate.
		ClientSessionCache: tls.NewLRUClientSessionCache(1),
	}
	config.RootCAs.AppendCertsFromPEM(trusted)
	return config
}

// dial connects with TLS and fails the test if the broker refuses.
func (k *certified) dial(clientID string, config *tls.Config) *client {
	k.Helper()
	c, err := k.tryDial(clientID, config)
	kit.NoError(k, err)
	return c
}

func (k *certified) tryDial(clientID string, config *tls.Config) (*client, error) {
	k.Helper()
	return tryDial(k.T, k.broker.Addr, options{clientID: clientID, anonymous: true, tls: config, expiry: 100})
}

// refused fails the test unless the broker refuses config and logs the reason.
func (k *certified) refused(config *tls.Config, reason string) {
	k.Helper()
	if c, err := k.tryDial("other", config); err == nil || c.connack != nil {
		k.Fatalf("the client is accepted: %v", err)
	}
	k.log.Await(k, regexp.QuoteMeta(reason)) // the client may see the refusal first
}

func agentCert(name string) certificates.Certificate {
	return certificates.Certificate{Name: name, Role: certificates.Agent}
}

// ended waits until the broker disconnects the client and logs the reason.
func (k *certified) ended(c *client) {
	k.Helper()
	if code := c.disconnectCode(); code != 0x87 {
		k.Errorf("disconnected with 0x%x, want 0x87", code)
	}
	k.log.Await(k, "certificate no longer accepted")
}

// TestConnectionEndsWithItsCertificate checks that a client is disconnected when its certificate
// expires.
func TestConnectionEndsWithItsCertificate(t *testing.T) {
	k := startCertified(t, agentCert("c1"), agentCert("c2"))
	c2 := k.dial("x", k.tls("c2"))
	var config *tls.Config
	var c1 *client
	for validity := 3 * time.Second; c1 == nil; validity *= 2 { // until it is long enough to connect
		short := agentCert("c1")
		short.Validity.Duration = validity
		kit.NoError(t, os.RemoveAll(k.path("c1")))
		k.configure(short, agentCert("c2"))
		config = k.tls("c1")
		var err error
		if c1, err = tryDial(t, k.broker.Addr, options{clientID: "x", anonymous: true, tls: config}); err != nil && validity > kit.Patience {
			t.Fatal(err)
		} else if err != nil {
			c1 = nil
		}
	}
	k.ended(c1)
	k.refused(config, "expired")
	if code := c2.publish("clusters/c2/agentbroadcast", "x"); code >= 0x80 {
		t.Errorf("the other client: 0x%x", code)
	}
}

// TestRevoke revokes the certificate of a connected client, which reconnects with a new one.
func TestRevoke(t *testing.T) {
	k := startCertified(t, agentCert("c1"), agentCert("c2"))
	stolen := k.tls("c1")
	c1 := k.dial("x", stolen)
	c2 := k.dial("x", k.tls("c2"))
	c1.mustSubscribe("sources/+/clusters/c1/sourceevents")
	if _, err := k.manager.Revoke("c1"); err != nil {
		t.Fatal(err)
	}
	k.ended(c1)
	k.refused(stolen, "is revoked")
	if code := c2.publish("clusters/c2/agentbroadcast", "x"); code >= 0x80 {
		t.Errorf("the other client: 0x%x", code)
	}
	if _, err := k.manager.Ensure(); err != nil {
		t.Fatal(err)
	}
	again := k.dial("x", k.tls("c1"))
	if again.connack.SessionPresent {
		t.Error("the session of the revoked certificate is still there")
	}
}

// TestAuthorityIsDropped replaces the authority while a client keeps its certificate.
func TestAuthorityIsDropped(t *testing.T) {
	k := startCertified(t, agentCert("c1"))
	old := k.tls("c1")
	c1 := k.dial("x", old)
	k.leave("absent", old)
	k.rotate(certificates.Trust)
	k.rotate(certificates.Issue)
	fresh := k.dial("y", k.tls("c1"))
	old.RootCAs = k.tls("c1").RootCAs
	if _, err := k.tryDial("z", old); err != nil {
		t.Errorf("before the last step: %v", err)
	}
	if code := c1.publish("clusters/c1/agentbroadcast", "x"); code >= 0x80 {
		t.Errorf("before the last step: 0x%x", code)
	}
	k.rotate(certificates.Drop)
	k.ended(c1)
	k.refused(old, "unknown authority")
	if code := fresh.publish("clusters/c1/agentbroadcast", "x"); code >= 0x80 {
		t.Errorf("with a certificate of the next authority: 0x%x", code)
	}
	k.log.Await(t, "sessions ended, their certificates or passwords are no longer accepted")
	if again := k.dial("absent", k.tls("c1")); again.connack.SessionPresent {
		t.Error("the session of the absent client is still there")
	}
	if again := k.dial("y", k.tls("c1")); !again.connack.SessionPresent {
		t.Error("the session of the next authority's certificate is gone")
	}
}

// TestServerCertificatesAreNoClients connects a client with the certificate of the broker.
func TestServerCertificatesAreNoClients(t *testing.T) {
	k := startCertified(t)
	k.refused(k.tls("broker"), "incompatible key usage")
}

// TestBadRevocationList checks that the broker keeps the previous list.
func TestBadRevocationList(t *testing.T) {
	k := startCertified(t, agentCert("c1"), agentCert("c2"))
	stolen := k.tls("c1")
	if _, err := k.manager.Revoke("c1"); err != nil {
		t.Fatal(err)
	}
	k.refused(stolen, "is revoked")
	kit.NoError(t, os.WriteFile(k.path("broker/ca.crl"), []byte("rubbish"), 0o600))
	k.refused(stolen, "reloading TLS files failed")
	if _, err := k.tryDial("x", k.tls("c2")); err != nil {
		t.Error(err)
	}
}
