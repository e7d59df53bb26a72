package serve_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/workwire/workwire/pkg/runtime/serve"
	"github.com/workwire/workwire/test/kit"
)

func TestValidate(t *testing.T) {
	full := serve.Options{CertFile: "c", KeyFile: "k", TokenFile: "t"}
	at := func(o serve.Options, address string) serve.Options { o.Address = address; return o }
	for _, c := range []struct {
		name    string
		options serve.Options
		want    []string // one substring a fault
	}{
		{"off", serve.Options{}, nil},
		{"off by 0", serve.Options{Address: "0", CertFile: "c"}, nil},
		{"loopback", serve.Options{Address: "127.0.0.1:0"}, nil},
		{"loopback v6", serve.Options{Address: "[::1]:80"}, nil},
		{"loopback name", serve.Options{Address: "localhost:80"}, nil},
		{"loopback mapped", serve.Options{Address: "[::ffff:127.0.0.1]:80"}, nil},
		{"beyond, full", at(full, ":8443"), nil},
		{"all addresses", serve.Options{Address: ":8080"}, []string{"set --listen-cert-file, --listen-key-file and --listen-token-file"}},
		{"all addresses, 0", serve.Options{Address: "0.0.0.0:8080"}, []string{"reachable from other machines"}},
		{"other name", serve.Options{Address: "localhost.example:8080"}, []string{"reachable from other machines"}},
		{"beyond without token", serve.Options{Address: ":8443", CertFile: "c", KeyFile: "k"}, []string{"reachable from other machines"}},
		{"beyond without TLS", serve.Options{Address: ":8443", TokenFile: "t"}, []string{"reachable from other machines"}},
		{"key alone", serve.Options{Address: "127.0.0.1:1", KeyFile: "k"}, []string{"set both or neither"}},
		{"no port", serve.Options{Address: "127.0.0.1"}, []string{"must be host:port"}},
		{"bad port", serve.Options{Address: "127.0.0.1:http", CertFile: "c"}, []string{"both or neither", `got "http"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			errs := c.options.Validate()
			if len(errs) != len(c.want) {
				t.Fatalf("errors %v, want %d", errs, len(c.want))
			}
			for i, want := range c.want {
				if !strings.Contains(errs[i].Error(), want) {
					t.Errorf("error %q, want %q", errs[i], want)
				}
			}
			if _, err := serve.New(serve.Config{Options: c.options}); (err != nil) != (len(c.want) > 0) {
				t.Errorf("New: %v", err)
			}
		})
	}
}

func TestFlagsSetEveryField(t *testing.T) {
	o := serve.Options{Address: "127.0.0.1:9"}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.AddFlags(fs)
	if got := fs.Lookup("listen-address").DefValue; got != "127.0.0.1:9" {
		t.Errorf("default address %q", got)
	}
	err := fs.Parse([]string{"--listen-address=a:1", "--listen-cert-file=c", "--listen-key-file=k", "--listen-token-file=t", "--profiling"})
	want := serve.Options{Address: "a:1", CertFile: "c", KeyFile: "k", TokenFile: "t", Profiling: true}
	if err != nil || o != want {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestNewRefusesACheckWithoutName(t *testing.T) {
	_, err := serve.New(serve.Config{Ready: []serve.Check{{Func: func(context.Context) error { return nil }}}})
	if err == nil {
		t.Error("no error")
	}
}

// start runs a server until the end of the test and returns its address.
func start(t *testing.T, cfg serve.Config) string {
	t.Helper()
	cfg.Registry, cfg.Logger = serve.NewRegistry(), slog.New(slog.DiscardHandler)
	server, err := serve.New(cfg)
	kit.NoError(t, err)
	if server.Addr() != "" {
		t.Errorf("address %q before Run", server.Addr())
	}
	kit.Run(t, "server", server.Run)
	kit.Receive(t, "the server listens", server.Listening())
	return server.Addr()
}

func get(t *testing.T, client *http.Client, url, token string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	kit.NoError(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	kit.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	kit.NoError(t, errors.Join(err, response.Body.Close()))
	return response.StatusCode, string(body)
}

func client(t *testing.T, config *tls.Config) *http.Client {
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: kit.Patience}
}

func TestHealthOnLoopback(t *testing.T) {
	var down atomic.Bool
	address := start(t, serve.Config{
		Options: serve.Options{Address: "127.0.0.1:0"},
		Ready: []serve.Check{
			{Name: "informer", Func: func(context.Context) error { return nil }},
			{Name: "broker", Func: func(context.Context) error {
				if down.Load() {
					return errors.New("not connected\nto b:1883")
				}
				return nil
			}},
		},
	})
	c, url := client(t, nil), "http://"+address
	for _, want := range []struct {
		down   bool
		path   string
		status int
		body   string
	}{
		{false, "/readyz", 200, "ok"},
		{false, "/healthz", 200, "ok"},
		{false, "/readyz?verbose", 200, "[+]informer ok\n[+]broker ok\nreadyz check passed\n"},
		{true, "/readyz", 503, "[+]informer ok\n[-]broker failed: not connected; to b:1883\nreadyz check failed\n"},
		{true, "/healthz", 200, "ok"},
		{false, "/debug/pprof/cmdline", 404, "404 page not found\n"},
		{false, "/", 404, "404 page not found\n"},
	} {
		down.Store(want.down)
		if status, body := get(t, c, url+want.path, ""); status != want.status || body != want.body {
			t.Errorf("%s, broker down %t: %d %q, want %d %q", want.path, want.down, status, body, want.status, want.body)
		}
	}
	if status, body := get(t, c, url+"/metrics", ""); status != 200 ||
		!strings.Contains(body, "go_goroutines ") || !strings.Contains(body, "process_resident_memory_bytes ") {
		t.Errorf("metrics: %d %q", status, body)
	}
}

func TestProfiling(t *testing.T) {
	address := start(t, serve.Config{Options: serve.Options{Address: "127.0.0.1:0", Profiling: true}})
	if status, _ := get(t, client(t, nil), "http://"+address+"/debug/pprof/goroutine?debug=1", ""); status != 200 {
		t.Errorf("goroutine profile: %d", status)
	}
}

func TestTokenAndTLS(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile, tokenFile := filepath.Join(dir, "c"), filepath.Join(dir, "k"), filepath.Join(dir, "t")
	writeCertificate(t, certFile, keyFile, 1)
	write(t, tokenFile, "first\n")
	address := start(t, serve.Config{
		Options: serve.Options{Address: "127.0.0.1:0", CertFile: certFile, KeyFile: keyFile, TokenFile: tokenFile, Profiling: true},
		Ready:   []serve.Check{{Name: "broker", Func: func(context.Context) error { return errors.New("secret host") }}},
	})
	serial := int64(0)
	config := &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // the test looks at the certificate itself
		VerifyConnection:   func(s tls.ConnectionState) error { serial = s.PeerCertificates[0].SerialNumber.Int64(); return nil },
	}
	c, url := client(t, config), "https://"+address
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/goroutine"} {
		for _, token := range []string{"", "wrong", "first2"} {
			if status, _ := get(t, c, url+path, token); status != 401 {
				t.Errorf("%s with token %q: %d", path, token, status)
			}
		}
		if status, _ := get(t, c, url+path, "first"); status != 200 {
			t.Errorf("%s with its token: %d", path, status)
		}
	}
	if status, body := get(t, c, url+"/readyz?verbose", ""); status != 503 || body != "readyz check failed\n" {
		t.Errorf("readyz without token: %d %q", status, body)
	}
	if status, body := get(t, c, url+"/readyz", "first"); status != 503 || !strings.Contains(body, "secret host") {
		t.Errorf("readyz with token: %d %q", status, body)
	}
	if serial != 1 {
		t.Errorf("certificate %d, want 1", serial)
	}

	// Replaced files are loaded without a restart; files that do not match are not.
	write(t, tokenFile, "second")
	writeCertificate(t, certFile, keyFile, 2)
	c = client(t, config)
	if status, _ := get(t, c, url+"/metrics", "first"); status != 401 || serial != 2 {
		t.Errorf("old token: %d, certificate %d", status, serial)
	}
	write(t, certFile, "broken")
	c = client(t, config)
	if status, _ := get(t, c, url+"/metrics", "second"); status != 200 || serial != 2 {
		t.Errorf("new token: %d, certificate %d", status, serial)
	}
	kit.NoError(t, os.Remove(tokenFile))
	if status, _ := get(t, c, url+"/metrics", "second"); status != 401 {
		t.Errorf("without a token file: %d", status)
	}
}

func TestRunFailsClearly(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	kit.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	empty := filepath.Join(t.TempDir(), "empty")
	write(t, empty, " \n")
	for _, c := range []struct {
		options serve.Options
		want    string
	}{
		{serve.Options{Address: taken.Addr().String()}, "--listen-address"},
		{serve.Options{Address: "127.0.0.1:0", CertFile: "/nowhere/c", KeyFile: "/nowhere/k"}, "--listen-cert-file"},
		{serve.Options{Address: "127.0.0.1:0", TokenFile: "/nowhere/t"}, "--listen-token-file"},
		{serve.Options{Address: "127.0.0.1:0", TokenFile: empty}, "is empty"},
	} {
		server, err := serve.New(serve.Config{Options: c.options, Registry: serve.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
		kit.NoError(t, err)
		if err := server.Run(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.options, err, c.want)
		}
	}
}

func TestSwitchedOffWaitsForItsContext(t *testing.T) {
	server, err := serve.New(serve.Config{Options: serve.Options{Address: "0"}, Registry: serve.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	kit.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := server.Run(ctx); err != nil || server.Addr() != "" {
		t.Errorf("%v, address %q", err, server.Addr())
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	kit.NoError(t, os.WriteFile(file, []byte(content), 0o600))
}

func writeCertificate(t *testing.T, certFile, keyFile string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	kit.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	kit.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	kit.NoError(t, err)
	write(t, certFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, keyFile, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})))
}
