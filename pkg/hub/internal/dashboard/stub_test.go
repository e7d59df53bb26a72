package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/revisions"
	"github.com/workwire/workwire/test/kit"
)

// stubToken is the token that the stub accepts, of somebody who may list everywhere.
const stubToken = "the-token-of-the-stub"

// stubAPI is an API server that has a fleet from the start: one with 10,000 works takes a minute to
// fill.
type stubAPI struct {
	lists map[string][]byte

	mu      sync.Mutex
	version int                         // guarded by mu
	watches map[*io.PipeWriter]struct{} // guarded by mu: of works
	closed  chan struct{}
}

func newStub(t testing.TB, works []*workv1.ManifestWork, clusters []*clusterv1.ManagedCluster, sets []*workv1alpha1.ManifestWorkReplicaSet) *stubAPI {
	t.Helper()
	s := &stubAPI{lists: map[string][]byte{}, version: 10, watches: map[*io.PipeWriter]struct{}{}, closed: make(chan struct{})}
	add := func(resource string, items any) {
		data, err := json.Marshal(map[string]any{"metadata": metav1.ListMeta{ResourceVersion: "10"}, "items": items})
		kit.NoError(t, err)
		s.lists[resource] = data
	}
	for _, work := range works {
		work.ResourceVersion = "5"
	}
	for _, cluster := range clusters {
		cluster.ResourceVersion = "5"
	}
	add(worksResource, works)
	add("managedclusters", clusters)
	add(setsResource, sets)
	add("events", []corev1.Event{{
		Type: corev1.EventTypeWarning, Reason: "AppliedManifestWorkFailed", Count: 3, LastTimestamp: metav1.NewTime(epoch.Add(time.Minute)),
		Message: `Deployment web: Failed to apply manifest: deployments.apps "web" is forbidden: exceeded quota: compute, requested: cpu=2, used: cpu=9, limited: cpu=10`,
	}, {Type: corev1.EventTypeNormal, Reason: "Delivered", Count: 1, Message: "The agent has the newest spec", LastTimestamp: metav1.NewTime(epoch)}})
	var stored []revisions.Revision
	for _, set := range sets {
		for number, cause := range []string{"first", "web 1.27.2"} {
			r := revisions.New(set, fmt.Sprintf("%032d", number), int64(number+1))
			r.CreationTimestamp, r.Annotations = metav1.NewTime(epoch), map[string]string{"kubernetes.io/change-cause": cause}
			stored = append(stored, *r)
		}
	}
	add("manifestworkreplicasetrevisions", stored)
	t.Cleanup(func() { close(s.closed) })
	return s
}

// serve serves the API on loopback until the test ends.
func (s *stubAPI) serve(t testing.TB) *rest.Config {
	t.Helper()
	server := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, Transport: kit.RoundTripper(s.answer), FlushInterval: -1})
	t.Cleanup(server.CloseClientConnections)
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

func (s *stubAPI) answer(r *http.Request) (*http.Response, error) {
	response := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	query := r.URL.Query()
	var body any
	switch {
	case resource == "tokenreviews":
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			return nil, err
		}
		if review.Status.Authenticated = review.Spec.Token == stubToken; review.Status.Authenticated {
			review.Status.User.Username = "ann@example.com"
		}
		body = review
	case resource == "subjectaccessreviews":
		body = authorizationv1.SubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}
	case query.Get("sendInitialEvents") == "true":
		response.StatusCode, response.Body = http.StatusUnprocessableEntity, http.NoBody
		return response, nil
	case query.Get("watch") == "true":
		response.Body = s.watch(r, resource)
		return response, nil
	case r.Header.Get("Authorization") == "" && resource == "events":
		response.StatusCode, response.Body = http.StatusForbidden, http.NoBody
		return response, nil
	default:
		response.Body = io.NopCloser(bytes.NewReader(s.lists[resource]))
		return response, nil
	}
	data, err := json.Marshal(body)
	response.Body = io.NopCloser(bytes.NewReader(data))
	return response, err
}

// watch returns the body of a watch.
func (s *stubAPI) watch(r *http.Request, resource string) io.ReadCloser {
	reader, writer := io.Pipe()
	if resource == worksResource {
		s.mu.Lock()
		s.watches[writer] = struct{}{}
		s.mu.Unlock()
	}
	go func() {
		select {
		case <-r.Context().Done():
		case <-s.closed:
		}
		s.mu.Lock()
		delete(s.watches, writer)
		s.mu.Unlock()
		_ = writer.Close()
	}()
	return reader
}

// change has watches deliver a work as it now is.
func (s *stubAPI) change(t testing.TB, work *workv1.ManifestWork) {
	t.Helper()
	var open []*io.PipeWriter
	kit.True(t, "the works are watched", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		open = open[:0]
		for w := range s.watches {
			open = append(open, w)
		}
		return len(open) > 0
	})
	s.mu.Lock()
	s.version++
	work = work.DeepCopy()
	work.ResourceVersion = strconv.Itoa(s.version)
	s.mu.Unlock()
	work.APIVersion, work.Kind = workv1.SchemeGroupVersion.String(), "ManifestWork"
	data, err := json.Marshal(map[string]any{"type": "MODIFIED", "object": work})
	kit.NoError(t, err)
	for _, w := range slices.Clone(open) {
		_, _ = w.Write(append(data, '\n'))
	}
}
