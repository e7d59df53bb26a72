package applied_test

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/pkg/agent/internal/applied"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Hub: &plane}) }

// cluster is what a test has of the API server.
type cluster struct {
	*testing.T
	hub      string // hub hash of the test
	client   workclient.Interface
	config   applied.Config
	applied  *applied.Client
	log      *bytes.Buffer
	requests *kit.Requests
}

// newCluster returns a cluster whose requests are counted. Its client does not watch: it knows the
// results of its own writes.
func newCluster(t *testing.T, config *rest.Config) *cluster {
	t.Helper()
	c := &cluster{T: t, hub: applied.HubHash(t.Name(), ""), log: &bytes.Buffer{}, client: workclient.NewForConfigOrDie(config)}
	counted := rest.CopyConfig(config)
	c.requests = kit.CountRequests(counted)
	c.requests.Bodies = true
	c.config = applied.Config{
		Client: workclient.NewForConfigOrDie(counted).WorkV1(), Owner: applied.Owner{AgentID: "agent"}, Changed: func(string, string) {}, Logger: slog.New(slog.NewTextHandler(c.log, nil)),
	}
	c.applied = applied.NewClient(c.config)
	t.Cleanup(func() { c.forget(c.hub + "-web") })
	return c
}

// forget deletes an AppliedManifestWork including its finalizers.
func (c *cluster) forget(name string) {
	amws := c.client.WorkV1().AppliedManifestWorks()
	ctx := context.Background() // the test's has ended
	_, err := amws.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err == nil {
		err = amws.Delete(ctx, name, metav1.DeleteOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		c.Error(err)
	}
}

func (c *cluster) wantRequests(want int) {
	c.Helper()
	if got := c.requests.Take(); len(got) != want {
		c.Errorf("%d requests, want %d: %v", len(got), want, got)
	}
}

func (c *cluster) ensure(labels map[string]string) *workv1.AppliedManifestWork {
	c.Helper()
	name, err := applied.Name(c.hub, "web")
	kit.NoError(c, err)
	known, _ := c.applied.Get(name)
	amw, err := c.applied.Ensure(c.Context(), known, c.hub, applied.Work{Name: "web", UID: "1", Source: "hub1", Labels: labels}, nil)
	kit.NoError(c, err)
	return amw
}

func (c *cluster) updateStatus(amw *workv1.AppliedManifestWork, status applied.Status) *workv1.AppliedManifestWork {
	c.Helper()
	updated, err := c.applied.UpdateStatus(c.Context(), amw, status)
	kit.NoError(c, err)
	return updated
}

func (c *cluster) setEviction(amw *workv1.AppliedManifestWork, start *metav1.Time) *workv1.AppliedManifestWork {
	c.Helper()
	set, err := c.applied.SetEviction(c.Context(), amw, start)
	kit.NoError(c, err)
	return set
}

// remove deletes an AppliedManifestWork and takes its finalizer off.
func (c *cluster) remove(amw *workv1.AppliedManifestWork) {
	c.Helper()
	going, err := c.applied.Delete(c.Context(), amw)
	if err == nil {
		err = c.applied.RemoveFinalizer(c.Context(), going)
	}
	kit.NoError(c, err)
	if _, err := c.client.WorkV1().AppliedManifestWorks().Get(c.Context(), amw.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		c.Errorf("the AppliedManifestWork is not gone: %v", err)
	}
}

// wantStatus compares the status on the API server.
func (c *cluster) wantStatus(name string, want workv1.AppliedManifestWorkStatus) {
	c.Helper()
	live, err := c.client.WorkV1().AppliedManifestWorks().Get(c.Context(), name, metav1.GetOptions{})
	kit.NoError(c, err)
	if diff := cmp.Diff(want, live.Status, cmpopts.EquateEmpty()); diff != "" {
		c.Errorf("status: %s", diff)
	}
}

func configMap(name string) applied.Resource {
	return applied.Resource{UID: types.UID("uid-" + name), Ref: object.Ref{
		GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespace: "shop", Name: name,
	}}
}

func listed(names ...string) []workv1.AppliedManifestResourceMeta {
	var list []workv1.AppliedManifestResourceMeta
	for _, name := range names {
		list = append(list, workv1.AppliedManifestResourceMeta{Version: "v1", UID: "uid-" + name, ResourceIdentifier: workv1.ResourceIdentifier{
			Resource: "configmaps", Namespace: "shop", Name: name,
		}})
	}
	return list
}

func TestUpdateStatusWritesOnlyDifferences(t *testing.T) {
	t.Parallel()
	c := newCluster(t, plane.REST())
	amw := c.ensure(nil)
	c.wantRequests(1)
	// A new object needs no status.
	amw = c.updateStatus(amw, applied.Status{})
	c.wantRequests(0)
	for _, step := range []struct {
		what        string
		resources   []string
		transitions string
		requests    int
	}{
		{"both", []string{"b", "a"}, "one", 1},
		{"the same", []string{"a", "b"}, "one", 0},
		{"transitions", []string{"a", "b"}, "two", 1},
		{"resources", []string{"a"}, "two", 1},
		{"no transitions", []string{"a"}, "", 1},
		{"no transitions still", []string{"a"}, "", 0},
		{"no resources", nil, "", 1},
		{"transitions alone", nil, "three", 1},
		{"nothing", nil, "", 1},
		{"something again", []string{"a"}, "four", 1},
	} {
		var status applied.Status
		for _, name := range step.resources {
			status.Resources = append(status.Resources, configMap(name))
		}
		status.Transitions = step.transitions
		amw = c.updateStatus(amw, status)
		if got := c.requests.Take(); len(got) != step.requests {
			t.Errorf("%s: requests %v", step.what, got)
		}
		c.wantStatus(amw.Name, workv1.AppliedManifestWorkStatus{Transitions: step.transitions, AppliedResources: listed(slices.Sorted(slices.Values(step.resources))...)})
	}
}

// An agent that does not know of an AppliedManifestWork yet cannot have decided to drop what it lists.
func TestCreateKeepsWhatIsListed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, plane.REST())
	work := applied.Work{Name: "web", UID: "1", Source: "hub1"}
	before := []object.Ref{configMap("applied").Ref, configMap("intended").Ref}
	amw, err := c.applied.Ensure(t.Context(), nil, c.hub, work, before)
	kit.NoError(t, err)
	c.updateStatus(amw, applied.Status{Resources: []applied.Resource{configMap("applied")}})
	if _, err = c.applied.Ensure(t.Context(), nil, c.hub, work, []object.Ref{configMap("new").Ref}); !apierrors.IsConflict(err) {
		t.Errorf("what it lists was not read: %v", err)
	}
	known, _ := c.applied.Get(amw.Name)
	resources, err := applied.Resources(known)
	kit.NoError(t, err)
	var names []string
	for _, res := range resources {
		names = append(names, res.Name)
	}
	if diff := cmp.Diff([]string{"applied", "intended"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestEvictionIsSetOnPurposeOnly(t *testing.T) {
	t.Parallel()
	c := newCluster(t, plane.REST())
	fresh := c.ensure(nil)
	c.requests.Take()
	start := metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Local())
	marked := c.setEviction(fresh, &start)
	c.wantRequests(1)
	c.wantStatus(fresh.Name, workv1.AppliedManifestWorkStatus{EvictionStartTime: &start})
	sameSecond := metav1.NewTime(start.Add(400 * time.Millisecond))
	if c.setEviction(marked, &sameSecond) != marked {
		t.Error("a time of the same second returns another object")
	}
	c.wantRequests(0)

	// UpdateStatus leaves it alone.
	updated := c.updateStatus(marked, applied.Status{Resources: []applied.Resource{configMap("a")}, Transitions: "t"})
	later := metav1.NewTime(start.Add(time.Hour))
	moved := c.setEviction(updated, &later)
	if _, err := c.applied.UpdateStatus(t.Context(), updated, applied.Status{Transitions: "u"}); !apierrors.IsConflict(err) {
		t.Errorf("the status was replaced by one that knows nothing of it: %v", err)
	}
	again := c.updateStatus(moved, applied.Status{Resources: []applied.Resource{configMap("b")}, Transitions: "t"})
	c.wantStatus(fresh.Name, workv1.AppliedManifestWorkStatus{AppliedResources: listed("b"), Transitions: "t", EvictionStartTime: &later})
	// And the other way round.
	cleared := c.setEviction(again, nil)
	c.wantStatus(fresh.Name, workv1.AppliedManifestWorkStatus{AppliedResources: listed("b"), Transitions: "t"})
	c.requests.Take()
	if c.setEviction(cleared, nil) != cleared {
		t.Error("nothing to clear returns another object")
	}
	c.wantRequests(0)
	// The status must not be replaced by a caller that read the object before it had one.
	if _, err := c.applied.UpdateStatus(t.Context(), fresh, applied.Status{Transitions: "u"}); err == nil {
		t.Error("the status was replaced by one that knows nothing of it")
	}
	if _, err := c.applied.SetEviction(t.Context(), fresh, &start); err == nil {
		t.Error("the status was replaced by one that knows nothing of it")
	}
	c.wantStatus(fresh.Name, workv1.AppliedManifestWorkStatus{AppliedResources: listed("b"), Transitions: "t"})

	// A successor of the same name is spared.
	c.remove(cleared)
	c.applied = newCluster(t, plane.REST()).applied
	if _, err := c.applied.SetEviction(t.Context(), cleared, &start); !apierrors.IsNotFound(err) {
		t.Errorf("marking an object that does not exist: %v", err)
	}
	successor := c.ensure(nil)
	if _, err := c.applied.SetEviction(t.Context(), cleared, &start); err == nil {
		t.Error("the successor was marked")
	}
	c.wantStatus(successor.Name, workv1.AppliedManifestWorkStatus{})
}

func TestStatusSparesASuccessor(t *testing.T) {
	t.Parallel()
	c := newCluster(t, plane.REST())
	old := c.ensure(nil)
	c.remove(old)
	successor := c.ensure(nil)
	if successor.UID == old.UID {
		t.Fatal("no successor")
	}
	status := applied.Status{Resources: []applied.Resource{configMap("a")}}
	if _, err := c.applied.UpdateStatus(t.Context(), old, status); err == nil {
		t.Error("the status of an AppliedManifestWork that is gone was written")
	}
	updated := c.updateStatus(successor, status)
	c.wantStatus(successor.Name, workv1.AppliedManifestWorkStatus{AppliedResources: listed("a")})
	c.remove(updated)
}

// TestNotFoundOfAProxy: a 404 that is not about the object, as of a proxy before the API server, does not have it forgotten.
func TestNotFoundOfAProxy(t *testing.T) {
	t.Parallel()
	c := newCluster(t, plane.REST())
	amw := c.ensure(nil)
	c.requests.Fail(func(r kit.Request) error {
		if r.Verb != "patch" {
			return nil
		}
		return apierrors.NewGenericServerResponse(http.StatusNotFound, r.Verb, schema.GroupResource{}, r.Name, "404 page not found", 0, true)
	})
	status := applied.Status{Resources: []applied.Resource{configMap("a")}}
	if _, err := c.applied.UpdateStatus(t.Context(), amw, status); !apierrors.IsNotFound(err) {
		t.Errorf("the status was written: %v", err)
	}
	c.requests.Fail(nil)
	if _, known := c.applied.Get(amw.Name); !known {
		t.Error("it was forgotten")
	}
	c.remove(c.updateStatus(amw, status))
}

// TestKeptFollowsTheSpec: what stays is noted, and no longer if all goes.
func TestKeptFollowsTheSpec(t *testing.T) {
	t.Parallel()
	c := newCluster(t, plane.REST())
	amw := c.ensure(nil)
	for _, step := range []struct {
		kept     []object.Ref
		requests int
	}{{nil, 0}, {[]object.Ref{configMap("b").Ref, configMap("a").Ref}, 1}, {[]object.Ref{configMap("a").Ref, configMap("b").Ref}, 0}, {nil, 1}} {
		c.requests.Take()
		var err error
		amw, err = c.applied.SetKept(t.Context(), amw, step.kept)
		kit.NoError(t, err)
		if n := len(c.requests.Take()); n != step.requests || len(applied.Kept(amw)) != len(step.kept) {
			t.Errorf("%v is noted as %v, by %d requests", step.kept, amw.Annotations, n)
		}
	}
	c.remove(amw)
}

func TestLabelsFollowTheWork(t *testing.T) {
	t.Parallel()
	c := newCluster(t, plane.REST())
	with := func(more map[string]string) map[string]string {
		all := map[string]string{workv1.OriginalSourceLabelKey: "hub1"}
		maps.Copy(all, more)
		return all
	}
	amw := c.ensure(map[string]string{"team": "a", "tier": "web"})
	c.requests.Take()
	for _, step := range []struct {
		what     string
		labels   map[string]string
		want     map[string]string
		requests int
	}{
		{"the same", map[string]string{"team": "a", "tier": "web"}, map[string]string{"team": "a", "tier": "web"}, 0},
		{"changed", map[string]string{"team": "b", "tier": "web"}, map[string]string{"team": "b", "tier": "web"}, 1},
		{"one gone, one new", map[string]string{"team": "b", "zone": "x"}, map[string]string{"team": "b", "zone": "x"}, 1},
		{"all gone", nil, nil, 1},
		{"still gone", nil, nil, 0},
		{"of its own, named as the source", map[string]string{workv1.OriginalSourceLabelKey: "fake", "a": "1"}, map[string]string{"a": "1"}, 1},
		{"that gone", nil, nil, 1},
	} {
		amw = c.ensure(step.labels)
		if got := c.requests.Take(); len(got) != step.requests {
			t.Errorf("%s: requests %v", step.what, got)
		}
		live, err := c.client.WorkV1().AppliedManifestWorks().Get(t.Context(), amw.Name, metav1.GetOptions{})
		kit.NoError(t, err)
		if diff := cmp.Diff(with(step.want), live.Labels); diff != "" {
			t.Errorf("%s: %s", step.what, diff)
		}
	}
	// What somebody else put there stays.
	if _, err := c.client.WorkV1().AppliedManifestWorks().Patch(t.Context(), amw.Name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"other":"x"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	changed := applied.Work{Name: "web", UID: "1", Source: "hub1", Labels: map[string]string{"team": "a"}}
	if _, err := c.applied.Ensure(t.Context(), amw, c.hub, changed, nil); !apierrors.IsConflict(err) {
		t.Errorf("over what was not read: %v", err)
	}
	c.ensure(changed.Labels)
	amw = c.ensure(nil)
	if diff := cmp.Diff(with(map[string]string{"other": "x"}), amw.Labels); diff != "" {
		t.Error(diff)
	}
}

// TestUpdateStatusOnAnotherDefinition has a definition without transitions and digests, as another
// agent may have installed it.
func TestUpdateStatusOnAnotherDefinition(t *testing.T) {
	t.Parallel()
	other := controlplane.StartFor(t, controlplane.Hub)
	definitions := crds.Spoke()
	for _, version := range definitions[0].Spec.Versions {
		status := version.Schema.OpenAPIV3Schema.Properties["status"].Properties
		delete(status, "transitions")
		delete(status["appliedResources"].Items.Schema.Properties, "fieldsDigest")
	}
	kit.NoError(t, install.CRDs(t.Context(), other.REST(), definitions...))
	c := newCluster(t, other.REST())
	amw := c.ensure(nil)
	c.requests.Take()
	digested := func(name string) []applied.Resource {
		resource := configMap(name)
		resource.FieldsDigest = "U"
		return []applied.Resource{resource}
	}
	resources := digested("a")
	amw = c.updateStatus(amw, applied.Status{Resources: resources, Transitions: "one"})
	c.wantRequests(1)
	for _, transitions := range []string{"one", "two", ""} {
		amw = c.updateStatus(amw, applied.Status{Resources: resources, Transitions: transitions})
	}
	c.wantRequests(0)
	amw = c.updateStatus(amw, applied.Status{Resources: digested("b"), Transitions: "three"})
	if got := c.requests.Take(); len(got) != 1 || strings.Contains(got[0].Body, "three") || strings.Contains(got[0].Body, "fieldsDigest") {
		t.Errorf("what is dropped is sent again: %v", got)
	}
	c.wantStatus(amw.Name, workv1.AppliedManifestWorkStatus{AppliedResources: listed("b")})
	if got := strings.Count(c.log.String(), "level=WARN"); got != 2 {
		t.Errorf("%d warnings, want two: %s", got, c.log)
	}
}
