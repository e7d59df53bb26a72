package kit

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/runtime/kube"
)

// RoundTripper is a function that implements [http.RoundTripper].
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f RoundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// RESTClient returns the client of a configuration that packages of the agent take.
func RESTClient(t testing.TB, config *rest.Config) rest.Interface {
	t.Helper()
	config = dynamic.ConfigFor(config)
	config.GroupVersion = &schema.GroupVersion{}
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Intercept makes all requests of config's clients go through trip, which calls next to send one.
// It changes config, and returns it.
func Intercept(config *rest.Config, trip func(next http.RoundTripper, r *http.Request) (*http.Response, error)) *rest.Config {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return RoundTripper(func(r *http.Request) (*http.Response, error) { return trip(next, r) })
	})
	return config
}

// Request describes a request to an API server.
type Request struct {
	// Verb and Resource are those of authorization, such as "patch" and "manifestworks/status".
	Verb, Resource string
	// Namespace and Name are of the object; empty when the request has none.
	Namespace, Name string
	// Method and Path are those of HTTP. Query is the encoded query.
	Method, Path, Query string
	// Body is what was sent, if [Requests.Bodies] is set.
	Body string
	// Code is the status code of the response, 0 before the response or without one.
	Code int
}

// String returns verb and resource, such as "patch manifestworks/status".
func (r Request) String() string { return r.Verb + " " + r.Resource }

// Writes reports whether the request changes something.
func (r Request) Writes() bool { return !slices.Contains([]string{"get", "list", "watch"}, r.Verb) }

// Requests records API requests, each before it is sent. Its methods may be called from any
// goroutine.
type Requests struct {
	// Bodies makes it keep the bodies of requests. Set it before the first request.
	Bodies bool

	mu       sync.Mutex
	requests []*Request
	before   func(Request) error
}

// CountRequests records the requests of config's clients, which must be made after this call.
func CountRequests(config *rest.Config) *Requests {
	r := &Requests{}
	r.Wrap(config)
	return r
}

// Wrap records the requests of config's clients as well. It changes config, and returns it.
func (r *Requests) Wrap(config *rest.Config) *rest.Config {
	return Intercept(config, func(next http.RoundTripper, request *http.Request) (*http.Response, error) {
		described, err := r.record(request)
		if err != nil {
			return nil, err
		}
		response, err := next.RoundTrip(request)
		if err == nil {
			r.mu.Lock()
			described.Code = response.StatusCode
			r.mu.Unlock()
		}
		return response, err
	})
}

// record adds a request, and returns the error of the function given to Fail.
func (r *Requests) record(request *http.Request) (*Request, error) {
	described := describe(request)
	if r.Bodies && request.Body != nil {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return nil, err
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
		described.Body = string(body)
	}
	r.mu.Lock()
	r.requests = append(r.requests, described)
	before := r.before
	r.mu.Unlock()
	if before == nil {
		return described, nil
	}
	return described, before(*described)
}

// Fail calls before for each request from now on. Its error is returned to the client, and the
// request is not sent; before may also block. Fail(nil) ends that.
func (r *Requests) Fail(before func(Request) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.before = before
}

// All returns the requests for which all filters return true, oldest first.
func (r *Requests) All(filters ...func(Request) bool) []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.selected(filters)
}

// selected returns the requests for which all filters return true. r.mu is held.
func (r *Requests) selected(filters []func(Request) bool) []Request {
	var all []Request
	for _, request := range r.requests {
		if !slices.ContainsFunc(filters, func(filter func(Request) bool) bool { return !filter(*request) }) {
			all = append(all, *request)
		}
	}
	return all
}

// Counts returns the number of requests for which all filters return true, by [Request.String].
//
//	requests.Counts(kit.Request.Writes, kit.InNamespace("cluster1"))
func (r *Requests) Counts(filters ...func(Request) bool) map[string]int {
	counts := map[string]int{}
	for _, request := range r.All(filters...) {
		counts[request.String()]++
	}
	return counts
}

// Take is like All, and forgets all requests.
func (r *Requests) Take(filters ...func(Request) bool) []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.selected(filters)
	r.requests = nil
	return taken
}

// TakeCounts is like Counts, and forgets all requests.
func (r *Requests) TakeCounts(filters ...func(Request) bool) map[string]int {
	counts := map[string]int{}
	for _, request := range r.Take(filters...) {
		counts[request.String()]++
	}
	return counts
}

// InNamespace returns a filter for requests about objects of a namespace.
func InNamespace(namespace string) func(Request) bool {
	return func(r Request) bool { return r.Namespace == namespace }
}

// Named returns a filter for requests about objects called name.
func Named(name string) func(Request) bool {
	return func(r Request) bool { return r.Name == name }
}

// On returns a filter for requests about resources, such as "manifestworks" and
// "manifestworks/status".
func On(resources ...string) func(Request) bool {
	return func(r Request) bool { return slices.Contains(resources, r.Resource) }
}

// NotWatch is a filter for requests that are no watches.
func NotWatch(r Request) bool { return r.Verb != "watch" }

func describe(request *http.Request) *Request {
	verb, resource := kube.Describe(request)
	r := &Request{Verb: verb, Resource: resource, Method: request.Method, Path: request.URL.Path, Query: request.URL.RawQuery}
	parts := strings.Split(strings.Trim(r.Path, "/"), "/")
	if skip := map[string]int{"api": 2, "apis": 3}[parts[0]]; skip == 0 || len(parts) <= skip {
		return r
	} else if parts = parts[skip:]; len(parts) > 2 && parts[0] == "namespaces" {
		r.Namespace, parts = parts[1], parts[2:]
	}
	if len(parts) > 1 {
		r.Name = parts[1]
	}
	return r
}
