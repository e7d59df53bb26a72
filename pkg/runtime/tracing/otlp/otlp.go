// Package otlp exports the spans of a command to an OpenTelemetry collector, by OTLP over HTTP. Only
// commands import it: the SDK and the packages that make spans know no exporter.
//
//	o := otlp.NewOptions()
//	o.AddFlags(flags)
//	...
//	exporter, err := otlp.New(otlp.Config{Options: o, Service: "work-hub"})
//	cfg.TracerProvider = exporter.TracerProvider() // nil without --otlp-endpoint
//	err = exporter.Run(ctx)
package otlp

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/net/http/httpguts"

	"github.com/workwire/workwire/pkg/runtime/serve"
	"github.com/workwire/workwire/pkg/runtime/version"
)

const (
	// tracesPath is the path of OTLP for traces, used if the endpoint has none.
	tracesPath = "/v1/traces"
	// exportTimeout limits one export.
	exportTimeout = 10 * time.Second
	// flushTimeout limits the last export of a command that ends.
	flushTimeout = 5 * time.Second
)

// Options are set by flags.
type Options struct {
	// Endpoint is the URL of the collector; empty means no tracing.
	Endpoint string
	// SamplingRatio is the share of changes that are traced, 0 to 1. Of traces that another program
	// has begun it is the share that this one records.
	SamplingRatio float64
	// HeadersFile has headers of the requests to the collector, one "Name: value" a line; optional.
	HeadersFile string
	// CAFile has the authorities of the collector's certificate; default those of the system.
	CAFile string
}

// NewOptions returns the defaults: no tracing.
func NewOptions() Options { return Options{SamplingRatio: 1} }

// AddFlags adds the flags that set o, with the current values of o as defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Endpoint, "otlp-endpoint", o.Endpoint, "URL of an OpenTelemetry collector that traces are sent to by OTLP over HTTP, such as https://collector:4318; "+
		"http:// only on loopback (default none, and nothing is traced), see docs/tracing.md")
	fs.Float64Var(&o.SamplingRatio, "otlp-sampling-ratio", o.SamplingRatio, "share of changes that are traced, 0 to 1; of traces that another program has begun, the share that this one records")
	fs.StringVar(&o.HeadersFile, "otlp-headers-file", o.HeadersFile, "file with headers for the collector, one \"Name: value\" a line, such as Authorization: Bearer TOKEN; read for each export (default none)")
	fs.StringVar(&o.CAFile, "otlp-ca-file", o.CAFile, "PEM file with the authorities of the collector's certificate (default those of the system)")
}

// Enabled reports whether traces are exported.
func (o *Options) Enabled() bool { return o.Endpoint != "" }

// Validate returns an error for each invalid flag. It reads no files.
func (o *Options) Validate() []error {
	var errs []error
	if o.SamplingRatio < 0 || o.SamplingRatio > 1 || o.SamplingRatio != o.SamplingRatio {
		errs = append(errs, fmt.Errorf("--otlp-sampling-ratio must be 0 to 1, got %v", o.SamplingRatio))
	}
	if !o.Enabled() {
		if o.HeadersFile != "" || o.CAFile != "" {
			errs = append(errs, errors.New("--otlp-headers-file and --otlp-ca-file need --otlp-endpoint: the URL of the collector"))
		}
		return errs
	}
	u, err := url.Parse(o.Endpoint)
	switch {
	case err != nil || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "":
		errs = append(errs, errors.New("--otlp-endpoint must be a URL such as https://collector:4318"))
	case u.User != nil:
		errs = append(errs, errors.New("--otlp-endpoint must not have a password, which others can see: set --otlp-headers-file"))
	case u.Scheme == "http" && !serve.IsLoopback(u.Hostname()):
		errs = append(errs, fmt.Errorf("--otlp-endpoint: http to %s would show traces and headers to others: use https, or a collector on loopback", u.Hostname()))
	case u.Scheme != "http" && u.Scheme != "https":
		errs = append(errs, errors.New("--otlp-endpoint must begin with https://"))
	}
	return errs
}

// Config configures an [Exporter].
type Config struct {
	Options
	// Service is the name of the program in traces; required.
	Service string
	// Registerer gets the metric workwire_tracing_spans_total; default none.
	Registerer prometheus.Registerer
	// Logger gets a warning when exports begin to fail, without headers; default slog.Default().
	Logger *slog.Logger
}

// Exporter sends spans to a collector. A nil *Exporter does nothing.
type Exporter struct{ provider *sdktrace.TracerProvider }

// New returns an exporter, nil without an endpoint. It reads the file of authorities, and connects when
// there is something to send.
func New(cfg Config) (*Exporter, error) {
	if !cfg.Enabled() {
		return nil, nil
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	client, err := newHTTPClient(cfg)
	if err != nil {
		return nil, err
	}
	endpoint, err := url.Parse(cfg.Endpoint)
	if err != nil {
		return nil, errors.New("--otlp-endpoint is no URL")
	}
	if endpoint.Path == "" || endpoint.Path == "/" {
		endpoint.Path = tracesPath
	}
	exporter, err := otlptrace.New(context.Background(), otlptracehttp.NewClient( // starts nothing
		otlptracehttp.WithEndpointURL(endpoint.String()), otlptracehttp.WithHTTPClient(client), otlptracehttp.WithTimeout(exportTimeout),
		otlptracehttp.WithCompression(otlptracehttp.GzipCompression),
	))
	if err != nil {
		return nil, fmt.Errorf("export traces: %w", err)
	}
	share := sdktrace.TraceIDRatioBased(cfg.SamplingRatio)
	return &Exporter{provider: sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(newWatched(exporter, cfg)),
		// A peer that marks each of its events for recording gets no more than the share.
		sdktrace.WithSampler(sdktrace.ParentBased(share, sdktrace.WithRemoteParentSampled(share))),
		sdktrace.WithResource(resource.NewWithAttributes(semconv.SchemaURL, attributes(cfg.Service)...)),
	)}, nil
}

func attributes(service string) []attribute.KeyValue {
	host, _ := os.Hostname() // tells replicas apart
	return []attribute.KeyValue{
		semconv.ServiceName(service), semconv.ServiceNamespace("workwire"), semconv.ServiceVersion(version.Version), semconv.ServiceInstanceID(host),
	}
}

// TracerProvider returns what makes spans; nil if e is nil.
func (e *Exporter) TracerProvider() trace.TracerProvider {
	if e == nil {
		return nil
	}
	return e.provider
}

// Run waits until ctx ends, and then sends the spans that wait, for 5 seconds at most. It returns nil.
func (e *Exporter) Run(ctx context.Context) error {
	if e == nil {
		return nil
	}
	<-ctx.Done()
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	_ = e.provider.Shutdown(flush) // a failure was counted
	return nil
}

// newHTTPClient returns the client of the collector, which adds the headers and follows no redirect.
func newHTTPClient(cfg Config) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.CAFile != "" {
		data, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--otlp-ca-file: %w", err)
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("--otlp-ca-file %s has no certificate in PEM", cfg.CAFile)
		}
	}
	if cfg.HeadersFile != "" {
		if _, err := readHeaders(cfg.HeadersFile); err != nil {
			return nil, fmt.Errorf("--otlp-headers-file: %w", err)
		}
	}
	return &http.Client{
		Transport: &headers{file: cfg.HeadersFile, next: transport}, Timeout: exportTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// headers adds the headers in a file to requests.
type headers struct {
	file string
	next http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (h *headers) RoundTrip(r *http.Request) (*http.Response, error) {
	if h.file == "" {
		return h.next.RoundTrip(r)
	}
	set, err := readHeaders(h.file)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	for name, values := range set {
		r.Header[name] = values
	}
	return h.next.RoundTrip(r)
}

// readHeaders reads a file of headers.
func readHeaders(file string) (http.Header, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the headers for the collector: %w", err)
	}
	return parseHeaders(string(data))
}

// parseHeaders parses lines "Name: value". Empty lines and those that begin with # do not count. Its
// errors have no values.
func parseHeaders(text string) (http.Header, error) {
	set := http.Header{}
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("line %d of the headers file is not NAME: VALUE", i+1)
		}
		set.Add(name, value)
	}
	return set, nil
}

// watched counts exports, and logs when they begin to fail.
type watched struct {
	sdktrace.SpanExporter
	spans   *prometheus.CounterVec
	failing atomic.Bool
	log     *slog.Logger
}

func newWatched(next sdktrace.SpanExporter, cfg Config) *watched {
	w := &watched{SpanExporter: next, log: cfg.Logger, spans: promauto.With(cfg.Registerer).NewCounterVec(prometheus.CounterOpts{
		Namespace: "workwire", Subsystem: "tracing", Name: "spans_total",
		Help: "Spans sent to the collector, by result: ok or failed (they are lost).",
	}, []string{"result"})}
	for _, result := range []string{"ok", "failed"} {
		w.spans.WithLabelValues(result)
	}
	return w
}

// ExportSpans implements [sdktrace.SpanExporter]. It returns no error, which OpenTelemetry would print.
func (w *watched) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := w.SpanExporter.ExportSpans(ctx, spans)
	result := "ok"
	if err != nil {
		result = "failed"
	}
	w.spans.WithLabelValues(result).Add(float64(len(spans)))
	if failing := err != nil; w.failing.Swap(failing) != failing {
		if failing {
			w.log.Warn("sending traces to the collector failed, they are lost until it answers", "error", err)
		} else {
			w.log.Info("traces are sent to the collector again")
		}
	}
	return nil
}
