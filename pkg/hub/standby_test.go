package hub_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/test/kit"
)

// staleAPI is the API server as a standby sees it.
type staleAPI struct {
	// answer answers lists of metadata in place of the API server if it returns a response.
	answer func(r *http.Request) *http.Response

	mu      sync.Mutex
	stalled chan struct{} // guarded by mu: closed by stall; replaced for later requests
}

// stall has watches that are open deliver nothing more, and stay open.
func (s *staleAPI) stall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.stalled)
	s.stalled = make(chan struct{})
}

func (s *staleAPI) trip(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	if s.answer != nil && strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") {
		if response := s.answer(r); response != nil {
			response.Request = r
			return response, nil
		}
	}
	response, err := next.RoundTrip(r)
	if verb, resource := kube.Describe(r); err == nil && verb == "watch" && resource == "manifestworks" {
		s.mu.Lock()
		defer s.mu.Unlock()
		response.Body = &stallingBody{ReadCloser: response.Body, stalled: s.stalled, closed: make(chan struct{})}
	}
	return response, err
}

type stallingBody struct {
	io.ReadCloser
	stalled <-chan struct{}
	closed  chan struct{}
	once    sync.Once
}

func (b *stallingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	select {
	case <-b.stalled:
		<-b.closed
		return 0, io.ErrUnexpectedEOF
	default:
		return n, err
	}
}

func (b *stallingBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.ReadCloser.Close()
}

// answer returns a response with a code and a JSON body.
func answer(code int, body string) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
	}
}

// TestStaleStandby: a standby whose cache is old, or that cannot prove that it is not, has read
// everything before it acts.
func TestStaleStandby(t *testing.T) {
	for name, test := range map[string]struct {
		api   *staleAPI
		again bool
		stale bool
	}{
		"current":                          {api: &staleAPI{}},
		"watch that delivers nothing more": {api: &staleAPI{}, stale: true, again: true},
		"metadata cannot be listed": {api: &staleAPI{answer: func(*http.Request) *http.Response {
			return answer(http.StatusNotAcceptable, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotAcceptable","code":406}`)
		}}, again: true},
		"lists are of the past": {api: &staleAPI{answer: func(*http.Request) *http.Response {
			return answer(http.StatusOK, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[]}`)
		}}, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.api.stalled = make(chan struct{})
			w := newWorld(t)
			first := w.awaitReady(w.startHub(w.electing("first")))
			a := w.startAgent(nil)
			uids := map[string]types.UID{}
			for _, name := range []string{"same", "changed", "deleted"} {
				uids[name] = w.create(name).UID
				w.Applied(w.works, name)
			}
			second := w.awaitReady(w.startHub(w.electing("second"), func(c *hub.Config) { kit.Intercept(c.REST, test.api.trip) }))
			kit.True(t, "the standby holds the works", func() bool { return second.Metric("workwire_hub_works") >= 3 })
			if test.stale {
				test.api.stall()
			}
			w.change("changed", "2")
			w.Applied(w.works, "changed")
			w.Delete(w.works, "deleted")
			w.Gone(w.works, "deleted")
			uids["created"] = w.create("created").UID
			w.Applied(w.works, "created")

			w.settle(a)
			before := map[string]int{}
			for name, uid := range uids {
				before[name] = len(a.Specs(uid))
			}
			first.Stop()
			uids["late"] = w.create("late").UID
			w.Applied(w.works, "late")
			w.settle(a)
			for name, n := range before {
				if specs := a.Specs(uids[name]); len(specs) > n {
					t.Errorf("the new leader published %s at generation %d", name, specs[n].Generation)
				}
			}
			if n := kit.Gather(t, second.Metrics).Sum("workwire_hub_caches_read_anew_total"); (n > 0) != test.again {
				t.Errorf("%v caches were read again", n)
			}
			if wrote := second.requests.Counts(kit.Request.Writes, kit.InNamespace(w.namespace), kit.Named("deleted")); len(wrote) > 0 {
				t.Errorf("the new leader wrote to the deleted work: %v", wrote)
			}
		})
	}
}

// TestStandbyOnlyReads: a standby says when it cannot read, and sends no request but reads and
// those about the Lease.
func TestStandbyOnlyReads(t *testing.T) {
	w := newWorld(t)
	w.awaitReady(w.startHub(w.electing("first")))
	second := w.awaitReady(w.startHub(w.electing("second")))
	w.create("work")
	w.await("work", "seen by the leader", func(work *workv1.ManifestWork) bool { return work != nil && len(work.Finalizers) > 0 })
	if synced := second.Metric("workwire_hub_caches_synced"); synced != 1 {
		t.Error("the caches of the standby are not synced")
	}
	if wrote := second.requests.Counts(kit.Request.Writes); len(wrote) > 0 {
		t.Errorf("the standby wrote: %v", wrote)
	}

	api := &brokenAPI{}
	third := w.awaitReady(w.startHub(w.electing("third"), func(c *hub.Config) { kit.Intercept(c.REST, api.trip) }))
	api.fail(errors.New("no route to host"))
	awaitCheck(t, third, "caches", "no route to host")
	if synced := third.Metric("workwire_hub_caches_synced"); synced != 0 {
		t.Error("caches that cannot be read are synced, says the metric")
	}
	api.fail(nil)
	w.awaitReady(third)
}

// brokenAPI is an API server that cannot be reached while there is an error.
type brokenAPI struct {
	mu     sync.Mutex
	err    error           // guarded by mu
	bodies []*stallingBody // guarded by mu: of watches
}

// fail ends all watches, and has all requests fail with err.
func (b *brokenAPI) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	for _, body := range b.bodies {
		_ = body.Close()
	}
	b.bodies = nil
}

func (b *brokenAPI) trip(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	b.mu.Lock()
	err := b.err
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	response, err := next.RoundTrip(r)
	if verb, _ := kube.Describe(r); err == nil && verb == "watch" {
		b.mu.Lock()
		defer b.mu.Unlock()
		body := &stallingBody{ReadCloser: response.Body, closed: make(chan struct{})}
		response.Body, b.bodies = body, append(b.bodies, body)
	}
	return response, err
}

// TestCatchUpWaits: a new leader that cannot list does not act, and says so.
func TestCatchUpWaits(t *testing.T) {
	w := newWorld(t)
	first := w.awaitReady(w.startHub(w.electing("first")))
	second := w.awaitReady(w.startHub(w.electing("second")))
	second.requests.Fail(func(r kit.Request) error {
		if r.Verb == "list" && r.Resource == "manifestworks" {
			return errors.New("the list is lost")
		}
		return nil
	})
	first.Stop()
	awaitCheck(t, second, "caches", "before its term")
	second.Log.Await(t, `level=WARN msg="cache is not known to be current, reading it anew" resource=manifestworks`)
	w.create("work")
	time.Sleep(100 * time.Millisecond) // what must not happen has no event to wait for
	if connected := second.Metric("workwire_source_connected"); connected != 0 {
		t.Error("it is connected to the broker")
	}
	if wrote := second.requests.Counts(kit.Request.Writes, kit.On("manifestworks", "manifestworks/status")); len(wrote) > 0 {
		t.Errorf("it wrote: %v", wrote)
	}
	second.requests.Fail(nil)
	w.awaitReady(second)
	w.startAgent(nil)
	w.Applied(w.works, "work")
}

// TestHangingRequests: requests that hang, more than there are workers, end and are sent again;
// meanwhile other works go on.
func TestHangingRequests(t *testing.T) {
	w := newWorld(t)
	var hung sync.Map // the first request of each kind hangs
	r := w.startHub(func(c *hub.Config) {
		c.RequestTimeout, c.Workers = 2*time.Second, 2
		kit.Intercept(c.REST, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
			_, resource := kube.Describe(r)
			if _, again := hung.LoadOrStore(resource+r.URL.Path, true); strings.Contains(r.URL.Path, "/hangs-") && !again {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return next.RoundTrip(r)
		})
	})
	w.awaitReady(r)
	w.startAgent(nil)
	names := []string{"hangs-1", "hangs-2", "hangs-3", "other"}
	for _, name := range names {
		w.create(name)
	}
	for _, name := range names {
		w.Applied(w.works, name)
	}
	if _, finalizer := hung.Load("manifestworks/apis/work.open-cluster-management.io/v1/namespaces/" + w.namespace + "/manifestworks/hangs-1"); !finalizer {
		t.Error("no request hung")
	}
}
