package crds_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var works = workv1.GroupVersion.WithResource("manifestworks")

// TestOnAPIServer runs against kube-apiserver: what the definitions mean is decided there. A hub of controlplane serves works
// from types, with the same answers: see controlplane/internal/works.
func TestOnAPIServer(t *testing.T) {
	plane := controlplane.StartFor(t, controlplane.Spoke)
	config := plane.REST()
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	t.Cleanup(cancel)

	t.Run("Install serves at once", func(t *testing.T) { testInstallServes(ctx, t, config) })
	ns := plane.Namespace(t, "shop")
	t.Run("Install again", func(t *testing.T) { testInstallAgain(ctx, t, config) })
	t.Run("accepted", func(t *testing.T) { testAccepted(ctx, t, config, ns) })
	t.Run("refused", func(t *testing.T) { testRefused(ctx, t, config, ns) })
	t.Run("defaults", func(t *testing.T) { testDefaults(ctx, t, config, ns) })
	t.Run("status is a subresource", func(t *testing.T) { testStatus(ctx, t, config, ns) })
	t.Run("columns", func(t *testing.T) { testColumns(ctx, t, config, ns) })
	t.Run("columns of a pending work", func(t *testing.T) { testPendingColumns(ctx, t, config, ns) })
	t.Run("fleet", func(t *testing.T) {
		plane.Namespace(t, "ocm-ns")
		testFleetServed(t, config)
		testFleetAccepted(ctx, t, config, ns)
		testFleetExamples(ctx, t, config)
		testFleetRefused(ctx, t, config, ns)
		testFleetWritten(ctx, t, config, ns)
		testFleetColumns(ctx, t, config, ns)
	})
	t.Run("names taken", func(t *testing.T) { testNamesTaken(ctx, t, config) })
	t.Run("context ends", func(t *testing.T) { testContextEnds(ctx, t, config) })
	t.Run("definition being deleted", func(t *testing.T) { testTerminating(ctx, t, config) })
}

func testInstallServes(ctx context.Context, t *testing.T, config *rest.Config) {
	var installs sync.WaitGroup
	for range 3 { // several processes start at once
		installs.Go(func() {
			if err := install.CRDs(ctx, config, append(crds.Hub(), crds.Spoke()...)...); err != nil {
				t.Error(err)
			}
		})
	}
	installs.Wait()

	resources, err := restmapper.GetAPIGroupResources(discovery.NewDiscoveryClientForConfigOrDie(config))
	kit.NoError(t, err)
	mapper := restmapper.NewDiscoveryRESTMapper(resources)
	for kind, scope := range map[string]meta.RESTScopeName{
		"ManifestWork": meta.RESTScopeNameNamespace, "AppliedManifestWork": meta.RESTScopeNameRoot,
	} {
		mapping, err := mapper.RESTMapping(workv1.GroupVersion.WithKind(kind).GroupKind(), "v1")
		kit.NoError(t, err)
		if mapping.Scope.Name() != scope {
			t.Errorf("scope of %s is %s, want %s", kind, mapping.Scope.Name(), scope)
		}
	}
	clients := versioned.NewForConfigOrDie(config)
	if _, err := clients.WorkV1().ManifestWorks("").List(ctx, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := clients.WorkV1().AppliedManifestWorks().List(ctx, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

func testInstallAgain(ctx context.Context, t *testing.T, config *rest.Config) {
	definitions := clientset.NewForConfigOrDie(config).ApiextensionsV1().CustomResourceDefinitions()
	name := crds.Hub()[0].Name
	// A stranger's label, and an older schema: no validation of the spec.
	patch := []byte(`[{"op":"add","path":"/metadata/labels","value":{"team":"shop"}},
		{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations"}]`)
	if _, err := definitions.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	kit.NoError(t, install.CRDs(ctx, config, crds.Hub()...))
	after, err := definitions.Get(ctx, name, metav1.GetOptions{})
	kit.NoError(t, err)
	if after.Labels["team"] != "shop" {
		t.Error("Install removed a label that it did not set")
	}
	spec := after.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	if len(spec.XValidations) == 0 {
		t.Error("Install left the old schema")
	}
	kit.NoError(t, install.CRDs(ctx, config, crds.Hub()...))
	again, err := definitions.Get(ctx, name, metav1.GetOptions{})
	kit.NoError(t, err)
	if again.ResourceVersion != after.ResourceVersion {
		t.Error("Install wrote a definition that was up to date")
	}
}

func testAccepted(ctx context.Context, t *testing.T, config *rest.Config, ns string) {
	client := dynamic.NewForConfigOrDie(config).Resource(works).Namespace(ns)
	for _, work := range readYAML(t, "testdata/accepted.yaml") {
		options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
		created, err := client.Create(ctx, work, options)
		if err != nil {
			t.Errorf("%s: %v", work.GetName(), err)
			continue
		}
		// Nothing of a manifest may get lost on the way.
		want, _, _ := unstructured.NestedSlice(work.Object, "spec", "workload", "manifests")
		got, _, _ := unstructured.NestedSlice(created.Object, "spec", "workload", "manifests")
		if !jsonEqual(want, got) {
			t.Errorf("%s: manifests stored as %v, want %v", work.GetName(), got, want)
		}
	}
	list, err := versioned.NewForConfigOrDie(config).WorkV1().ManifestWorks(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatalf("works cannot be read into the types: %v", err)
	}
	for _, work := range list.Items {
		if work.Name == "expression-objects" {
			got := work.Spec.ManifestConfigs[0].ConditionRules[0].CelExpressions
			if want := []string{"true", "has(object.data)"}; !jsonEqual(want, got) {
				t.Errorf("expressions %v, want %v", got, want)
			}
		}
	}
}

func testRefused(ctx context.Context, t *testing.T, config *rest.Config, ns string) {
	client := dynamic.NewForConfigOrDie(config).Resource(works).Namespace(ns)
	for _, work := range readYAML(t, "testdata/refused.yaml") {
		want := work.GetAnnotations()["want"]
		_, err := client.Create(ctx, work, metav1.CreateOptions{})
		if err == nil || want == "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", work.GetName(), err, want)
		}
	}
}

func testDefaults(ctx context.Context, t *testing.T, config *rest.Config, ns string) {
	clients := versioned.NewForConfigOrDie(config)
	ttl := int64(5)
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "defaults"}}
	work.Spec.Workload.Manifests = make([]workv1.Manifest, 1)
	work.Spec.Workload.Manifests[0].Raw = []byte(`{}`)
	work.Spec.DeleteOption = &workv1.DeleteOption{TTLSecondsAfterFinished: &ttl}
	work.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
		ResourceIdentifier: workv1.ResourceIdentifier{Resource: "namespaces", Name: "shop"},
		UpdateStrategy:     &workv1.UpdateStrategy{ServerSideApply: &workv1.ServerSideApplyConfig{}},
	}}
	work, err := clients.WorkV1().ManifestWorks(ns).Create(ctx, work, metav1.CreateOptions{})
	kit.NoError(t, err)
	config0 := work.Spec.ManifestConfigs[0]
	for what, pair := range map[string][2]string{
		"propagationPolicy":  {string(work.Spec.DeleteOption.PropagationPolicy), "Foreground"},
		"feedbackScrapeType": {string(config0.FeedbackScrapeType), "Poll"},
		"updateStrategy":     {string(config0.UpdateStrategy.Type), "Update"},
		"fieldManager":       {config0.UpdateStrategy.ServerSideApply.FieldManager, workv1.DefaultFieldManager},
	} {
		if pair[0] != pair[1] {
			t.Errorf("default of %s is %q, want %q", what, pair[0], pair[1])
		}
	}
}

func testStatus(ctx context.Context, t *testing.T, config *rest.Config, ns string) {
	client := versioned.NewForConfigOrDie(config).WorkV1().ManifestWorks(ns)
	work, err := client.Get(ctx, "smallest", metav1.GetOptions{})
	kit.NoError(t, err)
	raw := strings.Repeat("x", 1024)
	work.Spec.Executor = &workv1.ManifestWorkExecutor{} // not valid, but not looked at either
	work.Status.Conditions = []metav1.Condition{
		{Type: workv1.WorkApplied, Status: metav1.ConditionTrue, LastTransitionTime: metav1.Now(), Reason: "Yes"},
	}
	work.Status.ResourceStatus.Manifests = []workv1.ManifestCondition{{
		StatusFeedbacks: workv1.StatusFeedbackResult{Values: []workv1.FeedbackValue{
			{Name: "", Value: workv1.FieldValue{Type: workv1.JsonRaw, JsonRaw: &raw}},
		}},
	}}
	work, err = client.UpdateStatus(ctx, work, metav1.UpdateOptions{})
	kit.NoError(t, err)
	if work.Generation != 1 || work.Spec.Executor != nil || len(work.Status.Conditions) != 1 {
		t.Errorf("a status update left generation %d, spec %+v, status %+v", work.Generation, work.Spec, work.Status)
	}
	raw += "x"
	_, err = client.UpdateStatus(ctx, work, metav1.UpdateOptions{})
	kit.NoError(t, err)
	work.Status.ResourceStatus.Manifests[0].StatusFeedbacks.Values[0].Value.JsonRaw = &raw
	_, err = client.UpdateStatus(ctx, work, metav1.UpdateOptions{})
	if err == nil || !strings.Contains(err.Error(), "may not be more than 1024") {
		t.Errorf("a JsonRaw of 1025 characters: %v", err)
	}
}

func testColumns(ctx context.Context, t *testing.T, config *rest.Config, ns string) {
	text, err := versioned.NewForConfigOrDie(config).WorkV1().RESTClient().Get().Namespace(ns).
		Resource("manifestworks").Name("smallest").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(ctx).Raw()
	kit.NoError(t, err)
	table := &metav1.Table{}
	kit.NoError(t, utilyaml.Unmarshal(text, table))
	var names []string
	for _, column := range table.ColumnDefinitions {
		names = append(names, column.Name)
	}
	want := []string{"Name", "Delivered", "Applied", "Available", "Ready", "Cause", "Complete", "Observed", "Wanted", "Age",
		"Reason", "Since", "Delivery", "Message"}
	if !jsonEqual(want, names) {
		t.Fatalf("columns %v, want %v", names, want)
	}
	cell := func(name string) any { return table.Rows[0].Cells[slices.Index(names, name)] }
	for name, want := range map[string]any{
		"Name": "smallest", "Applied": "True", "Delivered": nil, "Ready": nil, "Observed": nil, "Wanted": 1.0, "Message": nil,
	} {
		if got := cell(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// testPendingColumns: columns of a work whose newest spec is not delivered, and whose second
// manifest failed.
func testPendingColumns(ctx context.Context, t *testing.T, config *rest.Config, ns string) {
	clients := versioned.NewForConfigOrDie(config).WorkV1()
	client := clients.ManifestWorks(ns)
	work, err := client.Create(ctx, &workv1.ManifestWork{
		ObjectMeta: metav1.ObjectMeta{Name: "pending"},
		Spec: workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{
			{RawExtension: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b"}}`)}}}}},
	}, metav1.CreateOptions{})
	kit.NoError(t, err)
	ago := metav1.NewTime(time.Now().Add(-time.Hour))
	condition := func(name string, status metav1.ConditionStatus, reason, message string, generation int64) metav1.Condition {
		return metav1.Condition{Type: name, Status: status, Reason: reason, Message: message, ObservedGeneration: generation, LastTransitionTime: ago}
	}
	ready := metav1.NewMicroTime(ago.Time)
	work.Status = workv1.ManifestWorkStatus{
		Conditions: []metav1.Condition{
			condition(workv1.WorkDelivered, metav1.ConditionFalse, workv1.ReasonClusterAway, "the agent is away", 7),
			condition(workv1.WorkApplied, metav1.ConditionTrue, workv1.ReasonAppliedManifestWorkComplete, "", 6),
			condition(workv1.WorkReady, metav1.ConditionFalse, "AgentOff", "it is forbidden", 7),
		},
		Delivery: &workv1.DeliveryStatus{Generation: 7, ReadyTime: &ready},
		ResourceStatus: workv1.ManifestResourceStatus{Manifests: []workv1.ManifestCondition{
			{Conditions: []metav1.Condition{condition(workv1.ManifestApplied, metav1.ConditionTrue, workv1.ReasonAppliedManifestComplete, "fine", 0)}},
			{Conditions: []metav1.Condition{condition(workv1.ManifestApplied, metav1.ConditionFalse, workv1.ReasonAppliedManifestFailed, "it is forbidden", 0)}},
		}},
	}
	stored, err := client.UpdateStatus(ctx, work, metav1.UpdateOptions{})
	kit.NoError(t, err)
	if d := stored.Status.Delivery; d == nil || d.Generation != 7 || !d.ReadyTime.Equal(ready.DeepCopy()) && d.ReadyTime.Sub(ready.Time).Abs() > time.Microsecond {
		t.Errorf("delivery is stored as %+v, want %+v", d, work.Status.Delivery)
	}
	text, err := clients.RESTClient().Get().Namespace(ns).Resource("manifestworks").Name("pending").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(ctx).Raw()
	kit.NoError(t, err)
	table := &metav1.Table{}
	kit.NoError(t, utilyaml.Unmarshal(text, table))
	cells := map[string]any{}
	for i, column := range table.ColumnDefinitions {
		cells[column.Name] = table.Rows[0].Cells[i]
	}
	for name, want := range map[string]any{
		"Delivered": "False", "Applied": "True", "Ready": "False", "Cause": "AgentOff", "Observed": 6.0, "Wanted": 1.0, "Reason": "ClusterAway", "Since": "60m",
		"Delivery": "the agent is away", "Message": "it is forbidden",
	} {
		if got := cells[name]; got != want && want != "60m" || got == nil {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

func testNamesTaken(ctx context.Context, t *testing.T, config *rest.Config) {
	rival := crds.Hub()[0]
	rival.Name = "rivals.work.open-cluster-management.io"
	rival.Spec.Names.Plural = "rivals" // the kind stays ManifestWork
	t.Cleanup(func() {
		client := clientset.NewForConfigOrDie(config).ApiextensionsV1().CustomResourceDefinitions()
		if err := client.Delete(ctx, rival.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	err := install.CRDs(ctx, config, rival)
	if err == nil || !strings.Contains(err.Error(), rival.Name+": names not accepted") {
		t.Errorf("Install of a second definition of ManifestWork: %v", err)
	}
}

func testContextEnds(ctx context.Context, t *testing.T, config *rest.Config) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	err := install.CRDs(ctx, config, crds.Hub()...)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), crds.Hub()[0].Name) {
		t.Errorf("Install with a context that has ended: %v", err)
	}
}

// A definition that waits for its last object to go is waited for, and created again.
func testTerminating(ctx context.Context, t *testing.T, config *rest.Config) {
	definitions := clientset.NewForConfigOrDie(config).ApiextensionsV1().CustomResourceDefinitions()
	applied := versioned.NewForConfigOrDie(config).WorkV1().AppliedManifestWorks()
	name := crds.Spoke()[0].Name
	old, err := definitions.Get(ctx, name, metav1.GetOptions{})
	kit.NoError(t, err)
	held := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/hold"}}}
	if _, err := applied.Create(ctx, held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kit.NoError(t, definitions.Delete(ctx, name, metav1.DeleteOptions{}))
	kit.True(t, "the object is being deleted", func() bool {
		object, err := applied.Get(ctx, held.Name, metav1.GetOptions{})
		return err == nil && object.DeletionTimestamp != nil
	})

	for limit := time.Second; ; limit *= 2 { // until it is enough to read the definition
		short, cancel := context.WithTimeout(ctx, limit)
		err := install.CRDs(short, config, crds.Spoke()...)
		cancel()
		if err != nil && strings.Contains(err.Error(), "still being deleted") {
			break
		}
		if err == nil || limit > kit.Patience {
			t.Fatalf("Install over a definition being deleted: %v", err)
		}
	}

	done := make(chan error, 1)
	go func() { done <- install.CRDs(ctx, config, crds.Spoke()...) }()
	release := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := applied.Patch(ctx, held.Name, types.MergePatchType, release, metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	kit.NoError(t, <-done)
	after, err := definitions.Get(ctx, name, metav1.GetOptions{})
	kit.NoError(t, err)
	if after.UID == old.UID {
		t.Error("the old definition is still there")
	}
	if _, err := applied.List(ctx, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

func readYAML(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(file)
	kit.NoError(t, err)
	var objects []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
}
