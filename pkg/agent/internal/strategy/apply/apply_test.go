package apply_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/strategytest"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
)

// everyKind has one manifest of each kind that the API server, its admission or its controllers
// fill in, written in ways that it normalises.
var everyKind = []string{
	`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"NS-own"}}`,
	`{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","metadata":{"name":"NS"},"value":5}`,
	`{"apiVersion":"storage.k8s.io/v1","kind":"StorageClass","metadata":{"name":"NS"},"provisioner":"x/y"}`,
	`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gadgets.NS.example.com"},
		"spec":{"group":"NS.example.com","scope":"Namespaced","names":{"plural":"gadgets","kind":"Gadget"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`,
	`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"NS"},
		"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"aggregate":"NS"}}]},"rules":[]}`,
	`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"NS-part","labels":{"aggregate":"NS"}},
		"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}`,
	`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"namespace":"NS","name":"r"},
		"rules":[{"apiGroups":["apps"],"resources":["deployments"],"verbs":["get"]}]}`,
	`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"namespace":"NS","name":"r"},
		"roleRef":{"kind":"Role","name":"r","apiGroup":""},"subjects":[{"kind":"User","name":"u"},{"kind":"ServiceAccount","name":"s","namespace":"NS"}]}`,
	`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"namespace":"NS","name":"s"},"imagePullSecrets":[{"name":"p"}]}`,
	`{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"namespace":"NS","name":"n"},"spec":{"podSelector":{},"egress":[]}}`,
	`{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"namespace":"NS","name":"q"},"spec":{"hard":{"pods":1000,"cpu":"2000m"}}}`,
	`{"apiVersion":"v1","kind":"LimitRange","metadata":{"namespace":"NS","name":"l"},"spec":{"limits":[{"type":"Container","max":{"cpu":"4000m"}}]}}`,
	`{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"namespace":"NS","name":"p"},"spec":{"minAvailable":1,"selector":{"matchLabels":{"a":"b"}}}}`,
	`{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"NS","name":"s"},"stringData":{"a":"1"},"data":{"b":"Mg=="}}`,
	`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"NS","name":"c"},"data":{"a":"1"}}`,
	`{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"namespace":"NS","name":"p"},
		"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1024Mi"}},"storageClassName":"NS"}}`,
	`{"apiVersion":"v1","kind":"Service","metadata":{"namespace":"NS","name":"s"},"spec":{"type":"NodePort","ports":[{"name":"a","port":80},{"name":"b","port":81,"targetPort":"b"}],"selector":{"a":"b"}}}`,
	`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"NS","name":"d","creationTimestamp":null},"spec":{"replicas":1,"minReadySeconds":0,
		"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"creationTimestamp":null,"labels":{"a":"b"}},"spec":{"hostNetwork":false,"containers":[
		{"name":"c","image":"x","command":[],"resources":{"limits":{"cpu":"1000m","memory":"1024Mi"},"requests":{"cpu":1}},
		"env":[{"name":"E","value":""}],"securityContext":{}}],"volumes":[{"name":"v","emptyDir":{}}]}}}}`,
	`{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"namespace":"NS","name":"s"},"spec":{"serviceName":"s",
		"selector":{"matchLabels":{"s":"s"}},"template":{"metadata":{"labels":{"s":"s"}},"spec":{"containers":[{"name":"c","image":"x",
		"resources":{"limits":{"cpu":"100m"}}}]}},
		"volumeClaimTemplates":[{"metadata":{"name":"v"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}]}}`,
	`{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"namespace":"NS","name":"d"},"spec":{"selector":{"matchLabels":{"d":"d"}},
		"template":{"metadata":{"labels":{"d":"d"}},"spec":{"containers":[{"name":"c","image":"x","resources":{"limits":{"cpu":"100m"}}}]}}}}`,
	`{"apiVersion":"batch/v1","kind":"Job","metadata":{"namespace":"NS","name":"j"},"spec":{"backoffLimit":4,
		"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"x","resources":{"limits":{"cpu":"100m"}}}]}}}}`,
	`{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"namespace":"NS","name":"j"},"spec":{"schedule":"0 0 1 1 *",
		"jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"x"}]}}}}}}`,
	`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"namespace":"NS","name":"h"},"spec":{"maxReplicas":3,
		"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"none"},
		"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"AverageValue","averageValue":"1000m"}}}]}}`,
	`{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"namespace":"NS","name":"i"},
		"spec":{"rules":[{"http":{"paths":[{"path":"/","pathType":"Prefix","backend":{"service":{"name":"s","port":{"number":80}}}}]}}]}}`,
	`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"NS","name":"p"},"spec":{"containers":[{"name":"c","image":"x",
		"resources":{"limits":{"cpu":"100m"}},"volumeMounts":[{"name":"v","mountPath":"/v"}]}],"volumes":[{"name":"v","emptyDir":{}}],
		"tolerations":[{"key":"k","operator":"Exists"}]}}`,
	`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"NS"},"webhooks":[
		{"name":"a.example.com","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"url":"https://127.0.0.1:1/"},
		"failurePolicy":"Ignore","rules":[{"apiGroups":["NS.example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["none"]}]}]}`,
	`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"namespace":"NS","name":"l"},"spec":{"renewTime":"2024-01-01T01:00:00.000000+01:00"}}`,
}

// M new manifests cost M POSTs, unchanged ones nothing, whatever the API server and its controllers
// make of them, also after a restart.
func TestEveryKind(t *testing.T) {
	s := newSpoke(t)
	manifests := s.parse(nil, everyKind...)
	outcomes := s.applied(manifests, "27× POST 201")
	for i, outcome := range outcomes {
		ref := manifests[i].Ref
		if outcome.Action != apply.Created || outcome.Requests != 1 || outcome.Live.GetUID() == "" {
			t.Errorf("%s: %s, %d requests", ref, outcome.Action, outcome.Requests)
		}
		live := s.get(ref)
		if live.GetLabels()[object.AgentLabel] != agentHash || strings.Contains(asJSON(t, live.GetAnnotations()), "workwire") {
			t.Errorf("%s: labels %v, annotations %v", ref, live.GetLabels(), live.GetAnnotations())
		}
		if diff := cmp.Diff([]metav1.OwnerReference{s.owner}, live.GetOwnerReferences()); diff != "" {
			t.Errorf("%s: %s", ref, diff)
		}
	}
	for _, outcome := range s.applied(manifests, "") {
		if outcome.Action != apply.Unchanged || outcome.Live == nil {
			t.Errorf("applied again: %s", outcome.Action)
		}
	}
	s.eventually(refOf(manifests, "Deployment"), "a ready replica", func(live *unstructured.Unstructured) bool {
		return nested(t, live, "status", "readyReplicas") == int64(1)
	})
	s.eventually(refOf(manifests, "Job"), "completion", func(live *unstructured.Unstructured) bool {
		return nested(t, live, "status", "succeeded") == int64(1)
	})
	s.eventually(refOf(manifests, "ClusterRole"), "aggregated rules", func(live *unstructured.Unstructured) bool {
		rules, _ := nested(t, live, "rules").([]any)
		return len(rules) == 1
	})
	for i := range manifests {
		s.see(manifests[i].Ref)
	}
	s.applied(manifests, "")

	// After a restart: POSTs meet what is there, reads show it, and what the API server normalises
	// is sent once, to no effect.
	s.restart()
	before := map[object.Ref]string{}
	for i := range manifests {
		before[manifests[i].Ref] = asJSON(t, nested(t, s.get(manifests[i].Ref), "spec"))
	}
	for i, outcome := range s.apply(manifests) {
		ref := manifests[i].Ref
		if outcome.Err != nil {
			t.Errorf("%s after a restart: %v", ref, outcome.Err)
			continue
		}
		if outcome.Action == apply.Updated {
			t.Logf("%s was sent again for %v", ref, outcome.Differences)
		}
		if after := asJSON(t, nested(t, s.get(ref), "spec")); after != before[ref] {
			t.Errorf("%s after a restart: %s", ref, cmp.Diff(before[ref], after))
		}
	}
	requests := s.requests.take()
	t.Logf("after a restart: %s", requests)
	if strings.Contains(requests, "201") {
		t.Errorf("something was created after a restart: %s", requests)
	}
	s.applied(manifests, "")
}

func refOf(manifests []strategy.Manifest, kind string) object.Ref {
	for i := range manifests {
		if manifests[i].Meta.Kind == kind {
			return manifests[i].Ref
		}
	}
	return object.Ref{}
}

func TestDrift(t *testing.T) {
	s := newSpoke(t)
	manifests := s.parse(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"NS","name":"c","labels":{"l":"1"}},"data":{"a":"1"}}`)
	ref := manifests[0].Ref
	s.applied(manifests, "1× POST 201")
	s.patch(ref, "other", `{"data":{"a":"2","b":"x"},"metadata":{"labels":{"l":null,"theirs":"1"},"annotations":{"theirs":"1"},"finalizers":["x/y"]}}`)
	outcome := s.applied(manifests, "1× PUT 200")[0]
	if diff := cmp.Diff([]string{"/data/a", "/data/b", "/metadata/labels/l"}, outcome.Differences); outcome.Action != apply.Updated || diff != "" {
		t.Errorf("%s %s", outcome.Action, diff)
	}
	live := s.get(ref)
	s.wantData(ref, `{"a":"1"}`)
	if live.GetLabels()["l"] != "1" || live.GetLabels()["theirs"] != "1" || live.GetAnnotations()["theirs"] != "1" || len(live.GetFinalizers()) != 1 {
		t.Errorf("metadata %v", live.Object["metadata"])
	}
	s.applied(manifests, "")
	// Deleted by hand: the watch says it is absent.
	s.patch(ref, "other", `{"metadata":{"finalizers":null}}`)
	s.delete(ref)
	s.cache.Learn(ref, nil)
	s.applied(manifests, "1× POST 201")
}

// The cache is behind: each way of being wrong costs one read.
func TestStaleCache(t *testing.T) {
	s := newSpoke(t)
	text := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"NS","name":"c"},"data":{"a":"1"}}`
	manifests := s.parse(nil, text)
	ref := manifests[0].Ref
	s.applied(manifests, "1× POST 201")
	stale := s.cache.Get(ref).Object
	s.patch(ref, "other", `{"data":{"a":"2"}}`)
	drifted := stale.DeepCopy()
	drifted.Object["data"] = map[string]any{"a": "3"}
	s.cache.Learn(ref, drifted)
	s.applied(manifests, "1× GET 200, 1× PUT 200, 1× PUT 409")
	s.wantData(ref, `{"a":"1"}`)
	s.cache.Learn(ref, nil)
	if outcome := s.applied(manifests, "1× GET 200, 1× POST 409")[0]; outcome.Action != apply.Unchanged {
		t.Errorf("got %s", outcome.Action)
	}
	s.cache.Learn(ref, drifted)
	s.delete(ref)
	s.applied(manifests, "1× GET 404, 1× POST 201, 1× PUT 404")
}

const deploymentText = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"NS","name":"d"},"spec":{%REPLICAS%%STRATEGY%
	"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"%IMAGE%"%PROBE%}]%VOLUMES%}}}}`

func deployment(pairs ...string) string {
	defaults := []string{"%REPLICAS%", "", "%STRATEGY%", "", "%IMAGE%", "x:1", "%PROBE%", "", "%VOLUMES%", ""}
	return strings.NewReplacer(append(pairs, defaults...)...).Replace(deploymentText)
}

// The manifest changes: what it drops goes, what others have taken stays.
func TestDroppedFields(t *testing.T) {
	for name, restarted := range map[string]bool{"same process": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			s := newSpoke(t)
			// next applies a text, after a restart if that is what is tested.
			next := func(text, requests, afterRestart string) *unstructured.Unstructured {
				t.Helper()
				if restarted {
					known := s.cache.known
					s.restart()
					s.cache.known = known
					requests = afterRestart
				}
				manifests := s.parse(nil, text)
				s.rolledOut(manifests[0].Ref)
				s.applied(manifests, requests)
				s.applied(manifests, "")
				return s.get(manifests[0].Ref)
			}
			first := s.parse(nil, deployment("%REPLICAS%", `"replicas":3,`, "%PROBE%", `,"livenessProbe":{"exec":{"command":["x"]}}`,
				"%VOLUMES%", `,"volumes":[{"name":"v","configMap":{"name":"m"}}]`))
			s.applied(first, "1× POST 201")
			ref := first[0].Ref

			live := next(deployment("%REPLICAS%", `"replicas":3,`, "%VOLUMES%", `,"volumes":[{"name":"v","secret":{"secretName":"m"}}]`),
				"1× PUT 200", "1× GET 200, 1× PUT 200")
			pod := asJSON(t, nested(t, live, "spec", "template", "spec"))
			if strings.Contains(pod, "livenessProbe") || strings.Contains(pod, "configMap") {
				t.Errorf("dropped fields of items are still there: %s", pod)
			}
			// An autoscaler takes the replicas; then the manifest leaves them to it.
			s.rolledOut(ref)
			s.patch(ref, "autoscaler", `{"spec":{"replicas":5}}`, "scale")
			live = next(deployment(), "1× GET 200, 1× PUT 200", "1× GET 200, 1× PUT 200")
			if got := nested(t, live, "spec", "replicas"); got != int64(5) {
				t.Errorf("replicas %v, the autoscaler set 5", got)
			}
			if nested(t, live, "spec", "template", "spec", "volumes") != nil {
				t.Error("the dropped volumes are still there")
			}
			// Declared again, and dropped without anybody having taken them.
			next(deployment("%REPLICAS%", `"replicas":4,`), "1× PUT 200", "1× GET 200, 1× PUT 200")
			live = next(deployment(), "1× GET 200, 1× PUT 200", "1× GET 200, 1× PUT 200")
			if got := nested(t, live, "spec", "replicas"); got != int64(1) {
				t.Errorf("replicas %v, the default is 1", got)
			}
			// A default that contradicts what is declared now.
			live = next(deployment("%STRATEGY%", `"strategy":{"type":"Recreate"},`), "1× GET 200, 1× PUT 200, 1× PUT 422", "1× GET 200, 1× PUT 200")
			if got := asJSON(t, nested(t, live, "spec", "strategy")); got != `{"type":"Recreate"}` {
				t.Errorf("strategy %s", got)
			}
			if got := managers(live); got != "autoscaler Update, work-agent Update" && got != "work-agent Update" {
				t.Errorf("managers %s", got)
			}
		})
	}
}

// rolledOut waits until the controllers leave a Deployment alone, and lets the agent see it.
func (s *spoke) rolledOut(ref object.Ref) {
	s.t.Helper()
	s.eventually(ref, "roll-out", func(live *unstructured.Unstructured) bool {
		status, _ := nested(s.t, live, "status").(map[string]any)
		replicas := nested(s.t, live, "spec", "replicas")
		return status["observedGeneration"] == live.GetGeneration() && status["updatedReplicas"] == replicas &&
			status["availableReplicas"] == replicas && status["replicas"] == replicas &&
			(status["terminatingReplicas"] == nil || status["terminatingReplicas"] == int64(0)) &&
			strings.Contains(asJSON(s.t, status["conditions"]), "NewReplicaSetAvailable")
	})
	s.see(ref)
}

// paused waits until the controller leaves a paused Deployment alone, and lets the agent see it.
func (s *spoke) paused(ref object.Ref) {
	s.t.Helper()
	s.eventually(ref, "pause", func(live *unstructured.Unstructured) bool {
		return nested(s.t, live, "status", "observedGeneration") == live.GetGeneration() &&
			strings.Contains(asJSON(s.t, live.Object["status"]), "DeploymentPaused")
	})
	s.see(ref)
}

func TestServiceKeepsAllocations(t *testing.T) {
	s := newSpoke(t)
	text := `{"apiVersion":"v1","kind":"Service","metadata":{"namespace":"NS","name":"s"},"spec":{"type":"NodePort","selector":{"a":"b"},"ports":[{"name":"a","port":80,"targetPort":%TARGET%}]}}`
	manifests := s.parse(nil, strings.ReplaceAll(text, "%TARGET%", "8080"))
	before := s.applied(manifests, "1× POST 201")[0].Live
	changed := s.parse(nil, strings.ReplaceAll(text, "%TARGET%", "9090"))
	after := s.applied(changed, "1× PUT 200")[0].Live
	if got := asJSON(t, nested(t, after, "spec", "ports")); !strings.Contains(got, "9090") {
		t.Errorf("ports %s", got)
	}
	for _, path := range []string{"clusterIP", "clusterIPs", "ipFamilies"} {
		if diff := cmp.Diff(nested(t, before, "spec", path), nested(t, after, "spec", path)); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
	port := func(obj *unstructured.Unstructured) any {
		return nested(t, obj, "spec", "ports").([]any)[0].(map[string]any)["nodePort"]
	}
	if port(before) != port(after) || port(after) == nil {
		t.Errorf("the node port was %v, is %v", port(before), port(after))
	}
	s.applied(changed, "")
}

func TestErrors(t *testing.T) {
	s := newSpoke(t)
	manifests := s.parse(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"NS-none","name":"c"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`,
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"namespace":"NS","name":"w"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"NS","name":"v","resourceVersion":"5"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"NS","name":"Not-Valid"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"NS","name":"d"},"data":{"a":5}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"NS","name":"fine"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"../../NS","name":"c"}}`,
	)
	outcomes := s.apply(manifests)
	for i, want := range []string{
		`namespaces "NS-none" not found`,
		`the server does not allow this method on the requested resource`,
		`the server doesn't have a resource type "Widget"`,
		`resourceVersion should not be set on objects to be created`,
		`ConfigMap "Not-Valid" is invalid: metadata.name: Invalid value`,
		`ConfigMap in version "v1" cannot be handled as a ConfigMap`,
		"",
		`"../../NS" cannot name an object: may not contain '/'`,
	} {
		got := strategytest.ErrorText(outcomes[i].Err)
		want = strings.ReplaceAll(want, "NS", s.namespace)
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("manifest %d: error %q, want %q", i, got, want)
		}
		if (outcomes[i].Action == apply.Failed) != (want != "") {
			t.Errorf("manifest %d: %s", i, outcomes[i].Action)
		}
	}
}

func TestForbidden(t *testing.T) {
	s := newSpoke(t)
	config := plane.REST()
	config.Impersonate.UserName = "nobody"
	s.restart(func(c *apply.Config) { c.Client = kit.RESTClient(t, config) })
	outcome := s.apply(s.parse(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"NS","name":"c"}}`))[0]
	want := `configmaps is forbidden: User "nobody" cannot create resource "configmaps" in API group "" in the namespace "` + s.namespace + `"`
	if strategytest.ErrorText(outcome.Err) != want {
		t.Errorf("got %q, want %q", strategytest.ErrorText(outcome.Err), want)
	}
}

// A kind goes while objects of it are applied.
func TestKindGoes(t *testing.T) {
	s := newSpoke(t)
	definition := s.parse(nil, strings.ReplaceAll(everyKind[3], "gadgets", "things"))
	s.applied(definition, "1× POST 201")
	s.eventually(definition[0].Ref, "being established", established(t))
	var things []strategy.Manifest
	for len(things) == 0 || things[0].Err != nil { // discovery lags behind
		things = s.parse(nil, `{"apiVersion":"NS.example.com/v1","kind":"Gadget","metadata":{"namespace":"NS","name":"g"},"spec":{"any":[1,{"x":null}]},"status":{"a":1}}`)
	}
	s.applied(things, "1× POST 201")
	s.applied(things, "")
	if got := asJSON(t, s.get(things[0].Ref).Object["status"]); got != `{"a":1}` {
		t.Errorf("the status of a kind without a subresource for it is %s", got)
	}
	gone := s.applier.Remove(t.Context(), []plan.Removal{{Ref: definition[0].Ref}}, false, s.owner.UID)[0]
	if gone.Err != nil || gone.Gone || gone.Step != plan.Delete {
		t.Errorf("removing a definition: %+v", gone)
	}
	for gone := false; !gone; {
		outcome := s.applier.Remove(t.Context(), []plan.Removal{{Ref: things[0].Ref}}, false, s.owner.UID)[0]
		if outcome.Err != nil {
			t.Fatal(outcome.Err)
		}
		gone = outcome.Gone
	}
}

func TestParallel(t *testing.T) {
	s := newSpoke(t)
	gate := &gauge{}
	s.restart(func(c *apply.Config) {
		c.Client = client(t, func(next http.RoundTripper) http.RoundTripper {
			gate.next = next
			return gate
		})
	})
	var texts []string
	for _, name := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
		texts = append(texts, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"NS","name":"`+name+`"}}`)
	}
	for i, outcome := range s.apply(s.parse(nil, texts...)) {
		if outcome.Err != nil || outcome.Live.GetName() != texts[i][len(texts[i])-4:len(texts[i])-3] {
			t.Errorf("manifest %d: %v, %v", i, outcome.Err, outcome.Live)
		}
	}
	if gate.most != 8 {
		t.Errorf("%d requests at a time, want 8", gate.most)
	}
}

// gauge measures how many requests are under way, and holds the first back until there are 8.
type gauge struct {
	next http.RoundTripper

	mu        sync.Mutex
	now, most int
	full      chan struct{}
}

func (g *gauge) RoundTrip(request *http.Request) (*http.Response, error) {
	g.mu.Lock()
	if g.full == nil {
		g.full = make(chan struct{})
	}
	g.now++
	if g.now > g.most {
		g.most = g.now
		if g.most == 8 {
			close(g.full)
		}
	}
	g.mu.Unlock()
	<-g.full
	defer func() {
		g.mu.Lock()
		g.now--
		g.mu.Unlock()
	}()
	return g.next.RoundTrip(request)
}

func TestCreateOnlyAndReadOnly(t *testing.T) {
	s := newSpoke(t)
	createOnly := strategytest.Configured(&workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeCreateOnly})
	text := func(value string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"NS","name":"c","options":{"fieldManager":"once"}},"data":{"a":"` + value + `"}}`
	}
	first := s.parse(createOnly, text("1"))
	ref := first[0].Ref
	s.applied(first, "1× POST 201")
	s.patch(ref, "other", `{"data":{"a":"theirs"},"metadata":{"ownerReferences":null}}`)
	s.applied(s.parse(createOnly, text("2")), "1× PUT 200")
	live := s.get(ref)
	if got := asJSON(t, live.Object["data"]); got != `{"a":"theirs"}` || len(live.GetOwnerReferences()) != 1 {
		t.Errorf("data %s, owners %v", got, live.GetOwnerReferences())
	}
	if got := managers(live); got != "once Update, other Update" {
		t.Errorf("managers %s", got)
	}
	s.applied(s.parse(createOnly, text("3")), "")
	// Now Update has its way.
	s.applied(s.parse(nil, text("4")), "1× PUT 200")
	s.wantData(ref, `{"a":"4"}`)
	readOnly := strategytest.Configured(&workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly})
	for _, outcome := range s.applied(s.parse(readOnly, text("5"), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"NS","name":"none"}}`), "") {
		if outcome.Action != apply.Observed || outcome.Live != nil {
			t.Errorf("got %s, %v", outcome.Action, outcome.Live)
		}
	}
}
