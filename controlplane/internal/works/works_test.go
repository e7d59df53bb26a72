package works

import (
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/workwire/workwire/deploy/crds"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// eachField calls visit with each field of a schema, and where it is.
func eachField(schema *apiextensionsv1.JSONSchemaProps, path string, visit func(path string, field *apiextensionsv1.JSONSchemaProps)) {
	visit(path, schema)
	for name, field := range schema.Properties {
		eachField(&field, path+"."+name, visit)
	}
	if schema.Items != nil {
		eachField(schema.Items.Schema, path+"[]", visit)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		eachField(schema.AdditionalProperties.Schema, path+"[]", visit)
	}
}

// Whoever gives a field a default sets it in setDefaults too, and adds it to TestWorksAreServedAsDefined.
func TestEveryDefaultIsSet(t *testing.T) {
	var defaults []string
	eachField(crds.ManifestWork().Spec.Versions[0].Schema.OpenAPIV3Schema, "", func(path string, field *apiextensionsv1.JSONSchemaProps) {
		if field.Default != nil {
			defaults = append(defaults, strings.TrimPrefix(path, ".spec.")+"="+string(field.Default.Raw))
		}
	})
	slices.Sort(defaults)
	work := &workv1.ManifestWork{Spec: workv1.ManifestWorkSpec{
		DeleteOption: &workv1.DeleteOption{},
		ManifestConfigs: []workv1.ManifestConfigOption{{UpdateStrategy: &workv1.UpdateStrategy{
			ServerSideApply: &workv1.ServerSideApplyConfig{IgnoreFields: []workv1.IgnoreField{{}}},
		}}},
	}}
	setDefaults(work)
	config := work.Spec.ManifestConfigs[0]
	set := []string{
		`deleteOption.propagationPolicy="` + string(work.Spec.DeleteOption.PropagationPolicy) + `"`,
		`manifestConfigs[].feedbackScrapeType="` + string(config.FeedbackScrapeType) + `"`,
		`manifestConfigs[].updateStrategy.serverSideApply.fieldManager="` + config.UpdateStrategy.ServerSideApply.FieldManager + `"`,
		`manifestConfigs[].updateStrategy.serverSideApply.ignoreFields[].condition="` + string(config.UpdateStrategy.ServerSideApply.IgnoreFields[0].Condition) + `"`,
		`manifestConfigs[].updateStrategy.type="` + string(config.UpdateStrategy.Type) + `"`,
	}
	if !slices.Equal(defaults, set) {
		t.Errorf("the definition has the defaults\n%s\nand types are given\n%s", strings.Join(defaults, "\n"), strings.Join(set, "\n"))
	}
	again := work.DeepCopy()
	again.Spec.ManifestConfigs[0].UpdateStrategy.Type = workv1.UpdateStrategyTypeReadOnly
	if setDefaults(again); again.Spec.ManifestConfigs[0].UpdateStrategy.Type != workv1.UpdateStrategyTypeReadOnly {
		t.Error("a default replaces what was set")
	}
}

// A work that breaks no rule is not compared with what it was, see rules.
func TestNoRuleComparesWithBefore(t *testing.T) {
	eachField(crds.ManifestWork().Spec.Versions[0].Schema.OpenAPIV3Schema, "", func(path string, field *apiextensionsv1.JSONSchemaProps) {
		for _, rule := range field.XValidations {
			if strings.Contains(rule.Rule, "oldSelf") {
				t.Errorf("%s has the rule %s", path, rule.Rule)
			}
		}
	})
}

func TestCanonical(t *testing.T) {
	manifest := func(text string) []workv1.Manifest {
		return []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(text)}}}
	}
	for _, test := range []struct{ name, before, text, want string }{
		{"keys in order", "", `{"b":1, "a":2}`, `{"a":2,"b":1}`},
		{"a key that is there twice", "", `{"a":1,"a":2}`, `{"a":2}`},
		{"large numbers", "", `{"a":9007199254740993}`, `{"a":9007199254740993}`},
		{"as before", `{"b":1, "a":2}`, `{"b":1, "a":2}`, `{"b":1, "a":2}`},
		{"other text of the same", `{"a":2,"b":1}`, `{"b":1,"a":2}`, `{"a":2,"b":1}`},
		{"a number that nobody can read", "", `{"a":1e400}`, `"{\"a\":1e400}"`},
		{"unreadable as before", `{"a":1e400}`, `{"a":1e400}`, `{"a":1e400}`},
		{"nothing", "", ``, ``},
	} {
		manifests, before := manifest(test.text), []workv1.Manifest(nil)
		if test.before != "" {
			before = manifest(test.before)
		}
		if canonical(manifests, before); string(manifests[0].Raw) != test.want {
			t.Errorf("%s: %s became %s, not %s", test.name, test.text, manifests[0].Raw, test.want)
		}
	}
}

// What was stored under older rules can still be changed, but not into something else that breaks a rule.
func TestOlderWorksCanBeChanged(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := workv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r, err := newRules(scheme, crds.ManifestWork().Spec.Versions[0])
	if err != nil {
		t.Fatal(err)
	}
	older := func() *workv1.ManifestWork {
		work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "w", Namespace: "c", ResourceVersion: "1"}}
		work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(`{"kind":"Secret"}`)}}}
		work.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: "Perhaps"}
		work.Status.Conditions = []metav1.Condition{{Type: "Applied", Status: "Maybe", Reason: "R", LastTransitionTime: metav1.Now()}}
		return work
	}
	ttl := int64(1)
	for name, test := range map[string]struct {
		change func(*workv1.ManifestWork)
		want   string
	}{
		"a label":             {func(w *workv1.ManifestWork) { w.Labels = map[string]string{"a": "b"} }, ""},
		"the field beside it": {func(w *workv1.ManifestWork) { w.Spec.DeleteOption.TTLSecondsAfterFinished = &ttl }, ""},
		"into valid":          {func(w *workv1.ManifestWork) { w.Spec.DeleteOption.PropagationPolicy = "Orphan" }, ""},
		"into another":        {func(w *workv1.ManifestWork) { w.Spec.DeleteOption.PropagationPolicy = "Never" }, `Unsupported value: "Never"`},
		"no manifests":        {func(w *workv1.ManifestWork) { w.Spec.Workload.Manifests = nil }, "manifests should not be empty"},
	} {
		work := older()
		test.change(work)
		if got := r.updated(t.Context(), work, older()).ToAggregate(); (got == nil) != (test.want == "") || got != nil && !strings.Contains(got.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, got, test.want)
		}
	}
	for name, test := range map[string]struct {
		change func(*workv1.ManifestWorkStatus)
		want   string
	}{
		"a generation": {func(s *workv1.ManifestWorkStatus) { s.ObservedGeneration = 2 }, ""},
		"into valid":   {func(s *workv1.ManifestWorkStatus) { s.Conditions[0].Status = "True" }, ""},
		"another condition": {func(s *workv1.ManifestWorkStatus) {
			s.Conditions = append(s.Conditions, metav1.Condition{Type: "Other", Status: "Who knows", Reason: "R", LastTransitionTime: metav1.Now()})
		}, `status.conditions[1].status: Unsupported value: "Who knows"`},
	} {
		work := older()
		test.change(&work.Status)
		if got := r.reported(t.Context(), work, older()).ToAggregate(); (got == nil) != (test.want == "") || got != nil && !strings.Contains(got.Error(), test.want) {
			t.Errorf("status, %s: got %v, want %q", name, got, test.want)
		}
	}
}
