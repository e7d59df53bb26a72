package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/workwire/workwire/test/kit"
)

func TestWrapCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	kit.NoError(t, os.WriteFile(file, []byte("{apiVersion: v1, kind: Service, metadata: {name: web}}"), 0o600))
	for want, args := range map[string][]string{
		"-f and --name are required":                      {},
		"must be one of yaml, json":                       {"-f", file, "--name=a", "-o=xml"},
		"Service web has no namespace":                    {"-f", file, "--name=a"},
		"document 1 (line 1): Service web has 81 bytes":   {"-f", file, "--name=a", "--object-namespace=shop", "--max-bytes=80"},
		"nothing: no such file":                           {"-f", "nothing", "--name=a"},
		`the name "A" of the work is invalid`:             {"-f", file, "--name=A", "--object-namespace=shop"},
		"a work has 1 to 512000 bytes of manifests, got ": {"-f", file, "--name=a", "--max-bytes=512001"},
	} {
		if out, err := run(t.Context(), t, append([]string{"wrap"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q:\n%s", args, err, want, out)
		}
	}
	out, err := run(t.Context(), t, "wrap", "-f", file, "--name=a", "-n=cluster1", "--object-namespace=shop")
	if want := `---
apiVersion: work.open-cluster-management.io/v1
kind: ManifestWork
metadata:
  annotations:
    workwire.dev/report-readiness: "true"
  labels:
    workwire.dev/wrap: a
  name: a
  namespace: cluster1
spec:
  manifestConfigs:
  - feedbackRules:
    - type: WellKnownStatus
    resourceIdentifier:
      group: ""
      name: web
      namespace: shop
      resource: services
  workload:
    manifests:
    - apiVersion: v1
      kind: Service
      metadata:
        name: web
        namespace: shop
`; err != nil || out != want {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = run(t.Context(), t, "wrap", "-f", file, "--name=a", "--object-namespace=shop", "-o=json", "--feedback=false", "--readiness=false")
	if err != nil || !strings.Contains(out, `"kind": "List"`) || strings.Contains(out, "feedbackRules") || strings.Contains(out, "annotations") {
		t.Errorf("%v\n%s", err, out)
	}
}
