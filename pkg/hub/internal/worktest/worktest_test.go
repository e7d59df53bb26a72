package worktest_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/worktest"
	"github.com/workwire/workwire/test/kit"
)

const status = `
conditions:
- {type: Applied, status: "True", observedGeneration: 2}
- {type: Available, status: "True", observedGeneration: 2}
- {type: Complete, status: "True", observedGeneration: 1}
resourceStatus:
  manifests:
  - resourceMeta: {group: batch, version: v1, kind: Job, namespace: shop, name: smoke}
    conditions: [{type: Complete, status: "True"}]
    statusFeedback:
      values:
      - {name: JobComplete, fieldValue: {type: String, string: "True"}}
      - {name: JobSucceeded, fieldValue: {type: Integer, integer: 1}}
      - {name: ready, fieldValue: {type: Boolean, boolean: true}}
      - {name: raw, fieldValue: {type: JsonRaw, jsonRaw: '{"errors": 3}'}}
`

func TestRun(t *testing.T) {
	compiler, err := worktest.NewCompiler()
	kit.NoError(t, err)
	work := &workv1.ManifestWork{}
	work.Generation = 2
	kit.NoError(t, yaml.UnmarshalStrict([]byte(status), &work.Status))
	for text, want := range map[string]string{
		`conditions.Available == "True"`:                                                                "",
		`conditions[?"Degraded"].orValue("False") == "False"`:                                           "",
		`conditions.Complete == "True"`:                                                                 "test t: no such key: Complete", // of another generation
		`manifests.exists(m, m.kind == "Job" && m.feedback.JobComplete == "True")`:                      "",
		`manifests.all(m, m.group == "batch" && m.version == "v1" && m.namespace == "shop")`:            "",
		`manifests.exists(m, m.name == "smoke" && m.conditions.Complete == "True" && m.feedback.ready)`: "",
		`manifests.exists(m, m.name == "smoke" && m.feedback.JobSucceeded > 1)`:                         "test t: not true",
		`manifests[0].feedback.raw.parseJSON().errors < 3`:                                              "test t: not true",
		`manifests[0].feedback.JobComplete`:                                                             "test t: it returns a string, not a bool",
		`manifests.exists(m, range(m) )`:                                                                "compile test t: ",
		`"yes"`:                                                                                         "compile test t: it does not return a bool",
		strings.Repeat("[0,1,2,3,4,5,6,7,8,9].all(x, ", 6) + "x >= 0" + strings.Repeat(")", 6):          "test t: the tests cost too much for one cluster",
	} {
		tests, err := compiler.Compile([]workwirev1alpha1.RolloutTest{{Name: "t", Expression: text}})
		got := ""
		if err != nil {
			got = "compile " + err.Error()
		} else if failures := worktest.Run(tests, work); len(failures) > 0 {
			got = failures[0].Message
		}
		if got != want && (want == "" || !strings.HasPrefix(want, "compile test t: ") || !strings.HasPrefix(got, want)) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestTimeouts(t *testing.T) {
	compiler, err := worktest.NewCompiler()
	kit.NoError(t, err)
	tests, err := compiler.Compile([]workwirev1alpha1.RolloutTest{
		{Name: "default", Expression: "true"}, {Name: "own", Expression: "true", Timeout: metav1.Duration{Duration: time.Hour}},
	})
	if err != nil || tests[0].Timeout != 10*time.Minute || tests[1].Timeout != time.Hour {
		t.Errorf("%v, %+v", err, tests)
	}
	_, err = compiler.Compile([]workwirev1alpha1.RolloutTest{{Name: "past", Expression: "true", Timeout: metav1.Duration{Duration: -1}}, {Name: "none", Expression: "+"}})
	if err == nil || !strings.Contains(err.Error(), "test past: timeout is -1ns: must not be negative") || !strings.Contains(err.Error(), "test none: ") {
		t.Error(err)
	}
}
