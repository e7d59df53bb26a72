package replicaset

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/test/kit"
)

func TestWorkName(t *testing.T) {
	set := types.NamespacedName{Namespace: "ns", Name: "set"}
	name := workv1alpha1.WorkName(set, "p")
	if name != "set-940da0e869" {
		t.Errorf("the name is %s: the works of existing sets would be created again", name)
	}
	seen := map[string]bool{name: true}
	for _, other := range []string{
		workv1alpha1.WorkName(set, "q"), workv1alpha1.WorkName(types.NamespacedName{Namespace: "ns2", Name: "set"}, "p"),
		workv1alpha1.WorkName(types.NamespacedName{Namespace: "n", Name: "s.set"}, "p"),
	} {
		if seen[other] {
			t.Errorf("the name %s is not unique", other)
		}
		seen[other] = true
	}
	for label, want := range map[string]types.NamespacedName{
		"ns.set": set, "ns.set.v2": {Namespace: "ns", Name: "set.v2"}, "ns": {}, ".set": {}, "ns.": {}, "": {},
	} {
		if got, ok := workv1alpha1.ParseWorkLabel(label); ok != (want != types.NamespacedName{}) || ok && got != want {
			t.Errorf("ParseWorkLabel(%q) = %v, %v", label, got, ok)
		}
	}
}

func TestNewWork(t *testing.T) {
	set := newSet("p")
	set.Labels = map[string]string{"team": "till", "app": "", workv1.PlacementNameLabelKey: "mine"}
	work := newWork(set, "p", "c1", "", start)
	if want := map[string]string{
		"team": "till", "app": "", workv1.ReplicaSetLabelKey: "ns.set", workv1.PlacementNameLabelKey: "p",
	}; !maps.Equal(work.Labels, want) {
		t.Errorf("labels: %v", work.Labels)
	}
	if want := map[string]string{
		LabelsAnnotationKey: "app,team", workv1alpha1.RolledOutAtAnnotationKey: "2026-01-02T03:04:05Z", workv1.ReportReadinessAnnotationKey: "true",
	}; !maps.Equal(work.Annotations, want) {
		t.Errorf("annotations: %v", work.Annotations)
	}
	if work.Namespace != "c1" || work.Name != workv1alpha1.WorkName(controller.KeyOf(set), "p") || len(work.OwnerReferences) > 0 || !sameSpec(&work.Spec, &set.Spec.ManifestWorkTemplate) {
		t.Errorf("%+v", work)
	}
}

// TestMetadataPatch checks that patches change only labels and annotations of this controller.
func TestMetadataPatch(t *testing.T) {
	const ours = `{"op":"test","path":"/metadata/uid","value":"uid-c1"}`
	for name, c := range map[string]struct {
		set, had    map[string]string // labels of the set now, and when the work was made
		labels      map[string]string // put on the work by others
		annotations map[string]string
		want        string
	}{
		"nothing": {},
		"a label more": {
			set:  map[string]string{"example.com/team": "till~1"},
			want: `{"op":"add","path":"/metadata/labels/example.com~1team","value":"till~1"},{"op":"add","path":"/metadata/annotations/workwire.dev~1replicaset-labels","value":"example.com/team"}`,
		},
		"another value": {
			set: map[string]string{"a": "2", "b": "1"}, had: map[string]string{"a": "1", "b": "1"},
			want: `{"op":"add","path":"/metadata/labels/a","value":"2"}`,
		},
		"a label less": {
			set: map[string]string{"b": "1"}, had: map[string]string{"a": "1", "b": "1"},
			want: `{"op":"remove","path":"/metadata/labels/a"},{"op":"add","path":"/metadata/annotations/workwire.dev~1replicaset-labels","value":"b"}`,
		},
		"the last label": {
			had:  map[string]string{"a": "1"},
			want: `{"op":"remove","path":"/metadata/labels/a"},{"op":"remove","path":"/metadata/annotations/workwire.dev~1replicaset-labels"}`,
		},
		"labels and annotations of others": {
			labels: map[string]string{"theirs": "1"}, annotations: map[string]string{"theirs": "1"},
		},
		"a label of ours was taken away": {
			set: map[string]string{"a": "1"}, had: map[string]string{"a": "1"}, labels: map[string]string{"a": "-"},
			want: `{"op":"add","path":"/metadata/labels/a","value":"1"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := newSet("p")
			set.Labels = c.had
			work := newWork(set, "p", "c1", "", start)
			work.UID = "uid-c1"
			maps.Copy(work.Annotations, c.annotations)
			for key, value := range c.labels {
				if work.Labels[key] = value; value == "-" {
					delete(work.Labels, key)
				}
			}
			set.Labels = c.set
			checkNext(t, updateChange(work, set, "p", "", start.Add(time.Hour)))
			change, changed := labelChange(work, metadataOf(set, "p", nil))
			if changed != (c.want != "") {
				t.Fatalf("changed: %v", changed)
			}
			if !changed {
				return
			}
			got, err := change.patch.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if want := "[" + strings.TrimSuffix(ours+","+c.want, ",") + "]"; string(got) != want {
				t.Errorf("\n got %s\nwant %s", got, want)
			}
		})
	}
	// A work without any labels or annotations.
	bare := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{UID: "uid-c1"}}
	checkNext(t, updateChange(bare, newSet("p"), "p", "", start.Add(time.Hour)))
	got, _ := updateChange(bare, newSet("p"), "p", "", start.Add(time.Hour)).patch.Encode()
	var patch kube.JSONPatch
	if err := json.Unmarshal(got, &patch); err != nil || len(patch) != 4 || patch[1].Path != "/metadata/labels" ||
		patch[2].Path != "/metadata/annotations" || patch[3].Path != "/spec" || !strings.Contains(string(got), `"workwire.dev/rolled-out-at":"2026-01-02T04:04:05Z"`) {
		t.Errorf("%s (%v)", got, err)
	}
}

// checkNext checks that the work after an update is the one that its patch makes.
func checkNext(t *testing.T, c change) {
	t.Helper()
	before := c.work.DeepCopy()
	if got, want := c.next(), patched(t, c); !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("next\n got %+v\nwant %+v", got, want)
	}
	if !equality.Semantic.DeepEqual(c.work, before) {
		t.Errorf("the stored work has changed: %+v", c.work)
	}
}

// patched returns the work of a change after its patch.
func patched(t *testing.T, c change) *workv1.ManifestWork {
	t.Helper()
	text, err := json.Marshal(c.work)
	kit.NoError(t, err)
	encoded, err := c.patch.Encode()
	kit.NoError(t, err)
	patch, err := jsonpatch.DecodePatch(encoded)
	kit.NoError(t, err)
	text, err = patch.Apply(text)
	kit.NoError(t, err)
	var work workv1.ManifestWork
	kit.NoError(t, json.Unmarshal(text, &work))
	return &work
}

func TestSameSpec(t *testing.T) {
	spec := func(manifests ...string) *workv1.ManifestWorkSpec {
		s := &workv1.ManifestWorkSpec{}
		for _, m := range manifests {
			s.Workload.Manifests = append(s.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(m)}})
		}
		return s
	}
	const plain = `{"kind":"Deployment","metadata":{"name":"a"},"spec":{"template":{"metadata":{"labels":{}}},"number":10000000000000001}}`
	const stamped = `{"kind":"Deployment","metadata":{"creationTimestamp":null,"name":"a"},"spec":{"template":{"metadata":{"creationTimestamp":null,"labels":{}}},"number":10000000000000001}}`
	orphan := spec(plain)
	orphan.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	configured := spec(plain)
	configured.ManifestConfigs = []workv1.ManifestConfigOption{}
	for name, c := range map[string]struct {
		a, b *workv1.ManifestWorkSpec
		same bool
	}{
		"equal":                     {spec(plain), spec(plain), true},
		"empty and absent lists":    {spec(plain), configured, true},
		"timestamps on one side":    {spec(plain, stamped), spec(stamped, plain), true},
		"another option":            {spec(plain), orphan, false},
		"one more":                  {spec(plain), spec(plain, plain), false},
		"another manifest":          {spec(plain), spec(`{"kind":"Secret"}`), false},
		"another one with a stamp":  {spec(plain), spec(strings.Replace(stamped, `"a"`, `"b"`, 1)), false},
		"a number that is close by": {spec(plain), spec(strings.Replace(stamped, `01}}`, `02}}`, 1)), false},
		"a field of that name":      {spec(`{"data":{"creationTimestamp":"1"}}`), spec(`{"data":{"creationTimestamp":"2"}}`), false},
		"no JSON":                   {spec(`creationTimestamp`), spec(plain), false},
		"in a list":                 {spec(`{"items":[{"metadata":{"creationTimestamp":null}}]}`), spec(`{"items":[{"metadata":{}}]}`), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := sameSpec(c.a, c.b); got != c.same {
				t.Errorf("same: %v", got)
			}
			if got := sameSpec(c.b, c.a); got != c.same {
				t.Errorf("with swapped arguments: %v", got)
			}
		})
	}
}

// TestRequeueAfter checks when a set is reconciled again without a change. The cache of works is
// tested in package controller.
func TestRequeueAfter(t *testing.T) {
	s := &setMemory{failures: make(map[types.NamespacedName]failure)}
	check := func(step string, requeueAt time.Time, want time.Duration) {
		t.Helper()
		if got := s.requeueAfter(requeueAt, start); got != want {
			t.Errorf("%s: after %s, want %s", step, got, want)
		}
	}
	check("nothing to wait for", time.Time{}, 0)
	check("the rollout", start.Add(time.Minute), time.Minute)
	check("the past", start.Add(-time.Minute), time.Millisecond)
	s.createdUntil = start.Add(controller.WriteTimeout)
	check("creations that the cache may never show", start.Add(time.Minute), controller.WriteTimeout)
	s.createdUntil = start
	check("creations that have expired", time.Time{}, 0)

	name := types.NamespacedName{Namespace: "c1", Name: "w"}
	if !s.fail(name, errOutdated, start) || s.fail(name, errOutdated, start) {
		t.Error("only the first failure is new")
	}
	check("the second failure", time.Time{}, 2*retryBackoff)
	for range 100 {
		s.fail(name, errOutdated, start)
	}
	check("many failures", time.Time{}, retryBackoffMax)
}

// The works of a set depend on what the set's annotation says, at once, and on nothing else.
func TestDependsOnOfASet(t *testing.T) {
	set := newSet("p")
	work := newWork(set, "p", "c1", "", start)
	work.UID = "uid-c1"
	change := func(want string) {
		t.Helper()
		c, changed := labelChange(work, metadataOf(set, "p", nil))
		if changed != (want != "") {
			t.Fatalf("changed: %t, want %s", changed, want)
		}
		if !changed {
			return
		}
		if got, err := c.patch.Encode(); err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	change("")
	set.Annotations = map[string]string{workv1.DependsOnAnnotationKey: "db"}
	change(`{"op":"add","path":"/metadata/annotations/workwire.dev~1depends-on","value":"db"}`)
	checkNext(t, updateChange(work, set, "p", "", start))
	if work = newWork(set, "p", "c1", "", start); !slices.Equal(workv1.DependsOn(work), []string{"db"}) {
		t.Errorf("a new work has %v", work.Annotations)
	}
	work.UID = "uid-c1"
	change("")
	set.Annotations = nil
	change(`{"op":"remove","path":"/metadata/annotations/workwire.dev~1depends-on"}`)
	checkNext(t, updateChange(work, set, "p", "", start))
}
