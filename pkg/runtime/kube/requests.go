package kube

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
)

// CountRequests makes the clients of config count their requests in the metric
// workwire_api_requests_total, and registers it with r. Call it once, before clients are made. It
// returns an error if r has the metric already.
func CountRequests(config *rest.Config, r prometheus.Registerer) error {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "workwire", Subsystem: "api", Name: "requests_total",
		Help: "Number of requests to the Kubernetes API by verb, resource/subresource and status code; code 0 means no response.",
	}, []string{"verb", "resource", "code"})
	if err := r.Register(requests); err != nil {
		return fmt.Errorf("register the metrics of API requests: %w", err)
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			code := 0
			if err == nil {
				code = response.StatusCode
			}
			verb, resource := Describe(request)
			requests.WithLabelValues(verb, resource, strconv.Itoa(code)).Inc()
			return response, err
		})
	})
	return nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// verbs are the verbs of HTTP methods, for one object.
var verbs = map[string]string{
	http.MethodGet: "get", http.MethodHead: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// Describe returns the verb of a request to an API server (get, list, watch, create, update, patch,
// delete, deletecollection, else the HTTP method) and its resource/subresource, such as
// "manifestworks/status". For a path that is not a resource, it returns "other". Both have a
// limited number of values, so they can be labels of metrics.
func Describe(request *http.Request) (verb, resource string) {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return strings.ToLower(request.Method), "other"
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	resource, named := parts[0], len(parts) > 1
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	verb = cmp.Or(verbs[request.Method], strings.ToLower(request.Method))
	switch {
	case verb == "get" && isWatch(request):
		verb = "watch"
	case verb == "get" && !named:
		verb = "list"
	case verb == "delete" && !named:
		verb = "deletecollection"
	}
	return verb, resource
}
