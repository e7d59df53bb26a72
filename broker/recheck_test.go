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
	"github.com/workwire/workwire/broker/brokertest"
	"github.com/workwire/workwire/pkg/certificates"
	"github.com/workwire/workwire/test/kit"
)

// kept is a broker with certificates that are kept, those of its clients among them.
type kept struct {
	*testing.T
	dir     string
	manager *certificates.Manager
	broker  *brokertest.Running
	log     *kit.Log
}

func keep(t *testing.T, certs ...certificates.Certificate) *kept {
	t.Helper()
	k := &kept{T: t, dir: t.TempDir(), log: &kit.Log{}}
	k.configure(certs...)
	listener := broker.Listener{Address: "127.0.0.1:0", TLS: &broker.ListenerTLS{
		CertFile: k.path("broker/tls.crt"), KeyFile: k.path("broker/tls.key"), ClientCAFile: k.path("broker/ca.crt"),
		CRLFile: k.path("broker/ca.crl"), RequireClientCert: true,
	}}
	k.broker = brokertest.Start(t, broker.Config{Listeners: []broker.Listener{listener}, Users: users(), Logger: k.log.Logger()})
	return k
}

func (k *kept) path(name string) string { return filepath.Join(k.dir, name) }

// configure makes certs the certificates that are kept, and has them issued.
func (k *kept) configure(certs ...certificates.Certificate) {
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
	if err != nil {
		k.Fatal(err)
	}
	if _, err := k.manager.Ensure(); err != nil {
		k.Fatal(err)
	}
}

func (k *kept) rotate(step certificates.Step) {
	k.Helper()
	if _, err := k.manager.Rotate(step); err != nil {
		k.Fatal(err)
	}
}

// tls gives what a client connects with that has the certificate name now.
func (k *kept) tls(name string) *tls.Config {
	k.Helper()
	pair, err := tls.LoadX509KeyPair(k.path(name+"/tls.crt"), k.path(name+"/tls.key"))
	if err != nil {
		k.Fatal(err)
	}
	trusted, err := os.ReadFile(k.path(name + "/ca.crt"))
	if err != nil {
		k.Fatal(err)
	}
	config := &tls.Config{
		ServerName: "127.0.0.1", RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{pair},
		// It may not get around showing its certificate again.
		ClientSessionCache: tls.NewLRUClientSessionCache(1),
	}
	config.RootCAs.AppendCertsFromPEM(trusted)
	return config
}

// dial connects with TLS and fails the test if the broker refuses.
func (k *kept) dial(clientID string, config *tls.Config) *client {
	k.Helper()
	c, err := k.tryDial(clientID, config)
	if err != nil {
		k.Fatal(err)
	}
	return c
}

func (k *kept) tryDial(clientID string, config *tls.Config) (*client, error) {
	k.Helper()
	return tryDial(k.T, k.broker.Addr, options{clientID: clientID, anonymous: true, tls: config, expiry: 100})
}

// refused fails the test unless the broker refuses config and logs the reason.
func (k *kept) refused(config *tls.Config, reason string) {
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
func (k *kept) ended(c *client) {
	k.Helper()
	if code := c.disconnectCode(); code != 0x87 {
		k.Errorf("disconnected with 0x%x, want 0x87", code)
	}
	k.log.Await(k, "certificate no longer accepted")
}

// TestConnectionEndsWithItsCertificate has the certificate of a connected client expire.
func TestConnectionEndsWithItsCertificate(t *testing.T) {
	short := agentCert("c1")
	short.Validity.Duration = 3 * time.Second
	k := keep(t, short, agentCert("c2"))
	config := k.tls("c1")
	c1 := k.dial("x", config)
	c2 := k.dial("x", k.tls("c2"))
	k.ended(c1)
	k.refused(config, "expired")
	if code := c2.publish("clusters/c2/agentbroadcast", "x"); code >= 0x80 {
		t.Errorf("the other client: 0x%x", code)
	}
}

// TestRevoke revokes the certificate of a connected client, which comes back with another.
func TestRevoke(t *testing.T) {
	k := keep(t, agentCert("c1"), agentCert("c2"))
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
	if !again.connack.SessionPresent {
		t.Error("the session is lost")
	}
}

// TestAuthorityIsDropped replaces the authority under a client that does not go along.
func TestAuthorityIsDropped(t *testing.T) {
	k := keep(t, agentCert("c1"))
	old := k.tls("c1")
	c1 := k.dial("x", old)
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
}

// TestServerCertificatesAreNoClients tries the broker's own certificate as a client's.
func TestServerCertificatesAreNoClients(t *testing.T) {
	k := keep(t)
	k.refused(k.tls("broker"), "incompatible key usage")
}

// TestBadRevocationList has the broker stay with the list that it could read.
func TestBadRevocationList(t *testing.T) {
	k := keep(t, agentCert("c1"), agentCert("c2"))
	stolen := k.tls("c1")
	if _, err := k.manager.Revoke("c1"); err != nil {
		t.Fatal(err)
	}
	k.refused(stolen, "is revoked")
	if err := os.WriteFile(k.path("broker/ca.crl"), []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	k.refused(stolen, "reloading TLS files failed")
	if _, err := k.tryDial("x", k.tls("c2")); err != nil {
		t.Error(err)
	}
}
