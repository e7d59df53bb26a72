package deploy

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/workwire/workwire/test/kit"
)

var fence = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// installationGuide returns the commands of docs/install.md by heading.
func installationGuide(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/install.md")
	kit.NoError(t, err)
	sections := map[string][]string{}
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		for _, m := range fence.FindAllStringSubmatch(body, -1) {
			sections[title] = append(sections[title], m[1])
		}
	}
	if len(sections["Certificates"]) == 0 {
		t.Fatal("no command makes certificates")
	}
	return sections
}

// TestInstallationGuide runs the commands of docs/install.md, those of kustomize and those of Helm
// on a cluster each, which then has all three parts.
func TestInstallationGuide(t *testing.T) {
	sections := installationGuide(t)
	for _, way := range []string{"With kustomize", "With Helm"} {
		t.Run(way, func(t *testing.T) {
			if len(sections[way]) < 4 {
				t.Fatalf("only %d blocks of commands", len(sections[way]))
			}
			c := newCluster(t)
			if way == "With Helm" {
				c.helm()
			}
			c.serviceMonitors()
			c.volume("data")
			for _, commands := range append(append([]string{}, sections["Certificates"]...), sections[way]...) {
				c.run(commands)
			}
			// What stays of the definitions is all, and nothing runs any more.
			if definitions := c.run("kubectl get crd -o name | grep -c open-cluster-management.io"); strings.TrimSpace(definitions) != "9" {
				t.Errorf("%s definitions are left", definitions)
			}
			left := c.run("kubectl get all,clusterroles,clusterrolebindings -A -l app.kubernetes.io/part-of=workwire -o name | grep -v ^pod/ || true")
			if left != "" {
				t.Errorf("left behind:\n%s", left)
			}
		})
	}
}

// TestMemoryOfTheHub: what the guide saves of a hub that is uninstalled can be given to the next one.
func TestMemoryOfTheHub(t *testing.T) {
	var save string
	for _, block := range installationGuide(t)["With kustomize"] {
		for line := range strings.Lines(block) {
			if strings.HasSuffix(line, "> hub-memory.yaml\n") {
				save = line
			}
		}
	}
	c := newCluster(t)
	const of = "configmap -n workwire-hub workwire-revocations"
	c.run("kubectl create namespace workwire-hub\n" + save + "kubectl create " + of + " --from-literal=hub1=revoked")
	c.run(save + "kubectl create namespace hubs && kubectl apply -n hubs -f hub-memory.yaml")
	if got := c.run("kubectl get configmap -n hubs workwire-revocations -o jsonpath={.data.hub1}"); save == "" || got != "revoked" {
		t.Errorf("saved with %q, there is %q", save, got)
	}
}
