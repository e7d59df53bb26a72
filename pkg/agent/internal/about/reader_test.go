package about

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/wire"
)

var testTime = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// server answers paths with texts, others with status 404, and counts requests.
type server struct {
	mu       sync.Mutex
	answers  map[string]string // by path and query; "forbidden" and "failure" are statuses
	requests map[string]int
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[r.URL.Path]++
	switch answer, ok := s.answers[r.URL.Path+"?"+r.URL.Query().Get("continue")]; {
	case !ok:
		http.Error(w, "not found", http.StatusNotFound)
	case answer == "forbidden":
		http.Error(w, "forbidden", http.StatusForbidden)
	case answer == "failure":
		http.Error(w, "failure", http.StatusInternalServerError)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, answer)
	}
}

func (s *server) set(path, answer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[path] = answer
}

const (
	claimsPath     = "/apis/cluster.open-cluster-management.io/v1alpha1/clusterclaims"
	propertiesPath = "/apis/about.k8s.io/v1alpha1/clusterproperties"
	namespacePath  = "/api/v1/namespaces/kube-system"
	nodesPath      = "/api/v1/nodes"
)

func newServer(t *testing.T) (*server, rest.Interface) {
	t.Helper()
	s := &server{requests: map[string]int{}, answers: map[string]string{
		"/version?":         `{"gitVersion":"v1.36.3"}`,
		namespacePath + "?": `{"metadata":{"uid":"the-uid"}}`,
		nodesPath + "?":     `{"metadata":{"continue":"2"},"items":[` + nodeIn("eu", "a", "", "1", "1Gi") + `]}`,
		nodesPath + "?2":    `{"metadata":{},"items":[` + nodeIn("eu", "b", "", "1", "1Gi") + `]}`,
	}}
	api := httptest.NewServer(s)
	t.Cleanup(api.Close)
	client, err := rest.UnversionedRESTClientFor(&rest.Config{Host: api.URL, ContentConfig: rest.ContentConfig{
		GroupVersion: &schema.GroupVersion{}, NegotiatedSerializer: scheme.Codecs,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s, client
}

// TestRead: what is not served, or forbidden, is not known; what fails otherwise leaves all as it was. Nodes are
// listed by pages, and more rarely the more there are.
func TestRead(t *testing.T) {
	s, client := newServer(t)
	r := reader{client: client}
	basic := []wire.Claim{obeysApplyAt, {Name: clusterv1.ClaimID, Value: "the-uid"}, {Name: clusterv1.ClaimKubeVersion, Value: "v1.36.3"}, {Name: clusterv1.ClaimRegion, Value: "eu"}, {Name: clusterv1.ClaimZone, Value: "a,b"}}
	expect := func(what string, at time.Time, claims []wire.Claim) {
		t.Helper()
		got, err := r.read(t.Context(), at)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if diff := cmp.Diff(claims, got.Claims); diff != "" {
			t.Errorf("%s (-want +got)\n%s", what, diff)
		}
		if got.Capacity["cpu"] != "2" || got.Kubernetes != "v1.36.3" {
			t.Errorf("%s: %+v", what, got)
		}
	}
	expect("without claims", testTime, basic)
	s.set(claimsPath+"?", `{"items":[{"metadata":{"name":"own"},"spec":{"value":"x"}}]}`)
	s.set(propertiesPath+"?", `{"items":[{"metadata":{"name":"cluster.clusterset.k8s.io"},"spec":{"value":"the-property"}}]}`)
	s.set(nodesPath+"?", "failure")
	expect("with claims", testTime.Add(time.Second), append([]wire.Claim{obeysApplyAt, {Name: clusterv1.ClaimID, Value: "the-property"}, basic[2], {Name: "own", Value: "x"}}, basic[3:]...))
	if s.requests[nodesPath] != 2 {
		t.Errorf("two nodes are listed again after a second: %d requests", s.requests[nodesPath])
	}
	if about, err := r.read(t.Context(), testTime.Add(2*time.Second)); about != nil || err == nil {
		t.Errorf("the list of nodes fails: %v, %v", about, err)
	}
	s.set(nodesPath+"?", "forbidden")
	s.set(claimsPath+"?", "forbidden")
	got, err := r.read(t.Context(), testTime.Add(3*time.Second))
	if err != nil || got.Capacity != nil || len(got.Claims) != 3 {
		t.Errorf("without rights: %+v, %v", got, err)
	}
}

// TestRunTellsChanges: what has not changed is not told again.
func TestRunTellsChanges(t *testing.T) {
	s, client := newServer(t)
	told := make(chan *wire.About, 10)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- Run(ctx, Config{Client: client, Interval: time.Millisecond, Changed: func(a *wire.About) { told <- a }, Logger: slog.New(slog.DiscardHandler)})
	}()
	<-told
	for reached := false; !reached; { // some readings that show nothing new
		s.mu.Lock()
		reached = s.requests["/version"] > 5
		s.mu.Unlock()
	}
	s.set("/version?", `{"gitVersion":"v1.37.0"}`)
	if next := <-told; next.Kubernetes != "v1.37.0" {
		t.Errorf("told again: %+v", next)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
