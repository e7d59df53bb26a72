package broker_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"
	"golang.org/x/crypto/bcrypt"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/limits"
	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
)

// configFile is a configuration file that a test changes.
type configFile struct {
	t    *testing.T
	path string
}

// write writes the file with users and their passwords.
func (f configFile) write(passwords map[string]string) {
	f.t.Helper()
	config := "listeners: [{address: '127.0.0.1:0'}]\nhttpAddress: 127.0.0.1:0\nusers:\n"
	for user, password := range passwords {
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		kit.NoError(f.t, err)
		role := "agent"
		if strings.HasPrefix(user, "hub") {
			role = "source"
		}
		config += fmt.Sprintf("- {username: %s, role: %s, passwordHash: %q}\n", user, role, hash)
	}
	kit.NoError(f.t, os.WriteFile(f.path, []byte(config), 0o600))
}

// TestConfigurationIsWatched adds a user and changes the password of another one while the broker
// runs. The other one's connection, session, queue and will go. A bad file changes nothing.
func TestConfigurationIsWatched(t *testing.T) {
	file := configFile{t, filepath.Join(t.TempDir(), "broker.yaml")}
	file.write(map[string]string{"hub1": "h", "c1": "old", "c2": "c"})
	cfg, err := broker.LoadConfig(file.path)
	kit.NoError(t, err)
	b := brokertest.Start(t, cfg)
	hub := dial(t, b.Addr, options{user: "hub1", password: "h"})
	hub.mustSubscribe("clusters/+/agentbroadcast")
	kept := dial(t, b.Addr, options{user: "c2", password: "c"})
	c1 := dial(t, b.Addr, options{user: "c1", password: "old", expiry: 100, will: &paho.WillMessage{Topic: "clusters/c1/agentbroadcast", Payload: []byte("will")}})
	c1.mustSubscribe(specFilter)

	hash, err := bcrypt.GenerateFromPassword([]byte("new"), bcrypt.MinCost)
	kit.NoError(t, err)
	data, err := os.ReadFile(file.path)
	kit.NoError(t, err)
	var lines []string
	for line := range strings.Lines(string(data)) {
		if !strings.Contains(line, "username: c1,") {
			lines = append(lines, line)
		}
	}
	lines = append(lines, fmt.Sprintf("- {username: c1, role: agent, passwordHash: %q}\n- {username: c3, role: agent, passwordHash: %q}\n", hash, hash))
	kit.NoError(t, os.WriteFile(file.path, []byte(strings.Join(lines, "")), 0o600))

	if code := c1.disconnectCode(); code != 0x87 {
		t.Errorf("disconnected with 0x%x, want 0x87", code)
	}
	if _, err := tryDial(t, b.Addr, options{user: "c1", password: "old"}); err == nil {
		t.Error("the old password is accepted")
	}
	if again := dial(t, b.Addr, options{user: "c1", password: "new", expiry: 100}); again.connack.SessionPresent {
		t.Error("the session of the old password is still there")
	}
	dial(t, b.Addr, options{user: "c3", password: "new"})
	if code := kept.publish("clusters/c2/agentbroadcast", "end"); code >= 0x80 {
		t.Errorf("another client: 0x%x", code)
	}
	if got := hub.payloads(1); got[0] != "end" {
		t.Errorf("the hub received %q, want no will", got)
	}

	kit.NoError(t, os.WriteFile(file.path, []byte(strings.Join(lines, "")+"- {username: c4\n"), 0o600))
	shows := func(metric string, want float64) {
		t.Helper()
		kit.Eventually(t, "the configuration file to be read", func() error {
			if got := scrape(t, b, metric); got != want {
				return fmt.Errorf("%s is %v", metric, got)
			}
			return nil
		})
	}
	shows("workwire_broker_config_reload_failing", 1)
	body := get(t, b, "/readyz")
	text, err := io.ReadAll(body)
	kit.NoError(t, err)
	_ = body.Close()
	if !strings.Contains(string(text), "the previous one stays in force") {
		t.Errorf("/readyz says %q", text)
	}
	dial(t, b.Addr, options{user: "c3", password: "new"})
	kit.NoError(t, os.WriteFile(file.path, []byte(strings.Join(lines[:len(lines)-1], "")+"maxTotalBytes: 2147483648\n"), 0o600))
	shows("workwire_broker_config_reload_failing", 0)
	shows("workwire_broker_max_total_bytes", 2<<30)
	kit.Eventually(t, "the removed user to be refused", func() error {
		if _, err := tryDial(t, b.Addr, options{user: "c3", password: "new"}); err == nil {
			return errors.New("it is accepted")
		}
		return nil
	})
	if code := kept.publish("clusters/c2/agentbroadcast", "end"); code >= 0x80 {
		t.Errorf("another client afterwards: 0x%x", code)
	}
}

// TestPasswordChangesDuringALogin: a login that waits, because of the rate of its identity, while its password changes has no access.
func TestPasswordChangesDuringALogin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "passwd")
	set := func(password string) {
		hash, err := broker.HashPassword(password)
		kit.NoError(t, err)
		kit.NoError(t, os.WriteFile(file, []byte(hash), 0o600))
	}
	set("old")
	var log kit.Log
	b := brokertest.Start(t, broker.Config{Users: append(users(), broker.User{Username: "changes", PasswordFile: file, Role: acl.Agent}), HTTPAddress: "127.0.0.1:0",
		Logger: log.Logger(), Limits: limits.Config{Agent: limits.Rate{MessagesPerSecond: 30}}}) // 3 s for a login after the first
	hub := dial(t, b.Addr, options{user: "hub1"})
	hub.mustSubscribe("clusters/+/agentbroadcast")
	dial(t, b.Addr, options{user: "changes", password: "old", clientID: "first"})
	var late *client
	var refused error
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		late, refused = tryDial(t, b.Addr, options{user: "changes", password: "old", clientID: "late", expiry: 100,
			will: &paho.WillMessage{Topic: "clusters/changes/agentbroadcast", Payload: []byte("will")}})
	}()
	kit.True(t, "the login to wait", func() bool { return scrape(t, b, "workwire_broker_throttled_packets_total") > 0 })
	set("new")
	log.Await(t, "sessions ended, their certificates or passwords are no longer accepted")
	ended := time.Now()
	kit.Receive(t, "the answer", answered)
	if refused == nil { // it was quicker than the change, or nobody has looked at it
		if code := late.disconnectCode(); code != 0x87 {
			t.Errorf("disconnected with 0x%x", code)
		}
	} else if late.connack == nil || late.connack.ReasonCode != 0x87 {
		t.Errorf("%v, %+v", refused, late.connack)
	}
	if took := time.Since(ended); took > 30*time.Second {
		t.Errorf("the former password had access for %s", took)
	}
	if got := scrape(t, b, "workwire_broker_sessions"); got != 1 {
		t.Errorf("%v sessions are left, want that of the hub", got)
	}
	dial(t, b.Addr, options{user: "c2"}).publish("clusters/c2/agentbroadcast", "end")
	if got := hub.payloads(1); got[0] != "end" {
		t.Errorf("the hub received %q, want no will", got)
	}
}

// TestRevocationDuringALogin: a login that waits, because of the rate of its identity, while its certificate is revoked is refused.
func TestRevocationDuringALogin(t *testing.T) {
	k := startCertifiedWith(t, broker.Config{HTTPAddress: "127.0.0.1:0", Limits: limits.Config{Agent: limits.Rate{MessagesPerSecond: 30}}}, // as above
		agentCert("c1"))
	stolen := k.tls("c1")
	first := k.dial("first", stolen)
	var late *client
	var refused error
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		late, refused = k.tryDial("late", stolen)
	}()
	kit.True(t, "the login to wait", func() bool { return scrape(t, k.broker, "workwire_broker_throttled_packets_total") > 0 })
	_, err := k.manager.Revoke("c1")
	kit.NoError(t, err)
	select {
	case <-answered:
		t.Log("the login was quicker than the revocation")
		return
	default:
	}
	k.ended(first)
	kit.Receive(t, "the answer", answered)
	if refused == nil || late.connack == nil || late.connack.ReasonCode != 0x87 {
		t.Errorf("%v, %+v", refused, late.connack)
	}
	if lines := k.log.Lines("client connected", "agent:c1/late"); len(lines) > 0 {
		t.Errorf("it was connected: %s", lines)
	}
}

// TestRevokedWhoDoesNotRead: a client that reads nothing, so that it cannot be told, publishes nothing after its password has changed.
func TestRevokedWhoDoesNotRead(t *testing.T) {
	var log kit.Log
	file := configFile{t, filepath.Join(t.TempDir(), "broker.yaml")}
	file.write(map[string]string{"hub1": "h", "c1": password, "c2": "c"})
	cfg, err := broker.LoadConfig(file.path)
	kit.NoError(t, err)
	cfg.Logger = log.Logger()
	b := brokertest.Start(t, cfg)
	hub := dial(t, b.Addr, options{user: "hub1", password: "h", expiry: 100})
	hub.mustSubscribe("clusters/+/agentbroadcast")
	c1 := dialRaw(t, b.Addr, "c1")
	c1.Connect("c1", 0)
	c1.Subscribe(specFilter)
	// More than the buffers of a connection take.
	hub.publishMany(specTopic, slices.Repeat([]string{strings.Repeat("x", 1<<19)}, 64))
	data, err := os.ReadFile(file.path)
	kit.NoError(t, err)
	kit.NoError(t, os.WriteFile(file.path, bytes.Replace(data, []byte("username: c1,"), []byte("username: c9,"), 1), 0o600))
	log.Await(t, "sessions ended, their certificates or passwords are no longer accepted")
	kit.NoError(t, c1.Publish(1, "clusters/c1/agentbroadcast", []byte("revoked")))
	log.Await(t, "client disconnected.*agent:c1/c1")
	dial(t, b.Addr, options{user: "c2", password: "c"}).publish("clusters/c2/agentbroadcast", "end")
	if got := hub.payloads(1); got[0] != "end" {
		t.Errorf("the hub received %q of a client whose password has changed", got)
	}
}

// TestRevocationUndoes revokes the certificate of a client with two sessions: one is connected, one
// is absent. Nothing is left of either, and no will is published.
func TestRevocationUndoes(t *testing.T) {
	k := startCertified(t, agentCert("c1"), agentCert("c2"), certificates.Certificate{Name: "hub1", Role: certificates.Source})
	hub := k.dial("x", k.tls("hub1"))
	hub.mustSubscribe("clusters/+/agentbroadcast")
	stolen := k.tls("c1")
	connect := func(clientID string, delay uint32) *client {
		c, err := tryDial(t, k.broker.Addr, options{
			clientID: clientID, anonymous: true, tls: stolen, expiry: 100, willDelay: delay,
			will: &paho.WillMessage{Topic: "clusters/c1/agentbroadcast", Payload: []byte("will")},
		})
		kit.NoError(t, err)
		c.mustSubscribe(specFilter)
		return c
	}
	connected := connect("connected", 0)
	connect("absent", 100).drop()
	kit.True(t, "the absent one to leave", func() bool { return len(k.log.Lines("client disconnected", "c1/absent")) > 0 })
	if code := hub.publish(specTopic, "queued"); code >= 0x80 {
		t.Fatalf("0x%x", code)
	}
	if _, err := k.manager.Revoke("c1"); err != nil {
		t.Fatal(err)
	}
	k.ended(connected)
	k.log.Await(t, "sessions ended, their certificates or passwords are no longer accepted")
	if _, err := k.manager.Ensure(); err != nil {
		t.Fatal(err)
	}
	for _, clientID := range []string{"connected", "absent"} {
		if again := k.dial(clientID, k.tls("c1")); again.connack.SessionPresent {
			t.Errorf("the session of the %s client is still there", clientID)
		}
	}
	if code := k.dial("y", k.tls("c2")).publish("clusters/c2/agentbroadcast", "end"); code >= 0x80 {
		t.Fatalf("0x%x", code)
	}
	if got := hub.payloads(1); got[0] != "end" {
		t.Errorf("the hub received %q, want no will", got)
	}
}

// TestMetricsNeedTheToken serves metrics with TLS and a token.
func TestMetricsNeedTheToken(t *testing.T) {
	k := startCertified(t, agentCert("c1"))
	token := k.path("token")
	kit.NoError(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	b := brokertest.Start(t, broker.Config{
		Users: users(), HTTPAddress: "0.0.0.0:0", HTTPCertFile: k.path("broker/tls.crt"), HTTPKeyFile: k.path("broker/tls.key"), HTTPTokenFile: token,
	})
	trusted, err := os.ReadFile(k.path("c1/ca.crt"))
	kit.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}}
	defer transport.CloseIdleConnections()
	_, port, err := net.SplitHostPort(b.Broker.HTTPAddr())
	kit.NoError(t, err)
	for _, test := range []struct {
		path, token string
		want        int
	}{
		{"/metrics", "", http.StatusUnauthorized},
		{"/metrics", "wrong", http.StatusUnauthorized},
		{"/metrics", "secret", http.StatusOK},
		{"/healthz", "", http.StatusOK},
		{"/readyz", "", http.StatusOK},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:"+port+test.path, nil)
		kit.NoError(t, err)
		if test.token != "" {
			request.Header.Set("Authorization", "Bearer "+test.token)
		}
		response, err := transport.RoundTrip(request)
		kit.NoError(t, err)
		_ = response.Body.Close()
		if response.StatusCode != test.want {
			t.Errorf("%s with token %q: %s", test.path, test.token, response.Status)
		}
	}
}

// TestDrain sends clients to another server, and serves them again afterwards.
func TestDrain(t *testing.T) {
	file := configFile{t, filepath.Join(t.TempDir(), "broker.yaml")}
	file.write(map[string]string{"c1": "x"})
	served, err := os.ReadFile(file.path)
	kit.NoError(t, err)
	cfg, err := broker.LoadConfig(file.path)
	kit.NoError(t, err)
	b := brokertest.Start(t, cfg)
	o := options{user: "c1", password: "x", expiry: 100}
	c := dial(t, b.Addr, o)
	c.mustSubscribe(specFilter)
	kit.NoError(t, os.WriteFile(file.path, append(slices.Clone(served), "drain: {serverReference: 'other:8883'}\n"...), 0o600))
	if code := c.disconnectCode(); code != 0x9C || c.disconnected.Properties.ServerReference != "other:8883" {
		t.Errorf("disconnected with 0x%x, %+v", code, c.disconnected.Properties)
	}
	refused, err := tryDial(t, b.Addr, o)
	if err == nil || refused.connack == nil || refused.connack.ReasonCode != 0x9C || refused.connack.Properties.ServerReference != "other:8883" {
		t.Errorf("a new connection: %v, %+v", err, refused.connack)
	}
	if got := scrape(t, b, "workwire_broker_draining"); got != 1 {
		t.Errorf("draining is %v", got)
	}
	kit.NoError(t, os.WriteFile(file.path, served, 0o600))
	kit.Eventually(t, "clients to be served again", func() error {
		again, err := tryDial(t, b.Addr, o)
		if err == nil && !again.connack.SessionPresent {
			t.Error("the session is lost")
		}
		return err
	})
}

// TestDrainOfWhoDoNotRead: clients that read nothing, so that they cannot be told, delay neither one another's end nor what the
// broker takes up.
func TestDrainOfWhoDoNotRead(t *testing.T) {
	const deaf = 10
	var log kit.Log
	file := configFile{t, filepath.Join(t.TempDir(), "broker.yaml")}
	file.write(map[string]string{"hub1": "h", "c1": password})
	cfg, err := broker.LoadConfig(file.path)
	kit.NoError(t, err)
	cfg.Logger = log.Logger()
	b := brokertest.Start(t, cfg)
	for i := range deaf {
		c := dialRaw(t, b.Addr, "c1")
		c.Connect(fmt.Sprint(i), 0)
		c.Subscribe(specFilter)
	}
	// More than the buffers of a connection take.
	dial(t, b.Addr, options{user: "hub1", password: "h"}).publishMany(specTopic, slices.Repeat([]string{strings.Repeat("x", 1<<19)}, 64))
	data, err := os.ReadFile(file.path)
	kit.NoError(t, err)
	kit.NoError(t, os.WriteFile(file.path, append(data, "drain: {serverReference: 'other:8883'}\n"...), 0o600))
	log.Await(t, "configuration reloaded")
	reloaded := time.Now()
	kit.True(t, "all to be sent away", func() bool { return scrape(t, b, "workwire_broker_clients_connected") == 0 })
	if took := time.Since(reloaded); took >= deaf*time.Second {
		t.Errorf("it took %s, a second for each", took)
	}
}

// TestMappingChanges maps the certificate of a connected client to another identity: the client may
// not go on as the former one.
func TestMappingChanges(t *testing.T) {
	k := startCertified(t, agentCert("c1"), agentCert("c2"))
	config := func(mapping string) {
		t.Helper()
		kit.NoError(t, os.WriteFile(k.path("broker.yaml"), fmt.Appendf(nil, `listeners:
- address: 127.0.0.1:0
  tls: {certFile: broker/tls.crt, keyFile: broker/tls.key, clientCAFile: broker/ca.crt, requireClientCert: true}
certificates: [%s]
`, mapping), 0o600))
	}
	config("")
	cfg, err := broker.LoadConfig(k.path("broker.yaml"))
	kit.NoError(t, err)
	cfg.Logger = k.log.Logger()
	k.broker = brokertest.Start(t, cfg)
	c1, c2 := k.dial("x", k.tls("c1")), k.dial("x", k.tls("c2"))
	k.leave("absent", k.tls("c1"))
	config("{commonName: c1, role: agent, id: c9}")
	k.ended(c1)
	k.log.Await(t, "sessions ended, their certificates or passwords are no longer accepted")
	again := k.dial("x", k.tls("c1"))
	if code := again.publish("clusters/c9/agentbroadcast", "x"); code >= 0x80 {
		t.Errorf("as the new identity: 0x%x", code)
	}
	if code := c2.publish("clusters/c2/agentbroadcast", "x"); code >= 0x80 {
		t.Errorf("the other client: 0x%x", code)
	}
	config("")
	k.ended(again)
	if back := k.dial("absent", k.tls("c1")); back.connack.SessionPresent {
		t.Error("the session that the absent client had as the former identity is still there")
	}
}
