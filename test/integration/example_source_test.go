package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/world"
)

// TestSourceExample runs examples/source as its readers do.
func TestSourceExample(t *testing.T) {
	t.Parallel()
	w := withBroker(t)
	w.StartAgent(0, world.Serve(w.Other))
	dir := w.TempDir()
	file := filepath.Join(dir, "transport.yaml")
	topics := world.Topics(w.Other)
	err := os.WriteFile(file, fmt.Appendf(nil, "brokerHost: %s\nusername: %s\npassword: %s\ntopics: {sourceEvents: %s, agentEvents: %s}\n",
		w.Broker.Addr, w.Other, world.Password, topics.SourceEvents, topics.AgentEvents), 0o600)
	kit.NoError(w, err)
	work, err := yaml.Marshal(w.Work(0, "web", "1", "a"))
	kit.NoError(w, err)
	program := filepath.Join(dir, "source")
	if out, err := exec.Command("go", "build", "-o", program, "../../examples/source").CombinedOutput(); err != nil {
		w.Fatalf("build the example: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(w.Context(), program, "--transport-config="+file, "--source-id="+string(w.Other), "--state="+dir+"/state.db")
	cmd.Stdin = strings.NewReader(string(work))
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"Applied=True", "Available=True", "Deleting=True", "gone from " + string(w.Clusters[0])} {
		if !strings.Contains(string(out), want) {
			w.Errorf("the example does not print %q:\n%s", want, out)
		}
	}
	w.Holds(0, nil)
	w.NoAppliedManifestWorks(0)
}
