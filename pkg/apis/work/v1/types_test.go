package v1_test

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubejson "k8s.io/apimachinery/pkg/util/json"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

func status() workv1.ManifestWorkStatus {
	at := metav1.NewTime(time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC))
	integer, text, boolean, raw := int64(0), "", false, `[{"lastTransitionTime":null}]`
	return workv1.ManifestWorkStatus{
		Conditions: []metav1.Condition{{
			Type: workv1.WorkApplied, Status: metav1.ConditionTrue, ObservedGeneration: 3, LastTransitionTime: at,
			Reason: workv1.ReasonAppliedManifestWorkComplete, Message: "Apply manifest work complete",
		}},
		ResourceStatus: workv1.ManifestResourceStatus{Manifests: []workv1.ManifestCondition{
			{
				ResourceMeta: workv1.ManifestResourceMeta{
					Version: "v1", Kind: "Namespace", Resource: "namespaces", Name: "shop",
				},
				Conditions: []metav1.Condition{{
					Type: workv1.ManifestStatusFeedbackSynced, Status: metav1.ConditionTrue, LastTransitionTime: at,
					Reason: workv1.ReasonNoStatusFeedbackSynced,
				}},
			},
			{
				ResourceMeta: workv1.ManifestResourceMeta{
					Ordinal: 1, Group: "apps", Version: "v1", Kind: "Deployment", Resource: "deployments",
					Name: "till", Namespace: "shop",
				},
				StatusFeedbacks: workv1.StatusFeedbackResult{Values: []workv1.FeedbackValue{
					{Name: "ReadyReplicas", Value: workv1.FieldValue{Type: workv1.Integer, Integer: &integer}},
					{Name: "phase", Value: workv1.FieldValue{Type: workv1.String, String: &text}},
					{Name: "paused", Value: workv1.FieldValue{Type: workv1.Boolean, Boolean: &boolean}},
					{Name: "conditions", Value: workv1.FieldValue{Type: workv1.JsonRaw, JsonRaw: &raw}},
				}},
				Conditions: []metav1.Condition{},
			},
		}},
	}
}

// The text of a status, its order and its empty fields are part of the protocol: status hashes are made from it.
func TestStatusText(t *testing.T) {
	got, err := json.MarshalIndent(status(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/status.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(bytes.TrimSpace(want)), string(got)); diff != "" {
		t.Errorf("status as JSON (-want +got):\n%s", diff)
	}
	var back workv1.ManifestWorkStatus
	if err := kubejson.Unmarshal(got, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(status(), back, cmp.Comparer(func(a, b metav1.Time) bool { return a.Equal(&b) })); diff != "" {
		t.Errorf("status read back (-want +got):\n%s", diff)
	}
}

func TestStatusFeedbackIsWrittenWhenEmpty(t *testing.T) {
	got, err := json.Marshal(workv1.ManifestCondition{Conditions: []metav1.Condition{}})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"resourceMeta":{"ordinal":0,"group":"","version":"","kind":"","resource":"","name":"","namespace":""},` +
		`"statusFeedback":{},"conditions":[]}`
	if string(got) != want {
		t.Errorf("empty entry:\n got %s\nwant %s", got, want)
	}
}

// testdata/spec.json uses every field of a spec once; nothing of it may get lost or change its name.
func TestSpecRoundTrip(t *testing.T) {
	text, err := os.ReadFile("testdata/spec.json")
	if err != nil {
		t.Fatal(err)
	}
	var spec workv1.ManifestWorkSpec
	if err := kubejson.Unmarshal(text, &spec); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(spec.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := canonical(t, again), canonical(t, text); got != want {
		t.Errorf("spec after a round trip (-want +got):\n%s", cmp.Diff(want, got))
	}
	for path := range zeroFields(reflect.ValueOf(spec), "spec") {
		switch path {
		case "spec.Workload.Manifests[2].RawExtension.Raw": // null
		case "spec.DeleteOption.SelectivelyOrphan.OrphaningRules[0].Group":
		case "spec.ManifestConfigs[0].ResourceIdentifier.Group":
		case "spec.ManifestConfigs[0].FeedbackRules[0].JsonPaths":
		case "spec.ManifestConfigs[0].UpdateStrategy.ServerSideApply.Force":
		case "spec.ManifestConfigs[0].UpdateStrategy.MisplacedForce": // it is not to be set
		case "spec.ManifestConfigs[0].ConditionRules[1].CelExpressions",
			"spec.ManifestConfigs[0].ConditionRules[1].Message",
			"spec.ManifestConfigs[0].ConditionRules[1].MessageExpression":
		default:
			t.Errorf("testdata/spec.json leaves %s unset: the test does not cover it", path)
		}
	}
}

func TestAppliedManifestWorkText(t *testing.T) {
	work := workv1.AppliedManifestWork{
		Spec: workv1.AppliedManifestWorkSpec{HubHash: "abc", AgentID: "agent", ManifestWorkName: "shop"},
		Status: workv1.AppliedManifestWorkStatus{AppliedResources: []workv1.AppliedManifestResourceMeta{{
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: "namespaces", Name: "shop"}, Version: "v1", UID: "u",
		}}},
	}
	got, err := json.Marshal(work)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"metadata":{},"spec":{"hubHash":"abc","agentID":"agent","manifestWorkName":"shop"},` +
		`"status":{"appliedResources":[{"group":"","resource":"namespaces","name":"shop","version":"v1","uid":"u"}]}}`
	if string(got) != want {
		t.Errorf("AppliedManifestWork:\n got %s\nwant %s", got, want)
	}
}

func TestAddToScheme(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := workv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for kind, object := range map[string]runtime.Object{
		"ManifestWork":            &workv1.ManifestWork{},
		"ManifestWorkList":        &workv1.ManifestWorkList{},
		"AppliedManifestWork":     &workv1.AppliedManifestWork{},
		"AppliedManifestWorkList": &workv1.AppliedManifestWorkList{},
	} {
		kinds, _, err := scheme.ObjectKinds(object)
		if err != nil {
			t.Fatal(err)
		}
		if want := workv1.GroupVersion.WithKind(kind); len(kinds) != 1 || kinds[0] != want {
			t.Errorf("kinds of %T are %v, want %v", object, kinds, want)
		}
	}
}

// canonical is the JSON text with sorted keys and no spaces.
func canonical(t *testing.T, text []byte) string {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	out, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// zeroFields are the paths of all fields below v that hold their zero value. It does not look into byte slices, nor
// at the field of RawExtension that JSON does not carry.
func zeroFields(v reflect.Value, path string) map[string]bool {
	found := map[string]bool{}
	add := func(more map[string]bool) {
		for p := range more {
			found[p] = true
		}
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "Object" {
				add(zeroFields(v.Field(i), path+"."+name))
			}
		}
	case reflect.Pointer:
		if v.IsNil() {
			found[path] = true
		} else if v.Elem().Kind() == reflect.Struct {
			add(zeroFields(v.Elem(), path))
		}
	case reflect.Slice:
		if v.Len() == 0 {
			found[path] = true
		} else if v.Type().Elem().Kind() == reflect.Struct {
			for i := range v.Len() {
				add(zeroFields(v.Index(i), path+"["+string(rune('0'+i))+"]"))
			}
		}
	default:
		if v.IsZero() {
			found[path] = true
		}
	}
	return found
}
