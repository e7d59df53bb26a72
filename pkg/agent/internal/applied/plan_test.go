package applied

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

func ref(gvr schema.GroupVersionResource, namespace, name string) object.Ref {
	return object.Ref{GroupVersionResource: gvr, Namespace: namespace, Name: name}
}

func TestHubHashAndName(t *testing.T) {
	one := HubHash("broker:1883", "")
	if len(one) != 64 || one != strings.ToLower(one) {
		t.Errorf("hub hash %q is no lower-case hex SHA-256", one)
	}
	if a, b := HubHash("broker:1883", "a"), HubHash("broker:1883", "b"); a == b || a == one {
		t.Error("two sources of one broker share a hub hash")
	}
	for name, fits := range map[string]bool{
		"web": true, "web.example": true, strings.Repeat("a", 188): true,
		strings.Repeat("a", 189): false, "Web": false, "a_b": false, "a-": false,
	} {
		got, err := Name(one, name)
		if (err == nil) != fits {
			t.Errorf("name of work %q: %q, %v", name, got, err)
		}
		if err != nil && !strings.Contains(err.Error(), "188 characters") {
			t.Errorf("error %q does not say how long a name may be", err)
		}
	}
}

func TestIntentRoundTrip(t *testing.T) {
	few := []object.Ref{ref(configMaps, "a", "x"), ref(configMaps, "a", "y"), ref(configMaps, "b", "x"), ref(deployments, "a", "x"),
		ref(schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}, "", "r")}
	var many []object.Ref
	for i := range 6000 {
		many = append(many, ref(configMaps, "default", fmt.Sprintf("settings-%04d-%x", i, rand.Uint64())))
	}
	for name, refs := range map[string][]object.Ref{"none": nil, "few": few, "as many as a work can have": many} {
		t.Run(name, func(t *testing.T) {
			value, err := encodeIntent(refs)
			if err != nil {
				t.Fatal(err)
			}
			if len(value) > 200*1024 {
				t.Errorf("annotation of %d bytes comes near the limit of 256 KiB", len(value))
			}
			got, err := decodeIntent(value)
			if err != nil {
				t.Fatal(err)
			}
			want := slices.Clone(refs)
			slices.SortFunc(want, compareRefs)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzDecodeIntent(f *testing.F) {
	for _, seed := range []string{"", "{}", "gzip:", "gzip:AAAA", `{"v1/configmaps":{"default":["a"]}}`, `{"a/b/c/d":{"":[""]}}`, `{"v1/x":null}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		refs, err := decodeIntent(value)
		if err != nil {
			return
		}
		again, err := encodeIntent(refs)
		if err != nil {
			t.Fatal(err)
		}
		same, err := decodeIntent(again)
		if err != nil || !slices.Equal(refs, same) {
			t.Fatalf("%v became %v, %v", refs, same, err)
		}
	})
}

func appliedManifestWork(annotation string, applied ...workv1.AppliedManifestResourceMeta) *workv1.AppliedManifestWork {
	r := &workv1.AppliedManifestWork{
		ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "7", Finalizers: []string{workv1.AppliedManifestWorkFinalizer},
			Annotations: map[string]string{UIDAnnotation: "w"}},
		Status: workv1.AppliedManifestWorkStatus{AppliedResources: applied},
	}
	if annotation != "" {
		r.Annotations[IntentAnnotation] = annotation
	}
	return r
}

func TestResourcesAndDropped(t *testing.T) {
	r := appliedManifestWork(`{"v1/configmaps":{"default":["a","b"]}}`, workv1.AppliedManifestResourceMeta{
		ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: "default", Name: "a"}, Version: "v1", UID: "1"})
	resources, err := Resources(r)
	if err != nil {
		t.Fatal(err)
	}
	want := []Resource{{Ref: ref(configMaps, "default", "a"), UID: "1"}, {Ref: ref(configMaps, "default", "b")}}
	if diff := cmp.Diff(want, resources); diff != "" {
		t.Error(diff)
	}
	otherVersion := ref(configMaps, "default", "a")
	otherVersion.Version = "v2"
	if diff := cmp.Diff(want[1:], Dropped(resources, []object.Ref{otherVersion})); diff != "" {
		t.Errorf("another version of an object must not drop it: %s", diff)
	}
	broken := appliedManifestWork("what", r.Status.AppliedResources...)
	resources, err = Resources(broken)
	if err == nil || len(resources) != 1 {
		t.Errorf("an unreadable annotation gives %v, %v; want what is recorded, and an error", resources, err)
	}
}

func TestAdopt(t *testing.T) {
	desired := &workv1.AppliedManifestWork{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "a"}, Annotations: map[string]string{UIDAnnotation: "w", SourceIdentityAnnotation: "one"}},
		Spec:       workv1.AppliedManifestWorkSpec{HubHash: "h", AgentID: "me", ManifestWorkName: "web"},
	}
	ready := func(change func(*workv1.AppliedManifestWork)) *workv1.AppliedManifestWork {
		r := appliedManifestWork(`{"v1/configmaps":{"default":["a"]}}`)
		r.Spec, r.Labels = desired.Spec, map[string]string{"team": "a", "other": "x"}
		if change != nil {
			change(r)
		}
		return r
	}
	a, b := ref(configMaps, "default", "a"), ref(configMaps, "default", "b")
	for name, c := range map[string]struct {
		amw      *workv1.AppliedManifestWork
		intended []object.Ref
		want     map[string]any
	}{
		"nothing new":            {ready(nil), []object.Ref{a}, nil},
		"an object less":         {ready(nil), nil, nil},
		"an object more":         {ready(nil), []object.Ref{a, b}, map[string]any{"annotations": map[string]any{IntentAnnotation: `{"v1/configmaps":{"default":["a","b"]}}`}}},
		"label changed":          {ready(func(r *workv1.AppliedManifestWork) { r.Labels["team"] = "b" }), []object.Ref{a}, map[string]any{"labels": map[string]any{"team": "a"}}},
		"labels recorded":        {ready(func(r *workv1.AppliedManifestWork) { r.Annotations[LabelsAnnotation] = "gone,other,away" }), []object.Ref{a}, map[string]any{"labels": map[string]any{"other": nil}, "annotations": map[string]any{LabelsAnnotation: nil}}},
		"new uid":                {ready(func(r *workv1.AppliedManifestWork) { r.Annotations[UIDAnnotation] = "old" }), []object.Ref{a}, map[string]any{"annotations": map[string]any{UIDAnnotation: "w"}}},
		"finalizer gone":         {ready(func(r *workv1.AppliedManifestWork) { r.Finalizers = []string{"x"} }), []object.Ref{a}, map[string]any{"finalizers": []string{"x", workv1.AppliedManifestWorkFinalizer}}},
		"other agent's":          {ready(func(r *workv1.AppliedManifestWork) { r.Spec.AgentID = "other" }), []object.Ref{a}, map[string]any{"spec": desired.Spec}},
		"identity learnt, alone": {ready(nil), []object.Ref{a}, nil},
		"identity changed": {ready(func(r *workv1.AppliedManifestWork) { r.Annotations[SourceIdentityAnnotation] = "zero" }), []object.Ref{a},
			map[string]any{"annotations": map[string]any{SourceIdentityAnnotation: "one"}}},
		"hold ended": {ready(func(r *workv1.AppliedManifestWork) {
			r.Annotations[workv1.HeldAnnotation], r.Annotations[workv1.ReleaseAnnotation] = "Reason", "true"
		}), []object.Ref{a}, map[string]any{"annotations": map[string]any{workv1.HeldAnnotation: nil, workv1.ReleaseAnnotation: nil, SourceIdentityAnnotation: "one"}}},
		"broken intention": {ready(func(r *workv1.AppliedManifestWork) { r.Annotations[IntentAnnotation] = "{" }), []object.Ref{a}, map[string]any{"annotations": map[string]any{IntentAnnotation: `{"v1/configmaps":{"default":["a"]}}`}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := updatePatch(c.amw, desired, c.intended)
			if err != nil {
				t.Fatal(err)
			}
			var want map[string]any
			if c.want != nil {
				metadata := map[string]any{"uid": c.amw.UID, "resourceVersion": "7", "annotations": map[string]any{SourceIdentityAnnotation: "one"}}
				want = map[string]any{"metadata": metadata}
				for k, v := range c.want {
					switch k {
					case "spec":
						want["spec"] = v
					case "annotations": // each patch has the identity, too
						maps.Copy(metadata[k].(map[string]any), v.(map[string]any))
					default:
						metadata[k] = v
					}
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestHeldPatch(t *testing.T) {
	for name, c := range map[string]struct {
		have   map[string]string
		reason string
		want   map[string]any
	}{
		"held":              {nil, "One", map[string]any{workv1.HeldAnnotation: "One"}},
		"held still":        {map[string]string{workv1.HeldAnnotation: "One"}, "One", map[string]any{}},
		"released":          {map[string]string{workv1.HeldAnnotation: "One", workv1.ReleaseAnnotation: "true"}, "One", map[string]any{}},
		"an old release":    {map[string]string{workv1.ReleaseAnnotation: "true"}, "One", map[string]any{workv1.HeldAnnotation: "One", workv1.ReleaseAnnotation: nil}},
		"for another":       {map[string]string{workv1.HeldAnnotation: "One"}, "Two", map[string]any{workv1.HeldAnnotation: "Two"}},
		"ended":             {map[string]string{workv1.HeldAnnotation: "One"}, "", map[string]any{workv1.HeldAnnotation: nil}},
		"never held":        {map[string]string{"other": "x"}, "", map[string]any{}},
		"never held, asked": {map[string]string{workv1.ReleaseAnnotation: "true"}, "", map[string]any{}},
	} {
		amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Annotations: c.have}}
		if diff := cmp.Diff(c.want, heldPatch(amw, c.reason)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if got, want := Released(amw), c.have[workv1.HeldAnnotation] != "" && c.have[workv1.ReleaseAnnotation] == "true"; got != want {
			t.Errorf("%s: released is %v", name, got)
		}
	}
}

func TestStatusOfIsSorted(t *testing.T) {
	got := statusOf([]Resource{{Ref: ref(deployments, "a", "x")}, {Ref: ref(configMaps, "b", "x")}, {Ref: ref(configMaps, "a", "y")}, {Ref: ref(configMaps, "a", "x")}})
	var names []string
	for _, r := range got {
		names = append(names, r.Resource+"/"+r.Namespace+"/"+r.Name)
	}
	want := []string{"configmaps/a/x", "configmaps/a/y", "configmaps/b/x", "deployments/a/x"}
	if !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}
