package apply_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/restmapper"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/ownership"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/strategytest"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

// agentHash is the label of all applied objects.
const agentHash = "0123456789abcdef"

var plane *controlplane.Plane

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Spoke: &plane}) }

// client gives a client whose requests wrap sees.
func client(t testing.TB, wrap func(http.RoundTripper) http.RoundTripper) rest.Interface {
	t.Helper()
	config := plane.REST()
	if wrap != nil {
		config.Wrap(wrap)
	}
	return kit.RESTClient(t, config)
}

// counter counts requests by verb and answer, such as "POST 201".
type counter struct {
	next http.RoundTripper

	mu       sync.Mutex
	requests map[string]int
}

func (c *counter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	line := request.Method + " failed"
	if err == nil {
		line = fmt.Sprintf("%s %d", request.Method, response.StatusCode)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests == nil {
		c.requests = map[string]int{}
	}
	c.requests[line]++
	return response, err
}

// take gives the requests since the last call, sorted, with their number.
func (c *counter) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var parts []string
	for _, line := range slices.Sorted(maps.Keys(c.requests)) {
		parts = append(parts, fmt.Sprintf("%d× %s", c.requests[line], line))
	}
	clear(c.requests)
	return strings.Join(parts, ", ")
}

// memory is a cache that knows what it is told.
type memory struct {
	mu    sync.Mutex
	known map[object.Ref]*unstructured.Unstructured
}

func (c *memory) Get(ref object.Ref) object.Live {
	c.mu.Lock()
	defer c.mu.Unlock()
	live, ok := c.known[ref]
	switch {
	case !ok:
		return object.Live{}
	case live == nil:
		return object.Live{State: object.Absent}
	}
	return object.Live{State: object.Present, Object: live}
}

func (c *memory) Learn(ref object.Ref, live *unstructured.Unstructured) {
	if live != nil && live.GetManagedFields() != nil {
		panic("learnt an object with managedFields")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[ref] = live
}

// spoke is an agent's view of the cluster, for one work in one namespace.
type spoke struct {
	t         *testing.T
	namespace string
	owner     metav1.OwnerReference
	requests  *counter
	cache     *memory
	mapper    *restmapper.Mapper
	applier   *apply.Applier
	last      map[object.Ref]*strategy.Manifest
	digests   map[object.Ref]string // survive a restart
	admin     *dynamic.DynamicClient
}

func newSpoke(t *testing.T) *spoke {
	t.Helper()
	s := &spoke{t: t, namespace: plane.Namespace(t, "apply"), admin: dynamic.New(client(t, nil)), digests: map[object.Ref]string{}}
	s.owner = s.newOwner("work")
	s.restart()
	return s
}

// newOwner makes an AppliedManifestWork.
func (s *spoke) newOwner(name string) metav1.OwnerReference {
	s.t.Helper()
	resource := workv1.GroupVersion.WithResource("appliedmanifestworks")
	made, err := s.admin.Resource(resource).Create(s.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": workv1.GroupVersion.String(), "kind": "AppliedManifestWork",
		"metadata": map[string]any{"name": s.namespace + "-" + name},
		"spec":     map[string]any{"hubHash": s.namespace, "agentID": "test", "manifestWorkName": name},
	}}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return ownership.Reference(made.GetName(), made.GetUID())
}

// restart forgets all that the agent knows.
func (s *spoke) restart(change ...func(*apply.Config)) {
	s.t.Helper()
	s.requests = &counter{}
	s.cache = &memory{known: map[object.Ref]*unstructured.Unstructured{}}
	s.last = map[object.Ref]*strategy.Manifest{}
	var err error
	if s.mapper, err = restmapper.New(restmapper.Config{Client: client(s.t, nil)}); err != nil {
		s.t.Fatal(err)
	}
	config := apply.Config{
		Client: client(s.t, func(next http.RoundTripper) http.RoundTripper {
			s.requests.next = next
			return s.requests
		}),
		Cache:     s.cache,
		AgentHash: agentHash,
		NotServed: s.mapper.Forget,
	}
	for _, change := range change {
		change(&config)
	}
	if s.applier, err = apply.New(config); err != nil {
		s.t.Fatal(err)
	}
}

// parse reads manifests, in which NS stands for the namespace.
func (s *spoke) parse(change func(*workv1.ManifestWorkSpec), texts ...string) []strategy.Manifest {
	s.t.Helper()
	texts = slices.Clone(texts)
	for i := range texts {
		texts[i] = strings.ReplaceAll(texts[i], "NS", s.namespace)
	}
	work := strategytest.Spec(texts...)
	if change != nil {
		change(work)
	}
	return strategy.Parse(nil, work, func(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
		return s.mapper.RESTMapping(s.t.Context(), kind)
	})
}

// apply applies manifests and remembers those that succeed.
func (s *spoke) apply(manifests []strategy.Manifest) []apply.Outcome {
	s.t.Helper()
	outcomes := s.applier.Apply(s.t.Context(), manifests, apply.Options{
		Owner: s.owner, Previous: func(ref object.Ref) *strategy.Manifest { return s.last[ref] },
		FieldsDigest: func(ref object.Ref) string { return s.digests[ref] },
	})
	for i := range outcomes {
		if outcomes[i].Err == nil {
			s.last[manifests[i].Ref] = &manifests[i]
			s.digests[manifests[i].Ref] = outcomes[i].FieldsDigest
		}
	}
	return outcomes
}

// applied applies manifests, which must succeed, with the requests given.
func (s *spoke) applied(manifests []strategy.Manifest, requests string) []apply.Outcome {
	s.t.Helper()
	outcomes := s.apply(manifests)
	var total int
	for i, outcome := range outcomes {
		if outcome.Err != nil {
			s.t.Fatalf("apply %s: %v (%s)", manifests[i].Ref, outcome.Err, s.requests.take())
		}
		total += outcome.Requests
	}
	s.wantRequests(requests)
	return outcomes
}

func (s *spoke) wantRequests(want string) {
	s.t.Helper()
	if got := s.requests.take(); got != want {
		s.t.Errorf("requests %q, want %q", got, want)
	}
}

func (s *spoke) resource(ref object.Ref) dynamic.ResourceInterface {
	return s.admin.Resource(ref.GroupVersionResource).Namespace(ref.Namespace)
}

func (s *spoke) get(ref object.Ref) *unstructured.Unstructured {
	s.t.Helper()
	live, err := s.resource(ref).Get(s.t.Context(), ref.Name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return live
}

func (s *spoke) wantData(ref object.Ref, want string) {
	s.t.Helper()
	if got := dataOf(s.t, s.get(ref)); got != want {
		s.t.Errorf("data %s, want %s", got, want)
	}
}

// delete deletes an object as another actor, without the agent's seeing it.
func (s *spoke) delete(ref object.Ref) {
	s.t.Helper()
	if err := s.resource(ref).Delete(s.t.Context(), ref.Name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// patch changes an object as another actor, and lets the agent see it.
func (s *spoke) patch(ref object.Ref, manager, patch string, subresources ...string) {
	s.t.Helper()
	s.patchOnly(ref, manager, patch, subresources...)
	s.see(ref)
}

func (s *spoke) patchOnly(ref object.Ref, manager, patch string, subresources ...string) {
	s.t.Helper()
	if _, err := s.resource(ref).Patch(s.t.Context(), ref.Name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: manager}, subresources...); err != nil {
		s.t.Fatal(err)
	}
}

// see lets the agent see an object as its watch would.
func (s *spoke) see(ref object.Ref) {
	s.t.Helper()
	live := s.get(ref)
	live.SetManagedFields(nil)
	s.cache.Learn(ref, live)
}

// eventually waits until the object is as it should be.
func (s *spoke) eventually(ref object.Ref, what string, done func(*unstructured.Unstructured) bool) {
	s.t.Helper()
	kit.True(s.t, what+" of "+ref.String(), func() bool { return done(s.get(ref)) })
}

func nested(t testing.TB, obj *unstructured.Unstructured, path ...string) any {
	t.Helper()
	value, _, err := unstructured.NestedFieldNoCopy(obj.Object, path...)
	kit.NoError(t, err)
	return value
}

func asJSON(t testing.TB, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	kit.NoError(t, err)
	return string(text)
}

// managers are the field managers of an object: "manager operation", sorted, without those of its
// status.
func managers(obj *unstructured.Unstructured) string {
	var names []string
	for _, entry := range obj.GetManagedFields() {
		if entry.Subresource == "" {
			names = append(names, fmt.Sprintf("%s %s", entry.Manager, entry.Operation))
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}
