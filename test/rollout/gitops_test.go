package rollout

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/process"
)

var (
	command   = regexp.MustCompile(`(?m)^    \$ (.*)$`)
	placement = regexp.MustCompile("(?s)```yaml\n# fleet/placement.yaml[^\n]*\n(.*?)```")
)

// TestGitOps follows docs/gitops.md: what a GitOps tool applies arrives with the values of each cluster, is healthy for Flux and Argo CD, and
// is not fought over when the tool applies it again.
func TestGitOps(t *testing.T) {
	text, err := os.ReadFile("../../docs/gitops.md")
	kit.NoError(t, err)
	programs := t.TempDir()
	kit.NoError(t, process.Build(t.Context(), filepath.Join("..", ".."), programs, "workctl"))
	w := startCanary(t)
	w.label("a-first", "canary")
	w.label("b-second", "prod")
	dir := t.TempDir()
	kit.NoError(t, os.CopyFS(filepath.Join(dir, "examples"), os.DirFS("../../examples")))
	kubectl, err := filepath.Abs("../../bin")
	kit.NoError(t, err)
	run := func(line string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", line)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "KUBECONFIG="+hubPlane.Kubeconfig, "PATH="+programs+":"+kubectl+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return string(out)
	}
	var apply string
	for _, m := range command.FindAllStringSubmatch(string(text), -1) {
		if strings.HasPrefix(m[1], "kubectl apply") {
			apply = m[1]
			continue
		}
		run(m[1])
	}
	kit.NoError(t, os.WriteFile(filepath.Join(dir, "fleet", "placement.yaml"), []byte(placement.FindStringSubmatch(string(text))[1]), 0o600))
	run(apply)

	sets, works := w.client.WorkV1alpha1().ManifestWorkReplicaSets("default"), w.client.WorkV1().ManifestWorks("a-first")
	kit.Eventually(t, "work and set are healthy", func() error {
		set, err := sets.Get(t.Context(), "till", metav1.GetOptions{})
		if err == nil {
			err = w.health(set, "Current Healthy")
		}
		if err != nil {
			return err
		}
		work, err := works.Get(t.Context(), "motd", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return w.health(work, "Current Healthy")
	})
	for cluster, plane := range w.planes {
		till, err := kubernetes.NewForConfigOrDie(plane.REST()).CoreV1().ConfigMaps("default").Get(t.Context(), "till", metav1.GetOptions{})
		kit.NoError(t, err)
		if till.Data["shop"] != cluster || till.Data["currency"] != "EUR" {
			t.Errorf("%s has %v", cluster, till.Data)
		}
	}

	run("workctl rollout pause till -n default")
	versions := func() []string {
		return strings.Fields(run("kubectl get -f fleet/ -o jsonpath='{range .items[*]}{.kind}/{.metadata.name}@{.metadata.resourceVersion} {end}'"))
	}
	var before []string
	kit.Eventually(t, "the hub has seen the pause", func() error {
		set, err := sets.Get(t.Context(), "till", metav1.GetOptions{})
		if err != nil {
			return err
		}
		before = versions()
		if err := w.health(set, "InProgress Suspended"); err != nil {
			return err
		}
		if again := versions(); !slices.Equal(before, again) {
			return fmt.Errorf("%v, %v", before, again)
		}
		return nil
	})
	run(apply)
	if after := versions(); !slices.Equal(before, after) {
		t.Errorf("applied again, it is\n%v, and was\n%v", after, before)
	}
	run("workctl rollout resume till -n default")
	run("kubectl delete -f fleet/ --wait=false")
}
