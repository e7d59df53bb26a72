package demo_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/workwire/workwire/demo"
)

// screen is what the demo has written so far.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// show is a demo that goes on.
type show struct {
	*testing.T
	dir, bin string
	screen   *screen
}

const wait = time.Minute

func start(t *testing.T) *show {
	t.Helper()
	bin, err := filepath.Abs("../bin")
	if err != nil {
		t.Fatal(err)
	}
	s := &show{T: t, dir: t.TempDir(), bin: bin, screen: &screen{}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- demo.Run(ctx, demo.Options{Dir: s.dir, Bin: bin, Out: s.screen}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the demo ended with %v", err)
		}
		if left, err := exec.Command("pgrep", "-f", s.dir).Output(); err == nil {
			t.Errorf("the demo left processes behind: %s", left)
		}
		if t.Failed() {
			t.Logf("the screen:\n%s", s.screen)
		}
	})
	deadline := time.Now().Add(demo.DefaultTimeout + wait)
	for !strings.Contains(s.screen.String(), "It goes on until Ctrl-C") {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the demo ended early: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("the demo does not come to its end")
		}
	}
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
	if err != nil {
		s.Fatal(err)
	}
	return out
}

// shows waits until kubectl prints all of want.
func (s *show) shows(at string, want []string, args ...string) {
	s.Helper()
	s.until(func() error {
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
	s.until(func() error {
		out, err := s.kubectl(at, nil, args...)
		if err != nil && strings.Contains(out, "NotFound") {
			return nil
		}
		return fmt.Errorf("kubectl %s prints:\n%s", strings.Join(args, " "), out)
	})
}

func (s *show) until(check func() error) {
	s.Helper()
	deadline := time.Now().Add(wait)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("not within %v: %v", wait, err)
		}
		<-time.After(200 * time.Millisecond)
	}
}

// edit is kubectl edit with an editor that runs sed.
func (s *show) edit(expression string, args ...string) {
	s.Helper()
	if _, err := s.kubectl("hub", []string{"KUBE_EDITOR=sed -i " + expression}, append([]string{"edit"}, args...)...); err != nil {
		s.Fatal(err)
	}
}

// TestTutorial does what the tutorial does, with kubectl, on the demo.
func TestTutorial(t *testing.T) {
	s := start(t)
	for _, want := range []string{"ReadyReplicas=1", "Replicas=1", "AvailableReplicas=1", "isAvailable=True"} {
		if !strings.Contains(s.screen.String(), want) {
			t.Errorf("the demo does not show %s", want)
		}
	}
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
		s.until(func() error {
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
	record := "appliedmanifestwork/" + strings.TrimPrefix(recordOf(s, work), "appliedmanifestwork.work.open-cluster-management.io/")

	// Deleting: what is held by a finalizer of its own holds the work and its
	// record as well.
	s.does("spoke", "patch", "deployment", "nginx-deployment", "--type=merge", "-p", `{"metadata":{"finalizers":["test.workwire.dev/hold"]}}`)
	s.does("hub", "-n", "cluster1", "delete", "manifestwork", work, "--wait=false")
	s.missing("spoke", "get", "serviceaccount", "my-sa")
	s.shows("hub", []string{"type: Deleting", "deletionTimestamp", "manifest-work-cleanup"}, "-n", "cluster1", "get", "manifestwork", work, "-o", "yaml")
	s.shows("spoke", []string{"deletionTimestamp", "applied-manifest-work-cleanup", "nginx-deployment"}, "get", record, "-o", "yaml")
	s.shows("spoke", []string{"deletionTimestamp"}, "get", "deployment", "nginx-deployment", "-o", "yaml")
	s.does("spoke", "patch", "deployment", "nginx-deployment", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	s.missing("hub", "-n", "cluster1", "get", "manifestwork", work)
	s.missing("spoke", "get", record)
	s.missing("spoke", "get", "deployment", "nginx-deployment")
	running(0)
}

func recordOf(s *show, work string) string {
	s.Helper()
	for _, line := range strings.Split(s.does("spoke", "get", "appliedmanifestwork", "-o", "name"), "\n") {
		if strings.HasSuffix(line, "-"+work) {
			return line
		}
	}
	s.Fatalf("no AppliedManifestWork of %s", work)
	return ""
}
