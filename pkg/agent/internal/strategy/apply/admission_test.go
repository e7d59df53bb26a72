package apply_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const rewritten = "registry.local/x"

// rewriteImages makes the API server rewrite the image of the first container of what has a pod
// template, at the operations given, and returns when it does. Probe is a manifest to try it with.
func (s *spoke) rewriteImages(group, resource, operations, probe string) {
	s.t.Helper()
	policies := s.parse(nil,
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicy","metadata":{"name":"NS"},"spec":{
			"matchConstraints":{"resourceRules":[{"apiGroups":["`+group+`"],"apiVersions":["v1"],"operations":[`+operations+`],"resources":["`+resource+`"]}],
				"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"NS"}}},
			"failurePolicy":"Fail","reinvocationPolicy":"Never","mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":
				"[JSONPatch{op: 'replace', path: '/spec/template/spec/containers/0/image', value: '`+rewritten+`'}]"}}]}}`,
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicyBinding","metadata":{"name":"NS"},"spec":{"policyName":"NS"}}`)
	s.applied(policies, "2× POST 201")
	// It takes effect a moment later.
	manifests := s.parse(nil, probe)
	ref := manifests[0].Ref
	for live := s.apply(manifests)[0].Live; !isRewritten(s.t, live); live = s.apply(manifests)[0].Live {
		background := metav1.DeletePropagationBackground
		if err := s.resource(ref).Delete(s.t.Context(), ref.Name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
			s.t.Fatal(err)
		}
		s.cache.Learn(ref, nil)
	}
	s.requests.take()
}

func isRewritten(t *testing.T, live *unstructured.Unstructured) bool {
	t.Helper()
	return strings.Contains(asJSON(t, nested(t, live, "spec", "template", "spec", "containers")), rewritten)
}

// Admission turns what is declared into something else at each write.
func TestMutatingAdmission(t *testing.T) {
	s := newSpoke(t)
	s.rewriteImages("apps", "deployments", `"CREATE","UPDATE"`, strings.Replace(deployment(), `"name":"d"`, `"name":"probe"`, 1))
	manifests := s.parse(nil, deployment())
	if live := s.applied(manifests, "1× POST 201")[0].Live; !isRewritten(t, live) {
		t.Fatalf("not rewritten: %v", live.Object["spec"])
	}
	s.applied(manifests, "")
	s.rolledOut(manifests[0].Ref)
	s.applied(manifests, "")
	// After a restart it takes one write to learn it again.
	s.restart()
	s.see(manifests[0].Ref)
	before := s.get(manifests[0].Ref).GetGeneration()
	if live := s.applied(manifests, "1× PUT 200")[0].Live; live.GetGeneration() != before {
		t.Error("the write changed something")
	}
	s.applied(manifests, "")
	// Real drift is still seen.
	s.patch(manifests[0].Ref, "other", `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"x:1"},{"name":"e","image":"y"}]}}}}`)
	s.rolledOut(manifests[0].Ref)
	s.applied(manifests, "1× PUT 200")
	if got := asJSON(t, nested(t, s.get(manifests[0].Ref), "spec", "template", "spec", "containers")); strings.Contains(got, `"e"`) {
		t.Errorf("containers %s", got)
	}
}

// Admission rewrote what cannot be changed any more: after a restart that is still no drift, and no
// failure.
func TestMutatedAtCreationOnly(t *testing.T) {
	s := newSpoke(t)
	job := `{"apiVersion":"batch/v1","kind":"Job","metadata":{"namespace":"NS","name":"j"},"spec":{"suspend":true,
		"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"x"}]}}}}`
	s.rewriteImages("batch", "jobs", `"CREATE"`, strings.Replace(job, `"name":"j"`, `"name":"probe"`, 1))
	manifests := s.parse(nil, strings.Replace(job, `"suspend":true,`, "", 1))
	s.applied(manifests, "1× POST 201")
	s.applied(manifests, "")
	s.eventually(manifests[0].Ref, "completion", func(live *unstructured.Unstructured) bool {
		return nested(t, live, "status", "completionTime") != nil
	})
	s.restart()
	s.see(manifests[0].Ref)
	if outcome := s.applied(manifests, "1× GET 200, 1× PUT 422")[0]; outcome.Action.String() != "unchanged" {
		t.Errorf("got %s", outcome.Action)
	}
	s.applied(manifests, "")
}
