package strategy_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/workwire/workwire/pkg/agent/object"
	"github.com/workwire/workwire/pkg/agent/strategy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

const agentHash = "0123456789abcdef"

var owner = strategy.Owner("hub-work", "owner-uid")

func decode(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal([]byte(text), &obj.Object); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return obj
}

// applied gives an object as the API server has it after m was applied to it:
// labelled, owned, with the hash of m, and content, JSON fields, in place of what m
// has.
func applied(t testing.TB, m *strategy.Manifest, content string) *unstructured.Unstructured {
	t.Helper()
	live := m.Desired.DeepCopy()
	for key := range live.Object {
		if key != "apiVersion" && key != "kind" && key != "metadata" {
			delete(live.Object, key)
		}
	}
	for key, value := range decode(t, "{"+content+"}").Object {
		live.Object[key] = value
	}
	live.SetUID("uid")
	live.SetResourceVersion("7")
	labels := live.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[object.AgentLabel] = agentHash
	live.SetLabels(labels)
	annotations := live.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[object.HashAnnotation] = m.Hash
	live.SetAnnotations(annotations)
	if m.Owned {
		live.SetOwnerReferences([]metav1.OwnerReference{owner})
	}
	return live
}

// content gives the fields of an object but its metadata, as JSON.
func content(t testing.TB, obj *unstructured.Unstructured) string {
	t.Helper()
	rest := map[string]any{}
	for key, value := range obj.Object {
		if key != "apiVersion" && key != "kind" && key != "metadata" {
			rest[key] = value
		}
	}
	text, err := json.Marshal(rest)
	if err != nil {
		t.Fatal(err)
	}
	return string(text[1 : len(text)-1])
}

func canonical(t testing.TB, fields string) string {
	t.Helper()
	return content(t, decode(t, "{"+fields+"}"))
}

func TestPlanCreate(t *testing.T) {
	m := manifest(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"c","labels":{"a":"b","gone-":""},
		"annotations":{"gone-":""},"finalizers":["x/y"],"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]},"data":{"k":"v"}}`)
	step := strategy.Plan(m, strategy.Situation{Owner: owner, AgentHash: agentHash})
	if step.Verb != strategy.Create || step.Differences != nil {
		t.Fatalf("got %s, %v", step.Verb, step.Differences)
	}
	want := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"c",
		"labels":{"a":"b",%q:%q},"annotations":{%q:%q},"finalizers":["x/y"],
		"ownerReferences":[{"apiVersion":"work.open-cluster-management.io/v1","kind":"AppliedManifestWork","name":"hub-work","uid":"owner-uid"}]},
		"data":{"k":"v"}}`, object.AgentLabel, agentHash, object.HashAnnotation, m.Hash)
	if diff := cmp.Diff(decode(t, want).Object, step.Object.Object); diff != "" {
		t.Error(diff)
	}
	orphaned := strategy.Plan(manifest(t, configMap("c", ""), orphan), strategy.Situation{Owner: owner, AgentHash: agentHash})
	if refs := orphaned.Object.GetOwnerReferences(); len(refs) != 0 {
		t.Errorf("an orphan has owner references %v", refs)
	}
}

func TestPlanVerbs(t *testing.T) {
	plain := manifest(t, configMap("c", `,"data":{"k":"v"}`))
	other := manifest(t, configMap("c", `,"data":{"k":"w"}`))
	versioned := manifest(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"c","resourceVersion":"5"},"data":{"k":"v"}}`)
	readOnly := manifest(t, configMap("c", ""), configured(&workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly}))
	createOnly := manifest(t, configMap("c", `,"data":{"k":"v"}`), configured(&workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeCreateOnly}))
	serverSide := manifest(t, configMap("c", `,"data":{"k":"v"}`), configured(serverSide(nil)))
	present := func(obj *unstructured.Unstructured) object.Live {
		return object.Live{State: object.Present, Object: obj}
	}
	foreign := decode(t, configMap("c", `,"data":{"k":"v"}`))
	absent := object.Live{State: object.Absent}
	for name, test := range map[string]struct {
		m         *strategy.Manifest
		situation strategy.Situation
		want      strategy.Verb
	}{
		"unknown":                     {plain, strategy.Situation{}, strategy.Create},
		"absent":                      {plain, strategy.Situation{Live: absent}, strategy.Create},
		"unknown, but applied before": {plain, strategy.Situation{Previous: plain}, strategy.Read},
		"absent, but applied before":  {plain, strategy.Situation{Live: absent, Previous: plain}, strategy.Create},
		"gone, and applied before":    {plain, strategy.Situation{Live: absent, Complete: true, Previous: plain}, strategy.Create},
		"resourceVersion, unknown":    {versioned, strategy.Situation{}, strategy.Read},
		"resourceVersion, absent":     {versioned, strategy.Situation{Live: absent}, strategy.Read},
		"resourceVersion, gone":       {versioned, strategy.Situation{Live: absent, Complete: true}, strategy.Create},
		"resourceVersion, present":    {versioned, strategy.Situation{Live: present(applied(t, versioned, `"data":{"k":"v"}`))}, strategy.Keep},
		"the same":                    {plain, strategy.Situation{Live: present(applied(t, plain, `"data":{"k":"v"}`)), Previous: plain}, strategy.Keep},
		"the same after a restart":    {plain, strategy.Situation{Live: present(applied(t, plain, `"data":{"k":"v"}`))}, strategy.Keep},
		"changed, previous known":     {other, strategy.Situation{Live: present(applied(t, plain, `"data":{"k":"v"}`)), Previous: plain}, strategy.Update},
		"changed, previous unknown":   {other, strategy.Situation{Live: present(applied(t, plain, `"data":{"k":"v"}`))}, strategy.Read},
		"changed, read":               {other, strategy.Situation{Live: present(applied(t, plain, `"data":{"k":"v"}`)), Complete: true}, strategy.Update},
		"of others":                   {plain, strategy.Situation{Live: present(foreign), Complete: true}, strategy.Update},
		"of others, from the cache":   {plain, strategy.Situation{Live: present(foreign)}, strategy.Read},
		"drifted":                     {plain, strategy.Situation{Live: present(applied(t, plain, `"data":{"k":"x"}`))}, strategy.Update},
		"read only":                   {readOnly, strategy.Situation{}, strategy.Keep},
		"create only, unknown":        {createOnly, strategy.Situation{}, strategy.Create},
		"create only, drifted":        {createOnly, strategy.Situation{Live: present(applied(t, createOnly, `"data":{"k":"x"}`))}, strategy.Keep},
		"create only, of others":      {createOnly, strategy.Situation{Live: present(foreign)}, strategy.Update},
		"server side, unknown":        {serverSide, strategy.Situation{}, strategy.Apply},
		"server side, updated before": {serverSide, strategy.Situation{Live: present(applied(t, plain, `"data":{"k":"v"}`))}, strategy.Read},
		"server side, updated before, read": {serverSide, strategy.Situation{
			Live: present(managed(applied(t, plain, `"data":{"k":"v"}`), fields("work-agent", "", `{}`))), Complete: true,
		}, strategy.Claim},
		"server side, updated by others": {serverSide, strategy.Situation{
			Live: present(managed(applied(t, plain, `"data":{"k":"v"}`), fields("other", "", `{}`))), Complete: true,
		}, strategy.Apply},
		"server side, of others": {serverSide, strategy.Situation{Live: present(foreign)}, strategy.Apply},
	} {
		t.Run(name, func(t *testing.T) {
			test.situation.Owner, test.situation.AgentHash, test.situation.FieldManager = owner, agentHash, "work-agent"
			before := test.m.Desired.DeepCopy()
			var liveBefore *unstructured.Unstructured
			if test.situation.Live.Object != nil {
				liveBefore = test.situation.Live.Object.DeepCopy()
			}
			step := strategy.Plan(test.m, test.situation)
			if step.Verb != test.want {
				t.Errorf("got %s %v, want %s", step.Verb, step.Differences, test.want)
			}
			if (step.Object != nil) != (test.want >= strategy.Create && test.want != strategy.Claim) {
				t.Errorf("body: %v", step.Object)
			}
			if diff := cmp.Diff(before, test.m.Desired); diff != "" {
				t.Errorf("the manifest was changed: %s", diff)
			}
			if diff := cmp.Diff(liveBefore, test.situation.Live.Object); diff != "" {
				t.Errorf("the live object was changed: %s", diff)
			}
		})
	}
}

const deploymentHead = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"ns","name":"d"},`

// Drift, and what is none: the manifest is the one last applied.
func TestPlanDrift(t *testing.T) {
	for name, test := range map[string]struct {
		manifest string
		live     string   // content
		want     string   // content of the update; empty: none
		paths    []string // differences
	}{
		"fields set by others stay": {
			manifest: deploymentHead + `"spec":{"paused":true}}`,
			live:     `"spec":{"paused":true,"replicas":5,"strategy":{"type":"RollingUpdate"}},"status":{"replicas":5}`,
		},
		"a field differs": {
			manifest: deploymentHead + `"spec":{"replicas":3,"paused":true}}`,
			live:     `"spec":{"replicas":5,"paused":true,"minReadySeconds":4},"status":{"replicas":5}`,
			want:     `"spec":{"replicas":3,"paused":true,"minReadySeconds":4},"status":{"replicas":5}`,
			paths:    []string{"/spec/replicas"},
		},
		"a field is missing": {
			manifest: deploymentHead + `"spec":{"a":{"b/c":1}}}`,
			live:     `"spec":{"a":{}}`, want: `"spec":{"a":{"b/c":1}}`, paths: []string{"/spec/a/b~1c"},
		},
		"null declares nothing": {
			manifest: deploymentHead + `"spec":{"replicas":null}}`, live: `"spec":{"replicas":5}`,
		},
		"status is not compared": {
			manifest: deploymentHead + `"spec":{},"status":{"replicas":1}}`, live: `"spec":{},"status":{"replicas":5}`,
		},
		"numbers by value": {
			manifest: deploymentHead + `"spec":{"a":1.0,"b":2}}`, live: `"spec":{"a":1,"b":2.0}`,
		},
		"large numbers exactly": {
			manifest: deploymentHead + `"spec":{"a":9007199254740993}}`, live: `"spec":{"a":9007199254740992}`,
			want: `"spec":{"a":9007199254740993}`, paths: []string{"/spec/a"},
		},
		"quantities by meaning": {
			manifest: deploymentHead + `"spec":{"resources":{"limits":{"cpu":"1000m","memory":"1024Mi"},"requests":{"cpu":1}}}}`,
			live:     `"spec":{"resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"1"}}}`,
		},
		"not everything is a quantity": {
			manifest: deploymentHead + `"spec":{"env":{"cpu":"1000m"}}}`, live: `"spec":{"env":{"cpu":"1"}}`,
			want: `"spec":{"env":{"cpu":"1000m"}}`, paths: []string{"/spec/env/cpu"},
		},
		"defaults within items are no drift": {
			manifest: deploymentHead + `"spec":{"containers":[{"name":"a","image":"x"},{"name":"b","image":"y"}]}}`,
			live:     `"spec":{"containers":[{"name":"a","image":"x","pull":"Always"},{"name":"b","image":"y","pull":"Always"}]}`,
		},
		"an item that differs is written as declared": {
			manifest: deploymentHead + `"spec":{"containers":[{"name":"a","image":"x"},{"name":"b","image":"y"}]}}`,
			live:     `"spec":{"containers":[{"name":"a","image":"z","pull":"Always"},{"name":"b","image":"y","pull":"Always"}]}`,
			want:     `"spec":{"containers":[{"name":"a","image":"x"},{"name":"b","image":"y","pull":"Always"}]}`,
			paths:    []string{"/spec/containers/0/image"},
		},
		"an item too many": {
			manifest: deploymentHead + `"spec":{"containers":[{"name":"a"}]}}`,
			live:     `"spec":{"containers":[{"name":"b"},{"name":"a","pull":"Always"}]}`,
			want:     `"spec":{"containers":[{"name":"a","pull":"Always"}]}`, paths: []string{"/spec/containers"},
		},
		"the order counts": {
			manifest: deploymentHead + `"spec":{"args":["a","b"]}}`, live: `"spec":{"args":["b","a"]}`,
			want: `"spec":{"args":["a","b"]}`, paths: []string{"/spec/args/0", "/spec/args/1"},
		},
		"another type": {
			manifest: deploymentHead + `"spec":{"a":{"b":1},"c":[1]}}`, live: `"spec":{"a":"x","c":{"d":1}}`,
			want: `"spec":{"a":{"b":1},"c":[1]}`, paths: []string{"/spec/a", "/spec/c"},
		},
		"config map, exactly": {
			manifest: configMap("c", `,"data":{"k":"v"}`), live: `"data":{"k":"v","foreign":"x"},"binaryData":{"b":"AA=="},"immutable":false`,
			want: `"data":{"k":"v"},"immutable":false`, paths: []string{"/binaryData/b", "/data/foreign"},
		},
		"empty config map": {manifest: configMap("c", `,"data":{}`), live: ``},
		"config map with an injected bundle": {
			manifest: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"c",
				"labels":{"config.openshift.io/inject-trusted-cabundle":"true"}},"data":{"k":"v"}}`,
			live: `"data":{"k":"v","ca-bundle.crt":"PEM"}`,
		},
		"config map with an injected bundle, and drift": {
			manifest: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"c",
				"annotations":{"service.beta.openshift.io/inject-cabundle":"true"}},"data":{"k":"v","service-ca.crt":""}}`,
			live: `"data":{"k":"w","service-ca.crt":"PEM"}`,
			want: `"data":{"k":"v","service-ca.crt":"PEM"}`, paths: []string{"/data/k"},
		},
		"secret, exactly": {
			manifest: `{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"ns","name":"s"},"stringData":{"a":"1"}}`,
			live:     `"type":"Opaque","data":{"a":"MQ==","b":"Mg=="}`,
			want:     `"type":"Opaque","data":{"a":"MQ=="}`, paths: []string{"/data/b"},
		},
		"secret of a service account": {
			manifest: `{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"ns","name":"s"},"type":"kubernetes.io/service-account-token","data":{"a":"MQ=="}}`,
			live:     `"type":"kubernetes.io/service-account-token","data":{"a":"MQ==","token":"Mg=="}`,
		},
		"pod with injected volumes": {
			manifest: `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"ns","name":"p"},"spec":{"containers":[{"name":"a","volumeMounts":[{"name":"v"}]}],"volumes":[{"name":"v"}]}}`,
			live:     `"spec":{"containers":[{"name":"a","volumeMounts":[{"name":"token"},{"name":"v"}]}],"volumes":[{"name":"v"},{"name":"token"}],"tolerations":[{}]}`,
		},
		"pod with another image": {
			manifest: `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"ns","name":"p"},"spec":{"containers":[{"name":"a","image":"x","volumeMounts":[{"name":"v"}]}]}}`,
			live:     `"spec":{"containers":[{"name":"sidecar"},{"name":"a","image":"y","volumeMounts":[{"name":"v"},{"name":"token"}]}]}`,
			want:     `"spec":{"containers":[{"name":"sidecar"},{"name":"a","image":"x","volumeMounts":[{"name":"v"},{"name":"token"}]}]}`,
			paths:    []string{"/spec/containers/0"},
		},
		"service account with secrets of controllers": {
			manifest: `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"namespace":"ns","name":"s"},"imagePullSecrets":[{"name":"mine"}]}`,
			live:     `"imagePullSecrets":[{"name":"theirs"}],"secrets":[{"name":"token"}]`,
			want:     `"imagePullSecrets":[{"name":"theirs"},{"name":"mine"}],"secrets":[{"name":"token"}]`,
			paths:    []string{"/imagePullSecrets/0"},
		},
		"aggregated cluster role": {
			manifest: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"r"},"aggregationRule":{"a":1},"rules":[]}`,
			live:     `"aggregationRule":{"a":1},"rules":[{"verbs":["get"]}]`,
		},
		"webhooks keep injected bundles": {
			manifest: `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"w"},
				"webhooks":[{"name":"a","clientConfig":{"url":"x"}},{"name":"b","clientConfig":{"url":"y"}}]}`,
			live:  `"webhooks":[{"name":"a","clientConfig":{"url":"z","caBundle":"A"}},{"name":"b","clientConfig":{"url":"y","caBundle":"B"},"sideEffects":"None"}]`,
			want:  `"webhooks":[{"name":"a","clientConfig":{"url":"x","caBundle":"A"}},{"name":"b","clientConfig":{"url":"y","caBundle":"B"},"sideEffects":"None"}]`,
			paths: []string{"/webhooks/0/clientConfig/url"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := manifest(t, test.manifest)
			for _, previous := range []*strategy.Manifest{nil, m} {
				live := applied(t, m, test.live)
				step := strategy.Plan(m, situation(live, previous))
				if test.want == "" {
					if step.Verb != strategy.Keep {
						t.Fatalf("got %s for %v", step.Verb, step.Differences)
					}
					continue
				}
				checkUpdate(t, step, live, test.want, test.paths)
				// What was written is what is wanted: the next plan finds nothing.
				again := strategy.Plan(m, situation(step.Object, previous))
				if again.Verb != strategy.Keep {
					t.Errorf("it is written again for %v", again.Differences)
				}
			}
		})
	}
}

func situation(live *unstructured.Unstructured, previous *strategy.Manifest) strategy.Situation {
	return strategy.Situation{
		Live: object.Live{State: object.Present, Object: live}, Previous: previous,
		Owner: owner, AgentHash: agentHash, FieldManager: "work-agent",
	}
}

func checkUpdate(t *testing.T, step strategy.Step, live *unstructured.Unstructured, want string, paths []string) {
	t.Helper()
	if step.Verb != strategy.Update {
		t.Fatalf("got %s for %v", step.Verb, step.Differences)
	}
	if diff := cmp.Diff(canonical(t, want), content(t, step.Object)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(paths, step.Differences); diff != "" {
		t.Errorf("differences: %s", diff)
	}
	if step.Object.GetResourceVersion() != live.GetResourceVersion() || step.Object.GetUID() != live.GetUID() {
		t.Errorf("the update is not guarded: %v", step.Object.Object["metadata"])
	}
}

// The manifest is another than the one last applied.
func TestPlanChange(t *testing.T) {
	for name, test := range map[string]struct {
		previous string
		manifest string
		live     string
		managed  []metav1.ManagedFieldsEntry // set: live was read
		forget   bool                        // the agent has restarted
		want     string                      // empty: it has to be read
		paths    []string
	}{
		"an item changed": {
			previous: deploymentHead + `"spec":{"containers":[{"name":"a","image":"x","probe":{"path":"/"}},{"name":"b"}]}}`,
			manifest: deploymentHead + `"spec":{"containers":[{"name":"a","image":"x"},{"name":"b"}]}}`,
			live:     `"spec":{"replicas":5,"containers":[{"name":"a","image":"x","probe":{"path":"/","period":1}},{"name":"b","pull":"Always"}]}`,
			want:     `"spec":{"replicas":5,"containers":[{"name":"a","image":"x"},{"name":"b","pull":"Always"}]}`,
		},
		"nothing but a label": {
			previous: configMap("c", `,"data":{"k":"v"}`),
			manifest: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"c","labels":{"a":"b"}},"data":{"k":"v"}}`,
			live:     `"data":{"k":"v"}`, want: `"data":{"k":"v"}`, paths: []string{"/metadata/labels/a"},
		},
		"a key of a config map is dropped without reading": {
			previous: configMap("c", `,"data":{"k":"v","l":"w"}`), manifest: configMap("c", `,"data":{"k":"v"}`),
			live: `"data":{"k":"v","l":"w"}`, want: `"data":{"k":"v"}`, paths: []string{"/data/l"},
		},
		"a field is dropped: who owns it?": {
			previous: deploymentHead + `"spec":{"replicas":3,"paused":true}}`, manifest: deploymentHead + `"spec":{"paused":true}}`,
			live: `"spec":{"replicas":3,"paused":true}`,
		},
		"a dropped field that is ours": {
			previous: deploymentHead + `"spec":{"replicas":3,"paused":true}}`, manifest: deploymentHead + `"spec":{"paused":true}}`,
			live:    `"spec":{"replicas":3,"paused":true}`,
			managed: []metav1.ManagedFieldsEntry{fields("work-agent", "", `{"f:spec":{"f:replicas":{},"f:paused":{}}}`)},
			want:    `"spec":{"paused":true}`, paths: []string{"/spec/replicas"},
		},
		"a dropped field that an autoscaler has taken": {
			previous: deploymentHead + `"spec":{"replicas":3,"paused":true}}`, manifest: deploymentHead + `"spec":{"paused":true}}`,
			live: `"spec":{"replicas":9,"paused":true}`,
			managed: []metav1.ManagedFieldsEntry{
				fields("work-agent", "", `{"f:spec":{"f:paused":{}}}`), fields("kube-controller-manager", "scale", `{"f:spec":{"f:replicas":{}}}`),
			},
			want: `"spec":{"replicas":9,"paused":true}`,
		},
		"a dropped field that was set through a subresource, whoever did that": {
			previous: deploymentHead + `"spec":{"replicas":3,"paused":true}}`, manifest: deploymentHead + `"spec":{"paused":true}}`,
			live: `"spec":{"replicas":9,"paused":true}`,
			managed: []metav1.ManagedFieldsEntry{
				fields("work-agent", "", `{"f:spec":{"f:paused":{}}}`), fields("work-agent", "scale", `{"f:spec":{"f:replicas":{}}}`),
			},
			want: `"spec":{"replicas":9,"paused":true}`,
		},
		"a dropped field that is shared": {
			previous: deploymentHead + `"spec":{"replicas":3,"paused":true}}`, manifest: deploymentHead + `"spec":{"paused":true}}`,
			live: `"spec":{"replicas":3,"paused":true}`,
			managed: []metav1.ManagedFieldsEntry{
				fields("work-agent", "", `{"f:spec":{"f:replicas":{},"f:paused":{}}}`), fields("other", "", `{"f:spec":{"f:replicas":{}}}`),
			},
			want: `"spec":{"replicas":3,"paused":true}`,
		},
		"a dropped object with a key of others": {
			previous: deploymentHead + `"spec":{"notes":{"a":"1"}}}`, manifest: deploymentHead + `"spec":{"paused":true}}`,
			live: `"spec":{"notes":{"a":"1","b":"2"}}`,
			managed: []metav1.ManagedFieldsEntry{
				fields("work-agent", "", `{"f:spec":{"f:notes":{".":{},"f:a":{}}}}`), fields("other", "", `{"f:spec":{"f:notes":{"f:b":{}}}}`),
			},
			want: `"spec":{"paused":true,"notes":{"b":"2"}}`, paths: []string{"/spec/notes/a", "/spec/paused"},
		},
		"a dropped object of ours, with what the API server put in": {
			previous: deploymentHead + `"spec":{"strategy":{"type":"Recreate"}}}`, manifest: deploymentHead + `"spec":{"paused":true}}`,
			live:    `"spec":{"strategy":{"type":"Recreate","default":1}}`,
			managed: []metav1.ManagedFieldsEntry{fields("work-agent", "", `{"f:spec":{"f:strategy":{".":{},"f:type":{}}}}`)},
			want:    `"spec":{"paused":true}`, paths: []string{"/spec/paused", "/spec/strategy"},
		},
		"after a restart it is read": {
			previous: configMap("c", `,"data":{"k":"v"}`), manifest: configMap("c", `,"data":{"k":"w"}`), forget: true, live: `"data":{"k":"v"}`,
		},
		"after a restart, read": {
			previous: deploymentHead + `"spec":{"replicas":3,"old":1,"containers":[{"name":"a","x":1}]}}`,
			manifest: deploymentHead + `"spec":{"replicas":3,"new":1,"containers":[{"name":"a"}]}}`, forget: true,
			live: `"spec":{"replicas":3,"old":1,"theirs":1,"allocated":1,"containers":[{"name":"a","x":1}]}`,
			managed: []metav1.ManagedFieldsEntry{
				fields("work-agent", "", `{"f:spec":{"f:replicas":{},"f:old":{},"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:x":{}}}}}`),
				fields("other", "", `{"f:spec":{"f:theirs":{}}}`),
			},
			want:  `"spec":{"replicas":3,"new":1,"theirs":1,"allocated":1,"containers":[{"name":"a"}]}`,
			paths: []string{"/spec/new", "/spec/old"},
		},
		"fields of ours in another version stay": {
			previous: deploymentHead + `"spec":{"old":1}}`, manifest: deploymentHead + `"spec":{"new":1}}`,
			live: `"spec":{"old":1}`,
			managed: []metav1.ManagedFieldsEntry{{
				Manager: "work-agent", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "apps/v1beta1", FieldsType: "FieldsV1",
				FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:old":{}}}`),
			}},
			want: `"spec":{"old":1,"new":1}`, paths: []string{"/spec/new"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			previous, m := manifest(t, test.previous), manifest(t, test.manifest)
			live := applied(t, previous, test.live)
			live.SetManagedFields(test.managed)
			s := situation(live, previous)
			s.Complete = test.managed != nil
			if test.forget {
				s.Previous = nil
			}
			step := strategy.Plan(m, s)
			if test.want == "" {
				if step.Verb != strategy.Read {
					t.Fatalf("got %s", step.Verb)
				}
				return
			}
			checkUpdate(t, step, live, test.want, test.paths)
			if got := step.Object.GetAnnotations()[object.HashAnnotation]; got != m.Hash {
				t.Errorf("hash %q, want %q", got, m.Hash)
			}
			if step.Object.GetManagedFields() != nil {
				t.Error("managedFields are sent")
			}
		})
	}
}

func fields(manager, subresource, set string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Subresource: subresource, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "apps/v1",
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(set),
	}
}

func managed(live *unstructured.Unstructured, entries ...metav1.ManagedFieldsEntry) *unstructured.Unstructured {
	live.SetManagedFields(entries)
	return live
}

func TestPlanMetadata(t *testing.T) {
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"}
	stale := owner
	stale.UID, stale.APIVersion = "stale", "work.open-cluster-management.io/v1alpha1"
	second := strategy.Owner("hub-other", "other-uid")
	label := "/metadata/labels/workwire.dev~1agent"
	const ownerPath = "/metadata/ownerReferences"
	for name, test := range map[string]struct {
		owners   []metav1.OwnerReference
		orphan   bool
		labels   map[string]string // instead of the right ones
		declared string            // metadata of the manifest
		want     []metav1.OwnerReference
		wantPath []string // none: nothing is done
	}{
		"right":                {owners: []metav1.OwnerReference{other, owner}},
		"not owned":            {owners: []metav1.OwnerReference{other}, want: []metav1.OwnerReference{other, owner}, wantPath: []string{ownerPath}},
		"owned by another too": {owners: []metav1.OwnerReference{second, owner}},
		"by a former self":     {owners: []metav1.OwnerReference{stale, other}, want: []metav1.OwnerReference{owner, other}, wantPath: []string{ownerPath}},
		"orphaned":             {orphan: true, owners: []metav1.OwnerReference{other, owner}, want: []metav1.OwnerReference{other}, wantPath: []string{ownerPath}},
		"an orphan":            {orphan: true, owners: []metav1.OwnerReference{second}},
		"label lost":           {owners: []metav1.OwnerReference{owner}, labels: map[string]string{"a": "b"}, want: []metav1.OwnerReference{owner}, wantPath: []string{label}},
		"label and annotation drifted": {
			owners: []metav1.OwnerReference{owner}, declared: `"labels":{"x":"1"},"annotations":{"y":"2"}`,
			want: []metav1.OwnerReference{owner}, wantPath: []string{"/metadata/annotations/y", "/metadata/labels/x"},
		},
		"key to remove": {
			owners: []metav1.OwnerReference{owner}, declared: `"labels":{"foreign-":""}`,
			want: []metav1.OwnerReference{owner}, wantPath: []string{"/metadata/labels/foreign"},
		},
		"manifest's own references are not for Update": {owners: []metav1.OwnerReference{owner}, declared: `"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]`},
	} {
		for _, kind := range []workv1.UpdateStrategyType{workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeCreateOnly} {
			t.Run(name+" "+string(kind), func(t *testing.T) {
				declared := test.declared
				if declared != "" {
					declared = "," + declared
				}
				change := []func(*workv1.ManifestWorkSpec){configured(&workv1.UpdateStrategy{Type: kind})}
				if test.orphan {
					change = append(change, orphan)
				}
				m := manifest(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"c"`+declared+`}}`, change...)
				live := applied(t, m, "")
				live.SetOwnerReferences(test.owners)
				labels := map[string]string{object.AgentLabel: agentHash, "foreign": "1"}
				if test.labels != nil {
					labels = test.labels
				}
				live.SetLabels(labels)
				live.SetAnnotations(map[string]string{object.HashAnnotation: m.Hash, "foreign": "1"})
				step := strategy.Plan(m, situation(live, m))
				ours := len(test.wantPath) > 0 && (test.wantPath[0] == ownerPath || test.wantPath[0] == label)
				if test.wantPath == nil || kind == workv1.UpdateStrategyTypeCreateOnly && !ours {
					if step.Verb != strategy.Keep {
						t.Fatalf("got %s for %v", step.Verb, step.Differences)
					}
					return
				}
				checkUpdate(t, step, live, "", test.wantPath)
				if diff := cmp.Diff(test.want, step.Object.GetOwnerReferences()); diff != "" {
					t.Error(diff)
				}
				if step.Object.GetLabels()[object.AgentLabel] != agentHash || step.Object.GetAnnotations()["foreign"] != "1" {
					t.Errorf("labels %v, annotations %v", step.Object.GetLabels(), step.Object.GetAnnotations())
				}
				if again := strategy.Plan(m, situation(step.Object, m)); again.Verb != strategy.Keep {
					t.Errorf("it is written again for %v", again.Differences)
				}
			})
		}
	}
}

// Two works that share an object leave each other's hash alone, and do not drop
// each other's fields.
func TestPlanShared(t *testing.T) {
	m := manifest(t, deploymentHead+`"spec":{"a":1}}`)
	live := applied(t, manifest(t, deploymentHead+`"spec":{"b":1}}`), `"spec":{"a":1,"b":1}`)
	live.SetOwnerReferences([]metav1.OwnerReference{owner, strategy.Owner("other", "other-uid")})
	live.SetManagedFields([]metav1.ManagedFieldsEntry{fields("work-agent", "", `{"f:spec":{"f:a":{},"f:b":{}}}`)})
	s := situation(live, nil)
	s.Complete = true
	if step := strategy.Plan(m, s); step.Verb != strategy.Keep {
		t.Errorf("got %s for %v", step.Verb, step.Differences)
	}
}

func TestPlanRefused(t *testing.T) {
	m := manifest(t, deploymentHead+`"spec":{"strategy":{"type":"Recreate"}}}`)
	live := applied(t, m, `"spec":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}}}`)
	s := situation(live, m)
	s.Refused = true
	if step := strategy.Plan(m, s); step.Verb != strategy.Read {
		t.Fatalf("got %s", step.Verb)
	}
	live.SetManagedFields([]metav1.ManagedFieldsEntry{
		fields("work-agent", "", `{"f:spec":{"f:strategy":{"f:type":{},"f:rollingUpdate":{".":{},"f:maxSurge":{}}}}}`),
	})
	s.Complete = true
	checkUpdate(t, strategy.Plan(m, s), live, `"spec":{"strategy":{"type":"Recreate"}}`,
		[]string{"/spec/strategy/rollingUpdate", "/spec/strategy/type"})
}

func TestPlanServerSide(t *testing.T) {
	m := manifest(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"c",
		"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]},"data":{"k":"v"}}`, configured(serverSide(nil)))
	step := strategy.Plan(m, strategy.Situation{Owner: owner, AgentHash: agentHash, FieldManager: "work-agent"})
	if step.Verb != strategy.Apply {
		t.Fatalf("got %s", step.Verb)
	}
	pod := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"}
	if diff := cmp.Diff([]metav1.OwnerReference{pod, owner}, step.Object.GetOwnerReferences()); diff != "" {
		t.Error(diff)
	}
	versioned := manifest(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"c","resourceVersion":"5"}}`,
		configured(serverSide(nil)))
	if unknown := strategy.Plan(versioned, strategy.Situation{Owner: owner}); unknown.Verb != strategy.Read {
		t.Errorf("a resourceVersion leads to %s", unknown.Verb)
	}
	if sent := strategy.Plan(versioned, situation(decode(t, configMap("c", "")), nil)); sent.Object.GetResourceVersion() != "5" {
		t.Error("the resourceVersion is not sent")
	}
	live := step.Object.DeepCopy()
	live.Object["data"] = map[string]any{"k": "v", "theirs": "x"}
	if again := strategy.Plan(m, situation(live, nil)); again.Verb != strategy.Keep {
		t.Errorf("keys of others lead to %s for %v", again.Verb, again.Differences)
	}
	other := situation(live, nil)
	other.FieldManager = "work-agent-2"
	if again := strategy.Plan(m, other); again.Verb != strategy.Apply {
		t.Errorf("another field manager leads to %s", again.Verb)
	}
	live.Object["data"] = map[string]any{"k": "w"}
	again := strategy.Plan(m, situation(live, m))
	if diff := cmp.Diff([]string{"/data/k"}, again.Differences); again.Verb != strategy.Apply || diff != "" {
		t.Errorf("drift leads to %s, %s", again.Verb, diff)
	}
}

func TestDecideRemoval(t *testing.T) {
	second := strategy.Owner("hub-other", "other-uid")
	foreign := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "p"}
	present := func(deleting bool, refs ...metav1.OwnerReference) object.Live {
		obj := decode(t, configMap("c", ""))
		obj.SetUID("uid")
		obj.SetOwnerReferences(refs)
		if deleting {
			now := metav1.Now()
			obj.SetDeletionTimestamp(&now)
		}
		return object.Live{State: object.Present, Object: obj}
	}
	labelled := func(live object.Live) object.Live {
		live.Object.SetLabels(map[string]string{object.AgentLabel: agentHash})
		return live
	}
	for name, test := range map[string]struct {
		live     object.Live
		complete bool
		uid      types.UID
		orphan   bool
		want     strategy.Removal
	}{
		"unknown":                         {uid: "uid", want: strategy.LookUp},
		"absent from the watch":           {live: object.Live{State: object.Absent}, uid: "uid", want: strategy.LookUp},
		"gone":                            {live: object.Live{State: object.Absent}, complete: true, uid: "uid", want: strategy.Forget},
		"ours":                            {live: present(false, foreign, owner), uid: "uid", want: strategy.Delete},
		"ours, uid not recorded":          {live: present(false, owner), want: strategy.Delete},
		"not ours":                        {live: present(false, foreign), uid: "uid", want: strategy.Forget},
		"of another work":                 {live: present(false, second), uid: "uid", want: strategy.Forget},
		"shared":                          {live: present(false, second, owner), uid: "uid", want: strategy.DropOwner},
		"shared and deleting":             {live: present(true, second, owner), uid: "uid", want: strategy.DropOwner},
		"another object of that name":     {live: present(false, owner), uid: "former", want: strategy.Forget},
		"being deleted":                   {live: present(true, owner), uid: "uid", want: strategy.Await},
		"being deleted, but another one":  {live: present(true, owner), uid: "former", want: strategy.Forget},
		"an orphan, unknown":              {orphan: true, want: strategy.LookUp},
		"an orphan, gone":                 {live: object.Live{State: object.Absent}, complete: true, orphan: true, want: strategy.Forget},
		"an orphan":                       {live: present(false, foreign, owner), orphan: true, want: strategy.DropOwner},
		"an orphan that is deleted":       {live: present(true, owner), orphan: true, want: strategy.DropOwner},
		"an orphan already":               {live: present(false, foreign), orphan: true, want: strategy.Forget},
		"an orphan already, but labelled": {live: labelled(present(false, foreign)), orphan: true, want: strategy.DropOwner},
		"another work's, and labelled":    {live: labelled(present(false, second)), orphan: true, want: strategy.Forget},
	} {
		t.Run(name, func(t *testing.T) {
			entry := strategy.Entry{UID: test.uid, Orphan: test.orphan}
			if got := strategy.DecideRemoval(entry, test.live, test.complete, owner.UID); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
