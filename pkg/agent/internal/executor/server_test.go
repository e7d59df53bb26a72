package executor_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// server answers for an API server where time is not real: reviews as it is told to, and watches
// that deliver what it is told.
type server struct {
	mu        sync.Mutex
	allowed   bool
	noWatches bool // lists and watches are forbidden
	noSelf    bool // the agent may not impersonate
	reviews   int
	selves    int // reviews of the agent's own rights
	creations int
	watches   map[string]*io.PipeWriter   // by resource
	listed    map[string][]map[string]any // objects with which a watch begins
	held      chan struct{}               // a watch begins when it is closed; nil: at once
}

// asked gives how many requests came since it was last called.
func (s *server) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.reviews + s.creations
	s.reviews, s.creations = 0, 0
	return sum
}

// askedSelf gives how many reviews of the agent's own rights came since it was last called.
func (s *server) askedSelf() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.selves
	s.selves = 0
	return sum
}

func (s *server) forbidImpersonation(forbidden bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noSelf = forbidden
}

func (s *server) set(allowed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowed = allowed
}

func (s *server) forbid(watches bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noWatches = watches
}

// hold makes watches wait to begin until release is called.
func (s *server) hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(chan struct{})
	s.held = held
	return func() { close(held) }
}

func (s *server) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches)
}

func (s *server) RoundTrip(request *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	segments := strings.Split(request.URL.Path, "/")
	resource := segments[len(segments)-1]
	switch {
	case resource == "whoami":
		return reply(http.StatusOK, request.Header.Get("Impersonate-User")), nil
	case resource == "subjectaccessreviews":
		s.reviews++
		return reply(http.StatusCreated, authorizationv1.SubjectAccessReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SubjectAccessReview"},
			Status:   authorizationv1.SubjectAccessReviewStatus{Allowed: s.allowed},
		}), nil
	case resource == "selfsubjectaccessreviews":
		s.selves++
		return reply(http.StatusCreated, authorizationv1.SelfSubjectAccessReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"},
			Status:   authorizationv1.SubjectAccessReviewStatus{Allowed: !s.noSelf},
		}), nil
	case request.Method == http.MethodPost:
		s.creations++
		return reply(http.StatusCreated, map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"}), nil
	case s.noWatches:
		return reply(http.StatusForbidden, metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden,
		}), nil
	case request.URL.Query().Get("sendInitialEvents") == "true":
		return s.watch(request, resource), nil
	}
	return nil, errors.New("not served: " + request.URL.String())
}

// watch begins with the objects that are listed.
func (s *server) watch(request *http.Request, resource string) *http.Response {
	reader, writer := io.Pipe()
	s.watches[resource] = writer
	listed, held := s.listed[resource], s.held
	go func() {
		if held != nil {
			<-held
		}
		for _, fields := range listed {
			s.send(writer, "ADDED", resource, "100", map[string]any{"name": fields["name"]}, fields)
		}
		s.send(writer, "BOOKMARK", resource, "100", map[string]any{"annotations": map[string]any{"k8s.io/initial-events-end": "true"}}, nil)
		<-request.Context().Done()
		s.mu.Lock()
		if s.watches[resource] == writer {
			delete(s.watches, resource)
		}
		s.mu.Unlock()
		_ = writer.Close()
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: reader}
}

var kindOf = map[string]string{"roles": "Role", "clusterroles": "ClusterRole", "rolebindings": "RoleBinding", "clusterrolebindings": "ClusterRoleBinding"}

// send delivers an event.
func (s *server) send(to io.Writer, event, resource, version string, metadata, fields map[string]any) {
	obj := map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kindOf[resource]}
	for key, value := range fields {
		obj[key] = value
	}
	metadata["resourceVersion"] = version
	obj["metadata"] = metadata
	text, err := json.Marshal(map[string]any{"type": event, "object": obj})
	if err == nil {
		_, _ = to.Write(text) // it fails when the watch has ended
	}
}

// deliver sends an event to the open watch of a resource.
func (s *server) deliver(event, resource, version, namespace, name string, fields map[string]any) {
	s.mu.Lock()
	to := s.watches[resource]
	s.mu.Unlock()
	s.send(to, event, resource, version, map[string]any{"namespace": namespace, "name": name}, fields)
}

// expire ends the open watch of a resource: what was missed is not delivered.
func (s *server) expire(resource string) {
	s.mu.Lock()
	to := s.watches[resource]
	s.mu.Unlock()
	_, _ = io.WriteString(to, `{"type":"ERROR","object":{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Expired","code":410}}`)
}

func reply(code int, body any) *http.Response {
	text, err := json.Marshal(body)
	if err != nil {
		code = http.StatusInternalServerError
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text))}
}
