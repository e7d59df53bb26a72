package apply_test

import (
	"strings"
	"testing"

	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// TestErrorsOfTheServer: whatever a real API server refuses, the error says which field and why, and
// no value.
func TestErrorsOfTheServer(t *testing.T) {
	s := newSpoke(t)
	const secret = `{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"NS","name":"NAME"},`
	const deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"NS","name":"NAME"},"spec":{"replicas":REPLICAS,` +
		`"selector":{"matchLabels":{"a":"SELECTOR"}},"template":{"metadata":{"labels":{"a":"SELECTOR"}},"spec":{"containers":[{"name":"c","image":"i",` +
		`"env":[{"name":"E","value":"hunter2"}],"resources":{"limits":{"memory":"MEMORY"}}}]}}}}`
	of := func(text string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(text) }
	serverSide := func(work *workv1.ManifestWorkSpec) {
		work.ManifestConfigs = []workv1.ManifestConfigOption{{
			ResourceIdentifier: workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Namespace: "*", Name: "*"},
			UpdateStrategy:     &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply},
		}}
	}
	for name, c := range map[string]struct {
		before, manifest string
		change           func(*workv1.ManifestWorkSpec)
		want             string
	}{
		"bad data":         {"", secret + `"data":{"password":"hunter2 is no base64"}}`, nil, "illegal base64 data"},
		"data of a type":   {"", secret + `"data":{"password":["hunter2"]}}`, nil, "cannot unmarshal string into Go struct field Secret.data"},
		"a missing key":    {"", secret + `"type":"kubernetes.io/tls","data":{"other":"aHVudGVyMg=="}}`, nil, "data[tls.crt]: Required value"},
		"a bad key":        {"", secret + `"data":{"bad key!":"aHVudGVyMg=="}}`, nil, "data["},
		"an immutable one": {secret + `"immutable":true,"stringData":{"a":"x"}}`, secret + `"immutable":true,"stringData":{"a":"hunter2"}}`, nil, "data: Forbidden: field is immutable"},
		"a type":           {secret + `"type":"Opaque"}`, secret + `"type":"hunter2"}`, nil, "type: Invalid value: field is immutable"},
		"a label":          {"", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"NS","name":"NAME","labels":{"a":"hunter2 !"}}}`, nil, "metadata.labels: Invalid value: a valid label must be"},
		"an unknown value": {"", `{"apiVersion":"v1","kind":"Service","metadata":{"namespace":"NS","name":"NAME"},"spec":{"type":"hunter2","ports":[{"port":1}]}}`, nil, "spec.type: Unsupported value: supported values"},
		"an address":       {"", `{"apiVersion":"v1","kind":"Service","metadata":{"namespace":"NS","name":"NAME"},"spec":{"clusterIP":"hunter2","ports":[{"port":1}]}}`, nil, "spec.clusterIP"},
		"a number":         {"", of(deployment, "REPLICAS", `"hunter2"`, "SELECTOR", "a", "MEMORY", "1Gi"), nil, "cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas"},
		"a quantity":       {"", of(deployment, "REPLICAS", "1", "SELECTOR", "a", "MEMORY", "hunter2"), nil, "quantities must match the regular expression"},
		"a selector": {"", strings.Replace(of(deployment, "REPLICAS", "1", "SELECTOR", "a", "MEMORY", "1Gi"), `{"a":"a"}`, `{"a":"hunter2"}`, 1), nil,
			"`selector` does not match template `labels`"},
		"a number, applied": {"", of(deployment, "REPLICAS", `"hunter2"`, "SELECTOR", "a", "MEMORY", "1Gi"), serverSide, ".spec.replicas"},
		"a list, applied":   {"", of(deployment, "REPLICAS", `[["hunter2"]]`, "SELECTOR", "a", "MEMORY", "1Gi"), serverSide, ".spec.replicas"},
	} {
		t.Run(name, func(t *testing.T) {
			object := strings.NewReplacer(" ", "-", ",", "").Replace(name)
			for _, text := range []string{c.before, c.manifest} {
				if text == "" {
					continue
				}
				manifests := s.parse(c.change, of(text, "NAME", object))
				outcome := s.applier.Apply(t.Context(), manifests, apply.Options{Owner: s.owner})[0]
				if text != c.manifest {
					if outcome.Err != nil {
						t.Fatal(outcome.Err)
					}
					continue
				}
				if outcome.Err == nil || strings.Contains(outcome.Err.Error(), "hunter2") || !strings.Contains(outcome.Err.Error(), c.want) {
					t.Errorf("the error is %v, want %s", outcome.Err, c.want)
				}
			}
		})
	}
}
