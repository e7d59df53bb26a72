package mqtt_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/transport/transporttest"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
)

// authority signs certificates for tests.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.pem, _ = a.sign(template)
	return a
}

// sign gives certificate and key, signed by the authority, or by itself if it is to become the
// authority.
func (a *authority) sign(template *x509.Certificate) (cert, key []byte) {
	a.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	kit.NoError(a.t, err)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, private.Public(), signer)
	kit.NoError(a.t, err)
	if a.cert == nil {
		a.cert, err = x509.ParseCertificate(der)
		kit.NoError(a.t, err)
		a.key = private
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	kit.NoError(a.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// issue gives certificate and key of name, for clients and servers on loopback.
func (a *authority) issue(name, unit string, serial int64) (cert, key []byte) {
	return a.sign(&x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name, OrganizationalUnit: []string{unit}},
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}})
}

// issueFor gives certificate and key of a server with a host name.
func (a *authority) issueFor(host string) (cert, key []byte) {
	return a.sign(&x509.Certificate{SerialNumber: big.NewInt(9), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
}

// folder is where a test keeps files.
type folder struct {
	t    *testing.T
	path string
}

func (f folder) write(name string, data []byte) string {
	f.t.Helper()
	path := filepath.Join(f.path, name)
	// As a rotation does it: the file is never seen half written.
	kit.NoError(f.t, os.WriteFile(path+".new", data, 0o600))
	kit.NoError(f.t, os.Rename(path+".new", path))
	return path
}

// The agent reconnects with certificates that are replaced, and no event is lost.
func TestCertificatesRotate(t *testing.T) {
	ca, dir, log := newAuthority(t), folder{t, t.TempDir()}, &logs{}
	serverCert, serverKey := ca.issue("broker", "", 2)
	caFile := dir.write("ca.crt", ca.pem)
	b := brokertest.Start(t, broker.Config{Users: users, Listeners: []broker.Listener{
		{Address: "127.0.0.1:0", TLS: &broker.ListenerTLS{CertFile: dir.write("server.crt", serverCert), KeyFile: dir.write("server.key", serverKey), ClientCAFile: caFile, RequireClientCert: true}},
	}})
	cert, key := ca.issue("cluster1", "agents", 3)
	certFile, keyFile := dir.write("tls.crt", cert), dir.write("tls.key", key)
	registry := prometheus.NewRegistry()
	agent := transporttest.Start(t, client(t, b.Addr, "cluster1", func(c *mqtt.Config) {
		log.into(c)
		c.Registerer = registry
		c.Broker = config.Config{BrokerHost: b.Addr, CA: config.PEM{File: caFile}, ClientCert: config.PEM{File: certFile}, ClientKey: config.PEM{File: keyFile}}
		c.ReloadInterval = 10 * time.Millisecond
	}), transporttest.ClusterSpecs)
	hubCert, hubKey := ca.issue("hub1", "sources", 4)
	hub := transporttest.Start(t, client(t, b.Addr, "hub1", func(c *mqtt.Config) {
		c.Broker = config.Config{BrokerHost: b.Addr, CA: config.PEM{Data: ca.pem}, ClientCert: config.PEM{Data: hubCert}, ClientKey: config.PEM{Data: hubKey}}
	}))
	hub.WaitConnected()
	agent.WaitConnected()

	stop, published := make(chan struct{}), make(chan int, 1)
	go func() {
		for n := 0; ; n++ {
			if err := hub.Publish(context.Background(), transporttest.ClusterSpecs, transporttest.Event(fmtID(n), 100)); err != nil {
				t.Errorf("publish: %v", err)
			}
			select {
			case <-stop:
				published <- n + 1
				return
			default:
			}
		}
	}()
	certs := config.Certificates{ClientCert: cert}
	if start, end, ok := certs.Validity(); !ok || metric(t, registry, "certificate_start_timestamp_seconds") != float64(start.Unix()) ||
		metric(t, registry, "certificate_expiry_timestamp_seconds") != float64(end.Unix()) {
		t.Errorf("the metrics do not say that the certificate is valid from %s to %s", start, end)
	}
	for round := range 3 {
		cert, key := ca.issue("cluster1", "agents", int64(10+round))
		dir.write("tls.crt", cert) // does not fit the key, until that follows
		kit.True(t, "the half replaced pair to be noticed", func() bool {
			return log.count("certificate reload failed", "are no pair") > round
		})
		dir.write("tls.key", key)
		if reason := agent.WaitLost(); reason == nil {
			t.Error("the loss has no reason")
		}
		if !agent.WaitConnected().Resumed {
			t.Error("the session was not resumed")
		}
	}
	close(stop)
	seen := make(map[string]bool)
	for n := <-published; len(seen) < n; {
		m := agent.Next()
		seen[m.Event.ID()] = true
		m.Ack()
	}
	if log.count("level=WARN", "connection lost") != 0 || log.count("level=INFO", "certificate files have changed") != 3 {
		t.Errorf("log is:\n%s", log)
	}
}

// secured makes the TLS handshake of a broker whose certificate ca signs, answers CONNECT, and returns the serial number of the
// client's certificate.
func (c *fakeConn) secured(t *testing.T, ca *authority) (secured *fakeConn, serial int64) {
	t.Helper()
	pair, err := tls.X509KeyPair(ca.issue("broker", "", 2))
	kit.NoError(t, err)
	server := tls.Server(c.Conn, &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert})
	secured = &fakeConn{server, t}
	read[*packets.Connect](secured)
	secured.send(&packets.Connack{Properties: &packets.Properties{}})
	return secured, server.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// A certificate is replaced because the broker refuses its owner the subscriptions.
func TestCertificateWithoutRights(t *testing.T) {
	ca, dir, log := newAuthority(t), folder{t, t.TempDir()}, &logs{}
	b := startFake(t)
	cert, key := ca.issue("wrong", "agents", 3)
	certFile, keyFile := dir.write("tls.crt", cert), dir.write("tls.key", key)
	c := transporttest.Start(t, client(t, b.addr, "cluster1", func(c *mqtt.Config) {
		log.into(c)
		c.Broker = config.Config{BrokerHost: b.addr, CA: config.PEM{Data: ca.pem}, ClientCert: config.PEM{File: certFile}, ClientKey: config.PEM{File: keyFile}}
		c.ReloadInterval = 10 * time.Millisecond
	}), "a")
	conn, _ := b.next(t).secured(t, ca)
	s := read[*packets.Subscribe](conn)
	conn.send(&packets.Suback{PacketID: s.PacketID, Properties: &packets.Properties{}, Reasons: []byte{0x87}})
	kit.True(t, "the refusal to be logged", func() bool { return log.count("subscribe failed") > 0 })
	cert, key = ca.issue("cluster1", "agents", 4)
	dir.write("tls.crt", cert)
	dir.write("tls.key", key)
	conn, serial := b.next(t).secured(t, ca)
	if serial != 4 {
		t.Errorf("the client connects again with certificate %d", serial)
	}
	conn.grant()
	c.WaitConnected()
	if len(c.Lost) != 0 || log.count("before the subscriptions were granted") != 0 || log.count("certificate files have changed") != 1 {
		t.Errorf("lost %d times, log is:\n%s", len(c.Lost), log)
	}
}

// At every connect the files are used as they are then, the password file too.
func TestFilesReadAtConnect(t *testing.T) {
	ca, dir := newAuthority(t), folder{t, t.TempDir()}
	serverCert, serverKey := ca.issue("broker", "", 2)
	pair, err := tls.X509KeyPair(serverCert, serverKey)
	kit.NoError(t, err)
	b := startFake(t)
	settings := &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert}
	cert, key := ca.issue("cluster1", "agents", 3)
	certFile, keyFile, passwordFile := dir.write("tls.crt", cert), dir.write("tls.key", key), dir.write("password", []byte("first\n"))
	c := transporttest.Start(t, client(t, b.addr, "cluster1", func(c *mqtt.Config) {
		c.Broker = config.Config{BrokerHost: b.addr, Username: "cluster1", PasswordFile: passwordFile,
			CA: config.PEM{File: dir.write("ca.crt", ca.pem)}, ClientCert: config.PEM{File: certFile}, ClientKey: config.PEM{File: keyFile}}
	}))
	for round, want := range []string{"first", "second"} {
		raw := b.next(t)
		secured := tls.Server(raw.Conn, settings)
		conn := &fakeConn{secured, t}
		p := read[*packets.Connect](conn)
		if string(p.Password) != want {
			t.Errorf("password is %q, want %q", p.Password, want)
		}
		if serial := secured.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); serial != int64(3+round) {
			t.Errorf("certificate has serial %d, want %d", serial, 3+round)
		}
		conn.send(&packets.Connack{Properties: &packets.Properties{}})
		c.WaitConnected()
		cert, key := ca.issue("cluster1", "agents", 4)
		dir.write("tls.crt", cert)
		dir.write("tls.key", key)
		dir.write("password", []byte("second"))
		_ = conn.Close()
		c.WaitLost()
	}
}

// What is wrong with TLS is told, with what to do.
func TestTLSFaults(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	serverCert, serverKey := ca.issue("broker", "", 2)
	foreignCert, foreignKey := other.issue("cluster1", "agents", 3)
	dir := folder{t, t.TempDir()}
	b := brokertest.Start(t, broker.Config{Users: users, Listeners: []broker.Listener{
		{Address: "127.0.0.1:0", TLS: &broker.ListenerTLS{CertFile: dir.write("server.crt", serverCert), KeyFile: dir.write("server.key", serverKey), ClientCAFile: dir.write("ca.crt", ca.pem)}},
	}})
	plain := brokertest.Start(t, broker.Config{Users: users})
	_, port, err := net.SplitHostPort(b.Addr)
	kit.NoError(t, err)
	unused, err := net.Listen("tcp", "127.0.0.1:0")
	kit.NoError(t, err)
	_ = unused.Close()
	for name, test := range map[string]struct {
		broker config.Config
		want   []string
	}{
		"authority": {config.Config{BrokerHost: b.Addr, CA: config.PEM{Data: other.pem}}, []string{"unknown authority", "set caFile"}},
		"name":      {config.Config{BrokerHost: net.JoinHostPort("localhost", port), CA: config.PEM{Data: ca.pem}}, []string{"set brokerHost to a name that the broker's certificate holds"}},
		"client certificate": {config.Config{BrokerHost: b.Addr, CA: config.PEM{Data: ca.pem}, ClientCert: config.PEM{Data: foreignCert}, ClientKey: config.PEM{Data: foreignKey}},
			[]string{"does not trust the authority of this client's certificate"}},
		"TLS to a plain port":          {config.Config{BrokerHost: plain.Addr, CA: config.PEM{Data: ca.pem}}, []string{"advice="}},
		"a forgotten authority":        {config.Config{BrokerHost: b.Addr, TLSRequired: true}, []string{"unknown authority", "set caFile"}},
		"required TLS to a plain port": {config.Config{BrokerHost: plain.Addr, TLSRequired: true}, []string{"advice="}},
		"plain to a TLS port":          {config.Config{BrokerHost: b.Addr}, []string{"advice="}},
		"nothing listens":              {config.Config{BrokerHost: unused.Addr().String()}, []string{"connection refused", "that the broker runs"}},
		"no such host":                 {config.Config{BrokerHost: "broker.invalid:1883"}, []string{"broker.invalid", "check the host name in brokerHost"}},
		"password":                     {config.Config{BrokerHost: plain.Addr, Username: "cluster1", Password: "wrong"}, []string{"0x8", "advice="}},
	} {
		t.Run(name, func(t *testing.T) {
			log := &logs{}
			c := transporttest.Start(t, client(t, b.Addr, "cluster1", func(c *mqtt.Config) {
				log.into(c)
				c.Broker = test.broker
			}))
			kit.True(t, "the fault to be logged", func() bool { return log.count("connect failed") > 0 })
			if log.count(append(test.want, "level=ERROR")...) != 1 {
				t.Errorf("log lacks %q:\n%s", test.want, log)
			}
			if err := c.Publish(context.Background(), topic, transporttest.Event("one", 64)); !errors.Is(err, transport.ErrNotConnected) {
				t.Errorf("publish gives %v", err)
			}
		})
	}
}

// With "tls: required" and no caFile, no password is sent in clear text.
func TestTLSRequired(t *testing.T) {
	var sent bytes.Buffer
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	kit.NoError(t, err)
	received := make(chan struct{})
	go func() {
		defer close(received)
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = connection.Close() }()
		first := make([]byte, 4096)
		n, _ := connection.Read(first)
		sent.Write(first[:n])
	}()
	log := &logs{}
	broker, err := config.Parse(fmt.Appendf(nil, "brokerHost: %s\nusername: cluster1\npassword: secret\ntls: required\n"+
		"topics: {sourceEvents: sources/hub1/clusters/+/sourceevents, agentEvents: sources/hub1/clusters/+/agentevents}\n", listener.Addr()))
	kit.NoError(t, err)
	c := transporttest.Start(t, client(t, "", "cluster1", func(c *mqtt.Config) {
		log.into(c)
		c.Broker = broker
	}))
	<-received
	c.Stop()
	kit.NoError(t, listener.Close())
	if text := sent.String(); !strings.HasPrefix(text, "\x16\x03") || strings.Contains(text, "secret") || strings.Contains(text, "cluster1") {
		t.Errorf("the client began with %q, want a TLS handshake", text)
	}
	if log.count("clear text") > 0 {
		t.Errorf("the log warns of clear text:\n%s", log)
	}
}

// A password without TLS is warned of, except on loopback.
func TestClearTextPassword(t *testing.T) {
	for host, want := range map[string]int{"broker.invalid:1883": 1, "127.0.0.1:1": 0, "localhost:1": 0, "[::1]:1": 0} {
		log := &logs{}
		c := transporttest.Start(t, client(t, host, "cluster1", log.into))
		kit.True(t, "an attempt", func() bool { return log.count("connect failed") > 0 })
		c.Stop()
		if log.count("level=WARN", "clear text") != want {
			t.Errorf("with %s, log is:\n%s", host, log)
		}
	}
}
