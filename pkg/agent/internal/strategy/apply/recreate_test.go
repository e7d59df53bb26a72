package apply_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/strategytest"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
)

// immutable has manifests with % in the place of what cannot be changed, two values for it, and
// what the API server says to the change.
var immutable = map[string]struct {
	manifest, before, after string
	path                    []string // of the changed value
	message                 string   // its beginning
}{
	"Job": {
		manifest: `{"apiVersion":"batch/v1","kind":"Job","metadata":{"namespace":"NS","name":"j"RECREATE},"spec":{"suspend":true,
			"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":%}]}}}}`,
		before: `"x:1"`, after: `"x:2"`, path: []string{"spec", "template", "spec", "containers"},
		message: `Job.batch "j" is invalid: spec.template`,
	},
	"StorageClass": {
		manifest: `{"apiVersion":"storage.k8s.io/v1","kind":"StorageClass","metadata":{"name":"NS"RECREATE},"provisioner":"x/y","parameters":{"type":%}}`,
		before:   `"slow"`, after: `"fast"`, path: []string{"parameters", "type"},
		message: `StorageClass.storage.k8s.io "NS" is invalid: parameters: Invalid value: field is immutable`,
	},
	"StorageClass, binding mode": {
		manifest: `{"apiVersion":"storage.k8s.io/v1","kind":"StorageClass","metadata":{"name":"NS"RECREATE},"provisioner":"x/y","volumeBindingMode":%}`,
		before:   `"Immediate"`, after: `"WaitForFirstConsumer"`, path: []string{"volumeBindingMode"},
		message: `StorageClass.storage.k8s.io "NS" is invalid: volumeBindingMode: Invalid value: field is immutable`,
	},
	"StorageClass, provisioner": {
		manifest: `{"apiVersion":"storage.k8s.io/v1","kind":"StorageClass","metadata":{"name":"NS"RECREATE},"provisioner":%}`,
		before:   `"x/y"`, after: `"x/z"`, path: []string{"provisioner"},
		message: `StorageClass.storage.k8s.io "NS" is invalid: provisioner: Invalid value: field is immutable`,
	},
	"StorageClass, reclaim policy": {
		manifest: `{"apiVersion":"storage.k8s.io/v1","kind":"StorageClass","metadata":{"name":"NS"RECREATE},"provisioner":"x/y","reclaimPolicy":%}`,
		before:   `"Delete"`, after: `"Retain"`, path: []string{"reclaimPolicy"},
		message: `StorageClass.storage.k8s.io "NS" is invalid: reclaimPolicy: Invalid value: field is immutable`,
	},
	"Secret": {
		manifest: `{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"NS","name":"s"RECREATE},"type":%,"stringData":{"username":"a","password":"b"}}`,
		before:   `"Opaque"`, after: `"kubernetes.io/basic-auth"`, path: []string{"type"},
		message: `Secret "s" is invalid: type: Invalid value: field is immutable`,
	},
	"immutable ConfigMap": {
		manifest: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"NS","name":"c"RECREATE},"immutable":true,"data":{"k":%}}`,
		before:   `"a"`, after: `"b"`, path: []string{"data", "k"},
		message: "ConfigMap \"c\" is invalid: data: Forbidden: field is immutable when `immutable` is set",
	},
	"RoleBinding": {
		manifest: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"namespace":"NS","name":"b"RECREATE},
			"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%}}`,
		before: `"view"`, after: `"edit"`, path: []string{"roleRef", "name"},
		message: `RoleBinding.rbac.authorization.k8s.io "b" is invalid: roleRef: Invalid value: `,
	},
	"ClusterRoleBinding": {
		manifest: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"NS"RECREATE},
			"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%}}`,
		before: `"view"`, after: `"edit"`, path: []string{"roleRef", "name"},
		message: `ClusterRoleBinding.rbac.authorization.k8s.io "NS" is invalid: roleRef: Invalid value: `,
	},
	"CSIDriver": {
		manifest: `{"apiVersion":"storage.k8s.io/v1","kind":"CSIDriver","metadata":{"name":"NS"RECREATE},"spec":{"attachRequired":%}}`,
		before:   `true`, after: `false`, path: []string{"spec", "attachRequired"},
		message: `CSIDriver.storage.k8s.io "NS" is invalid: spec.attachedRequired: Invalid value: field is immutable`,
	},
	"Deployment": {
		manifest: `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"NS","name":"d"RECREATE},"spec":{"replicas":0,
			"selector":{"matchLabels":{"a":%}},"template":{"metadata":{"labels":{"a":%}},"spec":{"containers":[{"name":"c","image":"x"}]}}}}`,
		before: `"b"`, after: `"c"`, path: []string{"spec", "selector", "matchLabels", "a"},
		message: `Deployment.apps "d" is invalid: spec.selector: Invalid value: `,
	},
	"DaemonSet": {
		manifest: `{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"namespace":"NS","name":"d"RECREATE},"spec":{
			"selector":{"matchLabels":{"a":%}},"template":{"metadata":{"labels":{"a":%}},"spec":{"nodeSelector":{"no":"node"},"containers":[{"name":"c","image":"x"}]}}}}`,
		before: `"b"`, after: `"c"`, path: []string{"spec", "selector", "matchLabels", "a"},
		message: `DaemonSet.apps "d" is invalid: spec.selector: Invalid value: `,
	},
	"StatefulSet": {
		manifest: `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"namespace":"NS","name":"s"RECREATE},"spec":{"replicas":0,"serviceName":%,
			"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"x"}]}}}}`,
		before: `"one"`, after: `"two"`, path: []string{"spec", "serviceName"},
		message: `StatefulSet.apps "s" is invalid: spec: Forbidden: updates to statefulset spec for fields other than `,
	},
	"Pod": {
		manifest: `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"NS","name":"p"RECREATE},"spec":{"nodeSelector":{"no":"node"},
			"containers":[{"name":"c","image":"x","command":[%]}]}}`,
		before: `"a"`, after: `"b"`, path: []string{"spec", "containers"},
		message: `Pod "p" is invalid: spec: Forbidden: pod updates may not change fields other than `,
	},
	"PersistentVolumeClaim": {
		manifest: `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"namespace":"NS","name":"p"RECREATE},
			"spec":{"accessModes":[%],"resources":{"requests":{"storage":"1Gi"}},"storageClassName":"none"}}`,
		before: `"ReadWriteOnce"`, after: `"ReadWriteMany"`, path: []string{"spec", "accessModes"},
		message: `PersistentVolumeClaim "p" is invalid: spec: Forbidden: spec is immutable after creation except `,
	},
	"PriorityClass": {
		manifest: `{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","metadata":{"name":"NS"RECREATE},"value":%}`,
		before:   `5`, after: `6`, path: []string{"value"},
		message: `PriorityClass.scheduling.k8s.io "NS" is invalid: value: Forbidden: may not be changed in an update.`,
	},
	"Service": {
		manifest: `{"apiVersion":"v1","kind":"Service","metadata":{"namespace":"NS","name":"s"RECREATE},"spec":{"clusterIP":%,"ports":[{"port":80}]}}`,
		before:   `""`, after: `"None"`, path: []string{"spec", "clusterIP"},
		message: `Service "s" is invalid: spec.clusterIPs[0]: Invalid value: may not change once set`,
	},
	"RuntimeClass": {
		manifest: `{"apiVersion":"node.k8s.io/v1","kind":"RuntimeClass","metadata":{"name":"NS"RECREATE},"handler":%}`,
		before:   `"a"`, after: `"b"`, path: []string{"handler"},
		message: `RuntimeClass.node.k8s.io "NS" is invalid: handler: Invalid value: field is immutable`,
	},
	"CustomResourceDefinition": {
		manifest: strings.Replace(strings.ReplaceAll(everyKind[3], `"Namespaced"`, "%"), `example.com"}`, `example.com"RECREATE}`, 1),
		before:   `"Namespaced"`, after: `"Cluster"`, path: []string{"spec", "scope"},
		message: `CustomResourceDefinition.apiextensions.k8s.io "gadgets.NS.example.com" is invalid: spec.scope: Invalid value: field is immutable`,
	},
}

const allowRecreation = `,"annotations":{"` + workv1.RecreateAnnotationKey + `":"` + workv1.RecreateOnImmutable + `"}`

// A change that the API server refuses because a field is immutable fails with its message. Where
// the manifest allows it, the object is deleted and recreated.
func TestImmutable(t *testing.T) {
	t.Parallel()
	for name, test := range immutable {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpoke(t)
			text := func(value, annotations string) string {
				return strings.NewReplacer("%", value, "RECREATE", annotations).Replace(test.manifest)
			}
			ref, uid := s.create(text(test.before, ""))
			if name == "CustomResourceDefinition" { // until then it can be changed
				s.eventually(ref, "being established", established(t))
			}
			s.eventually(ref, "the first status", controlled(t))

			outcome := s.apply(s.parse(nil, text(test.after, "")))[0]
			message := strings.ReplaceAll(test.message, "NS", s.namespace)
			if outcome.Action != apply.Failed || !strings.HasPrefix(strategytest.ErrorText(outcome.Err), message) {
				t.Fatalf("%s: %v", outcome.Action, outcome.Err)
			}
			if live := s.get(ref); live.GetUID() != uid || live.GetDeletionTimestamp() != nil {
				t.Fatal("it was deleted without being asked")
			}
			if requests := s.requests.take(); strings.Contains(requests, "DELETE") || strings.Contains(requests, "POST") {
				t.Errorf("requests %s", requests)
			}

			allowed := s.parse(nil, text(test.after, allowRecreation))
			outcome = s.apply(allowed)[0]
			if strings.Contains(strategytest.ErrorText(outcome.Err), "is being deleted, to be recreated") {
				if name == "CustomResourceDefinition" { // how long it takes to end is the API server's affair
					if !strings.HasSuffix(outcome.Err.Error(), "held by its finalizers customresourcecleanup.apiextensions.k8s.io") {
						t.Error(outcome.Err)
					}
					return
				}
				s.gone(ref, uid)
				outcome = s.apply(allowed)[0]
			}
			if outcome.Err != nil || outcome.Action != apply.Created {
				t.Fatalf("%s: %v, %v (%s)", outcome.Action, outcome.Err, outcome.Differences, s.requests.take())
			}
			live := s.get(ref)
			if live.GetUID() == uid || !strings.Contains(asJSON(t, nested(t, live, test.path...)), test.after) {
				t.Errorf("it is the former object, or as it was: %v", live.Object)
			}
			if diff := cmp.Diff([]metav1.OwnerReference{s.owner}, live.GetOwnerReferences()); diff != "" || live.GetLabels()[object.AgentLabel] != agentHash {
				t.Errorf("labels %v, owners %s", live.GetLabels(), diff)
			}
			s.requests.take()
			s.applied(allowed, "")
			// What needs no recreation is an update as ever.
			uid = live.GetUID()
			s.eventually(ref, "the first status", controlled(t))
			s.see(ref)
			if outcome = s.apply(s.parse(nil, text(test.after, strings.Replace(allowRecreation, "{", `{"more":"x",`, 1))))[0]; outcome.Action != apply.Updated ||
				outcome.Live.GetUID() != uid {
				t.Errorf("another annotation: %s, %v", outcome.Action, outcome.Err)
			}
		})
	}
}

// established says whether a definition is in force.
func established(t *testing.T) func(*unstructured.Unstructured) bool {
	return func(live *unstructured.Unstructured) bool {
		return strings.Contains(asJSON(t, live.Object["status"]), `"status":"True","type":"Established"`)
	}
}

// controlled says whether the controllers of the spoke have written what they have to say about a
// new object. Their writes would meet the agent's, which gives up after some attempts.
func controlled(t *testing.T) func(*unstructured.Unstructured) bool {
	return func(live *unstructured.Unstructured) bool {
		status := asJSON(t, live.Object["status"])
		switch live.GetKind() {
		case "Deployment":
			return strings.Contains(status, `"reason":"NewReplicaSetAvailable"`)
		case "DaemonSet", "StatefulSet":
			return strings.Contains(status, `"observedGeneration"`)
		case "Job":
			return strings.Contains(status, `"type":"Suspended"`)
		case "Pod":
			return strings.Contains(status, `"type":"PodScheduled"`)
		}
		return true
	}
}

// gone waits until an object is gone, and lets the agent see that.
func (s *spoke) gone(ref object.Ref, uid types.UID) {
	s.t.Helper()
	kit.True(s.t, "the end of "+ref.String(), func() bool {
		live, err := s.resource(ref).Get(s.t.Context(), ref.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && live.GetUID() != uid
	})
	s.cache.Learn(ref, nil)
}

// create applies a new manifest and gives its object.
func (s *spoke) create(text string) (object.Ref, types.UID) {
	s.t.Helper()
	manifests := s.parse(nil, text)
	return manifests[0].Ref, s.applied(manifests, "1× POST 201")[0].Live.GetUID()
}

func secretOfType(kind, more string) string {
	return `{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"NS","name":"s"` + more + `},"type":"` + kind + `","stringData":{"username":"a"}}`
}

func TestRecreate(t *testing.T) {
	basic, opaque := "kubernetes.io/basic-auth", "Opaque"
	t.Run("costs", func(t *testing.T) {
		s := newSpoke(t)
		s.applied(s.parse(nil, secretOfType(opaque, "")), "1× POST 201")
		// Refused; read, to learn why; tried; deleted; created.
		s.applied(s.parse(nil, secretOfType(basic, allowRecreation)), "1× DELETE 200, 1× GET 200, 1× POST 201, 1× POST 409, 1× PUT 422")
	})
	t.Run("waits for finalizers", func(t *testing.T) {
		s := newSpoke(t)
		ref, uid := s.create(secretOfType(opaque, `,"finalizers":["example.com/hold"]`))
		allowed := s.parse(nil, secretOfType(basic, allowRecreation))
		want := "secrets " + s.namespace + "/s is being deleted, to be recreated for a change of immutable fields, " +
			"but is held by its finalizers example.com/hold"
		for i, requests := range []string{"1× DELETE 200, 1× GET 200, 1× POST 409, 1× PUT 422", "", ""} {
			outcome := s.apply(allowed)[0]
			if outcome.Action != apply.Failed || strategytest.ErrorText(outcome.Err) != want || outcome.Live.GetDeletionTimestamp() == nil {
				t.Errorf("attempt %d: %s %v", i, outcome.Action, outcome.Err)
			}
			s.wantRequests(requests)
			s.see(ref)
		}
		s.patchOnly(ref, "other", `{"metadata":{"finalizers":null}}`)
		s.gone(ref, uid)
		s.applied(allowed, "1× POST 201")
	})
	t.Run("not for what cannot be created", func(t *testing.T) {
		s := newSpoke(t)
		ref, uid := s.create(secretOfType(opaque, ""))
		// A token needs an annotation that names its service account.
		outcome := s.apply(s.parse(nil, secretOfType("kubernetes.io/service-account-token", allowRecreation)))[0]
		if outcome.Err == nil || s.get(ref).GetUID() != uid {
			t.Errorf("%s: %v", outcome.Action, outcome.Err)
		}
	})
	t.Run("not for what is forbidden", func(t *testing.T) {
		s := newSpoke(t)
		ref, uid := s.create(secretOfType(opaque, ""))
		limited := s.limited("get", "update", "delete")
		s.restart(func(c *apply.Config) { c.Client = kit.RESTClient(t, limited) })
		s.see(ref)
		outcome := s.apply(s.parse(nil, secretOfType(basic, allowRecreation)))[0]
		if got := strategytest.ErrorText(outcome.Err); !strings.HasPrefix(got, `Secret "s" is invalid: type: `) || !strings.Contains(got, "nor can the object be recreated: secrets is forbidden") {
			t.Errorf("got %q", got)
		}
		if s.get(ref).GetUID() != uid {
			t.Error("it was deleted")
		}
	})
	t.Run("not for what another work shares", func(t *testing.T) {
		s := newSpoke(t)
		ref, uid := s.create(secretOfType(opaque, ""))
		s.share(ref)
		outcome := s.apply(s.parse(nil, secretOfType(basic, allowRecreation)))[0]
		if got := strategytest.ErrorText(outcome.Err); !strings.HasSuffix(got, "field is immutable; the object is another work's too, so it is not recreated") {
			t.Errorf("got %q", got)
		}
		if s.get(ref).GetUID() != uid {
			t.Error("it was deleted")
		}
	})
	t.Run("changed meanwhile", func(t *testing.T) {
		s := newSpoke(t)
		ref, _ := s.create(secretOfType(opaque, ""))
		s.meddle("POST", func() { s.patchOnly(ref, "other", `{"metadata":{"labels":{"x":"y"}}}`) })
		s.applied(s.parse(nil, secretOfType(basic, allowRecreation)),
			"1× DELETE 200, 1× DELETE 409, 2× GET 200, 1× POST 201, 2× POST 409, 2× PUT 422")
	})
	t.Run("under Update only", func(t *testing.T) {
		for _, kind := range []workv1.UpdateStrategyType{workv1.UpdateStrategyTypeCreateOnly, workv1.UpdateStrategyTypeServerSideApply} {
			s := newSpoke(t)
			change := func(w *workv1.ManifestWorkSpec) {
				w.ManifestConfigs = []workv1.ManifestConfigOption{{
					ResourceIdentifier: workv1.ResourceIdentifier{Resource: "secrets", Namespace: "*", Name: "*"},
					UpdateStrategy:     &workv1.UpdateStrategy{Type: kind},
				}}
			}
			first := s.parse(change, secretOfType(opaque, allowRecreation))
			s.apply(first)
			uid := s.get(first[0].Ref).GetUID()
			outcome := s.apply(s.parse(change, secretOfType(basic, allowRecreation)))[0]
			if (outcome.Err == nil) != (kind == workv1.UpdateStrategyTypeCreateOnly) || s.get(first[0].Ref).GetUID() != uid {
				t.Errorf("%s: %s, %v", kind, outcome.Action, outcome.Err)
			}
		}
	})
	t.Run("another value", func(t *testing.T) {
		m := strategy.Parse(nil, strategytest.Spec(`{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"ns","name":"s","annotations":{"workwire.dev/recreate":"Always"}}}`), strategytest.Mapping)[0]
		if got := strategytest.ErrorText(m.Err); got != `annotation workwire.dev/recreate is "Always": it must be OnImmutable, or absent` {
			t.Errorf("got %q", got)
		}
	})
}

// limited gives the configuration of a user who may do only so much to secrets.
func (s *spoke) limited(verbs ...string) *rest.Config {
	s.t.Helper()
	user := "limited-" + s.namespace
	s.applied(s.parse(nil,
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"namespace":"NS","name":"limited"},
			"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":`+asJSON(s.t, verbs)+`}]}`,
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"namespace":"NS","name":"limited"},
			"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"limited"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"`+user+`"}]}`),
		"2× POST 201")
	config := plane.REST()
	config.Impersonate.UserName = user
	return config
}
