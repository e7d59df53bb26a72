package apply_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// updated are kinds that Update treats alike, though each has its own ways: two manifests, what
// another actor does to the first one's object, and what is at path after the first and after the
// second.
var updated = map[string]struct {
	first, second string
	drift         string // a merge patch
	path          []string
	before, after string
}{
	"Namespace": {
		first:  `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"NS-own","labels":{"a":"1"}}}`,
		second: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"NS-own","labels":{"a":"2"}}}`,
		drift:  `{"metadata":{"labels":{"a":"x"}}}`, path: []string{"metadata", "labels", "a"}, before: `"1"`, after: `"2"`,
	},
	"ServiceAccount": {
		first:  `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"namespace":"NS","name":"s"},"automountServiceAccountToken":false,"imagePullSecrets":[{"name":"a"}]}`,
		second: `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"namespace":"NS","name":"s"},"imagePullSecrets":[{"name":"b"}]}`,
		drift:  `{"imagePullSecrets":null}`, path: []string{"imagePullSecrets"}, before: `[{"name":"a"}]`, after: `[{"name":"b"}]`,
	},
	"ServiceAccount, a dropped field": {
		first:  `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"namespace":"NS","name":"s"},"automountServiceAccountToken":false}`,
		second: `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"namespace":"NS","name":"s"}}`,
		drift:  `{"automountServiceAccountToken":true}`, path: []string{"automountServiceAccountToken"}, before: `false`, after: `null`,
	},
	"Pod": {
		first:  `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"NS","name":"p"},"spec":{"nodeSelector":{"no":"node"},"containers":[{"name":"c","image":"x:1"}]}}`,
		second: `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"NS","name":"p"},"spec":{"nodeSelector":{"no":"node"},"containers":[{"name":"c","image":"x:2"}]}}`,
		drift:  `{"metadata":{"labels":{"x":"y"}},"spec":{"activeDeadlineSeconds":null}}`, path: []string{"spec", "containers", "0", "image"}, before: `"x:1"`, after: `"x:2"`,
	},
	"ConfigMap": {
		first:  `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"NS","name":"c"},"data":{"a":"1","b":"1"}}`,
		second: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"NS","name":"c"},"data":{"a":"2"}}`,
		drift:  `{"data":{"a":null,"c":"x"}}`, path: []string{"data"}, before: `{"a":"1","b":"1"}`, after: `{"a":"2"}`,
	},
	"Secret": {
		first:  `{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"NS","name":"s"},"stringData":{"a":"1"}}`,
		second: `{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"NS","name":"s"},"data":{"a":"Mg=="}}`,
		drift:  `{"data":{"a":"eA==","c":"eA=="}}`, path: []string{"data"}, before: `{"a":"MQ=="}`, after: `{"a":"Mg=="}`,
	},
	"Service, its ports": {
		first:  `{"apiVersion":"v1","kind":"Service","metadata":{"namespace":"NS","name":"s"},"spec":{"selector":{"a":"b"},"ports":[{"port":80,"targetPort":8080}]}}`,
		second: `{"apiVersion":"v1","kind":"Service","metadata":{"namespace":"NS","name":"s"},"spec":{"selector":{"a":"b"},"ports":[{"port":80,"targetPort":9090}]}}`,
		drift:  `{"spec":{"ports":[{"port":80,"targetPort":1}]}}`, path: []string{"spec", "ports", "0", "targetPort"}, before: `8080`, after: `9090`,
	},
	"Role": {
		first:  `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"namespace":"NS","name":"r"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}`,
		second: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"namespace":"NS","name":"r"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["list"]}]}`,
		drift:  `{"rules":[]}`, path: []string{"rules", "0", "verbs"}, before: `["get"]`, after: `["list"]`,
	},
	"RoleBinding": {
		first:  `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"namespace":"NS","name":"r"},"roleRef":{"kind":"ClusterRole","name":"view"},"subjects":[{"kind":"User","name":"u"}]}`,
		second: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"namespace":"NS","name":"r"},"roleRef":{"kind":"ClusterRole","name":"view"},"subjects":[{"kind":"User","name":"v"}]}`,
		drift:  `{"subjects":null}`, path: []string{"subjects", "0", "name"}, before: `"u"`, after: `"v"`,
	},
	"NetworkPolicy": {
		first:  `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"namespace":"NS","name":"n"},"spec":{"podSelector":{"matchLabels":{"a":"1"}}}}`,
		second: `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"namespace":"NS","name":"n"},"spec":{"podSelector":{"matchLabels":{"a":"2"}}}}`,
		drift:  `{"spec":{"podSelector":{"matchLabels":{"a":"x"}}}}`, path: []string{"spec", "podSelector", "matchLabels", "a"}, before: `"1"`, after: `"2"`,
	},
	"PodDisruptionBudget": {
		first:  `{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"namespace":"NS","name":"p"},"spec":{"minAvailable":1,"selector":{"matchLabels":{"a":"b"}}}}`,
		second: `{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"namespace":"NS","name":"p"},"spec":{"minAvailable":2,"selector":{"matchLabels":{"a":"b"}}}}`,
		drift:  `{"spec":{"minAvailable":9}}`, path: []string{"spec", "minAvailable"}, before: `1`, after: `2`,
	},
	"ValidatingAdmissionPolicy": {
		first:  `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"NS"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["none.example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["none"]}]},"failurePolicy":"Ignore","validations":[{"expression":"true"}]}}`,
		second: `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"NS"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["none.example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["none"]}]},"validations":[{"expression":"true","message":"m"}]}}`,
		drift:  `{"spec":{"failurePolicy":"Fail"}}`, path: []string{"spec", "failurePolicy"}, before: `"Ignore"`, after: `"Fail"`,
	},
	"ValidatingWebhookConfiguration, injected bundles stay": {
		first: `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"NS"},"webhooks":[
			{"name":"a.example.com","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"url":"https://127.0.0.1:1/"}}]}`,
		second: `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"NS"},"webhooks":[
			{"name":"a.example.com","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"url":"https://127.0.0.1:2/"}}]}`,
		drift: `{"webhooks":[{"name":"a.example.com","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"url":"https://127.0.0.1:9/"}}]}`,
		path:  []string{"webhooks", "0", "clientConfig", "url"}, before: `"https://127.0.0.1:1/"`, after: `"https://127.0.0.1:2/"`,
	},
	"StorageClass": {
		first:  `{"apiVersion":"storage.k8s.io/v1","kind":"StorageClass","metadata":{"name":"NS"},"provisioner":"x/y","allowVolumeExpansion":true}`,
		second: `{"apiVersion":"storage.k8s.io/v1","kind":"StorageClass","metadata":{"name":"NS"},"provisioner":"x/y"}`,
		drift:  `{"allowVolumeExpansion":false,"metadata":{"annotations":{"storageclass.kubernetes.io/is-default-class":"false"}}}`,
		path:   []string{"allowVolumeExpansion"}, before: `true`, after: `null`,
	},
	"CSIDriver": {
		first:  `{"apiVersion":"storage.k8s.io/v1","kind":"CSIDriver","metadata":{"name":"NS"},"spec":{"podInfoOnMount":true}}`,
		second: `{"apiVersion":"storage.k8s.io/v1","kind":"CSIDriver","metadata":{"name":"NS"},"spec":{}}`,
		drift:  `{"spec":{"podInfoOnMount":false}}`, path: []string{"spec", "podInfoOnMount"}, before: `true`, after: `false`,
	},
	"Deployment, an absent field returns to its default": {
		first:  deployment("%REPLICAS%", `"replicas":0,"progressDeadlineSeconds":30,`),
		second: deployment("%REPLICAS%", `"replicas":0,`),
		drift:  `{"spec":{"progressDeadlineSeconds":40}}`, path: []string{"spec", "progressDeadlineSeconds"}, before: `30`, after: `600`,
	},
	"CronJob": {
		first: `{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"namespace":"NS","name":"j"},"spec":{"schedule":"0 0 1 1 *","suspend":true,
			"jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"x"}]}}}}}}`,
		second: `{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"namespace":"NS","name":"j"},"spec":{"schedule":"0 0 1 2 *",
			"jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"x"}]}}}}}}`,
		drift: `{"spec":{"suspend":false}}`, path: []string{"spec", "suspend"}, before: `true`, after: `false`,
	},
	"Ingress": {
		first:  `{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"namespace":"NS","name":"i"},"spec":{"ingressClassName":"a","defaultBackend":{"service":{"name":"s","port":{"number":80}}}}}`,
		second: `{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"namespace":"NS","name":"i"},"spec":{"defaultBackend":{"service":{"name":"s","port":{"number":80}}}}}`,
		drift:  `{"spec":{"ingressClassName":"b"}}`, path: []string{"spec", "ingressClassName"}, before: `"a"`, after: `null`,
	},
}

// at gives what is at a path, in which numbers are indexes of lists.
func at(t *testing.T, obj *unstructured.Unstructured, path []string) string {
	t.Helper()
	var value any = obj.Object
	for _, key := range path {
		switch parent := value.(type) {
		case map[string]any:
			value = parent[key]
		case []any:
			value = nil
			for i, item := range parent {
				if fmt.Sprint(i) == key {
					value = item
				}
			}
		}
	}
	return asJSON(t, value)
}

// Update is alike for every kind: what the manifest declares is what the cluster has, drift is
// healed, changes arrive, what the manifest leaves out returns to its default, what others added
// stays, and the object is never recreated.
func TestUpdateIsAlikeForEveryKind(t *testing.T) {
	t.Parallel()
	for name, test := range updated {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpoke(t)
			first, second := s.parse(nil, test.first), s.parse(nil, test.second)
			ref := first[0].Ref
			uid := s.applied(first, "1× POST 201")[0].Live.GetUID()
			s.see(ref)
			s.applied(first, "")
			s.patch(ref, "other", `{"metadata":{"annotations":{"theirs":"x"},"finalizers":["example.com/theirs"]}}`)
			defer s.patchOnly(ref, "other", `{"metadata":{"finalizers":null}}`)
			s.applied(first, "")
			s.patch(ref, "other", test.drift)
			check := func(what, want string) {
				t.Helper()
				live := s.get(ref)
				if got := at(t, live, test.path); got != want {
					t.Errorf("%s: %s, want %s", what, got, want)
				}
				if live.GetUID() != uid {
					t.Errorf("%s: it was recreated", what)
				}
				if live.GetAnnotations()["theirs"] != "x" || cmp.Diff([]string{"example.com/theirs"}, live.GetFinalizers()) != "" {
					t.Errorf("%s: what others added is gone: %v", what, live.Object["metadata"])
				}
			}
			heal := func(what string, manifests []strategy.Manifest, want string) {
				t.Helper()
				if outcome := s.apply(manifests)[0]; outcome.Err != nil {
					t.Fatalf("%s: %v", what, outcome.Err)
				}
				s.requests.take()
				check(what, want)
				s.see(ref)
				s.applied(manifests, "")
			}
			heal("drift", first, test.before)
			heal("change", second, test.after)
			// Nothing is done again by an agent that has restarted.
			s.restart()
			s.see(ref)
			s.applied(second, "")
			heal("change back", first, test.before)
			if got := managers(s.get(ref)); !strings.Contains(got, "work-agent Update") || strings.Contains(got, "Apply") {
				t.Errorf("managers %s", got)
			}
		})
	}
}

// A class that leaves out what the API server fills in is no other class.
func TestUpdateLeavesStorageClassAlone(t *testing.T) {
	s := newSpoke(t)
	manifests := s.parse(nil, `{"apiVersion":"storage.k8s.io/v1","kind":"StorageClass","metadata":{"name":"NS","annotations":{"workwire.dev/recreate":"OnImmutable"}},"provisioner":"x/y"}`)
	s.applied(manifests, "1× POST 201")
	uid := s.get(manifests[0].Ref).GetUID()
	for range 2 {
		s.restart()
		s.applied(manifests, "1× GET 200, 1× POST 409")
	}
	if s.get(manifests[0].Ref).GetUID() != uid {
		t.Error("it was recreated")
	}
}

func TestUnknownFieldsAreNoDrift(t *testing.T) {
	// The API server drops unknown fields; that is no drift.
	s := newSpoke(t)
	manifests := s.parse(nil, `{"apiVersion":"v1","kind":"Service","metadata":{"namespace":"NS","name":"s"},"spec":{"ports":[{"port":80,"future":1}],"future":{"a":1}},"future":1}`)
	s.applied(manifests, "1× POST 201")
	s.applied(manifests, "")
}

// Metadata of a manifest that is not for the object.
func TestMetadataOfManifest(t *testing.T) {
	for _, kind := range everyStrategy[:3] {
		s := newSpoke(t)
		manifests := s.parse(on("", "configmaps", &workv1.UpdateStrategy{Type: kind}), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"NS","name":"c",
			"uid":"none","creationTimestamp":null,"managedFields":[{"manager":"x"}],"finalizers":["example.com/a"]},"data":{"a":"1"}}`)
		ref := manifests[0].Ref
		if err := s.apply(manifests)[0].Err; err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		live := s.get(ref)
		if live.GetUID() == "none" || len(live.GetFinalizers()) != 1 || live.GetLabels()[object.AgentLabel] != agentHash {
			t.Errorf("%s: %v", kind, live.Object["metadata"])
		}
		if diff := cmp.Diff([]metav1.OwnerReference{s.owner}, live.GetOwnerReferences()); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
	}
}
