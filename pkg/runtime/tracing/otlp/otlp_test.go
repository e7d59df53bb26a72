package otlp

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/tracekit"
)

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string // part of the error; empty: none
	}{
		{NewOptions(), ""},
		{Options{Endpoint: "https://collector:4318", SamplingRatio: 0.1}, ""},
		{Options{Endpoint: "https://collector:4318/otlp/v1/traces", HeadersFile: "h", CAFile: "c"}, ""},
		{Options{Endpoint: "http://127.0.0.1:4318"}, ""},
		{Options{Endpoint: "http://[::1]:4318"}, ""},
		{Options{Endpoint: "http://localhost:4318"}, ""},
		{Options{Endpoint: "http://collector:4318"}, "would show traces and headers to others"},
		{Options{Endpoint: "http://127.0.0.1.example.com"}, "would show traces"},
		{Options{Endpoint: "https://user:secret@collector"}, "must not have a password"},
		{Options{Endpoint: "collector:4318"}, "must be a URL"},
		{Options{Endpoint: "ftp://collector"}, "must begin with https://"},
		{Options{Endpoint: "https://collector?token=secret"}, "must be a URL"},
		{Options{SamplingRatio: 1.5}, "--otlp-sampling-ratio must be 0 to 1"},
		{Options{SamplingRatio: -1}, "--otlp-sampling-ratio must be 0 to 1"},
		{Options{HeadersFile: "h"}, "need --otlp-endpoint"},
	} {
		err := errors.Join(c.o.Validate()...)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%+v: %v", c.o, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		case err != nil && strings.Contains(err.Error(), "secret"):
			t.Errorf("%+v: the error has the password: %v", c.o, err)
		}
	}
}

func TestParseHeaders(t *testing.T) {
	got, err := parseHeaders("# for the collector\nAuthorization: Bearer a:b\r\n\nX-Scope-OrgID:  1 \n")
	if err != nil || got.Get("Authorization") != "Bearer a:b" || got.Get("X-Scope-OrgID") != "1" || len(got) != 2 {
		t.Errorf("headers %v, %v", got, err)
	}
	for _, bad := range []string{"secret", ": secret", "a b: secret", "a: secret\x00"} {
		if _, err := parseHeaders(bad); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("parseHeaders(%q): %v, want an error without the value", bad, err)
		}
	}
}

func FuzzParseHeaders(f *testing.F) {
	f.Add("Authorization: Bearer token\n# comment\n")
	f.Add("a: b\na: c")
	f.Add(":\n\r:")
	f.Fuzz(func(t *testing.T, text string) {
		set, err := parseHeaders(text)
		if err != nil {
			return
		}
		for name, values := range set {
			if name == "" || strings.ContainsAny(strings.Join(values, ""), "\r\n\x00") {
				t.Errorf("header %q has %q", name, values)
			}
		}
	})
}

func writeFile(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	kit.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

// export makes a span with an exporter of cfg, and ends the exporter.
func export(t *testing.T, cfg Config) {
	t.Helper()
	exporter, err := New(cfg)
	kit.NoError(t, err)
	_, span := exporter.TracerProvider().Tracer("test").Start(t.Context(), "one")
	span.End()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	kit.NoError(t, exporter.Run(ctx))
}

// The collector's certificate is verified, and gets the headers of the file.
func TestExportsOverTLSWithHeaders(t *testing.T) {
	collector := tracekit.StartTLS(t)
	ca := writeFile(t, "ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: collector.Server.Certificate().Raw}))
	headers := writeFile(t, "headers", []byte("Authorization: Bearer s3cret\n"))
	registry := prometheus.NewRegistry()
	export(t, Config{Options: Options{Endpoint: collector.URL, SamplingRatio: 1, CAFile: ca, HeadersFile: headers}, Service: "test", Registerer: registry})
	span := collector.Await(t, "the span arrives", func(tracekit.Span) bool { return true })
	if span.Service != "test" || span.Name != "one" {
		t.Errorf("span %+v", span)
	}
	if _, got := collector.Requests(); got[0].Get("Authorization") != "Bearer s3cret" {
		t.Errorf("headers %v", got[0])
	}
	kit.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`# HELP workwire_tracing_spans_total Spans sent to the collector, by result: ok or failed (they are lost).
# TYPE workwire_tracing_spans_total counter
workwire_tracing_spans_total{result="failed"} 0
workwire_tracing_spans_total{result="ok"} 1
`)))
}

// A collector with another certificate gets nothing, and the log has no header.
func TestUnknownCertificateGetsNothing(t *testing.T) {
	collector := tracekit.StartTLS(t)
	headers := writeFile(t, "headers", []byte("Authorization: Bearer s3cret\n"))
	var log bytes.Buffer
	export(t, Config{
		Options: Options{Endpoint: collector.URL, SamplingRatio: 1, HeadersFile: headers}, Service: "test", Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if requests, _ := collector.Requests(); len(requests) != 0 {
		t.Errorf("a collector with an unknown certificate got %d requests", len(requests))
	}
	if text := log.String(); !strings.Contains(text, "sending traces to the collector failed") || strings.Contains(text, "s3cret") {
		t.Errorf("log: %s", text)
	}
}

// Headers do not follow a redirect to another server.
func TestNoRedirects(t *testing.T) {
	client, err := newHTTPClient(Config{Options: Options{HeadersFile: writeFile(t, "headers", []byte("Authorization: Bearer s3cret"))}})
	kit.NoError(t, err)
	if err := client.CheckRedirect(nil, nil); !errors.Is(err, http.ErrUseLastResponse) {
		t.Errorf("a redirect is followed: %v", err)
	}
}

func TestOffIsNil(t *testing.T) {
	exporter, err := New(Config{Options: NewOptions()})
	if exporter != nil || err != nil || exporter.TracerProvider() != nil {
		t.Errorf("without an endpoint there is an exporter: %v, %v", exporter, err)
	}
	if err := exporter.Run(t.Context()); err != nil {
		t.Error(err)
	}
}
