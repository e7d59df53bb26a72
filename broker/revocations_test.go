package broker_test

import (
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/test/kit"
)

const revocationsTopic = "sources/hub1/joinanswers/-"

// list returns the revocation list of the current authority with a number, of the certificates called names.
func (k *certified) list(number int64, names ...string) string {
	k.Helper()
	authority, err := tls.LoadX509KeyPair(k.path("authority/ca.crt"), k.path("authority/ca.key"))
	kit.NoError(k, err)
	var serials []*big.Int
	for _, name := range names {
		serials = append(serials, k.leaf(name).SerialNumber)
	}
	der, err := certificates.RevocationList(authority, serials, big.NewInt(number), time.Now())
	kit.NoError(k, err)
	return string(der)
}

func (k *certified) leaf(name string) *x509.Certificate { return k.tls(name).Certificates[0].Leaf }

// TestRevocationsOfSources: a list that a source sends ends connections and sessions within seconds, stays in force after a restart
// and besides those of the file and of another source, and ends with a newer list. One that is older, of nobody, or sent by an agent, changes nothing.
func TestRevocationsOfSources(t *testing.T) {
	k := startCertified(t, agentCert("c1"), agentCert("c2"), agentCert("c3"), certificates.Certificate{Name: "hub1", Role: certificates.Source},
		certificates.Certificate{Name: "hub2", Role: certificates.Source})
	hub, c1, c2 := k.dial("hub", k.tls("hub1")), k.dial("c1", k.tls("c1")), k.dial("c2", k.tls("c2"))
	k.leave("away", k.tls("c1"))
	if c2.publish(revocationsTopic, k.list(1, "c1")) != 0x87 {
		t.Error("an agent may revoke")
	}
	for what, list := range map[string]string{"no list": "x", "a list of nobody": k.list(1, "c1")[1:]} {
		if code := hub.publish(revocationsTopic, list); code != 0x99 {
			t.Errorf("%s: %#x", what, code)
		}
	}
	began := time.Now()
	if code := hub.publish(revocationsTopic, k.list(5, "c1")); code != 0 {
		t.Fatalf("the list is refused: %#x", code)
	}
	c1.awaitEnd()
	t.Logf("cut after %s", time.Since(began).Round(time.Millisecond))
	k.refused(k.tls("c1"), "is revoked")
	k.log.Await(t, "sessions ended")
	older, err := hub.Publish(t.Context(), &paho.Publish{Topic: revocationsTopic, QoS: 1, Payload: []byte(k.list(4))})
	if older == nil || older.ReasonCode != 0x99 || older.Properties.ReasonString != "outdated: the list has the number 4, and the one in force 5" {
		t.Errorf("an older list: %v, %+v", err, older)
	}
	if code := k.dial("hub2", k.tls("hub2")).publish("sources/hub2/joinanswers/-", k.list(9)); code != 0 {
		t.Errorf("the list of another hub with the same authority: %#x", code)
	}
	k.refused(k.tls("c1"), "is revoked")
	if _, err := k.manager.Revoke("c3"); err != nil {
		t.Fatal(err)
	}
	k.refused(k.tls("c3"), "is revoked")

	k.broker.Restart(t)
	k.refused(k.tls("c1"), "is revoked")
	k.refused(k.tls("c3"), "is revoked")
	k.dial("c2", k.tls("c2"))

	hub = k.dial("hub", k.tls("hub1"))
	if code := hub.publish(revocationsTopic, k.list(6)); code != 0 {
		t.Fatalf("the next list is refused: %#x", code)
	}
	k.dial("c1", k.tls("c1"))
	k.refused(k.tls("c3"), "is revoked")
}

// TestRevokedBesideBadFiles: a list that a source sends is in force while a file of the broker cannot be used.
func TestRevokedBesideBadFiles(t *testing.T) {
	k := startCertified(t, agentCert("c1"), certificates.Certificate{Name: "hub1", Role: certificates.Source})
	hub, c1, of := k.dial("hub", k.tls("hub1")), k.dial("c1", k.tls("c1")), k.list(1, "c1")
	kit.NoError(t, os.WriteFile(k.path("broker/tls.key"), []byte("x"), 0o600))
	if code := hub.publish(revocationsTopic, of); code != 0 {
		t.Fatalf("the list is refused: %#x", code)
	}
	c1.awaitEnd()
	k.refused(k.tls("c1"), "is revoked")
}

// TestRevocationsWhileReplaced: the list of the next authority revokes certificates of the one before, too, and counts no longer than its
// authority.
func TestRevocationsWhileReplaced(t *testing.T) {
	k := startCertified(t, agentCert("c1"), agentCert("c2"), certificates.Certificate{Name: "hub1", Role: certificates.Source})
	first, of := k.tls("c1"), k.list(1, "c2")
	hub := k.dial("hub", k.tls("hub1"))
	if code := hub.publish(revocationsTopic, of); code != 0 {
		t.Fatalf("the list is refused: %#x", code)
	}
	k.rotate(certificates.Trust)
	k.rotate(certificates.Issue)
	authority, err := tls.LoadX509KeyPair(k.path("authority/ca.crt"), k.path("authority/ca.key"))
	kit.NoError(t, err)
	der, err := certificates.RevocationList(authority, []*big.Int{first.Certificates[0].Leaf.SerialNumber}, big.NewInt(1), time.Now())
	kit.NoError(t, err)
	if code := hub.publish(revocationsTopic, string(der)); code != 0 {
		t.Fatalf("the list of the next authority is refused: %#x", code)
	}
	k.refused(first, "is revoked")
	k.rotate(certificates.Drop)
	k.refused(first, "unknown authority")
	if code := k.dial("hub", k.tls("hub1")).publish(revocationsTopic, of); code != 0x99 {
		t.Errorf("a list of an authority that is no longer trusted: %#x", code)
	}
}

// TestCrossSigned: who trusts the former authority only connects to a broker with a certificate of the next one, after that was dropped,
// too; and a broker that trusts the former one only accepts clients of the next one, whose sessions stay when it trusts that one only.
func TestCrossSigned(t *testing.T) {
	k := startCertified(t, agentCert("c1"))
	away := k.tls("c1").RootCAs
	k.leave("goes", k.tls("c1"))
	trusted, err := os.ReadFile(k.path("broker/ca.crt"))
	kit.NoError(t, err)
	k.rotate(certificates.Trust)
	k.rotate(certificates.Issue)
	kit.NoError(t, os.WriteFile(k.path("broker/ca.crt"), trusted, 0o600)) // it did not get the file yet
	config := k.tls("c1")
	config.RootCAs = away
	k.leave("stays", config)
	k.rotate(certificates.Drop)
	k.log.Await(t, "sessions ended.* sessions=1\\b")
	c := k.dial("stays", config)
	if !c.connack.SessionPresent {
		t.Error("the session has ended with the former authority, although its certificate is of the next one")
	}
	for range 2 { // and any number of replacements later
		for _, step := range []certificates.Step{certificates.Trust, certificates.Issue, certificates.Drop} {
			k.rotate(step)
		}
	}
	config = k.tls("c1")
	config.RootCAs = away
	k.dial("much later", config)
}

// TestDamagedRevocations: a broker that cannot read what is revoked does not start, and says what to do; one that cannot store a list does not say
// that it has taken it.
func TestDamagedRevocations(t *testing.T) {
	dir := t.TempDir()
	kit.NoError(t, os.WriteFile(filepath.Join(dir, "revocations.crl"), []byte("x"), 0o600))
	b, err := broker.New(broker.Config{Listeners: []broker.Listener{{Address: "127.0.0.1:0"}}, Users: users(), DataDir: dir})
	kit.NoError(t, err)
	if err := b.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "delete the file") {
		t.Errorf("started: %v", err)
	}

	k := startCertified(t, agentCert("c1"), certificates.Certificate{Name: "hub1", Role: certificates.Source})
	kit.NoError(t, os.Mkdir(filepath.Join(k.data, "revocations.crl"), 0o700)) // in the way
	hub, c1 := k.dial("hub", k.tls("hub1")), k.dial("c1", k.tls("c1"))
	if code := hub.publish(revocationsTopic, k.list(1, "c1")); code != 0x83 {
		t.Errorf("the list that is not stored: %#x", code)
	}
	kit.NoError(t, os.Remove(filepath.Join(k.data, "revocations.crl")))
	if code := hub.publish(revocationsTopic, k.list(1, "c1")); code != 0 {
		t.Errorf("the list afterwards: %#x", code)
	}
	c1.awaitEnd()
}
