package main

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/workwire/workwire/test/kit"
)

var update = flag.Bool("update", false, "write docs/api.md")

// TestPageIsCurrent: docs/api.md is what the sources say.
func TestPageIsCurrent(t *testing.T) {
	const path = "../../docs/api.md"
	var want strings.Builder
	kit.NoError(t, write(&want, "../.."))
	if *update {
		kit.NoError(t, os.WriteFile(path, []byte(want.String()), 0o644))
	}
	page, err := os.ReadFile(path)
	kit.NoError(t, err)
	if string(page) != want.String() {
		t.Error("docs/api.md is not what the types in pkg/apis say: run make generate")
	}
}

// TestPage: the page shows order, types, defaults, validation and comments.
func TestPage(t *testing.T) {
	var page strings.Builder
	kit.NoError(t, write(&page, "../.."))
	text := page.String()
	at := -1
	for _, want := range []string{
		"## work.open-cluster-management.io/v1\n", "### AppliedManifestWork (work/v1)", "### ManifestWork (work/v1)", "| `metadata` | metav1.ObjectMeta |",
		"| `spec` | [ManifestWorkSpec](#manifestworkspec-workv1) | spec says what the cluster shall hold. Required. |",
		"### ManifestWorkSpec (work/v1)", "Rule: manifests should not be empty", "| `workload` |", "| `manifestConfigs` | list of [ManifestConfigOption]", "At most items: `4096`",
		"One of: `", "## workwire.dev/v1alpha1", "## cluster.open-cluster-management.io/v1\n",
	} {
		next := strings.Index(text[at+1:], want)
		if next < 0 {
			t.Fatalf("the page does not have %q after what comes before it", want)
		}
		at += 1 + next
	}
	for _, not := range []string{"+kubebuilder", "+optional", "ManifestWorkList", "zz_generated"} {
		if strings.Contains(text, not) {
			t.Errorf("the page has %q", not)
		}
	}
}
