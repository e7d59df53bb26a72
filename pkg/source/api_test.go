package source_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/wire"
)

// offline returns a client that never runs, which is enough for these tests.
func offline(t *testing.T) *source.Client {
	t.Helper()
	c, err := source.New(source.Config{SourceID: "ops", Topics: topics, Transport: memory.NewBroker().Client("ops")})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestInvalid: invalid works are refused with the path of the invalid field.
func TestInvalid(t *testing.T) {
	works := offline(t).ManifestWorks("cluster1")
	for _, c := range []struct {
		name  string
		spoil func(*workv1.ManifestWork)
		field string
	}{
		{"no manifests", func(w *workv1.ManifestWork) { w.Spec.Workload.Manifests = nil }, "spec.workload.manifests"},
		{"not JSON", func(w *workv1.ManifestWork) { w.Spec.Workload.Manifests[0].Raw = []byte("kind: x") }, "spec.workload.manifests[0]"},
		{"two values", func(w *workv1.ManifestWork) {
			w.Spec.Workload.Manifests[0].Raw = append(w.Spec.Workload.Manifests[0].Raw, []byte(` {}`)...)
		}, "spec.workload.manifests[0]"},
		{"no object", func(w *workv1.ManifestWork) { w.Spec.Workload.Manifests[0].Raw = []byte(`[1]`) }, "spec.workload.manifests[0]"},
		{"no manifest name", func(w *workv1.ManifestWork) {
			more := workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{}}`)}}
			w.Spec.Workload.Manifests = append(w.Spec.Workload.Manifests, more)
		}, "spec.workload.manifests[1]"},
		{"too many manifests", func(w *workv1.ManifestWork) {
			w.Spec.Workload.Manifests = slices.Repeat(w.Spec.Workload.Manifests[:1], wire.MaxManifests+1)
		}, "spec.workload.manifests"},
		{"too large", func(w *workv1.ManifestWork) { w.Spec = specOf(strings.Repeat("x", workv1.MaxManifestsSize)) }, "spec.workload.manifests"},
		{"name", func(w *workv1.ManifestWork) { w.Name = "Not a name" }, "metadata.name"},
		{"no name", func(w *workv1.ManifestWork) { w.Name = "" }, "metadata.name"},
		{"long name", func(w *workv1.ManifestWork) { w.Name = strings.Repeat("x", 189) }, "metadata.name"},
		{"label", func(w *workv1.ManifestWork) { w.Labels = map[string]string{"a b": ""} }, "metadata.labels"},
		{"propagation policy", func(w *workv1.ManifestWork) { w.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: "Never"} }, "spec.deleteOption.propagationPolicy"},
		{"identifier", func(w *workv1.ManifestWork) {
			w.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{ResourceIdentifier: workv1.ResourceIdentifier{Name: "x"}}}
		}, "spec.manifestConfigs[0].resourceIdentifier.resource"},
		{"strategy", func(w *workv1.ManifestWork) {
			w.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
				ResourceIdentifier: workv1.ResourceIdentifier{Resource: "x", Name: "x"},
				UpdateStrategy:     &workv1.UpdateStrategy{Type: "Replace"}}}
		}, "spec.manifestConfigs[0].updateStrategy.type"},
		{"feedback rule", func(w *workv1.ManifestWork) {
			w.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
				ResourceIdentifier: workv1.ResourceIdentifier{Resource: "x", Name: "x"},
				FeedbackRules:      []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: "x"}}}}}}
		}, "spec.manifestConfigs[0].feedbackRules[0].jsonPaths[0].path"},
		{"condition rule", func(w *workv1.ManifestWork) {
			w.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
				ResourceIdentifier: workv1.ResourceIdentifier{Resource: "x", Name: "x"},
				ConditionRules:     []workv1.ConditionRule{{Type: workv1.CelConditionExpressionsType}}}}
		}, "spec.manifestConfigs[0].conditionRules[0].condition"},
		{"executor", func(w *workv1.ManifestWork) {
			w.Spec.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{Type: "ServiceAccount"}}
		}, "spec.executor.subject.serviceAccount"},
	} {
		t.Run(c.name, func(t *testing.T) {
			work := configMap("w", "x")
			c.spoil(work)
			_, err := works.Create(t.Context(), work, metav1.CreateOptions{})
			causes := func(err error) (paths []string) {
				if status, ok := err.(apierrors.APIStatus); ok && status.Status().Details != nil {
					for _, cause := range status.Status().Details.Causes {
						paths = append(paths, cause.Field)
					}
				}
				return paths
			}
			is := apierrors.IsInvalid
			if c.name == "too large" {
				is = apierrors.IsRequestEntityTooLargeError
			}
			if paths := causes(err); !is(err) || len(paths) != 1 || paths[0] != c.field {
				t.Errorf("Create: %v at %v, want it at %s", err, paths, c.field)
			}
		})
	}
	_, err := offline(t).ManifestWorks("not.possible").Create(t.Context(), configMap("w", "x"), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.namespace") {
		t.Errorf("a namespace that is no cluster name: %v", err)
	}
	if _, err := works.Create(t.Context(), configMap(strings.Repeat("x", 188), "x"), metav1.CreateOptions{}); err != nil {
		t.Errorf("a name that just fits: %v", err)
	}
}

// TestNil: a nil work is refused.
func TestNil(t *testing.T) {
	c, ctx := offline(t), t.Context()
	works := c.ManifestWorks("cluster1")
	for name, call := range map[string]func() (*workv1.ManifestWork, error){
		"Create":       func() (*workv1.ManifestWork, error) { return works.Create(ctx, nil, metav1.CreateOptions{}) },
		"Update":       func() (*workv1.ManifestWork, error) { return works.Update(ctx, nil, metav1.UpdateOptions{}) },
		"UpdateStatus": func() (*workv1.ManifestWork, error) { return works.UpdateStatus(ctx, nil, metav1.UpdateOptions{}) },
		"Apply":        func() (*workv1.ManifestWork, error) { return c.Apply(ctx, nil) },
	} {
		if _, err := call(); !apierrors.IsBadRequest(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCreate(t *testing.T) {
	c := offline(t)
	works := c.ManifestWorks("cluster1")
	ctx := t.Context()
	given := configMap("w", "x")
	given.Status.Conditions = []metav1.Condition{{Type: "Applied"}}
	given.UID, given.Generation = "mine", 77
	made := must(t)(works.Create(ctx, given, metav1.CreateOptions{}))
	if made.UID == "mine" || made.Generation == 77 || len(made.Status.Conditions) != 0 || made.CreationTimestamp.IsZero() {
		t.Errorf("fields that the source sets were taken from the argument: %+v %+v", made.ObjectMeta, made.Status)
	}
	if given.Namespace != "" || given.UID != "mine" {
		t.Error("Create has changed its argument")
	}
	if _, err := works.Create(ctx, configMap("w", "x"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("twice: %v", err)
	}
	versioned := configMap("v", "x")
	versioned.ResourceVersion = "1"
	if _, err := works.Create(ctx, versioned, metav1.CreateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("with a resourceVersion: %v", err)
	}
	elsewhere := configMap("e", "x")
	elsewhere.Namespace = "cluster2"
	if _, err := works.Create(ctx, elsewhere, metav1.CreateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("in another namespace: %v", err)
	}
	must(t)(works.Create(ctx, configMap("dry", "x"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}))
	if _, err := works.Get(ctx, "dry", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a dry run: %v", err)
	}
	generated := configMap("", "x")
	generated.GenerateName = "g-"
	first := must(t)(works.Create(ctx, generated, metav1.CreateOptions{}))
	second := must(t)(works.Create(ctx, generated, metav1.CreateOptions{}))
	if !strings.HasPrefix(first.Name, "g-") || first.Name == second.Name || first.UID == second.UID {
		t.Errorf("generated names %q and %q", first.Name, second.Name)
	}
	typed := configMap("typed", "x")
	typed.Spec.Workload.Manifests[0].RawExtension = runtime.RawExtension{Object: &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "n"}}}
	if got := must(t)(works.Create(ctx, typed, metav1.CreateOptions{})); !strings.Contains(string(got.Spec.Workload.Manifests[0].Raw), `"kind":"Namespace"`) {
		t.Errorf("a typed manifest became %s", got.Spec.Workload.Manifests[0].Raw)
	}
}

func TestUpdate(t *testing.T) {
	works := offline(t).ManifestWorks("cluster1")
	ctx := t.Context()
	made := must(t)(works.Create(ctx, configMap("w", "x"), metav1.CreateOptions{}))

	spaced := made.DeepCopy()
	spaced.Spec.Workload.Manifests[0].Raw = []byte(`{"kind":"ConfigMap",  "data":{"value":"x"}, "apiVersion":"v1","metadata":{"namespace":"default","name":"c"}}`)
	same := must(t)(works.Update(ctx, spaced, metav1.UpdateOptions{}))
	if same.ResourceVersion != made.ResourceVersion || same.Generation != made.Generation {
		t.Errorf("an update that changes nothing: %+v", same.ObjectMeta)
	}
	labelled := made.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	labelled.Status.Conditions = []metav1.Condition{{Type: "Applied"}}
	labelled.Finalizers = nil
	next := must(t)(works.Update(ctx, labelled, metav1.UpdateOptions{}))
	if next.Generation != made.Generation || next.ResourceVersion == made.ResourceVersion || next.Labels["a"] != "b" {
		t.Errorf("an update of labels: %+v", next.ObjectMeta)
	}
	if len(next.Status.Conditions) != 0 || len(next.Finalizers) != 1 {
		t.Errorf("an update has changed the status or the finalizer: %+v %+v", next.ObjectMeta, next.Status)
	}
	labelled.Labels["a"] = "changed afterwards"
	if got := must(t)(works.Get(ctx, "w", metav1.GetOptions{})); got.Labels["a"] != "b" {
		t.Error("the store shares memory with its callers")
	}
	for _, c := range []struct {
		name  string
		spoil func(*workv1.ManifestWork)
		is    func(error) bool
	}{
		{"stale", func(w *workv1.ManifestWork) { w.ResourceVersion = made.ResourceVersion }, apierrors.IsConflict},
		{"without version", func(w *workv1.ManifestWork) { w.ResourceVersion = "" }, apierrors.IsInvalid},
		{"other UID", func(w *workv1.ManifestWork) { w.UID = "other" }, apierrors.IsConflict},
		{"unknown", func(w *workv1.ManifestWork) { w.Name = "unknown" }, apierrors.IsNotFound},
		{"other namespace", func(w *workv1.ManifestWork) { w.Namespace = "cluster2" }, apierrors.IsBadRequest},
		{"no manifests", func(w *workv1.ManifestWork) { w.Spec.Workload.Manifests = nil }, apierrors.IsInvalid},
		{"nameless", func(w *workv1.ManifestWork) { w.Name = "" }, apierrors.IsBadRequest},
	} {
		work := next.DeepCopy()
		c.spoil(work)
		if _, err := works.Update(ctx, work, metav1.UpdateOptions{}); !c.is(err) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	dry := next.DeepCopy()
	dry.Spec = specOf("y")
	if got := must(t)(works.Update(ctx, dry, metav1.UpdateOptions{DryRun: []string{"All"}})); got.Generation != next.Generation+1 {
		t.Errorf("a dry run shows generation %d", got.Generation)
	}
	if got := must(t)(works.Get(ctx, "w", metav1.GetOptions{})); got.ResourceVersion != next.ResourceVersion {
		t.Error("a dry run was written")
	}
	if _, err := works.UpdateStatus(ctx, next, metav1.UpdateOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("UpdateStatus: %v", err)
	}
}

// TestConcurrentUpdates: of many updates of one version exactly one wins.
func TestConcurrentUpdates(t *testing.T) {
	works := offline(t).ManifestWorks("cluster1")
	made := must(t)(works.Create(t.Context(), configMap("w", "x"), metav1.CreateOptions{}))
	var mu sync.Mutex
	var writers sync.WaitGroup
	won, conflicts := 0, 0
	for i := range 20 {
		writers.Go(func() {
			work := made.DeepCopy()
			work.Spec = specOf(strings.Repeat("y", i+1))
			_, err := works.Update(t.Context(), work, metav1.UpdateOptions{})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won++
			case apierrors.IsConflict(err):
				conflicts++
			}
		})
	}
	writers.Wait()
	if won != 1 || conflicts != 19 {
		t.Errorf("%d updates won and %d conflicted", won, conflicts)
	}
	if got := must(t)(works.Get(t.Context(), "w", metav1.GetOptions{})); got.Generation != made.Generation+1 {
		t.Errorf("generation %d after %d", got.Generation, made.Generation)
	}
}

func TestPatch(t *testing.T) {
	ctx := t.Context()
	for _, c := range []struct {
		name  string
		kind  types.PatchType
		patch string
		sub   []string
		opts  metav1.PatchOptions
		is    func(error) bool
	}{
		{name: "merge", kind: types.MergePatchType, patch: `{"metadata":{"labels":{"a":"b"}}}`},
		{name: "json", kind: types.JSONPatchType, patch: `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`},
		{name: "strategic", kind: types.StrategicMergePatchType, patch: `{"metadata":{"labels":{"a":"b"}}}`},
		{name: "apply", kind: types.ApplyPatchType, patch: `{"metadata":{"labels":{"a":"b"}}}`, is: apierrors.IsUnsupportedMediaType},
		{name: "status", kind: types.MergePatchType, patch: `{}`, sub: []string{"status"}, is: apierrors.IsMethodNotSupported},
		{name: "scale", kind: types.MergePatchType, patch: `{}`, sub: []string{"scale"}, is: apierrors.IsNotFound},
		{name: "no JSON", kind: types.JSONPatchType, patch: `{`, is: apierrors.IsBadRequest},
		{name: "failed test", kind: types.JSONPatchType, patch: `[{"op":"test","path":"/metadata/name","value":"x"}]`, is: isUnprocessable},
		{name: "bad merge", kind: types.MergePatchType, patch: `[]`, is: apierrors.IsBadRequest},
		{name: "no work", kind: types.MergePatchType, patch: `{"spec":{"workload":{"manifests":"none"}}}`, is: apierrors.IsBadRequest},
		{name: "strict", kind: types.MergePatchType, patch: `{"spec":{"unknown":1}}`, opts: metav1.PatchOptions{FieldValidation: "Strict"}, is: apierrors.IsBadRequest},
		{name: "invalid", kind: types.MergePatchType, patch: `{"spec":{"workload":{"manifests":[]}}}`, is: apierrors.IsInvalid},
		{name: "conflict", kind: types.MergePatchType, patch: `{"metadata":{"resourceVersion":"1234567"}}`, is: apierrors.IsConflict},
		{name: "rename", kind: types.MergePatchType, patch: `{"metadata":{"name":"other"}}`, is: apierrors.IsBadRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			works := offline(t).ManifestWorks("cluster1")
			must(t)(works.Create(ctx, configMap("w", "x"), metav1.CreateOptions{}))
			got, err := works.Patch(ctx, "w", c.kind, []byte(c.patch), c.opts, c.sub...)
			switch {
			case c.is != nil && !c.is(err):
				t.Errorf("%v", err)
			case c.is == nil && err != nil:
				t.Error(err)
			case c.is == nil && got.Labels["a"] != "b":
				t.Errorf("labels %v", got.Labels)
			}
		})
	}
	works := offline(t).ManifestWorks("cluster1")
	if _, err := works.Patch(ctx, "w", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("of an unknown work: %v", err)
	}
	made := must(t)(works.Create(ctx, configMap("w", "x"), metav1.CreateOptions{}))
	grown := must(t)(works.Patch(ctx, "w", types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/spec/workload/manifests/0/data/value","value":"y"}]`), metav1.PatchOptions{}))
	if grown.Generation != made.Generation+1 || !strings.Contains(string(grown.Spec.Workload.Manifests[0].Raw), `"value":"y"`) {
		t.Errorf("a patch inside a manifest: generation %d, %s", grown.Generation, grown.Spec.Workload.Manifests[0].Raw)
	}
}

func isUnprocessable(err error) bool {
	status, ok := err.(apierrors.APIStatus)
	return ok && status.Status().Code == 422
}

func TestDelete(t *testing.T) {
	works := offline(t).ManifestWorks("cluster1")
	ctx := t.Context()
	if err := works.Delete(ctx, "w", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("of an unknown work: %v", err)
	}
	made := must(t)(works.Create(ctx, configMap("w", "x"), metav1.CreateOptions{}))
	wrong, version := types.UID("wrong"), "0"
	for _, p := range []*metav1.Preconditions{{UID: &wrong}, {ResourceVersion: &version}} {
		if err := works.Delete(ctx, "w", metav1.DeleteOptions{Preconditions: p}); !apierrors.IsConflict(err) {
			t.Errorf("with a wrong precondition: %v", err)
		}
	}
	if err := works.Delete(ctx, "w", metav1.DeleteOptions{DryRun: []string{"All"}}); err != nil {
		t.Error(err)
	}
	if got := must(t)(works.Get(ctx, "w", metav1.GetOptions{})); got.DeletionTimestamp != nil {
		t.Error("a dry run was carried out")
	}
	for range 2 {
		if err := works.Delete(ctx, "w", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &made.UID}}); err != nil {
			t.Error(err)
		}
	}
	got := must(t)(works.Get(ctx, "w", metav1.GetOptions{}))
	if got.DeletionTimestamp == nil || got.Generation != made.Generation+1 {
		t.Errorf("after two deletes: %+v", got.ObjectMeta)
	}
	got.Finalizers = append(got.Finalizers, "example.com/late")
	if _, err := works.Update(ctx, got, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a finalizer on a dying work: %v", err)
	}
}

func TestListAndDeleteCollection(t *testing.T) {
	c := offline(t)
	ctx := t.Context()
	for _, at := range []struct{ cluster, name, app string }{{"cluster2", "a", "x"}, {"cluster1", "b", "x"}, {"cluster1", "a", "y"}} {
		work := configMap(at.name, "x")
		work.Labels = map[string]string{"app": at.app}
		must(t)(c.ManifestWorks(at.cluster).Create(ctx, work, metav1.CreateOptions{}))
	}
	for _, q := range []struct {
		namespace string
		opts      metav1.ListOptions
		want      string
		is        func(error) bool
	}{
		{"", metav1.ListOptions{}, "cluster1/a cluster1/b cluster2/a", nil},
		{"cluster1", metav1.ListOptions{}, "cluster1/a cluster1/b", nil},
		{"cluster3", metav1.ListOptions{}, "", nil},
		{"", metav1.ListOptions{LabelSelector: "app=x"}, "cluster1/b cluster2/a", nil},
		{"", metav1.ListOptions{FieldSelector: "metadata.name=a"}, "cluster1/a cluster2/a", nil},
		{"", metav1.ListOptions{FieldSelector: "metadata.namespace!=cluster1"}, "cluster2/a", nil},
		{"", metav1.ListOptions{ResourceVersion: "0"}, "cluster1/a cluster1/b cluster2/a", nil},
		{"", metav1.ListOptions{FieldSelector: "status.x=a"}, "", apierrors.IsBadRequest},
		{"", metav1.ListOptions{LabelSelector: "a in"}, "", apierrors.IsBadRequest},
		{"", metav1.ListOptions{ResourceVersion: "999"}, "", apierrors.IsTimeout},
		{"", metav1.ListOptions{ResourceVersion: "x"}, "", apierrors.IsBadRequest},
		{"", metav1.ListOptions{ResourceVersion: "1", ResourceVersionMatch: metav1.ResourceVersionMatchExact}, "", apierrors.IsResourceExpired},
	} {
		list, err := c.ManifestWorks(q.namespace).List(ctx, q.opts)
		if q.is != nil {
			if !q.is(err) {
				t.Errorf("%+v: %v", q, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", q, err)
			continue
		}
		var names []string
		for _, work := range list.Items {
			names = append(names, work.Namespace+"/"+work.Name)
		}
		if got := strings.Join(names, " "); got != q.want || list.ResourceVersion != "3" {
			t.Errorf("%+v: %q at %s", q, got, list.ResourceVersion)
		}
	}
	if err := c.ManifestWorks("").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=x"}); err != nil {
		t.Fatal(err)
	}
	list, err := c.ManifestWorks("").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, work := range list.Items {
		if dying := work.DeletionTimestamp != nil; dying != (work.Labels["app"] == "x") {
			t.Errorf("%s/%s: deleted is %v", work.Namespace, work.Name, dying)
		}
	}
	if _, err := c.ManifestWorks("").Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("a name without namespace: %v", err)
	}
}
