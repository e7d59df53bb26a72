package restmapper_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"

	"github.com/workwire/workwire/pkg/agent/internal/restmapper"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Hub: &plane, Bare: true}) }

// discovery is an API server that serves discovery documents and counts the requests for them.
type discovery struct {
	requests atomic.Int64
	gate     chan struct{} // not nil: each answer waits for a token

	mu      sync.Mutex
	answers map[string]string // by path; others are 404
	status  int               // not 0: of every answer
}

func (d *discovery) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.requests.Add(1)
	if d.gate != nil {
		select {
		case <-d.gate:
		case <-r.Context().Done():
			return
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.status != 0 {
		w.WriteHeader(d.status)
		return
	}
	answer, ok := d.answers[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _ = fmt.Fprint(w, answer)
}

func (d *discovery) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

const core = `{"kind":"APIResourceList","groupVersion":"v1","resources":[
	{"name":"configmaps","namespaced":true,"kind":"ConfigMap"},{"name":"namespaces","kind":"Namespace"},
	{"name":"namespaces/status","kind":"Namespace"},{"name":"pods/eviction","namespaced":true,"group":"policy","version":"v1","kind":"Eviction"}]}`

func newFake(t *testing.T) (*discovery, *testclock.FakeClock, *restmapper.Mapper) {
	t.Helper()
	fake := &discovery{answers: map[string]string{"/api/v1": core}}
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	clock := testclock.NewFakeClock(time.Unix(1_000_000, 0))
	mapper := newMapper(t, restmapper.Config{Client: kit.RESTClient(t, &rest.Config{Host: server.URL, QPS: -1})})
	mapper.SetNow(clock.Now)
	return fake, clock, mapper
}

var (
	widget    = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	configMap = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
)

func isUnknown(err error) bool {
	var noMatch *meta.NoKindMatchError
	return errors.As(err, &noMatch)
}

func newMapper(t *testing.T, config restmapper.Config) *restmapper.Mapper {
	t.Helper()
	mapper, err := restmapper.New(config)
	kit.NoError(t, err)
	return mapper
}

func TestRESTMapping(t *testing.T) {
	fake, _, mapper := newFake(t)
	for kind, want := range map[string]meta.RESTMapping{
		"ConfigMap": {Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Scope: meta.RESTScopeNamespace},
		"Namespace": {Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Scope: meta.RESTScopeRoot},
	} {
		want.GroupVersionKind = schema.GroupVersionKind{Version: "v1", Kind: kind}
		got, err := mapper.RESTMapping(t.Context(), want.GroupVersionKind)
		if err != nil || *got != want {
			t.Errorf("%s: got %v, %v", kind, got, err)
		}
	}
	for _, kind := range []schema.GroupVersionKind{widget, {Version: "v1", Kind: "Eviction"}} {
		_, err := mapper.RESTMapping(t.Context(), kind)
		if !isUnknown(err) || err.Error() != fmt.Sprintf("the server doesn't have a resource type %q", kind.Kind) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if got := fake.requests.Load(); got != 2 {
		t.Errorf("%d requests for two group-versions", got)
	}
}

func TestMissesAreRationed(t *testing.T) {
	fake, clock, mapper := newFake(t)
	ask := func(want int64, unknown bool) {
		t.Helper()
		for range 10 {
			if _, err := mapper.RESTMapping(t.Context(), widget); isUnknown(err) != unknown || !unknown && err != nil {
				t.Fatalf("got %v", err)
			}
		}
		if got := fake.requests.Load(); got != want {
			t.Fatalf("%d requests, want %d", got, want)
		}
	}
	ask(1, true)
	clock.Step(2999 * time.Millisecond)
	ask(1, true)
	clock.Step(time.Millisecond)
	ask(2, true)
	fake.set(func() {
		fake.answers["/apis/example.com/v1"] = `{"resources":[{"name":"widgets","namespaced":true,"kind":"Widget"}]}`
	})
	ask(2, true)
	clock.Step(3 * time.Second)
	ask(3, false)
	clock.Step(time.Hour)
	ask(3, false)
	mapper.Forget(widget.GroupVersion())
	ask(4, false)
}

// Groups that sources make up are forgotten, those that the cluster serves are not.
func TestGroupsAreForgotten(t *testing.T) {
	fake, clock, mapper := newFake(t)
	_, err := mapper.RESTMapping(t.Context(), configMap)
	kit.NoError(t, err)
	for n := range 5000 {
		unknown := schema.GroupVersionKind{Group: fmt.Sprintf("g%d.example.com", n), Version: "v1", Kind: "Widget"}
		if _, err := mapper.RESTMapping(t.Context(), unknown); !isUnknown(err) {
			t.Fatal(err)
		}
		if known := mapper.Discovered(); known > 1024 {
			t.Fatalf("after %d groups, %d are known", n+1, known)
		}
		clock.Step(time.Millisecond)
	}
	if _, err := mapper.RESTMapping(t.Context(), configMap); err != nil || fake.requests.Load() != 5001 {
		t.Errorf("%d requests, error %v", fake.requests.Load(), err)
	}
}

func TestErrorsAreNotUnknownKinds(t *testing.T) {
	fake, clock, mapper := newFake(t)
	fake.set(func() { fake.status = http.StatusForbidden })
	for range 5 {
		if _, err := mapper.RESTMapping(t.Context(), configMap); err == nil || isUnknown(err) || !strings.Contains(err.Error(), "discover the resources of v1") {
			t.Fatalf("got %v", err)
		}
	}
	if got := fake.requests.Load(); got != 1 {
		t.Errorf("%d requests", got)
	}
	fake.set(func() { fake.status = 0 })
	clock.Step(3 * time.Second)
	if _, err := mapper.RESTMapping(t.Context(), configMap); err != nil {
		t.Error(err)
	}
	// What is known stays known while the API server has trouble.
	fake.set(func() { fake.status = http.StatusForbidden })
	clock.Step(time.Minute)
	if _, err := mapper.RESTMapping(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "New"}); err == nil || isUnknown(err) {
		t.Errorf("got %v", err)
	}
	if _, err := mapper.RESTMapping(t.Context(), configMap); err != nil {
		t.Error(err)
	}
}

func TestConcurrentMissesShareARequest(t *testing.T) {
	fake, _, mapper := newFake(t)
	fake.gate = make(chan struct{})
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if _, err := mapper.RESTMapping(t.Context(), configMap); err != nil {
				t.Error(err)
			}
		})
	}
	fake.gate <- struct{}{}
	group.Wait()
	if got := fake.requests.Load(); got != 1 {
		t.Errorf("%d requests", got)
	}
}

// The one who asks gives up; those who wait for the answer ask themselves.
func TestAbandonedRequest(t *testing.T) {
	fake, _, mapper := newFake(t)
	fake.gate = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := mapper.RESTMapping(ctx, configMap)
		first <- err
	}()
	second := make(chan error, 1)
	go func() {
		_, err := mapper.RESTMapping(t.Context(), configMap)
		second <- err
	}()
	kit.True(t, "a discovery request", func() bool { return fake.requests.Load() > 0 })
	cancel()
	// Whichever of the two was asking, the one whose context lives is answered.
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(fake.gate)
	if err := <-second; err != nil {
		t.Error(err)
	}
}

const definition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[1]s.%[2]s"},
	"spec":{"group":%[2]q,"scope":%[4]q,"names":{"plural":%[1]q,"kind":%[3]q},
	"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}},
		{"name":"v1old","served":false,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`

const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// running starts a mapper; changes takes the kinds that it reports.
func running(t *testing.T, config *rest.Config, logger *slog.Logger) (mapper *restmapper.Mapper, changes chan schema.GroupKind) {
	t.Helper()
	changes = make(chan schema.GroupKind, 100)
	mapper = newMapper(t, restmapper.Config{
		Client: kit.RESTClient(t, config), Changed: func(kind schema.GroupKind) { changes <- kind }, Logger: logger,
	})
	start := time.Now()
	mapper.SetNow(func() time.Time { return start }) // misses are not asked for again: only the watch helps
	kit.Run(t, "the mapper", mapper.Run)
	return mapper, changes
}

func await(t *testing.T, changes <-chan schema.GroupKind, want schema.GroupKind) {
	t.Helper()
	timeout := time.After(kit.Patience)
	for {
		select {
		case got := <-changes:
			if got == want {
				return
			}
		case <-timeout:
			t.Fatalf("no change of %s", want)
		}
	}
}

func do(t *testing.T, request *rest.Request) {
	t.Helper()
	kit.NoError(t, request.Do(t.Context()).Error())
}

func TestDefinitions(t *testing.T) {
	admin := kit.RESTClient(t, plane.REST())
	mapper, changes := running(t, plane.REST(), nil)
	group := fmt.Sprintf("come-and-go-%d.example.com", time.Now().UnixNano())
	gadget := schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Gadget"}
	if _, err := mapper.RESTMapping(t.Context(), gadget); !isUnknown(err) {
		t.Fatalf("before: %v", err)
	}
	do(t, admin.Post().SetHeader("Content-Type", "application/json").AbsPath(definitions).Body([]byte(fmt.Sprintf(definition, "gadgets", group, "Gadget", "Namespaced"))))
	await(t, changes, gadget.GroupKind())
	got, err := mapper.RESTMapping(t.Context(), gadget)
	want := meta.RESTMapping{Resource: gadget.GroupVersion().WithResource("gadgets"), GroupVersionKind: gadget, Scope: meta.RESTScopeNamespace}
	if err != nil || *got != want {
		t.Errorf("established: %v, %v", got, err)
	}
	old := gadget
	old.Version = "v1old"
	if _, err := mapper.RESTMapping(t.Context(), old); !isUnknown(err) {
		t.Errorf("a version that is not served: %v", err)
	}
	// It can be used at once, ahead of discovery.
	do(t, admin.Post().SetHeader("Content-Type", "application/json").AbsPath("/apis", group, "v1", "namespaces", "default", "gadgets").
		Body([]byte(`{"apiVersion":"`+group+`/v1","kind":"Gadget","metadata":{"name":"g"}}`)))

	// A second definition that wants the same kind is not accepted, and its end does not matter.
	do(t, admin.Post().SetHeader("Content-Type", "application/json").AbsPath(definitions).Body([]byte(fmt.Sprintf(definition, "gizmos", group, "Gadget", "Cluster"))))
	do(t, admin.Delete().AbsPath(definitions, "gizmos."+group))
	do(t, admin.Patch("application/merge-patch+json").AbsPath(definitions, "gadgets."+group).
		Body([]byte(`{"spec":{"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}},
			{"name":"v1old","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)))
	await(t, changes, gadget.GroupKind())
	for _, kind := range []schema.GroupVersionKind{gadget, old} {
		if got, err := mapper.RESTMapping(t.Context(), kind); err != nil || got.Resource.Resource != "gadgets" || got.Scope != meta.RESTScopeNamespace {
			t.Errorf("%s: %v, %v", kind, got, err)
		}
	}

	do(t, admin.Delete().AbsPath(definitions, "gadgets."+group))
	await(t, changes, gadget.GroupKind())
	if _, err := mapper.RESTMapping(t.Context(), gadget); !isUnknown(err) {
		t.Errorf("after: %v", err)
	}
}

// Without the right to watch definitions discovery does it, and one line is logged.
func TestForbidden(t *testing.T) {
	admin := kit.RESTClient(t, plane.REST())
	group := fmt.Sprintf("forbidden-%d.example.com", time.Now().UnixNano())
	do(t, admin.Post().SetHeader("Content-Type", "application/json").AbsPath(definitions).Body([]byte(fmt.Sprintf(definition, "gears", group, "Gear", "Cluster"))))
	config := plane.REST()
	config.Impersonate = rest.ImpersonationConfig{UserName: "nobody", Groups: []string{"system:authenticated"}}
	log := &kit.Log{}
	mapper := newMapper(t, restmapper.Config{Client: kit.RESTClient(t, config), Logger: log.Logger()})
	start := time.Now()
	mapper.SetNow(func() time.Time { return start.Add(60 * time.Since(start)) }) // does not wait long for discovery
	stop := kit.Run(t, "the mapper", mapper.Run)
	kit.True(t, "the kind by discovery, and a warning", func() bool {
		mapping, err := mapper.RESTMapping(t.Context(), schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Gear"})
		return err == nil && mapping.Scope == meta.RESTScopeRoot && mapping.Resource.Resource == "gears" &&
			len(log.Lines("watch of CustomResourceDefinitions forbidden")) > 0
	})
	stop()
	if got := len(log.Lines("watch of CustomResourceDefinitions forbidden")); got != 1 {
		t.Errorf("logged %d times: %s", got, log)
	}
}
