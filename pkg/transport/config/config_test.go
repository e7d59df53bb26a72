package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

const topicLines = `
topics:
  sourceEvents: sources/hub1/clusters/+/sourceevents
  agentEvents: sources/hub1/clusters/+/agentevents
  sourceBroadcast: sources/+/sourcebroadcast
  agentBroadcast: clusters/+/agentbroadcast
`

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	cert, key := selfSigned(t)
	ca, crt, pass := write(t, dir, "ca.crt", cert), write(t, dir, "tls.crt", cert), write(t, dir, "password", []byte("s3cret\n"))
	text := `
brokerHost: broker.example.com:8883
username: cluster1
passwordFile: ` + pass + `
keepAlive: 30
dialTimeout: 5s
pubQoS: 0
subQoS: 2
tls: required
caFile: ` + ca + `
clientCertFile: ` + crt + `
clientKeyData: ` + base64.StdEncoding.EncodeToString(key) + `
sessionExpiry: 1h
receiveMaximum: 20
maximumPacketSize: 524288
` + topicLines
	got, err := config.Load(write(t, dir, "transport.yaml", []byte(text)))
	kit.NoError(t, err)
	want := config.Config{
		BrokerHost: "broker.example.com:8883", Username: "cluster1", PasswordFile: pass,
		KeepAlive: 30 * time.Second, DialTimeout: 5 * time.Second,
		PubQoS: new(byte(0)), SubQoS: new(byte(2)), TLSRequired: true,
		Topics: wire.Topics{
			SourceEvents: "sources/hub1/clusters/+/sourceevents", AgentEvents: "sources/hub1/clusters/+/agentevents",
			SourceBroadcast: "sources/+/sourcebroadcast", AgentBroadcast: "clusters/+/agentbroadcast",
		},
		CA: config.PEM{File: ca}, ClientCert: config.PEM{File: crt}, ClientKey: config.PEM{Data: key},
		SessionExpiry: time.Hour, ReceiveMaximum: 20, MaximumPacketSize: 524288,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("loaded (-want +got):\n%s", diff)
	}
	if secret, err := got.ReadPassword(); err != nil || secret != "s3cret" {
		t.Errorf("secret is %q, %v", secret, err)
	}
	certs, err := got.Certificates()
	kit.NoError(t, err)
	settings, err := got.TLSConfig(got.BrokerHost, certs)
	kit.NoError(t, err)
	if settings.ServerName != "broker.example.com" || settings.RootCAs == nil || len(settings.Certificates) != 1 {
		t.Errorf("TLS settings lack something: %+v", settings)
	}
}

func TestDefaults(t *testing.T) {
	got, err := config.Parse([]byte("brokerHost: localhost:1883\nusername:\n" + topicLines))
	kit.NoError(t, err)
	got = got.WithDefaults()
	if got.UsesTLS() {
		t.Error("no certificate was given, yet TLS is used")
	}
	got.Topics = wire.Topics{}
	want := config.Config{
		BrokerHost: "localhost:1883", KeepAlive: time.Minute, DialTimeout: time.Minute,
		PubQoS: new(byte(1)), SubQoS: new(byte(1)),
		SessionExpiry: 24 * time.Hour, ReceiveMaximum: 256, MaximumPacketSize: 16 << 20,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

func TestFaults(t *testing.T) {
	dir := t.TempDir()
	cert, key := selfSigned(t)
	_, otherKey := selfSigned(t)
	crt, keyFile, other := write(t, dir, "tls.crt", cert), write(t, dir, "tls.key", key), write(t, dir, "other.key", otherKey)
	inBase64 := base64.StdEncoding.EncodeToString(cert)
	valid := "brokerHost: localhost:1883\n" + topicLines
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"empty":            {"", []string{"brokerHost: required", "topics.sourceEvents is required", "topics.agentEvents is required"}},
		"no YAML":          {"brokerHost: [", []string{"is no YAML"}},
		"a list":           {"- brokerHost", []string{"is no mapping"}},
		"a key twice":      {"username: a\nusername: b\n" + valid, []string{`"username" already set`}},
		"unknown keys":     {valid + "brokerhost: x\ncolour: red\n", []string{"brokerhost: unknown key: did you mean brokerHost?", "colour: unknown key: remove it; known are brokerHost, caData"}},
		"unknown topic":    {"brokerHost: a:1\ntopics: {sourceevents: a}", []string{"topics.sourceevents: unknown key: did you mean topics.sourceEvents?"}},
		"topic shape":      {"brokerHost: a:1\ntopics: {sourceEvents: nonsense, agentEvents: 7}", []string{`topics.sourceEvents: "nonsense"`, "topics.agentEvents is no text"}},
		"topics no map":    {"brokerHost: a:1\ntopics: all", []string{"topics: is no mapping"}},
		"no WebSocket":     {"brokerHost: wss://" + topicLines, []string{`brokerHost: "wss://" is no URL`}},
		"a user in it":     {"brokerHost: wss://a:secret@broker/mqtt" + topicLines, []string{"brokerHost: the URL of broker has a user", "username and passwordFile"}},
		"ws with TLS":      {"brokerHost: ws://broker/mqtt\ntls: required" + topicLines, []string{`"ws://broker/mqtt" is without TLS: use wss://`}},
		"ws beside wss":    {"brokerHost: [ws://broker/mqtt, wss://other/mqtt]" + topicLines, []string{`"ws://broker/mqtt" is without TLS`}},
		"port of a URL":    {"brokerHost: wss://broker:99999/mqtt" + topicLines, []string{`port "99999" of "wss://broker:99999/mqtt"`}},
		"a URL":            {"brokerHost: tcp://broker:1883" + topicLines, []string{`brokerHost: "tcp://broker:1883" is a URL`}},
		"two hosts":        {"brokerHost: 'a:1,,b:1'" + topicLines, []string{`brokerHost: "a:1,,b:1" has a comma without an address`}},
		"a host twice":     {"brokerHost: 'a:1, a:1'" + topicLines, []string{`brokerHost: "a:1" is there twice`}},
		"a list of one":    {"brokerHost: [a:1, b]" + topicLines, []string{`brokerHost: "b" is no host:port`}},
		"a list in a list": {"brokerHost: ['a:1,b:1']" + topicLines, []string{`brokerHost: "a:1,b:1" in the list is no host:port`}},
		"a list of 1":      {"brokerHost: [1]" + topicLines, []string{`brokerHost: is neither text nor a list of texts`}},
		"no port":          {"brokerHost: broker" + topicLines, []string{`brokerHost: "broker" is no host:port`}},
		"port":             {"brokerHost: broker:mqtt" + topicLines, []string{`brokerHost: port "mqtt"`}},
		"a number as text": {valid + "username: 17", []string{"username: is no text: put it in quotes"}},
		"password alone":   {valid + "password: x", []string{"username: a password is given without it"}},
		"two passwords":    {valid + "username: u\npassword: x\npasswordFile: " + crt, []string{"passwordFile: password is given as well"}},
		"no password file": {valid + "username: u\npasswordFile: " + dir + "/none", []string{"passwordFile: open " + dir + "/none: no such file"}},
		"QoS":              {valid + "pubQoS: 3\nsubQoS: high", []string{"pubQoS: is no quality of service", "subQoS: is no quality of service"}},
		"keepAlive":        {valid + "keepAlive: 0", []string{"keepAlive: is no whole number from 1 to 65535: it counts seconds"}},
		"dialTimeout":      {valid + "dialTimeout: 60", []string{"dialTimeout: is no duration: give a number with its unit"}},
		"dialTimeout sign": {valid + "dialTimeout: -60s", []string{`dialTimeout: "-60s" is no duration above zero`}},
		"dialTimeout long": {valid + "dialTimeout: 2h", []string{"dialTimeout: 2h0m0s is out of range: use 1ms to 1h0m0s"}},
		"receiveMaximum":   {valid + "receiveMaximum: 70000", []string{"receiveMaximum: is no whole number from 1 to 65535"}},
		"packet size":      {valid + "maximumPacketSize: 1", []string{"maximumPacketSize: is no whole number from 1024 to 4294967295"}},
		"TLS":              {valid + "tls: optional", []string{`tls: is not "required"`}},
		"TLS as a switch":  {valid + "tls: true", []string{`tls: is not "required"`}},
		"CA twice":         {valid + "caFile: " + crt + "\ncaData: " + inBase64, []string{"caFile: caData is given as well: keep one of them"}},
		"CA missing":       {valid + "caFile: " + dir + "/none", []string{"caFile: open " + dir + "/none: no such file"}},
		"CA no PEM":        {valid + "caData: aGVsbG8=", []string{"caData holds no PEM certificate"}},
		"no base64":        {valid + "caData: '!'", []string{"caData: is no base64: give PEM encoded in base64"}},
		"empty base64":     {valid + "caData: ''", []string{"caData: is empty"}},
		"cert alone":       {valid + "clientCertFile: " + crt, []string{"clientKeyFile: required with a client certificate"}},
		"key alone":        {valid + "clientKeyFile: " + keyFile, []string{"clientCertFile: required with a client key"}},
		"no pair":          {valid + "clientCertFile: " + crt + "\nclientKeyFile: " + other, []string{"clientCertFile \"" + crt + "\" and clientKeyFile \"" + other + "\" are no pair"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, t.TempDir(), "transport.yaml", []byte(test.text))
			_, err := config.Load(path)
			if err == nil {
				t.Fatal("it was accepted")
			}
			for _, want := range append(test.want, path) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q:\n%v", want, err)
				}
			}
		})
	}
	if _, err := config.Load(dir + "/none.yaml"); err == nil || !strings.Contains(err.Error(), dir+"/none.yaml") {
		t.Errorf("a missing file gives %v", err)
	}
}

// Faults are printed and logged: they must not hold what is secret.
func TestFaultsHoldNoSecret(t *testing.T) {
	_, err := config.Parse([]byte("password: s3cret\nclientKeyData: 's3cret!'\nkeepAlive: x\n"))
	if err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("error is %v", err)
	}
}

// The names of AppliedManifestWorks come from HubIdentity.
func TestHubIdentity(t *testing.T) {
	for _, test := range []struct {
		text, want string
		addresses  []string
	}{
		{"brokerHost: a:1", "a:1", []string{"a:1"}},
		{"brokerHost: [a:1]", "a:1", []string{"a:1"}},
		{"brokerHost: a:1\nhubName: hub", "hub", []string{"a:1"}},
		{"brokerHost: 'a:1, b:2'\nhubName: a:1", "a:1", []string{"a:1", "b:2"}},
		{"brokerHost: [b:2, a:1, '[::1]:3']\nhubName: a:1", "a:1", []string{"b:2", "a:1", "[::1]:3"}},
		{"brokerHost: [b:2, a:1]", "", []string{"b:2", "a:1"}},
	} {
		c, err := config.Parse([]byte(test.text + topicLines))
		kit.NoError(t, err)
		if diff := cmp.Diff(test.addresses, c.Addresses()); diff != "" {
			t.Errorf("%s: addresses (-want +got):\n%s", test.text, diff)
		}
		got, err := c.HubIdentity()
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: got %q, %v, want %q", test.text, got, err, test.want)
		}
		if err != nil && !strings.Contains(err.Error(), `hubName: "b:2"`) {
			t.Errorf("%s: the error does not say what to do: %v", test.text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("brokerHost: [a:1, 'b:2']\nhubName: hub" + topicLines))
	f.Add([]byte("brokerHost: localhost:1883\nkeepAlive: 5\npubQoS: 1\ndialTimeout: 1s" + topicLines))
	f.Add([]byte("caData: aGVsbG8=\nclientKeyData: x\ntopics: [1]"))
	f.Add([]byte("{"))
	f.Add([]byte("1: 2\nnull: {}\n"))
	f.Add([]byte("&a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if strings.Contains(string(data), "File") {
			t.Skip("it would read files")
		}
		c, err := config.Parse(data)
		if err != nil {
			return
		}
		if err := c.WithDefaults().Validate(); err != nil {
			t.Errorf("accepted, yet not valid with defaults: %v", err)
		}
		if err := c.Topics.Validate(); err != nil {
			t.Errorf("accepted, yet its topics are not valid: %v", err)
		}
	})
}

func write(t *testing.T, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	kit.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

func selfSigned(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	kit.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	kit.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	kit.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}
