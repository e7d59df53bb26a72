// Package tracekit is an OpenTelemetry collector for tests: it receives spans by OTLP over HTTP, and
// shows them by trace.
//
//	c := tracekit.Start(t)
//	provider := c.Provider(t, "work-hub")
//	...
//	span := c.Await(t, "the status is stored", func(s tracekit.Span) bool { return s.Name == "store status" })
package tracekit

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	tracecollector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/workwire/workwire/test/kit"
)

// maxBody limits a request.
const maxBody = 16 << 20

// Span is a span that a collector has received.
type Span struct {
	// Service that has made the span.
	Service string
	// Trace, ID and Parent are ids in hexadecimal digits; Parent is empty for a root.
	Trace, ID, Parent string
	// Links are the ids of linked spans.
	Links []string
	// Name and Kind of the span; the kind is "client", "server", "producer", "consumer" or "internal".
	Name, Kind string
	// Attributes of the span: strings, int64 and bool.
	Attributes map[string]any
	// Failed reports whether the status is an error.
	Failed bool
	// Start and End are Unix times in nanoseconds.
	Start, End uint64
}

// Collector receives spans until the test ends. Its methods are safe for concurrent use.
type Collector struct {
	// URL of the collector.
	URL string
	// Server has its certificate.
	Server *httptest.Server

	mu      sync.Mutex
	spans   []Span
	raw     [][]byte
	headers []http.Header
}

// Start runs a collector without TLS.
func Start(t testing.TB) *Collector { return start(t, httptest.NewServer) }

// StartTLS runs a collector with TLS.
func StartTLS(t testing.TB) *Collector { return start(t, httptest.NewTLSServer) }

func start(t testing.TB, listen func(http.Handler) *httptest.Server) *Collector {
	c := &Collector{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", c.receive)
	c.Server = listen(mux)
	c.URL = c.Server.URL
	t.Cleanup(c.Server.Close)
	return c
}

// receive handles an export.
func (c *Collector) receive(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = unzipped
	}
	data, err := io.ReadAll(io.LimitReader(body, maxBody))
	var request tracecollector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(data, &request)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.add(&request, data, r.Header)
	answer, err := proto.Marshal(&tracecollector.ExportTraceServiceResponse{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(answer)
}

func (c *Collector) add(request *tracecollector.ExportTraceServiceRequest, data []byte, header http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw, c.headers = append(c.raw, data), append(c.headers, header)
	for _, resource := range request.ResourceSpans {
		service, _ := attributes(resource.Resource.GetAttributes())["service.name"].(string)
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				c.spans = append(c.spans, newSpan(service, span))
			}
		}
	}
}

func newSpan(service string, from *otlp.Span) Span {
	span := Span{
		Service: service, Trace: hex.EncodeToString(from.TraceId), ID: hex.EncodeToString(from.SpanId), Parent: hex.EncodeToString(from.ParentSpanId),
		Name: from.Name, Kind: kinds[from.Kind], Attributes: attributes(from.Attributes), Failed: from.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR,
		Start: from.StartTimeUnixNano, End: from.EndTimeUnixNano,
	}
	for _, link := range from.Links {
		span.Links = append(span.Links, hex.EncodeToString(link.SpanId))
	}
	return span
}

var kinds = map[otlp.Span_SpanKind]string{
	otlp.Span_SPAN_KIND_INTERNAL: "internal", otlp.Span_SPAN_KIND_SERVER: "server", otlp.Span_SPAN_KIND_CLIENT: "client",
	otlp.Span_SPAN_KIND_PRODUCER: "producer", otlp.Span_SPAN_KIND_CONSUMER: "consumer",
}

func attributes(from []*common.KeyValue) map[string]any {
	to := make(map[string]any, len(from))
	for _, a := range from {
		switch value := a.Value.GetValue().(type) {
		case *common.AnyValue_StringValue:
			to[a.Key] = value.StringValue
		case *common.AnyValue_IntValue:
			to[a.Key] = value.IntValue
		case *common.AnyValue_BoolValue:
			to[a.Key] = value.BoolValue
		}
	}
	return to
}

// Spans returns the spans received so far, in the order of their ends.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Clone(c.spans)
	slices.SortStableFunc(all, func(a, b Span) int { return int(int64(a.End) - int64(b.End)) })
	return all
}

// Requests returns the bodies and the headers of the requests so far.
func (c *Collector) Requests() ([][]byte, []http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.raw), slices.Clone(c.headers)
}

// Await waits for a span and returns the first one that matches.
func (c *Collector) Await(t testing.TB, what string, matches func(Span) bool) Span {
	t.Helper()
	var found Span
	kit.True(t, what, func() bool {
		for _, span := range c.Spans() {
			if matches(span) {
				found = span
				return true
			}
		}
		return false
	})
	return found
}
