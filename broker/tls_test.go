package broker_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
)

// authority signs certificates for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.key = newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	kit.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	kit.NoError(t, err)
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	kit.NoError(t, err)
	return key
}

// issue returns a certificate for servers and clients and its key in PEM.
func (a *authority) issue(t *testing.T, serial int64, commonName string, units ...string) (cert, key []byte) {
	t.Helper()
	k := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: commonName, OrganizationalUnit: units}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, &k.PublicKey, a.key)
	kit.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(k)
	kit.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

// client returns the TLS configuration of a client, with a certificate unless commonName is "".
func (a *authority) client(t *testing.T, commonName string, units ...string) *tls.Config {
	t.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1"}
	config.RootCAs.AddCert(a.cert)
	if commonName != "" {
		cert, err := tls.X509KeyPair(a.issue(t, 2, commonName, units...))
		kit.NoError(t, err)
		config.Certificates = []tls.Certificate{cert}
	}
	return config
}

// write writes a server certificate to dir and returns a listener that uses it.
func (a *authority) write(t *testing.T, dir string, serial int64) broker.Listener {
	t.Helper()
	files := &broker.ListenerTLS{CertFile: filepath.Join(dir, "server.crt"), KeyFile: filepath.Join(dir, "server.key"), ClientCAFile: filepath.Join(dir, "ca.crt")}
	cert, key := a.issue(t, serial, "server")
	for name, content := range map[string][]byte{files.CertFile: cert, files.KeyFile: key, files.ClientCAFile: a.pem} {
		kit.NoError(t, os.WriteFile(name, content, 0o600))
	}
	return broker.Listener{Address: "127.0.0.1:0", TLS: files}
}

func TestClientCertificates(t *testing.T) {
	ca := newAuthority(t)
	b := brokertest.Start(t, broker.Config{
		Listeners:    []broker.Listener{ca.write(t, t.TempDir(), 1)},
		Users:        users(),
		Certificates: []broker.Certificate{{CommonName: "Mapped Hub", Role: acl.Source, ID: "hub1"}},
	})
	try := func(o options) (*client, error) {
		o.clientID = "x"
		if o.user == "" {
			o.anonymous = true
		}
		return tryDial(t, b.Addr, o)
	}
	good := func(o options, topic string) {
		t.Helper()
		c, err := try(o)
		if err != nil {
			t.Fatalf("%s: %v", topic, err)
		}
		if code := c.publish(topic, "x"); code >= 0x80 {
			t.Errorf("publish to %s: 0x%x", topic, code)
		}
	}
	good(options{tls: ca.client(t, "c1", "agents")}, "clusters/c1/agentbroadcast")
	good(options{tls: ca.client(t, "c9", "Workwire", "agents")}, "clusters/c9/agentbroadcast")
	good(options{tls: ca.client(t, "hub7", "sources")}, "sources/hub7/sourcebroadcast")
	good(options{tls: ca.client(t, "Mapped Hub")}, "sources/hub1/sourcebroadcast")
	good(options{tls: ca.client(t, ""), user: "c1"}, "clusters/c1/agentbroadcast")
	// A user name takes precedence over a certificate.
	good(options{tls: ca.client(t, "hub7", "sources"), user: "c1"}, "clusters/c1/agentbroadcast")

	for name, o := range map[string]options{
		"no certificate":                     {tls: ca.client(t, "")},
		"no role":                            {tls: ca.client(t, "c1", "people")},
		"two roles":                          {tls: ca.client(t, "c1", "agents", "sources")},
		"joiner":                             {tls: ca.client(t, "c1", "joiners")},
		"no id":                              {tls: ca.client(t, "C 1", "agents")},
		"certificate and wrong password":     {tls: ca.client(t, "c1", "agents"), user: "c1", password: "wrong"},
		"certificate and no password":        {tls: ca.client(t, "c1", "agents"), user: "c1", password: "-"},
		"certificate of a known common name": {tls: ca.client(t, "mapped hub")},
	} {
		c, err := try(o)
		if err == nil || c.connack == nil || c.connack.ReasonCode != 0x86 {
			t.Errorf("%s: got %v, want CONNACK 0x86", name, err)
		}
	}
	stranger := newAuthority(t).client(t, "c1", "agents")
	stranger.RootCAs = ca.client(t, "").RootCAs
	if c, err := try(options{tls: stranger}); err == nil || c.connack != nil && c.connack.ReasonCode == 0 {
		t.Error("a certificate of another CA is accepted")
	}
	if _, err := tryDial(t, b.Addr, options{user: "c1"}); err == nil {
		t.Error("plain TCP is accepted on a TLS listener")
	}
}

func TestRequireClientCert(t *testing.T) {
	ca := newAuthority(t)
	l := ca.write(t, t.TempDir(), 1)
	l.TLS.RequireClientCert = true
	b := brokertest.Start(t, broker.Config{Listeners: []broker.Listener{l}, Users: users()})
	if c, err := tryDial(t, b.Addr, options{user: "c1", tls: ca.client(t, "")}); err == nil || c.connack != nil && c.connack.ReasonCode == 0 {
		t.Error("a user without a certificate is accepted")
	}
	dial(t, b.Addr, options{user: "c1", tls: ca.client(t, "whoever")})
}

// TestLifeOfTheCertificate: metrics say from when to when the certificate of the broker is valid.
func TestLifeOfTheCertificate(t *testing.T) {
	k := startCertified(t)
	cert := k.leaf("broker")
	for metric, want := range map[string]time.Time{"start": cert.NotBefore, "expiry": cert.NotAfter} {
		if got := scrape(t, k.broker, "workwire_broker_certificate_"+metric+"_timestamp_seconds"); got != float64(want.Unix()) {
			t.Errorf("%s is %v, want %v", metric, got, want)
		}
	}
}

// TestFilesChange replaces the server's certificate, first by an invalid file, then by a new
// certificate.
func TestFilesChange(t *testing.T) {
	ca, dir := newAuthority(t), t.TempDir()
	var log kit.Log
	b := brokertest.Start(t, broker.Config{Listeners: []broker.Listener{ca.write(t, dir, 10)}, Users: users(), Logger: log.Logger()})
	serial := func() int64 {
		t.Helper()
		conn, err := tls.Dial("tcp", b.Addr, ca.client(t, ""))
		kit.NoError(t, err)
		defer func() { _ = conn.Close() }()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	old := dial(t, b.Addr, options{user: "c1", tls: ca.client(t, "")})
	if got := serial(); got != 10 {
		t.Fatalf("serial number %d", got)
	}
	kit.NoError(t, os.WriteFile(filepath.Join(dir, "server.crt"), []byte("rubbish"), 0o600))
	if got := serial(); got != 10 {
		t.Errorf("with a bad file: serial number %d, want the former one's", got)
	}
	if !strings.Contains(log.String(), "reloading TLS files failed") {
		t.Error("the bad file is not in the log")
	}
	ca.write(t, dir, 11)
	if got := serial(); got != 11 {
		t.Errorf("after the change: serial number %d", got)
	}
	if code := old.publish("clusters/c1/agentbroadcast", "x"); code >= 0x80 {
		t.Errorf("the connection from before: 0x%x", code)
	}
}

func TestPasswordFileChanges(t *testing.T) {
	file := filepath.Join(t.TempDir(), "passwd")
	set := func(content string) {
		t.Helper()
		kit.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	}
	hash := func(password string) string {
		t.Helper()
		h, err := broker.HashPassword(password)
		kit.NoError(t, err)
		return h
	}
	set(hash("one") + "\n")
	b := brokertest.Start(t, broker.Config{Users: []broker.User{{Username: "c1", PasswordFile: file, Role: acl.Agent}}})
	accepted := func(password string) bool {
		t.Helper()
		_, err := tryDial(t, b.Addr, options{user: "c1", password: password})
		return err == nil
	}
	for range 2 { // the second time it is remembered
		if !accepted("one") || accepted("two") {
			t.Error("before the change: one must be good, two bad")
		}
	}
	set(hash("two!") + "\n\n") // another size: the clock of a file system may be coarse
	if accepted("one") {
		t.Error("after the change: one must be bad")
	}
	// After a wrong password, checks take longer than a slow machine waits for them.
	kit.True(t, "two is good after the change", func() bool { return accepted("two!") })
	set("rubbish")
	if accepted("two!") {
		t.Error("a file without a hash lets a client in")
	}
}

// TestStartFails checks that a broker that cannot start closes ports and files.
func TestStartFails(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	kit.NoError(t, err)
	defer func() { _ = busy.Close() }()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	kit.NoError(t, err)
	_ = free.Close()
	dir := t.TempDir()
	for name, change := range map[string]func(*broker.Config){
		"MQTT port in use": func(c *broker.Config) {
			c.Listeners = append(c.Listeners, broker.Listener{Address: busy.Addr().String()})
		},
		"HTTP port in use": func(c *broker.Config) { c.HTTPAddress = busy.Addr().String() },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := broker.Config{Listeners: []broker.Listener{{Address: free.Addr().String()}}, Users: users(), DataDir: dir}
			change(&cfg)
			b, err := broker.New(cfg)
			kit.NoError(t, err)
			if err := b.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "address already in use") {
				t.Errorf("Run: %v", err)
			}
			if b.Addr() != "" {
				t.Error("it has an address")
			}
			// The first port and the database are free again.
			brokertest.Start(t, broker.Config{Listeners: []broker.Listener{{Address: free.Addr().String()}}, Users: users(), DataDir: dir}).Stop()
		})
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b, err := broker.New(broker.Config{Listeners: []broker.Listener{{Address: "127.0.0.1:0"}}, Users: users(), HTTPAddress: "127.0.0.1:0"})
	kit.NoError(t, err)
	if b.Addr() != "" || b.HTTPAddr() != "" {
		t.Error("it has addresses before it runs")
	}
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	<-b.Ready()
	addr := b.Addr()
	dial(t, addr, options{user: "c1", expiry: 100})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	// A goroutine that has said that it ends may still be on its last line.
	kit.Eventually(t, "no goroutine is left", func() error {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		for _, pkg := range []string{"broker.(", "pkg/runtime/serve.", "broker.every", "broker/session.", "pkg/runtime/statestore."} {
			if strings.Contains(string(stacks), "github.com/workwire/workwire/"+pkg) {
				return fmt.Errorf("a goroutine of %s is left:\n%s", pkg, stacks)
			}
		}
		return nil
	})
	if conn, err := net.Dial("tcp", addr); err == nil {
		_ = conn.Close()
		t.Error("it still listens")
	}
}
