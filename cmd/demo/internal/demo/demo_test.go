package demo_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/workwire/workwire/cmd/demo/internal/demo"
	"github.com/workwire/workwire/test/kit"
)

// show is a running demo.
type show struct {
	*testing.T
	dir, bin string
	screen   *kit.Log
}

func start(t *testing.T, change ...func(*demo.Options)) *show {
	t.Helper()
	bin, err := filepath.Abs("../../../../bin")
	kit.NoError(t, err)
	s := &show{T: t, dir: t.TempDir(), bin: bin, screen: &kit.Log{}}
	t.Cleanup(func() {
		if left, err := exec.Command("pgrep", "-f", s.dir).Output(); err == nil {
			t.Errorf("the demo left processes behind: %s", left)
		}
		if t.Failed() {
			t.Logf("the screen:\n%s", s.screen)
		}
	})
	options := demo.Options{Dir: s.dir, Bin: bin, Out: s.screen}
	for _, set := range change {
		set(&options)
	}
	ended := make(chan struct{})
	kit.Run(t, "the demo", func(ctx context.Context) error {
		defer close(ended)
		return demo.Run(ctx, options)
	})
	patience := demo.DefaultTimeout + kit.Patience
	if options.Walk {
		patience *= 7 // each of its steps has as long
	}
	kit.Within(t, patience, "the demo shows the works", func() error {
		select {
		case <-ended:
			t.Fatal("the demo ended early")
		default:
		}
		if !strings.Contains(s.screen.String(), "It goes on until Ctrl-C") {
			return errors.New("it does not")
		}
		return nil
	})
	return s
}

// kubectl runs kubectl at "hub" or "spoke" and returns what it prints.
func (s *show) kubectl(at string, env []string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(s.bin, "kubectl"), append([]string{"--kubeconfig", filepath.Join(s.dir, at, "kubeconfig")}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// does runs kubectl and fails the test when it fails.
func (s *show) does(at string, args ...string) string {
	s.Helper()
	out, err := s.kubectl(at, nil, args...)
	kit.NoError(s, err)
	return out
}

// shows waits until kubectl prints all of want.
func (s *show) shows(at string, want []string, args ...string) {
	s.Helper()
	kit.Eventually(s, "kubectl", func() error {
		out, err := s.kubectl(at, nil, args...)
		if err != nil {
			return err
		}
		for _, w := range want {
			if !strings.Contains(out, w) {
				return fmt.Errorf("kubectl %s prints no %q:\n%s", strings.Join(args, " "), w, out)
			}
		}
		return nil
	})
}

// missing waits until kubectl does not find it.
func (s *show) missing(at string, args ...string) {
	s.Helper()
	kit.Eventually(s, "kubectl", func() error {
		out, err := s.kubectl(at, nil, args...)
		if err != nil && strings.Contains(out, "NotFound") {
			return nil
		}
		return fmt.Errorf("kubectl %s prints:\n%s", strings.Join(args, " "), out)
	})
}

// edit is kubectl edit with an editor that runs sed.
func (s *show) edit(expression string, args ...string) {
	s.Helper()
	if _, err := s.kubectl("hub", []string{"KUBE_EDITOR=sed -i " + expression}, append([]string{"edit"}, args...)...); err != nil {
		s.Fatal(err)
	}
}

// TestTutorial follows the tutorial, with kubectl, on the demo.
func TestTutorial(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, want := range []string{"ReadyReplicas=1", "Replicas=1", "AvailableReplicas=1", "isAvailable=True"} {
		if !strings.Contains(s.screen.String(), want) {
			t.Errorf("the demo does not show %s", want)
		}
	}
	followGuide(s)
	const work = "example-manifestwork"

	// Prerequisites.
	s.does("hub", "get", "crd", "manifestworks.work.open-cluster-management.io")
	s.does("spoke", "get", "crd", "manifestworks.work.open-cluster-management.io")
	s.does("spoke", "get", "crd", "appliedmanifestworks.work.open-cluster-management.io")
	s.shows("hub", []string{"Active"}, "get", "ns", "cluster1")

	// Creating: the demo has applied examples/example-manifestwork.yaml.
	s.shows("hub", []string{"APPLIED", "AVAILABLE", "COMPLETE", "AGE", work, "True"}, "-n", "cluster1", "get", "manifestwork", work)
	s.shows("hub", []string{
		"reason: AppliedManifestWorkComplete", "message: All resources are available", "type: Available",
		"resourceStatus:", "name: nginx-deployment", "resource: deployments", "ordinal: 1", "kind: ServiceAccount",
		"cluster.open-cluster-management.io/manifest-work-cleanup",
	}, "-n", "cluster1", "get", "manifestwork", work, "-o", "yaml")
	running := func(n int) {
		t.Helper()
		kit.Eventually(s, "kubectl", func() error {
			out, err := s.kubectl("spoke", nil, "get", "pod", "-l", "app=nginx")
			if got := strings.Count(out, "Running"); got != n {
				return fmt.Errorf("%d of %d pods run:\n%s", got, n, out)
			}
			return err
		})
	}
	running(3)

	// Updating: image and replicas.
	s.edit("s/nginx:1.14.2/nginx:1.16.1/", "-n", "cluster1", "manifestwork", work)
	s.shows("spoke", []string{"nginx:1.16.1"}, "get", "deployment", "nginx-deployment", "-o", "jsonpath={..image}")
	s.edit("'s/replicas: 3/replicas: 5/'", "-n", "cluster1", "manifestwork", work)
	s.shows("spoke", []string{"5"}, "get", "deployment", "nginx-deployment", "-o", "jsonpath={.spec.replicas}")
	running(5)
	s.shows("spoke", []string{"-" + work}, "get", "appliedmanifestwork")
	applied := "appliedmanifestwork/" + strings.TrimPrefix(appliedOf(s, work), "appliedmanifestwork.work.open-cluster-management.io/")

	// Deleting: an object held by a finalizer holds the work and its AppliedManifestWork as well.
	s.does("spoke", "patch", "deployment", "nginx-deployment", "--type=merge", "-p", `{"metadata":{"finalizers":["test.workwire.dev/hold"]}}`)
	s.does("hub", "-n", "cluster1", "delete", "manifestwork", work, "--wait=false")
	s.missing("spoke", "get", "serviceaccount", "my-sa")
	s.shows("hub", []string{"type: Deleting", "deletionTimestamp", "manifest-work-cleanup"}, "-n", "cluster1", "get", "manifestwork", work, "-o", "yaml")
	s.shows("spoke", []string{"deletionTimestamp", "applied-manifest-work-cleanup", "nginx-deployment"}, "get", applied, "-o", "yaml")
	s.shows("spoke", []string{"deletionTimestamp"}, "get", "deployment", "nginx-deployment", "-o", "yaml")
	s.does("spoke", "patch", "deployment", "nginx-deployment", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	s.missing("hub", "-n", "cluster1", "get", "manifestwork", work)
	s.missing("spoke", "get", applied)
	s.missing("spoke", "get", "deployment", "nginx-deployment")
	running(0)
}

func appliedOf(s *show, work string) string {
	s.Helper()
	for _, line := range strings.Split(s.does("spoke", "get", "appliedmanifestwork", "-o", "name"), "\n") {
		if strings.HasSuffix(line, "-"+work) {
			return line
		}
	}
	s.Fatalf("no AppliedManifestWork of %s", work)
	return ""
}

// clock matches the time at the beginning of a line.
var clock = regexp.MustCompile(`(?m)^ *\d+\.\ds `)

// TestWalk: the walk ends with a rollout to three clusters, after one that stopped at the canary and went back, and
// one that did not wait for a cluster that was off. Each look at it works.
func TestWalk(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *demo.Options) { o.Walk = true })
	screen := s.screen.String()
	text := strings.Join(strings.Fields(clock.ReplaceAllString(screen, "")), " ") // lines are cut at words
	at := 0
	for _, want := range []string{
		"cluster1 joins: workctl token create cluster1", "cluster1 has a certificate",
		"cluster3 joins: workctl token create cluster3", "cluster3 has a certificate",
		"$ kubectl wait managedcluster --all --for=condition=ManagedClusterConditionAvailable", "Complete revision 1: 3 of 3 clusters succeeded",
		"wait deployment web --for=jsonpath='{.metadata.labels.cluster}'=cluster3", `workwire\.dev/proven-revision}'=1`,
		"3 clusters: cluster1, cluster2, cluster3 ~ apps/v1 Deployment default/web would be changed", `nginx:1.27" → "nginx:1.28"`,
		"RolledBack revision 1: 3 of 3 clusters succeeded; back from revision 2 to revision 1: 1 cluster failed or timed out, more than allowed: " +
			"cluster1; it waited for cluster1: Deployment default/web: Available: 0/1",
		"WaitsForApproval revision 3: 1 of 3 clusters succeeded", "stage production: 0 of 2 clusters succeeded;", "approved stage production of revision 3",
		"Complete revision 3: 3 of 3 clusters succeeded",
		"managedcluster cluster3 --for=condition=ManagedClusterConditionAvailable=Unknown", "approved stage production of revision 4",
		"RollingOut revision 4: 2 of 3 clusters succeeded", "Complete revision 4: 3 of 3 clusters succeeded",
	} {
		next := strings.Index(text[at:], want)
		if next < 0 {
			t.Errorf("the screen has no %q after %q", want, text[:at])
			continue
		}
		at += next
	}
	s.shows("hub", []string{"TOTAL", "WANTED", "STOPPED", "Complete"}, "-n", "ocm-ns", "get", "manifestworkreplicaset", "web")
	_, export, _ := strings.Cut(text, " export ")
	variables := strings.Fields(export)[:2] // KUBECONFIG and PATH
	for line := range strings.Lines(screen) {
		_, command, found := strings.Cut(line, "look: ")
		if strings.HasPrefix(line, "  workctl ") {
			command, found = line, true
		}
		if found {
			if out, err := exec.Command("sh", "-c", strings.Join(variables, " ")+" "+command).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", command, err, out)
			}
		}
	}
	for at, cluster := range map[string]string{"spoke": "cluster1", "cluster2": "cluster2", "cluster3": "cluster3"} {
		s.shows(at, []string{"nginx:1.29 " + cluster}, "get", "deployment", "web", "-o", "jsonpath={..image} {.metadata.labels.cluster}")
	}
}
