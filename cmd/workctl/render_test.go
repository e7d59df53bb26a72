package main

import (
	"strings"
	"testing"
)

func TestRenderCommand(t *testing.T) {
	const examples, clusters = "../../examples/overrides", "--clusters=../../examples/overrides/clusters.yaml"
	for want, args := range map[string][]string{
		"-f and --clusters are required": {"-f", examples},
		"nothing: no such file":          {"-f", "nothing", clusters},
		"has no ManagedCluster rome":     {"-f", examples, clusters, "-n=rome"},
		"--kubeconfig has no effect":     {"-f", examples, clusters, "--kubeconfig=a"},
	} {
		if out, err := run(t.Context(), t, append([]string{"render"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q:\n%s", args, err, want, out)
		}
	}
	out, err := run(t.Context(), t, "render", "-f", examples, clusters, "-n=zurich")
	if err != nil || !strings.Contains(out, "currency: CHF") || !strings.Contains(out, "namespace: zurich") || strings.Contains(out, "berlin") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err = run(t.Context(), t, "render", "-f", examples, clusters, "-o=json", "--recursive"); err != nil || strings.Count(out, `"kind": "ManifestWork"`) != 2 {
		t.Errorf("%v\n%s", err, out)
	}
}
