package docs

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/workwire/workwire/test/kit"
)

// runBy are commands of quickstart.md by the test that runs them, or sends the same request, with the
// words that its files have.
// The others are commands of install.md, which TestInstallationGuide runs.
var runBy = map[string]struct{ file, words string }{
	"sed 's#/etc/workwire/broker/#deploy/kustomize/example/hub/secrets/broker/#; s#work-broker.workwire-broker.svc#broker.example.com#' deploy/kustomize/example/hub/transport.yaml > hub1.yaml": {
		"../cmd/workctl/join_test.go", `"sh", "-c", command`},
	"workctl join cluster2 --config=deploy/kustomize/example/certificates.yaml --transport=hub1.yaml --accept > cluster2.yaml": {
		"../cmd/workctl/join_test.go", `"join", cluster, "--config="`},
	"workctl doctor --transport=hub1.yaml --cluster=cluster2": {"../cmd/workctl/join_test.go", `"doctor", "--transport="+in("hub1.yaml"), "--cluster="`},
	"workctl status":                   {"../cmd/workctl/hub_test.go", `"status"`},
	"kubectl get appliedmanifestworks": {"../test/upgrade/state_test.go", "AppliedManifestWorks().List("},
	"kubectl apply -f examples/manifestwork/hello-work-demo.yaml": {"../test/examples/deletion_test.go", `apply("manifestwork/hello-work-demo.yaml")`},
	"kubectl get manifestworks -n cluster1":                       {"../test/symptoms/world_test.go", "as=Table"},
	"workctl explain work hello-work-demo -n cluster1":            {"../cmd/workctl/hub_test.go", `"explain"`},
	"go run ./examples/source --transport-config=ops.yaml --source-id=ops --state=ops.db < work.yaml": {
		"../test/integration/example_source_test.go", `"--transport-config="+file, "--source-id="`},
}

// TestQuickStart: every command of the page is one that a test runs.
func TestQuickStart(t *testing.T) {
	page, err := os.ReadFile("quickstart.md")
	kit.NoError(t, err)
	guide, err := os.ReadFile("install.md")
	kit.NoError(t, err)
	block := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")
	installed := ""
	for _, m := range block.FindAllStringSubmatch(string(guide), -1) {
		installed += m[1]
	}
	commands := 0
	for _, m := range block.FindAllStringSubmatch(string(page), -1) {
		for command := range strings.Lines(m[1]) {
			commands++
			test, ok := runBy[strings.TrimSpace(command)]
			if !ok {
				if !strings.Contains("\n"+installed, "\n"+command) {
					t.Errorf("no test runs %q", command)
				}
				continue
			}
			text, err := os.ReadFile(test.file)
			kit.NoError(t, err)
			if !strings.Contains(string(text), test.words) {
				t.Errorf("%s does not run %q: it has no %q", test.file, command, test.words)
			}
		}
	}
	if commands < 10 {
		t.Errorf("only %d commands: is the pattern right?", commands)
	}
}
