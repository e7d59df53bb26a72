// Package kubeapi is a model of a Kubernetes API server, in memory: what hub and agent use of one, behind an
// [http.RoundTripper], so that client-go runs against it without a network, in a bubble of testing/synctest.
//
//	server := kubeapi.New(kinds...)
//	config := &rest.Config{Host: "http://hub", Transport: server.Via(kubeapi.Faults{})}
//
// It has resource versions, generations, finalizers, owners and their garbage collection, status subresources, JSON and
// merge patches, lists, watches with history, and server-side apply of ConfigMaps. It has no authorization, no schemas
// and no defaults: what needs these is shown on a real API server. Its tests send the same requests to one.
//
// [Faults] are what goes wrong on the way to it.
package kubeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
)

// Kind is a kind that a [Server] serves.
type Kind struct {
	schema.GroupVersionResource
	// Kind is its name.
	Kind string
	// Cluster says that it has no namespaces.
	Cluster bool
	// Status says that the status is written by a subresource of its own.
	Status bool
}

// Outcome is what becomes of a request.
type Outcome int

// Outcomes. The client of a request that is [Lost] or [Unanswered] cannot tell which.
const (
	Answered   Outcome = iota // as it should be
	Lost                      // the connection breaks before the server has read it
	Unanswered                // it has its effect, and the connection breaks before the answer
	Overloaded                // 503, without an effect
	Throttled                 // 429 with Retry-After, without an effect
	Repeated                  // it has its effect twice, as when a proxy sends it again, and the second answer arrives
)

// Faults are what goes wrong between a client and a [Server]. The functions are called for each request, or event.
type Faults struct {
	// Request returns how long a request takes and what becomes of it. Optional.
	Request func(method, path string) (time.Duration, Outcome)
	// Lag returns how late a watch gets its next event. Optional.
	Lag func(resource string) time.Duration
	// Stuck returns what is closed when requests about a resource, or its watches, go on; nil: they are not stuck. Until then nothing is answered;
	// a write is carried out then, also when its client has given up. Optional.
	Stuck func(resource string, watch bool) <-chan struct{}
	// Behind returns by how many changes a list is from the past, as far as the client allows that. Optional.
	Behind func(resource string) int64
	// Mutate changes what is about to be written, as a webhook does. Optional.
	Mutate func(kind Kind, o *Object)
	// Refuse returns why a webhook refuses to have an object created, changed to this, or deleted; empty: it does not. Optional.
	Refuse func(kind Kind, o *Object) string
}

// Server is the model. It is safe for concurrent use.
type Server struct {
	kinds  []Kind
	fields *managedfields.FieldManager

	mu        sync.Mutex
	store     store
	broken    chan struct{} // closed and replaced to end all watches
	restores  int
	observers []func(Write)
	late      func(name string) time.Duration // of the garbage collector; nil: never
	due       map[key]bool                    // objects that it will look at

	encoding sync.Mutex
	texts    map[*Object]text // what was encoded
}

// Write is a change of an object.
type Write struct {
	Kind Kind
	// User is the user agent of the request, up to its first slash; empty for the garbage collector.
	User string
	// Before and After are the object, nil if there is none. They must not be changed.
	Before, After *Object
}

// New returns a server without objects.
func New(kinds ...Kind) *Server {
	return &Server{kinds: kinds, fields: newFieldManager(), store: newStore(), broken: make(chan struct{}), due: map[key]bool{}, texts: map[*Object]text{}}
}

// Via returns the way of one client to the server.
func (s *Server) Via(faults Faults) http.RoundTripper { return path{s, faults} }

type path struct {
	server *Server
	faults Faults
}

// Observe has f called with each change of an object from now on, before the request is answered. f must not call the
// server.
func (s *Server) Observe(f func(Write)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observers = append(s.observers, f)
}

// BreakWatches ends all watches, as a restart of the server does.
func (s *Server) BreakWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.broken)
	s.broken = make(chan struct{})
}

// Compact forgets all history: a watch from an earlier version is told that it has expired.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.compact()
}

// RoundTrip answers a request.
func (p path) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		_ = r.Body.Close()
	}
	outcome := Answered
	restores := p.server.restored()
	if p.faults.Request != nil {
		var delay time.Duration
		delay, outcome = p.faults.Request(r.Method, r.URL.Path)
		if err := sleep(r, delay); err != nil {
			return nil, err
		}
	}
	if outcome != Lost {
		if err := p.wait(r, body, restores); err != nil {
			return nil, err
		}
	}
	if p.server.restored() != restores {
		return nil, errBroken // no connection outlives that
	}
	switch outcome {
	case Lost:
		return nil, errBroken
	case Overloaded:
		return refusal(r, apierrors.NewServiceUnavailable("the model is overloaded")), nil
	case Throttled:
		response := refusal(r, apierrors.NewTooManyRequests("the model has too many requests", 1))
		response.Header.Set("Retry-After", "1")
		return response, nil
	case Repeated:
		if r.Method != http.MethodGet {
			p.unanswered(r, body)
		}
	}
	if outcome == Unanswered {
		p.unanswered(r, body)
		return nil, errBroken
	}
	return p.server.serve(r, body, p.faults)
}

// unanswered carries a request out whose answer nobody gets.
func (p path) unanswered(r *http.Request, body []byte) {
	if response, err := p.server.serve(r, body, p.faults); err == nil {
		_ = response.Body.Close()
	}
}

// wait waits while the server is stuck. A write whose client gives up is carried out later: the server has received it.
func (p path) wait(r *http.Request, body []byte, restores int) error {
	t, ok := p.server.parse(r.URL.Path)
	if !ok || p.faults.Stuck == nil || isWatch(r, t) {
		return nil
	}
	stuck := p.faults.Stuck(t.kind.Resource, false)
	if stuck == nil {
		return nil
	}
	select {
	case <-stuck:
		return nil
	case <-r.Context().Done():
	}
	if r.Method != http.MethodGet {
		go func() {
			<-stuck
			if p.server.restored() == restores {
				p.unanswered(r.WithContext(context.Background()), body)
			}
		}()
	}
	return r.Context().Err()
}

func isWatch(r *http.Request, t target) bool {
	return r.Method == http.MethodGet && t.name == "" && r.URL.Query().Get("watch") != ""
}

// restored returns how often the server was restored.
func (s *Server) restored() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restores
}

// errBroken is what a client sees of a connection that breaks.
var errBroken = fmt.Errorf("connection of the model: %w", io.ErrUnexpectedEOF)

func sleep(r *http.Request, d time.Duration) error {
	if d <= 0 {
		return r.Context().Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-r.Context().Done():
		return r.Context().Err()
	}
}

// target is what a request is about.
type target struct {
	kind                         Kind
	namespace, name, subresource string
}

// parse reads a path such as /apis/apps/v1/namespaces/a/deployments/b/status.
func (s *Server) parse(path string) (target, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var gv schema.GroupVersion
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		gv, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		gv, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return target{}, false
	}
	var t target
	if len(parts) >= 3 && parts[0] == "namespaces" {
		t.namespace, parts = parts[1], parts[2:]
	}
	for _, k := range s.kinds {
		if k.GroupVersion() == gv && k.Resource == parts[0] && (!k.Cluster || t.namespace == "") {
			t.kind = k
			if len(parts) > 1 {
				t.name = parts[1]
			}
			if len(parts) > 2 {
				t.subresource = parts[2]
			}
			return t, true
		}
	}
	return target{}, false
}

func (s *Server) serve(r *http.Request, body []byte, faults Faults) (*http.Response, error) {
	if found := s.discover(r); found != nil {
		return found, nil
	}
	t, ok := s.parse(r.URL.Path)
	if !ok {
		return answer(r, http.StatusNotFound, notServed(r.URL.Path)), nil
	}
	if isWatch(r, t) {
		return s.watch(r, t, faults)
	}
	result, err := s.change(r, t, body, webhooks{faults.Mutate, faults.Refuse})
	if err != nil {
		return refusal(r, err), nil
	}
	code := http.StatusOK
	if r.Method == http.MethodPost {
		code = http.StatusCreated
	}
	if o, ok := result.(*Object); ok {
		result = s.asRequested(r, o)
	}
	return answer(r, code, result), nil
}

// notServed is the answer about a path that the server does not know.
func notServed(path string) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeUnexpectedServerResponse, Message: path}}},
	}
}

// refusal returns the response that says err.
func refusal(r *http.Request, err *apierrors.StatusError) *http.Response {
	status := err.ErrStatus
	status.Kind, status.APIVersion = "Status", "v1"
	return answer(r, int(status.Code), status)
}

// text is JSON.
type text = json.RawMessage

// encode returns value as JSON.
func encode(value any) text {
	data, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("encode an answer of the model: %v", err))
	}
	return data
}

// encoded returns an object, which is not changed any more, as JSON. The same goes to all who watch it, and read it.
func (s *Server) encoded(o *Object) text {
	s.encoding.Lock()
	defer s.encoding.Unlock()
	if s.texts[o] == nil {
		s.texts[o] = encode(o.Object)
	}
	return s.texts[o]
}

// answer returns a response with value as JSON, which it may be already.
func answer(r *http.Request, code int, value any) *http.Response {
	data, isJSON := value.(text)
	if !isJSON {
		data = encode(value)
	}
	return &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/2.0", ProtoMajor: 2, Request: r, ContentLength: int64(len(data)),
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(data)),
	}
}
