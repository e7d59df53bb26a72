package broker_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
)

const goodHash = "$2a$04$TBRjBPXpQMVBw0pjbdWi6O2zTDqWIkOKFn9dSbTFXwhcqwNzVCYcm"

// TestExample runs the example configuration, with other ports.
func TestExample(t *testing.T) {
	data, err := os.ReadFile("work-broker.yaml")
	kit.NoError(t, err)
	dir := t.TempDir()
	hash, err := broker.HashPassword(password)
	kit.NoError(t, err)
	files := map[string]string{
		"work-broker.yaml": regexp.MustCompile(`(?m)^(- address|httpAddress): 127.0.0.1:\d+`).ReplaceAllString(string(data), "$1: 127.0.0.1:0"),
		"hub1.passwd":      hash + "\n", "cluster1.passwd": hash + "\n",
	}
	for name, content := range files {
		kit.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	cfg, err := broker.LoadConfig(filepath.Join(dir, "work-broker.yaml"))
	kit.NoError(t, err)
	if cfg.MaxPacketSize != broker.DefaultMaxPacketSize || cfg.ReceiveMaximum != broker.DefaultReceiveMaximum ||
		cfg.MaxQueuedMessages != broker.DefaultMaxQueuedMessages || cfg.MaxQueuedBytes != broker.DefaultMaxQueuedBytes {
		t.Errorf("the example shows other values than the defaults: %+v", cfg)
	}
	b := brokertest.Start(t, cfg)
	agent := dial(t, b.Addr, options{user: "cluster1-agent"})
	agent.mustSubscribe("sources/+/clusters/cluster1/sourceevents")
	dial(t, b.Addr, options{user: "hub1"}).publish("sources/hub1/clusters/cluster1/sourceevents", "hello")
	agent.payloads(1)
	if _, err := os.Stat(filepath.Join(dir, "data", "broker.db")); err != nil {
		t.Errorf("the data directory is not beside the file: %v", err)
	}
}

// TestExampleIsComplete checks that the example shows every key.
func TestExampleIsComplete(t *testing.T) {
	data, err := os.ReadFile("work-broker.yaml")
	kit.NoError(t, err)
	for _, v := range []any{broker.Config{}, broker.Listener{}, broker.ListenerTLS{}, broker.User{}, broker.Certificate{}} {
		for f := range reflect.TypeOf(v).Fields() {
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if key != "-" && !regexp.MustCompile(`(?m)^[#\s-]*`+key+`:`).Match(data) {
				t.Errorf("the example does not show %s", key)
			}
		}
	}
}

func TestParseConfigIsStrict(t *testing.T) {
	for name, test := range map[string]struct{ yaml, want string }{
		"unknown key":        {"listners: []", `unknown field "listners"`},
		"unknown nested key": {"users: [{user: c1}]", `unknown field "user"`},
		"password in a file": {"users: [{username: c1, password: secret}]", `unknown field "password"`},
		"repeated key":       {"dataDir: a\ndataDir: b", `key "dataDir" already set`},
		"wrong type":         {"maxPacketSize: big", "maxPacketSize"},
		"too large":          {"receiveMaximum: 70000", "receiveMaximum"},
		"no YAML":            {"{", "decode YAML"},
	} {
		if _, err := broker.ParseConfig([]byte(test.yaml)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, test.want)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	data, err := os.ReadFile("work-broker.yaml")
	kit.NoError(f, err)
	f.Add(data)
	f.Add([]byte("listeners: [{address: x, tls: {}}]\nusers: [{}]\ncertificates: [{}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if cfg, err := broker.ParseConfig(data); err == nil {
			_, _ = broker.New(cfg) // must not panic, whatever it finds
		}
	})
}

func TestValidation(t *testing.T) {
	good := func() broker.Config {
		return broker.Config{
			Listeners: []broker.Listener{{Address: "127.0.0.1:0"}},
			Users:     []broker.User{{Username: "c1", PasswordHash: goodHash, Role: acl.Agent}},
		}
	}
	if _, err := broker.New(good()); err != nil {
		t.Fatalf("the good one: %v", err)
	}
	for name, test := range map[string]struct {
		change func(*broker.Config)
		want   string // "": fine
	}{
		"no listener":      {func(c *broker.Config) { c.Listeners = nil }, "listeners: at least one is required"},
		"no port":          {func(c *broker.Config) { c.Listeners[0].Address = "127.0.0.1" }, "is not host:port"},
		"plain on all":     {func(c *broker.Config) { c.Listeners[0].Address = ":1883" }, "not a loopback address and has no TLS"},
		"plain on 0.0.0.0": {func(c *broker.Config) { c.Listeners[0].Address = "0.0.0.0:1883" }, "not a loopback address"},
		"plain on a name":  {func(c *broker.Config) { c.Listeners[0].Address = "broker:1883" }, "not a loopback address"},
		"localhost":        {func(c *broker.Config) { c.Listeners[0].Address = "localhost:0" }, ""},
		"IPv6 loopback":    {func(c *broker.Config) { c.Listeners[0].Address = "[::1]:0" }, ""},
		"TLS on all": {func(c *broker.Config) {
			c.Listeners[0] = broker.Listener{Address: ":0", TLS: &broker.ListenerTLS{CertFile: "a", KeyFile: "b"}}
		}, ""},
		"TLS without key": {func(c *broker.Config) { c.Listeners[0].TLS = &broker.ListenerTLS{CertFile: "a"} }, "certFile and keyFile"},
		"TLS without CA": {func(c *broker.Config) {
			c.Listeners[0].TLS = &broker.ListenerTLS{CertFile: "a", KeyFile: "b", RequireClientCert: true}
		}, "needs a clientCAFile"},
		"nobody": {func(c *broker.Config) { c.Users = nil }, "users: at least one user"},
		"certificates only": {func(c *broker.Config) {
			c.Users, c.Listeners[0].TLS = nil, &broker.ListenerTLS{CertFile: "a", KeyFile: "b", ClientCAFile: "c"}
		}, ""},
		"no username":    {func(c *broker.Config) { c.Users[0].Username = "" }, "username is required"},
		"no password":    {func(c *broker.Config) { c.Users[0].PasswordHash = "" }, "exactly one of passwordHash and passwordFile"},
		"two passwords":  {func(c *broker.Config) { c.Users[0].PasswordFile = "x" }, "exactly one of"},
		"plain password": {func(c *broker.Config) { c.Users[0].PasswordHash = "secret" }, "passwordHash is not a hash of bcrypt or PBKDF2"},
		"role":           {func(c *broker.Config) { c.Users[0].Role = "root" }, `role "root" is unknown`},
		"id":             {func(c *broker.Config) { c.Users[0].ID = "C/1" }, `id "C/1"`},
		"user twice":     {func(c *broker.Config) { c.Users = append(c.Users, c.Users[0]) }, `"c1" is listed twice`},
		"certificate":    {func(c *broker.Config) { c.Certificates = []broker.Certificate{{Role: acl.Agent, ID: "x"}} }, "commonName is required"},
		"certificate id": {func(c *broker.Config) { c.Certificates = []broker.Certificate{{CommonName: "X", Role: acl.Agent}} }, `id "X"`},
		"joiner":         {func(c *broker.Config) { c.Certificates = []broker.Certificate{{CommonName: "x", Role: acl.Joiner}} }, "no certificate yet"},
		"certificate twice": {func(c *broker.Config) {
			x := broker.Certificate{CommonName: "x", Role: acl.Agent}
			c.Certificates = []broker.Certificate{x, x}
		}, "listed twice"},
		"small packets":      {func(c *broker.Config) { c.MaxPacketSize = 100 }, "maxPacketSize: must be 1024 to 268435460 bytes, got 100"},
		"large packets":      {func(c *broker.Config) { c.MaxPacketSize = 1 << 31; c.MaxQueuedBytes = 1 << 40 }, "maxPacketSize: must be 1024 to 268435460 bytes, got 2147483648"},
		"small queue":        {func(c *broker.Config) { c.MaxQueuedBytes = 1000 }, "maxQueuedBytes: must be at least maxPacketSize (1048576 bytes), got 1000"},
		"negative queue":     {func(c *broker.Config) { c.MaxQueuedMessages = -1 }, "maxQueuedMessages: must not be negative, got -1"},
		"metrics for all":    {func(c *broker.Config) { c.HTTPAddress = ":9641" }, "httpExposed: true"},
		"metrics, exposed":   {func(c *broker.Config) { c.HTTPAddress, c.HTTPExposed = ":9641", true }, ""},
		"metrics, no port":   {func(c *broker.Config) { c.HTTPAddress = "localhost" }, "httpAddress"},
		"drain nowhere":      {func(c *broker.Config) { c.Drain = &broker.Drain{OnStop: true} }, "serverReference is required"},
		"exposed, no adress": {func(c *broker.Config) { c.HTTPExposed = true }, "httpExposed"},
	} {
		cfg := good()
		test.change(&cfg)
		_, err := broker.New(cfg)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
	bad := broker.Config{Users: []broker.User{{}}, MaxPacketSize: 1}
	_, err := broker.New(bad)
	for _, want := range []string{"listeners", "username", "maxPacketSize"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("not every fault is reported: %v", err)
		}
	}
}
