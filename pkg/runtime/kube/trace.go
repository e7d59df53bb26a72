package kube

import (
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/propagation"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/runtime/tracing"
)

// TraceRequests makes the clients of config record a span for each request that is made within a
// recorded span, and pass the trace on to the API server. It does nothing if tracer is nil. Call it
// before clients are made.
func TraceRequests(config *rest.Config, tracer *tracing.Tracer) {
	if tracer == nil {
		return
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if !tracing.Recorded(request.Context()) {
				return next.RoundTrip(request)
			}
			verb, resource := Describe(request)
			ctx, span := tracer.Request(request.Context(), request.Method, verb, resource, request.URL.Hostname(), request.URL.Path)
			request = request.Clone(ctx)
			propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(request.Header))
			response, err := next.RoundTrip(request)
			if err != nil {
				span.End("no_response")
				return nil, err
			}
			span.Answered(response.StatusCode)
			if response.StatusCode >= http.StatusBadRequest {
				span.End(strconv.Itoa(response.StatusCode))
			} else {
				span.End("")
			}
			return response, nil
		})
	})
}
