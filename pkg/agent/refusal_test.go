package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/test/kit"
)

// The window in which requests and log lines of a work that cannot succeed are counted, and how
// many of each are allowed. A refused manifest is tried again after 10 ms, and then after three
// times as long as before, up to a minute: at 10, 40, 130 and 400 ms, 1.2, 3.6, 10.9 and 32.8 s.
// That is seven times in the window and once more in the first minute, and once a minute later. An
// attempt is a request; its log line comes once for each cause. The status of the
// AppliedManifestWork, and a start of a watch, may come on top.
const (
	refusalWindow = 15 * time.Second
	refusalMost   = 9
)

// TestTooManySpecs: an agent that holds as many specs of a source as it may refuses more, says so at the work, and serves other
// sources; once works are gone, it asks for what it has refused.
func TestTooManySpecs(t *testing.T) {
	w := newWorld(t)
	w.Topics.SourceEvents, w.Topics.AgentEvents = "sources/+/clusters/+/sourceevents", "sources/+/clusters/+/agentevents"
	w.Topics.SourceBroadcast, w.Topics.AgentBroadcast = "sources/+/sourcebroadcast", "clusters/+/agentbroadcast"
	works, others := w.source("hub1"), w.source("hub2")
	w.agent(func(c *agent.Config) { c.MaxSourceSpecs, c.DigestInterval = 100<<10, time.Second })
	large := strings.Repeat("x", 60<<10)
	w.deploy(works, "first", configMap("first", large))
	w.Create(works, w.work("second", configMap("second", large)))
	refused := w.Is(works, "second", "Applied=False")
	if c := refused.Status.Conditions[0]; c.Reason != workv1.ReasonTooManySpecs || !strings.Contains(c.Message, "--max-source-specs") {
		t.Errorf("refused with %+v", c)
	}
	w.deploy(works, "small", configMap("small", "1"))
	w.deploy(others, "other", configMap("other", large))
	w.remove(works, "first")
	w.Is(works, "second", "Applied=True")
	w.data("second", large)
}

// refusedWork is a work that cannot succeed, with an agent of its own.
type refusedWork struct {
	*fixture
	works workclientv1.ManifestWorkInterface
	work  *workv1.ManifestWork
	log   *kit.Log
	lines int // of the log, before those that are counted
}

// TestRefusedManifests counts what a work costs that cannot succeed, for each kind of refusal, in one window for all.
func TestRefusedManifests(t *testing.T) {
	t.Parallel()
	refused := map[string]*refusedWork{}
	cases := map[string]struct {
		prepare func(*fixture) []string // returns the manifests
		message string                  // in the log
	}{
		"RBAC": {prepare: func(w *fixture) []string {
			return []string{"{apiVersion: v1, kind: Secret, metadata: {name: refused, namespace: NAMESPACE}}"}
		}, message: "secrets is forbidden"},
		"a webhook": {prepare: func(w *fixture) []string {
			plane.Webhook(w, w.namespace, "workwire.dev/agent", func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
				return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "the webhook does not like it"}}
			})
			return []string{configMap("refused", "1")}
		}, message: "the webhook does not like it"},
		"an invalid object": {prepare: func(w *fixture) []string {
			return []string{"{apiVersion: v1, kind: Service, metadata: {name: refused, namespace: NAMESPACE}, spec: {ports: [{port: 0}]}}"}
		}, message: "is invalid: "},
		"an unknown kind": {prepare: func(w *fixture) []string {
			return []string{"{apiVersion: none.example.com/v1, kind: Nothing, metadata: {name: refused, namespace: NAMESPACE}}"}
		}, message: "have a resource type"},
		"a definition that is terminating": {prepare: func(w *fixture) []string {
			group := w.definition()
			gvr := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "gadgets"}
			w.held(gvr, map[string]any{"apiVersion": group + "/v1", "kind": "Gadget"})
			w.terminate(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, "gadgets."+group)
			return []string{"{apiVersion: " + group + "/v1, kind: Gadget, metadata: {name: refused, namespace: NAMESPACE}}"}
		}, message: "create not allowed while custom resource definition is terminating"},
		"beside an object that others keep changing": {prepare: func(w *fixture) []string {
			w.chatty("chatty")
			return []string{configMap("chatty", "1"), "{apiVersion: v1, kind: Service, metadata: {name: refused, namespace: NAMESPACE}, spec: {ports: [{port: 0}]}}"}
		}, message: "is invalid: "},
		"a namespace that is terminating": {prepare: func(w *fixture) []string {
			w.held(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, map[string]any{"apiVersion": "v1", "kind": "ConfigMap"})
			w.terminate(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, w.namespace)
			return []string{configMap("refused", "1")}
		}, message: "because it is being terminated"},
	}
	for name, test := range cases {
		w := &refusedWork{fixture: newSerialWorld(t), log: &kit.Log{}}
		w.works = w.source("hub1")
		w.work = w.fixture.work("refused", test.prepare(w.fixture)...)
		w.agent(func(c *agent.Config) {
			c.Logger, c.SyncInterval = w.log.Logger(), 5*time.Second
			if name == "RBAC" {
				config := plane.REST()
				config.Impersonate.UserName = w.limited()
				c.Kube = w.requests.Wrap(config)
			}
		})
		refused[name] = w
	}
	for _, w := range refused {
		w.Create(w.works, w.work)
	}
	for _, w := range refused {
		w.Is(w.works, "refused", "Applied=False")
		w.requests.Take()
		w.lines = len(w.log.Lines())
	}
	time.Sleep(refusalWindow)
	for name, w := range refused {
		requests, lines := w.requests.Take(kit.NotWatch), refusalLines(w.log.Lines()[w.lines:])
		t.Logf("%s: %d requests, %d lines", name, len(requests), len(lines))
		if len(requests) > refusalMost {
			t.Errorf("%s: %d requests in %v: %v", name, len(requests), refusalWindow, requests[:min(len(requests), 40)])
		}
		if len(lines) > refusalMost {
			t.Errorf("%s: %d log lines in %v: %s", name, len(lines), refusalWindow, strings.Join(lines[:min(len(lines), 40)], "\n"))
		}
		w.saysOnce(w.log, cases[name].message)
	}
}

// saysOnce checks that the log has one WARN with text about manifests, says nothing twice, and has
// no error.
func (w *fixture) saysOnce(log *kit.Log, text string) {
	w.Helper()
	if failures := log.Lines("level=WARN", "applying a manifest failed", text); len(failures) != 1 {
		w.Errorf("%d lines about the failure, want 1: %s", len(failures), strings.Join(failures, "\n"))
	}
	seen := map[string]bool{}
	for _, line := range log.Lines("level=WARN") {
		_, line, _ = strings.Cut(line, " ") // the time
		if line, _, _ = strings.Cut(line, " notLogged="); seen[line] {
			w.Errorf("logged again: %s", line)
		}
		seen[line] = true
	}
	if errs := log.Lines("level=ERROR"); len(errs) > 0 {
		w.Errorf("errors: %s", strings.Join(errs, "\n"))
	}
}

// TestRefusedRemovals counts what it costs that objects cannot be removed, while others keep changing
// them or their neighbors.
func TestRefusedRemovals(t *testing.T) {
	w := newWorld(t)
	works := w.source("hub1")
	plane.Webhook(w, w.namespace, "kept", func(_ context.Context, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{
			Allowed: r.Name != "probe" && r.Operation != admissionv1.Delete, Result: &metav1.Status{Message: "the webhook keeps it"},
		}
	})
	user, log := "keeper-"+w.namespace, &kit.Log{}
	all := []string{"*"}
	w.grant(user, "keeper", []rbacv1.PolicyRule{
		{APIGroups: []string{"work.open-cluster-management.io"}, Resources: all, Verbs: all},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: all},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch"}},
	})
	w.agent(func(c *agent.Config) {
		c.Logger = log.Logger()
		c.Kube.Impersonate.UserName = user
	})
	kept := func(name string) string {
		return strings.Replace(configMap(name, "1"), "namespace:", "labels: {kept: x}, namespace:", 1)
	}
	w.deploy(works, "forbidden", "{apiVersion: v1, kind: Secret, metadata: {name: forbidden, namespace: NAMESPACE}}")
	w.deploy(works, "denied", kept("denied"))
	w.deploy(works, "held", held(configMap("held", "1")))
	w.deploy(works, "dropped", kept("dropped"), configMap("stays", "1"))
	for _, name := range []string{"denied", "held", "stays"} {
		w.chatty(name)
	}
	for _, name := range []string{"forbidden", "denied", "held"} {
		w.Delete(works, name)
		w.Is(works, name, "Deleting=True")
	}
	w.change(works, "dropped", configMap("stays", "1"))
	for _, name := range []string{"forbidden", "denied", "held", "dropped"} {
		kit.True(t, name+" was tried", func() bool {
			return len(w.requests.All(kit.Named(name), func(r kit.Request) bool { return r.Verb == "delete" })) > 0
		})
	}
	w.requests.Take()
	start := len(log.Lines())
	time.Sleep(refusalWindow)
	requests, lines := w.requests.All(kit.NotWatch), refusalLines(log.Lines()[start:])
	for _, name := range []string{"forbidden", "denied", "held", "dropped"} {
		got := slices.DeleteFunc(slices.Clone(requests), func(r kit.Request) bool { return r.Name != name && !strings.HasSuffix(r.Name, "-"+name) })
		said := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.Contains(line, " work="+name+" ") })
		t.Logf("%s: %d requests, %d lines", name, len(got), len(said))
		most, mostLines := refusalMost, 1
		if name == "denied" { // it changes between a read and a deletion, up to four times in one attempt, and the cause with it
			most, mostLines = 4*refusalMost, refusalMost
		}
		if len(got) > most {
			t.Errorf("%s: %d requests in %v: %v", name, len(got), refusalWindow, got[:min(len(got), 40)])
		}
		if len(said) > mostLines {
			t.Errorf("%s: %d log lines in %v: %s", name, len(said), refusalWindow, strings.Join(said[:min(len(said), 40)], "\n"))
		}
	}
	for _, want := range []string{"cannot delete resource", "the webhook keeps it", "an object waits for its finalizers"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q: %s", want, log)
		}
	}
	w.patch("held", `{"metadata":{"finalizers":null}}`)
	w.Gone(works, "held")
}

// chatty changes a ConfigMap all the time, until the test ends.
func (w *fixture) chatty(name string) {
	w.Helper()
	configMaps := w.cluster.CoreV1().ConfigMaps(w.namespace)
	kit.Run(w, "changes of "+name, func(ctx context.Context) error {
		for i := 0; ctx.Err() == nil; i++ {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"changed":"%d"}}}`, i)
			_, _ = configMaps.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			time.Sleep(50 * time.Millisecond)
		}
		return nil
	})
}

// TestAnotherAgentsRecord has an AppliedManifestWork without a work, from which another agent takes
// the mark for eviction whenever it has one.
func TestAnotherAgentsRecord(t *testing.T) {
	w := newWorld(t)
	works := w.source("hub1")
	log := &kit.Log{}
	w.agent(func(c *agent.Config) { c.Logger = log.Logger() })
	w.deploy(works, "web", configMap("a", "1")) // the source has answered
	w.Is(works, "web", "Applied=True")
	name := strings.Repeat("0", 64) + "-" + w.namespace
	record := &workv1.AppliedManifestWork{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       workv1.AppliedManifestWorkSpec{HubHash: strings.Repeat("0", 64), AgentID: w.BrokerHost, ManifestWorkName: w.namespace},
	}
	w.requests.Take()
	if _, err := w.amws.Create(t.Context(), record, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cleared := 0
	for start := time.Now(); time.Since(start) < 5*time.Second || cleared < 2 && time.Since(start) < kit.Patience; time.Sleep(5 * time.Millisecond) {
		live, err := w.amws.Get(t.Context(), name, metav1.GetOptions{})
		kit.NoError(t, err)
		if live.Status.EvictionStartTime == nil {
			continue
		}
		live.Status.EvictionStartTime = nil
		if _, err := w.amws.UpdateStatus(t.Context(), live, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
		cleared++
	}
	if cleared < 2 {
		t.Errorf("the mark was set %d times: the test tells nothing", cleared)
	}
	if got := w.requests.Take(kit.NotWatch, kit.Named(name)); len(got) > refusalMost {
		t.Errorf("%d requests: %v", len(got), got[:min(len(got), 40)])
	}
	if lines := refusalLines(log.Lines(name)); len(lines) > 1 {
		t.Errorf("%d lines: %s", len(lines), strings.Join(lines[:min(len(lines), 40)], "\n"))
	}
}

// refusalLines returns the lines of level INFO and above.
func refusalLines(lines []string) []string {
	var kept []string
	for _, line := range lines {
		if !strings.Contains(line, "level=DEBUG") {
			kept = append(kept, line)
		}
	}
	return kept
}

// limited returns a user who may do what an agent does, and read Secrets but not write them.
func (w *fixture) limited() string {
	w.Helper()
	user := "limited-" + w.namespace
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{"work.open-cluster-management.io"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch"}},
	}
	meta := metav1.ObjectMeta{Name: user}
	if _, err := w.cluster.RbacV1().ClusterRoles().Create(w.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := w.cluster.RbacV1().ClusterRoleBindings().Create(w.Context(), binding, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	return user
}

func (w *fixture) dynamic() *dynamic.DynamicClient { return dynamic.NewForConfigOrDie(plane.REST()) }

// definition creates a definition of kind Gadget in a group of the test's, which it returns.
func (w *fixture) definition() string {
	w.Helper()
	group := w.namespace + ".example.com"
	resource := w.dynamic().Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gadgets.`+group+`"},
		"spec":{"group":"`+group+`","scope":"Namespaced","names":{"plural":"gadgets","kind":"Gadget"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`),
		&object.Object); err != nil {
		w.Fatal(err)
	}
	if _, err := resource.Create(w.Context(), object, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	return group
}

// held creates an object with a finalizer in the namespace, which goes when the test ends.
func (w *fixture) held(gvr schema.GroupVersionResource, content map[string]any) {
	w.Helper()
	content["metadata"] = map[string]any{"name": "held", "finalizers": []any{"example.com/held"}}
	resource := w.dynamic().Resource(gvr).Namespace(w.namespace)
	kit.Eventually(w, "the held object", func() error {
		_, err := resource.Create(w.Context(), &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
		return err
	})
	w.Cleanup(func() {
		_, _ = resource.Patch(context.Background(), "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
}

// terminate deletes what a held object keeps, and waits until the API server says that it is
// terminating.
func (w *fixture) terminate(gvr schema.GroupVersionResource, name string) {
	w.Helper()
	resource := w.dynamic().Resource(gvr)
	if err := resource.Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		w.Fatal(err)
	}
	kit.Eventually(w, name+" is terminating", func() error {
		live, err := resource.Get(w.Context(), name, metav1.GetOptions{})
		if err == nil && live.GetDeletionTimestamp() == nil {
			err = fmt.Errorf("it is not")
		}
		return err
	})
}
