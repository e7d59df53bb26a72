package feedback_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/workwire/workwire/pkg/agent/internal/feedback"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

const (
	deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","generation":3},"spec":{"replicas":3,"paused":false},
		"status":{"readyReplicas":2,"replicas":3,"conditions":[
			{"type":"Available","status":"True","lastTransitionTime":null},{"type":"Progressing","status":"False"}]}}`
	job = `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j"},
		"status":{"succeeded":1,"conditions":[{"type":"SuccessCriteriaMet","status":"True"},{"type":"Complete","status":"True"}]}}`
	pod       = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"False"}]}}`
	configMap = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1"},"ratio":1.5}`
)

func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal([]byte(text), &obj.Object); err != nil {
		t.Fatal(err)
	}
	return obj
}

func paths(pairs ...string) []workv1.FeedbackRule {
	rule := workv1.FeedbackRule{Type: workv1.JSONPathsType}
	for i := 0; i < len(pairs); i += 2 {
		rule.JsonPaths = append(rule.JsonPaths, workv1.JsonPath{Name: pairs[i], Path: pairs[i+1]})
	}
	return []workv1.FeedbackRule{rule}
}

func wellKnown() []workv1.FeedbackRule {
	return []workv1.FeedbackRule{{Type: workv1.WellKnownStatusType}}
}

func TestValues(t *testing.T) {
	pinned := paths("v", ".spec.replicas")
	pinned[0].JsonPaths[0].Version = "v1beta1"
	right := paths("v", ".spec.replicas")
	right[0].JsonPaths[0].Version = "v1"
	gate := feedback.Config{RawJSON: true}
	for name, test := range map[string]struct {
		config  feedback.Config
		rules   []workv1.FeedbackRule
		object  string
		want    string
		wantErr string
	}{
		"no rules":             {object: configMap},
		"well known, one gone": {rules: wellKnown(), object: deployment, want: "ReadyReplicas=2 Replicas=3"},
		"well known job":       {rules: wellKnown(), object: job, want: "JobComplete='True' JobSucceeded=1"},
		"well known pod":       {rules: wellKnown(), object: pod, want: "PodReady='False' PodPhase='Running'"},
		"well known without status": {
			rules: wellKnown(), object: `{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"d"}}`,
		},
		"well known stateful set": {
			rules:  wellKnown(),
			object: `{"apiVersion":"apps/v1","kind":"StatefulSet","status":{"readyReplicas":1,"replicas":2,"availableReplicas":0}}`,
			want:   "ReadyReplicas=1 Replicas=2 AvailableReplicas=0",
		},
		"well known service without load balancer": {
			rules:  wellKnown(),
			object: `{"apiVersion":"v1","kind":"Service","spec":{"clusterIP":"10.0.0.1"},"status":{"loadBalancer":{}}}`,
			want:   "ServiceClusterIP='10.0.0.1'",
		},
		"well known of another version": {
			rules: wellKnown(), object: `{"apiVersion":"apps/v1beta1","kind":"Deployment"}`,
			wantErr: "cannot find the wellknown statuses for resource with gvk apps/v1beta1, Kind=Deployment",
		},
		"not well known": {
			rules: wellKnown(), object: configMap,
			wantErr: "cannot find the wellknown statuses for resource with gvk /v1, Kind=ConfigMap",
		},
		"types":            {rules: paths("i", ".spec.replicas", "b", ".spec.paused", "s", ".metadata.name"), object: deployment, want: "i=3 b=false s='d'"},
		"filter":           {rules: paths("isAvailable", `.status.conditions[?(@.type=="Available")].status`), object: deployment, want: "isAvailable='True'"},
		"missing and null": {rules: paths("m", ".spec.none.deeper", "n", ".status.conditions[0].lastTransitionTime"), object: deployment},
		"first of several": {rules: paths("t", ".status.conditions[*].type"), object: deployment, want: "t='Available'"},
		"all of several, with the gate": {
			config: gate, rules: paths("t", ".status.conditions[*].type"), object: deployment, want: `t=["Available","Progressing"]`,
		},
		"same name twice": {rules: paths("x", ".spec.replicas", "x", ".metadata.name"), object: deployment, want: "x=3 x='d'"},
		"object without the gate": {
			rules: paths("c", ".data"), object: configMap,
			wantErr: "the type map[string]interface {} of the value for c is not found",
		},
		"list without the gate": {
			rules: paths("c", ".status.conditions"), object: deployment,
			wantErr: "the type []interface {} of the value for c is not found",
		},
		"float without the gate": {
			rules: paths("c", ".ratio"), object: configMap, wantErr: "the type float64 of the value for c is not found",
		},
		"raw": {config: gate, rules: paths("c", ".data", "r", ".ratio"), object: configMap, want: `c={"a":"1"} r=1.5`},
		"raw keys are sorted": {
			config: gate, rules: paths("c", ".status.conditions"), object: deployment,
			want: `c=[{"lastTransitionTime":null,"status":"True","type":"Available"},{"status":"False","type":"Progressing"}]`,
		},
		"raw too long": {
			config: feedback.Config{RawJSON: true, MaxRawLength: 8}, rules: paths("c", ".data"), object: configMap,
			wantErr: "the length of returned json raw string for name c is larger than the maximum length 8",
		},
		"raw just fits":       {config: feedback.Config{RawJSON: true, MaxRawLength: 9}, rules: paths("c", ".data"), object: configMap, want: `c={"a":"1"}`},
		"version differs":     {rules: pinned, object: deployment, wantErr: "version set in the path v is not matched for the related resource"},
		"version is the same": {rules: right, object: deployment, want: "v=3"},
		"bad path": {
			rules: paths("b", ".a["), object: configMap,
			wantErr: "failed to parse json path .a[ of b with error: unterminated array",
		},
		"range": {
			rules: paths("r", `range .status.conditions[*]}{.type}{end`), object: deployment,
			wantErr: "failed to parse json path range .status.conditions[*]}{.type}{end of r with error: it has braces: give one path, without them",
		},
		"no leading dot": {
			rules: paths("b", "spec.replicas"), object: deployment,
			wantErr: "failed to find value for b with error: unrecognized identifier spec", //nolint:misspell // the library's text
		},
		"out of bounds": {
			rules: paths("b", ".status.conditions[7].type"), object: deployment,
			wantErr: "failed to find value for b with error: array index out of bounds: index 7, length 2",
		},
		"not a list": {
			rules: paths("b", ".spec.replicas[0]"), object: deployment,
			wantErr: "failed to find value for b with error: int64 is not array or slice",
		},
		"found values are given beside errors": {
			rules: paths("a", ".spec.replicas", "b", ".status.conditions[7]", "c", ".metadata.name"), object: deployment, want: "a=3 c='d'",
			wantErr: "failed to find value for b with error: array index out of bounds: index 7, length 2",
		},
		"several errors, each once": {
			rules: append(append(paths("c", ".data"), wellKnown()...), wellKnown()...), object: configMap,
			wantErr: "[the type map[string]interface {} of the value for c is not found, " +
				"cannot find the wellknown statuses for resource with gvk /v1, Kind=ConfigMap]",
		},
		"one error many times": {
			rules: append(wellKnown(), wellKnown()...), object: configMap,
			wantErr: "cannot find the wellknown statuses for resource with gvk /v1, Kind=ConfigMap",
		},
		"null first": {rules: paths("n", ".status.conditions[*].lastTransitionTime"), object: deployment},
		"all of several, null among them": {
			config: gate, rules: paths("n", ".a[*]"), object: `{"a":[null,1,"x",{"b":true}]}`, want: `n=[null,1,"x",{"b":true}]`,
		},
		"one match is no list, with the gate": {config: gate, rules: paths("t", ".status.conditions[0:1].type"), object: deployment, want: "t='Available'"},
		"fields in the order of their names":  {rules: paths("d", ".data.*"), object: `{"data":{"c":"3","a":"1","b":"2"}}`, want: "d='1'"},
		"more than an integer holds": {
			rules: paths("i", ".a", "j", ".b"), object: `{"a":9223372036854775807,"b":9223372036854775808}`, want: "i=9223372036854775807",
			wantErr: "the type float64 of the value for j is not found",
		},
		"empty and zero": {rules: paths("s", ".s", "i", ".i", "b", ".b"), object: `{"s":"","i":0,"b":false}`, want: "s='' i=0 b=false"},
		"several raw too long": {
			config: feedback.Config{RawJSON: true, MaxRawLength: 26}, rules: paths("t", ".status.conditions[*].type", "c", ".spec.replicas"), object: deployment,
			want: "c=3", wantErr: "the length of returned json raw string for name t is larger than the maximum length 26",
		},
		"several raw just fit": {
			config: feedback.Config{RawJSON: true, MaxRawLength: 27}, rules: paths("t", ".status.conditions[*].type"), object: deployment,
			want: `t=["Available","Progressing"]`,
		},
		"long text is no raw value": {config: feedback.Config{RawJSON: true, MaxRawLength: 1}, rules: paths("s", ".metadata.name", "i", ".spec.replicas"),
			object: `{"metadata":{"name":"long"},"spec":{"replicas":12}}`, want: "s='long' i=12"},
		"rules in their order": {
			rules: append(append(paths("a", ".metadata.name"), wellKnown()...), paths("b", ".spec.paused")...), object: deployment,
			want: "a='d' ReadyReplicas=2 Replicas=3 b=false",
		},
		"unknown rule": {
			rules: []workv1.FeedbackRule{{Type: "Nope"}}, object: configMap,
			wantErr: `unknown feedback rule type "Nope": it must be WellKnownStatus or JSONPaths`,
		},
		"too many descents": {
			rules: paths("b", "..a..b..c..d"), object: configMap,
			wantErr: "failed to parse json path ..a..b..c..d of b with error: it descends recursively (..) more than 3 times",
		},
	} {
		t.Run(name, func(t *testing.T) {
			reader := feedback.New(test.config)
			for range 2 { // the second time from the cache
				values, err := reader.Values(nil, test.rules, object(t, test.object), 1)
				if got := text(values); got != test.want {
					t.Errorf("values: got %q, want %q", got, test.want)
				}
				if got := errorText(err); got != test.wantErr {
					t.Errorf("error: got %q, want %q", got, test.wantErr)
				}
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func text(values []workv1.FeedbackValue) string {
	var words []string
	for _, value := range values {
		var shown string
		switch value.Value.Type {
		case workv1.Integer:
			encoded, _ := json.Marshal(value.Value.Integer)
			shown = string(encoded)
		case workv1.Boolean:
			encoded, _ := json.Marshal(value.Value.Boolean)
			shown = string(encoded)
		case workv1.String:
			shown = "'" + *value.Value.String + "'"
		case workv1.JsonRaw:
			shown = *value.Value.JsonRaw
		}
		words = append(words, value.Name+"="+shown)
	}
	return strings.Join(words, " ")
}

func TestValuesConcurrently(t *testing.T) {
	reader := feedback.New(feedback.Config{})
	rules := append(wellKnown(), paths("a", `.status.conditions[?(@.type=="Available")].status`, "b", ".spec.replicas", "c", ".metadata.name")...)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				values, err := reader.Values(nil, rules, object(t, deployment), 1)
				if got := text(values); err != nil || got != "ReadyReplicas=2 Replicas=3 a='True' b=3 c='d'" {
					t.Errorf("got %q, %v", got, err)
					return
				}
			}
		})
	}
	group.Wait()
}

func FuzzValues(f *testing.F) {
	for _, seed := range []string{deployment, job, pod, configMap, `{}`, `{"kind":1}`, `{"a":[[1,2],{"b":null}]}`} {
		for _, path := range []string{
			".status.conditions[*].type", `.status.conditions[?(@.type=="Complete")].status`, "..", ".a[", "", "}", "range .a[*]}{.b}{end",
			".a[-1:0:0]", ".a[1::9223372036854775807]", ".a[?(@.b)]", "['a']", ".a[0][1]", "range", "end", `.a[?(@.b == 'x')]`, "$.a", "@",
		} {
			f.Add(path, seed)
		}
	}
	reader := feedback.New(feedback.Config{RawJSON: true})
	f.Fuzz(func(t *testing.T, path, encoded string) {
		obj := &unstructured.Unstructured{}
		if utiljson.Unmarshal([]byte(encoded), &obj.Object) != nil || obj.Object == nil {
			return
		}
		before, err := json.Marshal(obj.Object)
		if err != nil {
			return
		}
		rules := append(wellKnown(), paths("p", path)...)
		values, _ := reader.Values(nil, rules, obj, 1)
		if again, _ := reader.Values(nil, rules, obj, 1); !cmp.Equal(values, again) {
			t.Errorf("the same object gives other values: %s", cmp.Diff(values, again))
		}
		for _, value := range values {
			fields := 0
			for _, set := range []bool{value.Value.Integer != nil, value.Value.String != nil, value.Value.Boolean != nil, value.Value.JsonRaw != nil} {
				if set {
					fields++
				}
			}
			if fields != 1 {
				t.Errorf("value %q has %d fields set", value.Name, fields)
			}
		}
		after, err := json.Marshal(obj.Object)
		if err != nil || string(before) != string(after) {
			t.Errorf("the object was changed: %s", cmp.Diff(string(before), string(after)))
		}
	})
}
