package plan_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/order"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/ownership"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/strategytest"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

const agentHash = "0123456789abcdef"

var owner = ownership.Reference("hub-work", "owner-uid")

// applied gives an object as the API server has it after m was applied to it: labelled, owned, and
// with content, JSON fields, in place of what m has.
func applied(t testing.TB, m *strategy.Manifest, content string) *unstructured.Unstructured {
	t.Helper()
	live := m.Desired.DeepCopy()
	for key := range live.Object {
		if key != "apiVersion" && key != "kind" && key != "metadata" {
			delete(live.Object, key)
		}
	}
	for key, value := range strategytest.Decode(t, "{"+content+"}").Object {
		live.Object[key] = value
	}
	live.SetUID("uid")
	live.SetResourceVersion("7")
	if err := unstructured.SetNestedField(live.Object, agentHash, "metadata", "labels", object.AgentLabel); err != nil {
		t.Fatal(err)
	}
	if m.Owned {
		live.SetOwnerReferences([]metav1.OwnerReference{owner})
	}
	return live
}

func wantVerb(t *testing.T, step plan.Step, want plan.Verb) {
	t.Helper()
	if step.Verb != want || step.Err != nil {
		t.Fatalf("got %s for %v, %v; want %s", step.Verb, step.Differences, step.Err, want)
	}
}

// digest is what is kept of the last write of m.
func digest(m *strategy.Manifest) string {
	return plan.FieldsDigest(m, m.Desired)
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
	return content(t, strategytest.Decode(t, "{"+fields+"}"))
}

func TestPlanCreate(t *testing.T) {
	m := strategytest.Manifest(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"c","labels":{"a":"b","gone-":""},
		"annotations":{"gone-":""},"finalizers":["x/y"],"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]},"data":{"k":"v"}}`)
	step := plan.Next(m, plan.State{Owner: owner, AgentHash: agentHash})
	if step.Verb != plan.Create || step.Differences != nil {
		t.Fatalf("got %s, %v", step.Verb, step.Differences)
	}
	want := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"c",
		"labels":{"a":"b",%q:%q},"annotations":{},"finalizers":["x/y"],
		"ownerReferences":[{"apiVersion":"work.open-cluster-management.io/v1","kind":"AppliedManifestWork","name":"hub-work","uid":"owner-uid"}]},
		"data":{"k":"v"}}`, object.AgentLabel, agentHash)
	if diff := cmp.Diff(strategytest.Decode(t, want).Object, step.Object.Object); diff != "" {
		t.Error(diff)
	}
	m.Owned = false
	orphaned := plan.Next(m, plan.State{Owner: owner, AgentHash: agentHash})
	if refs := orphaned.Object.GetOwnerReferences(); len(refs) != 0 {
		t.Errorf("an orphan has owner references %v", refs)
	}
}

func TestPlanVerbs(t *testing.T) {
	plain := strategytest.Manifest(t, strategytest.ConfigMap("c", `,"data":{"k":"v"}`))
	other := strategytest.Manifest(t, strategytest.ConfigMap("c", `,"data":{"k":"w"}`))
	versioned := strategytest.Manifest(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"c","resourceVersion":"5"},"data":{"k":"v"}}`)
	readOnly := strategytest.Manifest(t, strategytest.ConfigMap("c", ""), strategytest.Configured(&workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly}))
	createOnly := strategytest.Manifest(t, strategytest.ConfigMap("c", `,"data":{"k":"v"}`), strategytest.Configured(&workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeCreateOnly}))
	serverSide := strategytest.Manifest(t, strategytest.ConfigMap("c", `,"data":{"k":"v"}`), strategytest.Configured(strategytest.ServerSide(nil)))
	present := func(obj *unstructured.Unstructured) object.Live {
		return object.Live{State: object.Present, Object: obj}
	}
	foreign := strategytest.Decode(t, strategytest.ConfigMap("c", `,"data":{"k":"v"}`))
	dropped := strategytest.Manifest(t, strategytest.ConfigMap("c", `,"data":{"k":"v"},"immutable":true`))
	absent := object.Live{State: object.Absent}
	for name, test := range map[string]struct {
		m         *strategy.Manifest
		situation plan.State
		want      plan.Verb
	}{
		"unknown":                     {plain, plan.State{}, plan.Create},
		"absent":                      {plain, plan.State{Live: absent}, plan.Create},
		"unknown, but applied before": {plain, plan.State{Previous: plain}, plan.Read},
		"absent, but applied before":  {plain, plan.State{Live: absent, Previous: plain}, plan.Create},
		"gone, and applied before":    {plain, plan.State{Live: absent, Complete: true, Previous: plain}, plan.Create},
		"resourceVersion, unknown":    {versioned, plan.State{}, plan.Read},
		"resourceVersion, absent":     {versioned, plan.State{Live: absent}, plan.Read},
		"resourceVersion, gone":       {versioned, plan.State{Live: absent, Complete: true}, plan.Create},
		"resourceVersion, present":    {versioned, plan.State{Live: present(applied(t, versioned, `"data":{"k":"v"}`)), FieldsDigest: digest(versioned)}, plan.Keep},
		"the same":                    {plain, plan.State{Live: present(applied(t, plain, `"data":{"k":"v"}`)), Previous: plain}, plan.Keep},
		"the same after a restart":    {plain, plan.State{Live: present(applied(t, plain, `"data":{"k":"v"}`)), FieldsDigest: digest(plain)}, plan.Keep},
		"nothing known":               {plain, plan.State{Live: present(applied(t, plain, `"data":{"k":"v"}`))}, plan.Read},
		"one of several digests":      {plain, plan.State{Live: present(applied(t, plain, `"data":{"k":"v"}`)), FieldsDigest: "A01234567," + digest(plain)}, plan.Keep},
		"a field dropped meanwhile":   {plain, plan.State{Live: present(applied(t, plain, `"data":{"k":"v"}`)), FieldsDigest: digest(dropped)}, plan.Read},
		"changed, previous known":     {other, plan.State{Live: present(applied(t, plain, `"data":{"k":"v"}`)), Previous: plain}, plan.Update},
		"changed, previous unknown":   {other, plan.State{Live: present(applied(t, plain, `"data":{"k":"v"}`)), FieldsDigest: digest(plain)}, plan.Update},
		"changed, nothing known":      {other, plan.State{Live: present(applied(t, plain, `"data":{"k":"v"}`))}, plan.Read},
		"changed, read":               {other, plan.State{Live: present(applied(t, plain, `"data":{"k":"v"}`)), Complete: true}, plan.Update},
		"of others":                   {plain, plan.State{Live: present(foreign), Complete: true}, plan.Update},
		"of others, from the cache":   {plain, plan.State{Live: present(foreign)}, plan.Read},
		"drifted":                     {plain, plan.State{Live: present(applied(t, plain, `"data":{"k":"x"}`)), FieldsDigest: digest(plain)}, plan.Update},
		"read only":                   {readOnly, plan.State{}, plan.Keep},
		"create only, unknown":        {createOnly, plan.State{}, plan.Create},
		"create only, drifted":        {createOnly, plan.State{Live: present(applied(t, createOnly, `"data":{"k":"x"}`))}, plan.Keep},
		"create only, of others":      {createOnly, plan.State{Live: present(foreign)}, plan.Update},
		"server side, unknown":        {serverSide, plan.State{}, plan.Apply},
		"server side, updated before": {serverSide, plan.State{Live: present(applied(t, plain, `"data":{"k":"v"}`)), FieldsDigest: digest(plain)}, plan.Read},
		"server side, created before": {serverSide, plan.State{Live: present(applied(t, plain, `"data":{"k":"v"}`)), FieldsDigest: digest(createOnly)}, plan.Read},
		"server side, the same":       {serverSide, plan.State{Live: present(applied(t, plain, `"data":{"k":"v"}`)), FieldsDigest: digest(serverSide)}, plan.Keep},
		"server side, another shape":  {serverSide, plan.State{Live: present(applied(t, plain, `"data":{"k":"v"}`)), FieldsDigest: "A01234567"}, plan.Apply},
		"server side, updated before, read": {serverSide, plan.State{
			Live: present(managed(applied(t, plain, `"data":{"k":"v"}`), strategytest.Updated("work-agent", "", `{}`))), Complete: true,
		}, plan.MigrateManagedFields},
		"server side, updated by others": {serverSide, plan.State{
			Live: present(managed(applied(t, plain, `"data":{"k":"v"}`), strategytest.Updated("other", "", `{}`))), Complete: true,
		}, plan.Apply},
		"server side, of others": {serverSide, plan.State{Live: present(foreign)}, plan.Apply},
	} {
		t.Run(name, func(t *testing.T) {
			test.situation.Owner, test.situation.AgentHash = owner, agentHash
			before := test.m.Desired.DeepCopy()
			var liveBefore *unstructured.Unstructured
			if test.situation.Live.Object != nil {
				liveBefore = test.situation.Live.Object.DeepCopy()
			}
			step := plan.Next(test.m, test.situation)
			if step.Verb != test.want {
				t.Errorf("got %s %v, want %s", step.Verb, step.Differences, test.want)
			}
			if (step.Object != nil) != (test.want >= plan.Create && test.want != plan.MigrateManagedFields) {
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
			manifest: strategytest.ConfigMap("c", `,"data":{"k":"v"}`), live: `"data":{"k":"v","foreign":"x"},"binaryData":{"b":"AA=="},"immutable":false`,
			want: `"data":{"k":"v"},"immutable":false`, paths: []string{"/binaryData/b", "/data/foreign"},
		},
		"empty config map": {manifest: strategytest.ConfigMap("c", `,"data":{}`), live: ``},
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
			m := strategytest.Manifest(t, test.manifest)
			for _, previous := range []*strategy.Manifest{nil, m} {
				live := applied(t, m, test.live)
				s := situation(live, previous)
				s.FieldsDigest = digest(m)
				step := plan.Next(m, s)
				if test.want == "" {
					wantVerb(t, step, plan.Keep)
					continue
				}
				checkUpdate(t, step, live, test.want, test.paths)
				// What was written is what is wanted: the next plan finds nothing.
				s.Live.Object = step.Object
				again := plan.Next(m, s)
				if again.Verb != plan.Keep {
					t.Errorf("it is written again for %v", again.Differences)
				}
			}
		})
	}
}

func situation(live *unstructured.Unstructured, previous *strategy.Manifest) plan.State {
	return plan.State{
		Live: object.Live{State: object.Present, Object: live}, Previous: previous, Owner: owner, AgentHash: agentHash,
	}
}

func checkUpdate(t *testing.T, step plan.Step, live *unstructured.Unstructured, want string, paths []string) {
	t.Helper()
	wantVerb(t, step, plan.Update)
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
			previous: strategytest.ConfigMap("c", `,"data":{"k":"v"}`),
			manifest: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"c","labels":{"a":"b"}},"data":{"k":"v"}}`,
			live:     `"data":{"k":"v"}`, want: `"data":{"k":"v"}`, paths: []string{"/metadata/labels/a"},
		},
		"a key of a config map is dropped without reading": {
			previous: strategytest.ConfigMap("c", `,"data":{"k":"v","l":"w"}`), manifest: strategytest.ConfigMap("c", `,"data":{"k":"v"}`),
			live: `"data":{"k":"v","l":"w"}`, want: `"data":{"k":"v"}`, paths: []string{"/data/l"},
		},
		"a field is dropped: who owns it?": {
			previous: deploymentHead + `"spec":{"replicas":3,"paused":true}}`, manifest: deploymentHead + `"spec":{"paused":true}}`,
			live: `"spec":{"replicas":3,"paused":true}`,
		},
		"a dropped field that is ours": {
			previous: deploymentHead + `"spec":{"replicas":3,"paused":true}}`, manifest: deploymentHead + `"spec":{"paused":true}}`,
			live:    `"spec":{"replicas":3,"paused":true}`,
			managed: []metav1.ManagedFieldsEntry{strategytest.Updated("work-agent", "", `{"f:spec":{"f:replicas":{},"f:paused":{}}}`)},
			want:    `"spec":{"paused":true}`, paths: []string{"/spec/replicas"},
		},
		"a dropped field that an autoscaler has taken": {
			previous: deploymentHead + `"spec":{"replicas":3,"paused":true}}`, manifest: deploymentHead + `"spec":{"paused":true}}`,
			live: `"spec":{"replicas":9,"paused":true}`,
			managed: []metav1.ManagedFieldsEntry{
				strategytest.Updated("work-agent", "", `{"f:spec":{"f:paused":{}}}`), strategytest.Updated("kube-controller-manager", "scale", `{"f:spec":{"f:replicas":{}}}`),
			},
			want: `"spec":{"replicas":9,"paused":true}`,
		},
		"a dropped field that was set through a subresource, whoever did that": {
			previous: deploymentHead + `"spec":{"replicas":3,"paused":true}}`, manifest: deploymentHead + `"spec":{"paused":true}}`,
			live: `"spec":{"replicas":9,"paused":true}`,
			managed: []metav1.ManagedFieldsEntry{
				strategytest.Updated("work-agent", "", `{"f:spec":{"f:paused":{}}}`), strategytest.Updated("work-agent", "scale", `{"f:spec":{"f:replicas":{}}}`),
			},
			want: `"spec":{"replicas":9,"paused":true}`,
		},
		"a dropped field that is shared": {
			previous: deploymentHead + `"spec":{"replicas":3,"paused":true}}`, manifest: deploymentHead + `"spec":{"paused":true}}`,
			live: `"spec":{"replicas":3,"paused":true}`,
			managed: []metav1.ManagedFieldsEntry{
				strategytest.Updated("work-agent", "", `{"f:spec":{"f:replicas":{},"f:paused":{}}}`), strategytest.Updated("other", "", `{"f:spec":{"f:replicas":{}}}`),
			},
			want: `"spec":{"replicas":3,"paused":true}`,
		},
		"a dropped object with a key of others": {
			previous: deploymentHead + `"spec":{"notes":{"a":"1"}}}`, manifest: deploymentHead + `"spec":{"paused":true}}`,
			live: `"spec":{"notes":{"a":"1","b":"2"}}`,
			managed: []metav1.ManagedFieldsEntry{
				strategytest.Updated("work-agent", "", `{"f:spec":{"f:notes":{".":{},"f:a":{}}}}`), strategytest.Updated("other", "", `{"f:spec":{"f:notes":{"f:b":{}}}}`),
			},
			want: `"spec":{"paused":true,"notes":{"b":"2"}}`, paths: []string{"/spec/notes/a", "/spec/paused"},
		},
		"a dropped object of ours, with what the API server put in": {
			previous: deploymentHead + `"spec":{"strategy":{"type":"Recreate"}}}`, manifest: deploymentHead + `"spec":{"paused":true}}`,
			live:    `"spec":{"strategy":{"type":"Recreate","default":1}}`,
			managed: []metav1.ManagedFieldsEntry{strategytest.Updated("work-agent", "", `{"f:spec":{"f:strategy":{".":{},"f:type":{}}}}`)},
			want:    `"spec":{"paused":true}`, paths: []string{"/spec/paused", "/spec/strategy"},
		},
		"after a restart, another value": {
			previous: strategytest.ConfigMap("c", `,"data":{"k":"v"}`), manifest: strategytest.ConfigMap("c", `,"data":{"k":"w"}`), forget: true, live: `"data":{"k":"v"}`,
			want: `"data":{"k":"w"}`, paths: []string{"/data/k"},
		},
		"after a restart without a field it is read": {
			previous: deploymentHead + `"spec":{"replicas":3,"old":1}}`, manifest: deploymentHead + `"spec":{"replicas":3}}`, forget: true,
			live: `"spec":{"replicas":3,"old":1}`,
		},
		"after a restart, read": {
			previous: deploymentHead + `"spec":{"replicas":3,"old":1,"containers":[{"name":"a","x":1}]}}`,
			manifest: deploymentHead + `"spec":{"replicas":3,"new":1,"containers":[{"name":"a"}]}}`, forget: true,
			live: `"spec":{"replicas":3,"old":1,"theirs":1,"allocated":1,"containers":[{"name":"a","x":1}]}`,
			managed: []metav1.ManagedFieldsEntry{
				strategytest.Updated("work-agent", "", `{"f:spec":{"f:replicas":{},"f:old":{},"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:x":{}}}}}`),
				strategytest.Updated("other", "", `{"f:spec":{"f:theirs":{}}}`),
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
			previous, m := strategytest.Manifest(t, test.previous), strategytest.Manifest(t, test.manifest)
			live := applied(t, previous, test.live)
			live.SetManagedFields(test.managed)
			s := situation(live, previous)
			s.Complete = test.managed != nil
			if test.forget {
				s.Previous, s.FieldsDigest = nil, digest(previous)
			}
			step := plan.Next(m, s)
			if test.want == "" {
				wantVerb(t, step, plan.Read)
				return
			}
			checkUpdate(t, step, live, test.want, test.paths)
			if got := step.Object.GetAnnotations(); len(got) > 0 {
				t.Errorf("annotations %v", got)
			}
			if step.Object.GetManagedFields() != nil {
				t.Error("managedFields are sent")
			}
		})
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
	second := ownership.Reference("hub-other", "other-uid")
	label := "/metadata/labels/workwire.dev~1agent"
	const ownerPath = "/metadata/ownerReferences"
	const ignoring = workv1.ManifestConfigSpecHashAnnotationKey
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
		"shared, label lost": {
			owners: []metav1.OwnerReference{second, owner}, labels: map[string]string{"a": "b"}, want: []metav1.OwnerReference{second, owner}, wantPath: []string{label},
		},
		"orphaned, of others": {orphan: true, owners: []metav1.OwnerReference{owner}, wantPath: []string{ownerPath}},
		"orphaned":            {orphan: true, owners: []metav1.OwnerReference{other, owner}, want: []metav1.OwnerReference{other}, wantPath: []string{ownerPath}},
		"an orphan":           {orphan: true, owners: []metav1.OwnerReference{second}},
		"label lost":          {owners: []metav1.OwnerReference{owner}, labels: map[string]string{"a": "b"}, want: []metav1.OwnerReference{owner}, wantPath: []string{label}},
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
				change := []func(*workv1.ManifestWorkSpec){strategytest.Configured(&workv1.UpdateStrategy{Type: kind})}
				if test.orphan {
					change = append(change, strategytest.Orphan)
				}
				m := strategytest.Manifest(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"c"`+declared+`}}`, change...)
				live := applied(t, m, "")
				live.SetOwnerReferences(test.owners)
				labels := map[string]string{object.AgentLabel: agentHash, "foreign": "1"}
				if test.labels != nil {
					labels = test.labels
				}
				live.SetLabels(labels)
				live.SetAnnotations(map[string]string{"foreign": "1", ignoring: ""})
				live.SetManagedFields([]metav1.ManagedFieldsEntry{})
				step := plan.Next(m, situation(live, m))
				ours := len(test.wantPath) > 0 && (test.wantPath[0] == ownerPath || test.wantPath[0] == label)
				if test.wantPath == nil || kind == workv1.UpdateStrategyTypeCreateOnly && !ours {
					wantVerb(t, step, plan.Keep)
					return
				}
				checkUpdate(t, step, live, "", test.wantPath)
				if diff := cmp.Diff(test.want, step.Object.GetOwnerReferences()); diff != "" {
					t.Error(diff)
				}
				annotations := step.Object.GetAnnotations()
				if step.Object.GetLabels()[object.AgentLabel] != agentHash || annotations["foreign"] != "1" {
					t.Errorf("labels %v, annotations %v", step.Object.GetLabels(), annotations)
				}
				if step.Object.GetManagedFields() != nil {
					t.Errorf("managedFields stay: %v", step.Object.Object["metadata"])
				}
				// The hash of ignoreFields is true until the content is written; that of a shared object may be another work's.
				if _, still := annotations[ignoring]; still != (kind == workv1.UpdateStrategyTypeCreateOnly || len(test.owners) > 1 && test.owners[0].UID == second.UID) {
					t.Errorf("the hash of ignoreFields stays: %t", still)
				}
				wantVerb(t, plan.Next(m, situation(step.Object, m)), plan.Keep)
			})
		}
	}
}

// Two works that share an object leave each other's hash alone, and do not drop each other's
// fields.
func TestPlanShared(t *testing.T) {
	m := strategytest.Manifest(t, deploymentHead+`"spec":{"a":1}}`)
	live := applied(t, strategytest.Manifest(t, deploymentHead+`"spec":{"b":1}}`), `"spec":{"a":1,"b":1}`)
	live.SetOwnerReferences([]metav1.OwnerReference{owner, ownership.Reference("other", "other-uid")})
	live.SetManagedFields([]metav1.ManagedFieldsEntry{strategytest.Updated("work-agent", "", `{"f:spec":{"f:a":{},"f:b":{}}}`)})
	s := situation(live, nil)
	s.Complete = true
	wantVerb(t, plan.Next(m, s), plan.Keep)
	// What the work drops stays, and the change is written without a look at who has what.
	s.Complete, s.Previous = false, strategytest.Manifest(t, deploymentHead+`"spec":{"a":1,"b":1}}`)
	checkUpdate(t, plan.Next(m, s), live, `"spec":{"a":1,"b":1}`, nil)
	m.Strategy = workv1.UpdateStrategyTypeServerSideApply
	wantVerb(t, plan.Next(m, s), plan.Apply)
}

func TestPlanRefused(t *testing.T) {
	m := strategytest.Manifest(t, deploymentHead+`"spec":{"strategy":{"type":"Recreate"}}}`)
	live := applied(t, m, `"spec":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}}}`)
	s := situation(live, m)
	s.Refused = &plan.Refusal{Object: live, Err: errors.New("invalid")}
	wantVerb(t, plan.Next(m, s), plan.Read)
	live.SetManagedFields([]metav1.ManagedFieldsEntry{
		strategytest.Updated("work-agent", "", `{"f:spec":{"f:strategy":{"f:type":{},"f:rollingUpdate":{".":{},"f:maxSurge":{}}}}}`),
	})
	s.Complete = true
	checkUpdate(t, plan.Next(m, s), live, `"spec":{"strategy":{"type":"Recreate"}}`,
		[]string{"/spec/strategy/rollingUpdate", "/spec/strategy/type"})
}

// TestPlanRecreate: an object is recreated only if its manifest allows it, the API server refuses each form of the update
// for immutable fields, and nobody else has it.
func TestPlanRecreate(t *testing.T) {
	m := strategytest.Manifest(t, deploymentHead+`"spec":{"a":1}}`)
	m.RecreateOnImmutable = true
	forbidden := *m
	forbidden.RecreateOnImmutable = false
	immutable := causes(metav1.StatusReasonInvalid, 422, metav1.CauseTypeFieldValueInvalid, "field is immutable")
	deleted := metav1.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, test := range map[string]struct {
		m       *strategy.Manifest
		live    string // content
		change  func(*unstructured.Unstructured)
		err     error
		another bool // another form of the update was refused
		absent  bool
		want    plan.Verb
		wantErr string
	}{
		"refused":                   {m: m, live: `"spec":{"a":2}`, err: immutable, want: plan.Recreate},
		"another update is refused": {m: m, live: `"spec":{"a":2}`, err: immutable, another: true, want: plan.Update},
		"gone meanwhile":            {m: m, err: immutable, absent: true, want: plan.Create},
		"as declared meanwhile":     {m: m, live: `"spec":{"a":1}`, err: immutable, want: plan.Recreate},
		"not allowed":               {m: &forbidden, live: `"spec":{"a":2}`, err: immutable, wantErr: immutable.Error()},
		"for another reason":        {m: m, live: `"spec":{"a":2}`, err: errors.New("no"), wantErr: "no"},
		"shared": {m: m, live: `"spec":{"a":2}`, err: immutable, change: func(live *unstructured.Unstructured) {
			live.SetOwnerReferences([]metav1.OwnerReference{owner, ownership.Reference("other", "other-uid")})
		}, wantErr: immutable.Error() + "; the object is another work's too, so it is not recreated"},
		"as declared, but being deleted": {m: m, live: `"spec":{"a":1}`, err: immutable, change: func(live *unstructured.Unstructured) {
			live.SetDeletionTimestamp(&deleted)
		}, wantErr: "is being deleted, to be recreated for a change of immutable fields, but is ending gracefully, by 2026-01-02T03:04:05Z"},
		"being deleted, with finalizers": {m: m, live: `"spec":{"a":2}`, err: immutable, change: func(live *unstructured.Unstructured) {
			live.SetDeletionTimestamp(&deleted)
			live.SetFinalizers([]string{"a/b", "c/d"})
		}, wantErr: "but is held by its finalizers a/b, c/d"},
	} {
		t.Run(name, func(t *testing.T) {
			live := applied(t, m, test.live)
			if test.change != nil {
				test.change(live)
			}
			s := situation(live, m)
			s.Complete = true
			if test.absent {
				s.Live = object.Live{State: object.Absent}
			}
			refused := plan.Next(&forbidden, s).Object
			if refused == nil || test.another {
				refused = live
			}
			s.Refused = &plan.Refusal{Object: refused, Err: test.err}
			step := plan.Next(test.m, s)
			if text := strategytest.ErrorText(step.Err); step.Verb != test.want || !strings.HasSuffix(text, test.wantErr) || (text == "") != (test.wantErr == "") {
				t.Errorf("got %s, %q; want %s, %q", step.Verb, text, test.want, test.wantErr)
			}
		})
	}
	// Without an answer of the API server, it is not known what holds the object.
	if got := plan.AwaitingDeletion(m, applied(t, m, "")).Error(); !strings.HasSuffix(got, "but is ending gracefully") {
		t.Errorf("got %q", got)
	}
	// An object on its way out is not written.
	live := applied(t, m, `"spec":{"a":2}`)
	for _, m := range []*strategy.Manifest{m, &forbidden} {
		if step := plan.Next(m, situation(live, m)); step.Verb != plan.Update {
			t.Errorf("got %s, %v", step.Verb, step.Err)
		}
	}
	live.SetDeletionTimestamp(&deleted)
	if step := plan.Next(m, situation(live, m)); step.Err == nil {
		t.Errorf("got %s", step.Verb)
	}
	wantVerb(t, plan.Next(&forbidden, situation(live, &forbidden)), plan.Update)
}

// TestNormalize: what the API server made of a manifest is no drift, until it changes or the manifest does.
func TestNormalize(t *testing.T) {
	m := strategytest.Manifest(t, deploymentHead+`"spec":{"a":"1 "}}`)
	answer := applied(t, m, `"spec":{"a":"1"}`)
	if got := plan.Normalize(m, applied(t, m, `"spec":{"a":"1 "}`)); got != nil {
		t.Errorf("stored as it is: %v", got)
	}
	s := situation(answer, m)
	s.Normalized = plan.Normalize(m, answer)
	wantVerb(t, plan.Next(m, s), plan.Keep)
	other := *m
	other.Hash = "other"
	s.Previous = &other
	wantVerb(t, plan.Next(&other, s), plan.Update)
}

// TestManagersToMigrate: the agent's own managers are that of the manifest, that of the one before, and on an object of
// this work only the default one.
func TestManagersToMigrate(t *testing.T) {
	m := strategytest.Manifest(t, strategytest.ConfigMap("c", ""), strategytest.Configured(strategytest.ServerSide(nil)))
	previous := *m
	m.FieldManager, previous.FieldManager = "now", "before"
	live := managed(applied(t, m, ""), strategytest.Updated("now", "", `{}`), strategytest.Updated("before", "", `{}`), strategytest.Updated("work-agent", "", `{}`),
		strategytest.Updated("now", "", `{}`), strategytest.Applied("now", `{}`), strategytest.Updated("kubectl", "", `{}`))
	second := ownership.Reference("other", "other-uid")
	for name, test := range map[string]struct {
		owners []metav1.OwnerReference
		want   []string
	}{
		"ours":          {[]metav1.OwnerReference{owner}, []string{"now", "before", "work-agent"}},
		"shared":        {[]metav1.OwnerReference{owner, second}, []string{"now", "before"}},
		"not yet owned": {[]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "p"}}, []string{"now", "before"}},
	} {
		live.SetOwnerReferences(test.owners)
		if diff := cmp.Diff(test.want, plan.ManagersToMigrate(m, situation(live, &previous))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	s := situation(live, nil)
	s.Live.Object.SetManagedFields([]metav1.ManagedFieldsEntry{strategytest.Updated("now", "status", `{}`)})
	if got := plan.ManagersToMigrate(m, s); got != nil {
		t.Errorf("of a subresource: %v", got)
	}
}

func TestPlanServerSide(t *testing.T) {
	m := strategytest.Manifest(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"c",
		"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]},"data":{"k":"v"}}`, strategytest.Configured(strategytest.ServerSide(nil)))
	step := plan.Next(m, plan.State{Owner: owner, AgentHash: agentHash})
	wantVerb(t, step, plan.Apply)
	pod := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"}
	if diff := cmp.Diff([]metav1.OwnerReference{pod, owner}, step.Object.GetOwnerReferences()); diff != "" {
		t.Error(diff)
	}
	versioned := strategytest.Manifest(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"c","resourceVersion":"5"}}`,
		strategytest.Configured(strategytest.ServerSide(nil)))
	if unknown := plan.Next(versioned, plan.State{Owner: owner}); unknown.Verb != plan.Read {
		t.Errorf("a resourceVersion leads to %s", unknown.Verb)
	}
	if sent := plan.Next(versioned, situation(strategytest.Decode(t, strategytest.ConfigMap("c", "")), nil)); sent.Object.GetResourceVersion() != "5" {
		t.Error("the resourceVersion is not sent")
	}
	live := step.Object.DeepCopy()
	live.Object["data"] = map[string]any{"k": "v", "theirs": "x"}
	other := situation(live, nil)
	other.FieldsDigest = digest(m)
	wantVerb(t, plan.Next(m, other), plan.Keep)
	byAnother := *m
	byAnother.FieldManager = "work-agent-2"
	wantVerb(t, plan.Next(&byAnother, other), plan.Apply)
	live.Object["data"] = map[string]any{"k": "w"}
	again := plan.Next(m, situation(live, m))
	if diff := cmp.Diff([]string{"/data/k"}, again.Differences); again.Verb != plan.Apply || diff != "" {
		t.Errorf("drift leads to %s, %s", again.Verb, diff)
	}
	live.Object["data"] = map[string]any{"k": "v"}
	live.SetOwnerReferences([]metav1.OwnerReference{pod})
	live.SetLabels(nil)
	again = plan.Next(m, situation(live, m))
	if diff := cmp.Diff([]string{"/metadata/labels/workwire.dev~1agent", "/metadata/ownerReferences"}, again.Differences); again.Verb != plan.Apply || diff != "" {
		t.Errorf("lost marks lead to %s, %s", again.Verb, diff)
	}
}

func TestNextRemoval(t *testing.T) {
	second := ownership.Reference("hub-other", "other-uid")
	foreign := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "p"}
	present := func(deleting bool, refs ...metav1.OwnerReference) object.Live {
		obj := strategytest.Decode(t, strategytest.ConfigMap("c", ""))
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
		orphan   bool
		owned    bool
		want     plan.RemovalStep
	}{
		"unknown":                         {want: plan.LookUp},
		"absent from the watch":           {live: object.Live{State: object.Absent}, want: plan.LookUp},
		"gone":                            {live: object.Live{State: object.Absent}, complete: true, want: plan.Forget},
		"ours":                            {live: present(false, foreign, owner), want: plan.Delete},
		"not ours":                        {live: present(false, foreign), complete: true, want: plan.Forget},
		"not ours, by a watch":            {live: present(false, foreign), want: plan.LookUp},
		"of another work":                 {live: present(false, second), complete: true, want: plan.Forget},
		"of another work, by a watch":     {live: present(false, second), want: plan.LookUp},
		"shared":                          {live: present(false, second, owner), want: plan.DropOwner},
		"shared and deleting":             {live: present(true, second, owner), want: plan.DropOwner},
		"being deleted":                   {live: present(true, owner), want: plan.Await},
		"an strategytest.Orphan, unknown": {orphan: true, want: plan.LookUp},
		"an strategytest.Orphan, gone":    {live: object.Live{State: object.Absent}, complete: true, orphan: true, want: plan.Forget},
		"an orphan":                       {live: present(false, foreign, owner), orphan: true, want: plan.DropOwner},
		"an orphan that is deleted":       {live: present(true, owner), orphan: true, want: plan.DropOwner},
		"an orphan already":               {live: present(false, foreign), complete: true, orphan: true, want: plan.Forget},
		"an orphan already, by a watch":   {live: present(false, foreign), orphan: true, want: plan.LookUp},
		"an orphan already, but labelled": {live: labelled(present(false, foreign)), orphan: true, want: plan.DropOwner},
		"labelled, if owned":              {live: labelled(present(false, foreign)), complete: true, orphan: true, owned: true, want: plan.Forget},
		"an orphan, if owned":             {live: present(false, owner), orphan: true, owned: true, want: plan.DropOwner},
		"another work's, and labelled":    {live: labelled(present(false, second)), complete: true, orphan: true, want: plan.Forget},
	} {
		t.Run(name, func(t *testing.T) {
			entry := plan.Removal{Orphan: test.orphan, OwnedOnly: test.owned}
			if got := plan.NextRemoval(entry, test.live, test.complete, owner.UID); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// removed is an object that is to be removed.
type removed struct {
	place  *order.Item
	step   plan.RemovalStep
	orphan bool
}

// The highest place goes first, and a lower one once nothing is left there that is to be deleted.
func TestHoldRemovals(t *testing.T) {
	at := func(wave int, step plan.RemovalStep) removed {
		return removed{place: &order.Item{Wave: wave}, step: step}
	}
	hook := func(hook string, step plan.RemovalStep) removed {
		return removed{place: &order.Item{Hook: hook}, step: step}
	}
	orphan := func(o removed) removed { o.orphan = true; return o }
	unknown := removed{step: plan.LookUp}
	for name, test := range map[string]struct {
		objects   []removed
		unordered bool
		want      []plan.RemovalStep // of each; only that of Delete and DropOwner may differ
	}{
		"nothing":                              {},
		"no waves":                             {objects: []removed{at(0, plan.Delete), at(0, plan.Await), at(0, plan.DropOwner)}, want: []plan.RemovalStep{plan.Delete, plan.Await, plan.DropOwner}},
		"three waves":                          {objects: []removed{at(0, plan.Delete), at(-1, plan.Delete), at(7, plan.Delete), at(7, plan.Delete)}, want: []plan.RemovalStep{plan.Hold, plan.Hold, plan.Delete, plan.Delete}},
		"the highest is gone":                  {objects: []removed{at(0, plan.Delete), at(-1, plan.Delete), at(7, plan.Forget)}, want: []plan.RemovalStep{plan.Delete, plan.Hold, plan.Forget}},
		"the highest waits for finalizers":     {objects: []removed{at(0, plan.Delete), at(7, plan.Await), at(7, plan.Delete)}, want: []plan.RemovalStep{plan.Hold, plan.Await, plan.Delete}},
		"somebody has deleted a lower one":     {objects: []removed{at(0, plan.Await), at(1, plan.Delete)}, want: []plan.RemovalStep{plan.Await, plan.Delete}},
		"hooks":                                {objects: []removed{hook(workv1.HookBefore, plan.Delete), at(-9, plan.Delete), hook(workv1.HookAfter, plan.Delete)}, want: []plan.RemovalStep{plan.Hold, plan.Hold, plan.Delete}},
		"a hook before":                        {objects: []removed{hook(workv1.HookBefore, plan.Delete), at(-9, plan.Await)}, want: []plan.RemovalStep{plan.Hold, plan.Await}},
		"an orphan is not waited for":          {objects: []removed{at(0, plan.Delete), orphan(at(1, plan.DropOwner)), orphan(unknown)}, want: []plan.RemovalStep{plan.Delete, plan.DropOwner, plan.LookUp}},
		"nor does it wait":                     {objects: []removed{orphan(at(0, plan.DropOwner)), at(1, plan.Delete)}, want: []plan.RemovalStep{plan.DropOwner, plan.Delete}},
		"what others have, too, waits":         {objects: []removed{at(0, plan.DropOwner), at(1, plan.Await)}, want: []plan.RemovalStep{plan.Hold, plan.Await}},
		"but is not waited for":                {objects: []removed{at(0, plan.Delete), at(1, plan.DropOwner)}, want: []plan.RemovalStep{plan.Delete, plan.DropOwner}},
		"what is not known may be the highest": {objects: []removed{unknown, at(9, plan.Delete)}, want: []plan.RemovalStep{plan.LookUp, plan.Hold}},
		"what seems to be somebody else's is not waited for": {objects: []removed{at(9, plan.LookUp), at(0, plan.Delete), at(8, plan.Delete)}, want: []plan.RemovalStep{plan.LookUp, plan.Hold, plan.Delete}},
		"but not in a work without an order":                 {objects: []removed{unknown, at(9, plan.Delete), at(8, plan.Delete)}, unordered: true, want: []plan.RemovalStep{plan.LookUp, plan.Delete, plan.Hold}},
	} {
		var entries []plan.Removal
		var steps []plan.RemovalStep
		var places []*order.Item
		for _, o := range test.objects {
			entries, steps, places = append(entries, plan.Removal{Orphan: o.orphan}), append(steps, o.step), append(places, o.place)
		}
		if diff := cmp.Diff(test.want, plan.HoldRemovals(entries, steps, places, !test.unordered)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Unknown fields are kept where they are, and sent where they are declared.
func TestUpdateKeepsUnknownFields(t *testing.T) {
	for _, head := range []string{
		`"apiVersion":"v1","kind":"Namespace"`, `"apiVersion":"v1","kind":"ServiceAccount"`, `"apiVersion":"v1","kind":"Pod"`,
		`"apiVersion":"v1","kind":"ConfigMap"`, `"apiVersion":"v1","kind":"Secret"`, `"apiVersion":"v1","kind":"Service"`,
		`"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole"`, `"apiVersion":"apps/v1","kind":"Deployment"`,
		`"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration"`,
	} {
		m := strategytest.Manifest(t, `{`+head+`,"metadata":{"namespace":"ns","name":"x"},"future":{"declared":{"of":[1]}},"spec":{"future":true,"list":[{"name":"a","future":1}]}}`)
		live := applied(t, m, `"future":{"declared":{"of":[2]},"kept":1},"theirs":{"a":1},"spec":{"future":true,"kept":1,"list":[{"name":"a","future":1,"kept":1}]}`)
		step := plan.Next(m, situation(live, m))
		checkUpdate(t, step, live,
			`"future":{"declared":{"of":[1]},"kept":1},"theirs":{"a":1},"spec":{"future":true,"kept":1,"list":[{"name":"a","future":1,"kept":1}]}`,
			[]string{"/future/declared/of/0"})
	}
}

// A Pod's lists of plain values are compared as they are: only lists of objects are what admission
// adds to.
func TestUpdateComparesPlainListsOfPods(t *testing.T) {
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"ns","name":"p"},"spec":{"containers":[{"name":"a","args":["b"]}]}}`
	m := strategytest.Manifest(t, pod)
	live := applied(t, m, `"spec":{"containers":[{"name":"a","args":["a","b"],"volumeMounts":[{"name":"token"}]}],"tolerations":[{}]}`)
	checkUpdate(t, plan.Next(m, situation(live, m)), live,
		`"spec":{"containers":[{"name":"a","args":["b"],"volumeMounts":[{"name":"token"}]}],"tolerations":[{}]}`, []string{"/spec/containers/0"})
}
