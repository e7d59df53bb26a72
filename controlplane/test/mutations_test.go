package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const labelPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: widget-label}
spec:
  failurePolicy: Ignore
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [test.workwire.dev], apiVersions: [v1], operations: [CREATE], resources: [widgets]}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: "[JSONPatch{op: 'add', path: '/spec/size', value: 7}]"
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: widget-label}
spec: {policyName: widget-label}
`

// TestApplyMutations: once up is ready, objects can be created of a kind that a MutatingAdmissionPolicy
// changes, at the first start and at later ones. API servers refuse that for seconds.
func TestApplyMutations(t *testing.T) {
	t.Parallel()
	dir, manifest := t.TempDir(), filepath.Join(t.TempDir(), "widgets.yaml")
	noError(t, os.WriteFile(manifest, []byte(widgetCRD+"---"+labelPolicy), 0o600))
	for _, name := range []string{"first", "second"} {
		p := up(t, "--role=hub", "--dir="+dir, "--apply="+manifest)
		kubectl := kubectl(t, p.kubeconfig)
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
			size := kubectl("{apiVersion: test.workwire.dev/v1, kind: Widget, metadata: {generateName: "+name+"-, namespace: default}, spec: {}}",
				"create", "--filename=-", "--output=jsonpath={.spec.size}")
			if strings.TrimSpace(size) != "7" {
				t.Errorf("%s start: a new widget has the size %q", name, size)
			}
		}
		if left := kubectl("", "get", "mutatingadmissionpolicies,mutatingadmissionpolicybindings", "--output=name"); strings.Contains(left, "probe") {
			t.Errorf("%s start: what it was found out with is left: %s", name, left)
		}
		p.stop()
	}
}
