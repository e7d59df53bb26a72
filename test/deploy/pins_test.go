package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/test/kit"
)

// TestPinnedImages renders what a release has: every image is named by the digest that was built, by the chart and
// by kustomize, also in a mirror, and a tag of one's own stands above it.
func TestPinnedImages(t *testing.T) {
	c := newCopy(t)
	c.helm()
	c.secrets()
	digests, list := map[string]string{}, ""
	for i, name := range []string{"work-agent", "work-hub", "work-broker", "workctl"} {
		digests[name] = "sha256:" + strings.Repeat(string(rune('a'+i)), 64)
		list += "ghcr.io/workwire/" + name + "@" + digests[name] + "\n"
	}
	c.write("images.txt", list)
	c.run(filepath.Join(repository(t), "hack/pin.sh") + " deploy images.txt")
	image := regexp.MustCompile(`(?m)^ +(?:- )?image: (\S+)$`)
	is := func(rendered, want string) {
		t.Helper()
		found := image.FindAllStringSubmatch(rendered, -1)
		if len(found) != 1 || found[0][1] != want {
			t.Errorf("the images are %q, want %s", found, want)
		}
	}
	for part, flags := range parts {
		name := "work-" + part
		chart := "helm template x deploy/helm/workwire " + flags
		is(c.run(chart), "ghcr.io/workwire/"+name+"@"+digests[name])
		is(c.run(chart+",image.registry=mirror"), "mirror/"+name+"@"+digests[name])
		is(c.run(chart+",image.tag=mine"), "ghcr.io/workwire/"+name+":mine")
		is(c.run("kubectl kustomize deploy/kustomize/"+part), "ghcr.io/workwire/"+name+"@"+digests[name])
		is(c.run("kubectl kustomize deploy/kustomize/example/"+part), "ghcr.io/workwire/"+name+"@"+digests[name])
		c.write("mirror/kustomization.yaml", "resources: [../deploy/kustomize/"+part+"]\nimages: [{name: ghcr.io/workwire/"+name+", newName: mirror/"+name+"}]\n")
		is(c.run("kubectl kustomize mirror"), "mirror/"+name+"@"+digests[name])
	}
	c.write("images.txt", "ghcr.io/workwire/work-hub:v1\n")
	if _, stderr, err := c.try(filepath.Join(repository(t), "hack/pin.sh") + " deploy images.txt"); err == nil || !strings.Contains(stderr, "has no digest") {
		t.Errorf("an image without a digest: %v %s", err, stderr)
	}
}

// TestRightsOfTheRelease: the job that runs the repository's code has no rights and no secrets; the one that has them
// runs no code that was built.
func TestRightsOfTheRelease(t *testing.T) {
	text, err := os.ReadFile("../../.github/workflows/release.yaml")
	kit.NoError(t, err)
	var workflow struct {
		Permissions map[string]string
		Jobs        map[string]struct {
			Permissions map[string]string
			Steps       []map[string]any
		}
	}
	kit.NoError(t, yaml.Unmarshal(text, &workflow))
	build, publish := workflow.Jobs["build"], workflow.Jobs["publish"]
	if len(workflow.Jobs) != 2 || len(workflow.Permissions) != 0 || len(build.Permissions) != 1 || build.Permissions["contents"] != "read" {
		t.Errorf("%d jobs; permissions of all %v, of the build %v", len(workflow.Jobs), workflow.Permissions, build.Permissions)
	}
	steps := func(steps []map[string]any) string {
		all, err := yaml.Marshal(steps)
		kit.NoError(t, err)
		return string(all)
	}
	if got := steps(build.Steps); regexp.MustCompile(`secrets\.|github\.token|GITHUB_TOKEN`).MatchString(got) || !strings.Contains(got, ".ci/run") || !strings.Contains(got, "hack/release.sh build") {
		t.Errorf("the build does\n%s", got)
	}
	if got := steps(publish.Steps); regexp.MustCompile(`\.ci/run|go (build|run|test|generate)|make |release\.sh build`).MatchString(got) || !strings.Contains(got, "hack/release.sh publish") {
		t.Errorf("the publication does\n%s", got)
	}
	for _, job := range workflow.Jobs {
		for _, step := range job.Steps {
			with, _ := step["with"].(map[string]any)
			uses, _ := step["uses"].(string)
			if strings.HasPrefix(uses, "actions/checkout@") && with["persist-credentials"] != false || strings.HasPrefix(uses, "actions/setup-go@") && with["cache"] != false {
				t.Errorf("%s keeps a token, or takes what another job has cached: %v", uses, with)
			}
		}
	}
}
