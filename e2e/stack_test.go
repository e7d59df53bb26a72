// Package e2e runs docker-compose.yaml in containers, with docker-compose and kubectl as a user does:
//
//	make e2e
//
// (hack/e2e.sh) runs it; go test alone skips it.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/test/kit"
)

var (
	// name is the tag of the images, which hack/e2e.sh builds, and the prefix of the names of the
	// projects, of which it removes what is left.
	name = os.Getenv("E2E_NAME")
	// compose is docker-compose, or docker compose.
	compose = strings.Fields(os.Getenv("E2E_COMPOSE"))
)

// soon is the limit of what takes seconds on an idle machine.
const soon = 2 * time.Minute

func TestMain(m *testing.M) {
	if name == "" {
		fmt.Println("skipped: make e2e runs it")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// stack is a project of docker-compose.
type stack struct {
	*testing.T
	project    string
	env        []string
	dir        string // of what the user gets out of it: hub.kubeconfig, certificates
	hubPort    string
	brokerPort string
	webPort    string // of the dashboard
	promPort   string // of Prometheus
	// want is the value in the ConfigMap of each work that must exist.
	want map[string]string
}

// up starts a new project of these files, and removes it when the test ends.
func up(t *testing.T, project string, files ...string) *stack {
	t.Helper()
	s := &stack{T: t, project: name + project, dir: t.TempDir(), hubPort: freePort(t), brokerPort: freePort(t), webPort: freePort(t), promPort: freePort(t), want: map[string]string{}}
	s.env = append(os.Environ(), "COMPOSE_PROJECT_NAME="+s.project, "WORKWIRE_VERSION="+name,
		"HUB_PORT="+s.hubPort, "BROKER_PORT="+s.brokerPort, "DASHBOARD_PORT="+s.webPort, "PROMETHEUS_PORT="+s.promPort, "KUBECACHEDIR="+filepath.Join(s.dir, "cache"))
	s.with(files...)
	t.Cleanup(s.down)
	start := time.Now()
	s.compose("up", "-d")
	if code := s.docker("wait", s.id("applied")); code != "0" {
		t.Fatalf("the service applied ended with %s", code)
	}
	t.Logf("from nothing to an applied example: %.0f s", time.Since(start).Seconds())
	s.healthy()
	// As docs/compose.md says.
	s.keep("hub.kubeconfig", s.compose("exec", "-T", "hub-api", "controlplane", "kubeconfig", "--dir=/data", "--user=me", "--group=system:masters"))
	return s
}

// with makes docker-compose read these files from now on.
func (s *stack) with(files ...string) {
	s.env = append(s.env, "COMPOSE_FILE="+strings.Join(files, ":"))
}

// on returns s for a subtest.
func (s *stack) on(t *testing.T) *stack {
	sub := *s
	sub.T = t
	return &sub
}

// down removes the project. It logs its state before if the test has failed.
func (s *stack) down() {
	if s.Failed() {
		s.logState()
	}
	if _, err := s.run("", compose[0], append(compose[1:], "down", "-v", "--timeout=5")...); err != nil {
		s.Error(err)
	}
	for _, kind := range [][]string{{"container", "ls", "-a"}, {"volume", "ls"}, {"network", "ls"}} {
		if left := s.docker(append(kind, "-q", "--filter=label=com.docker.compose.project="+s.project)...); left != "" {
			s.Errorf("docker-compose down -v leaves a %s: %s", kind[0], left)
		}
	}
}

// logState logs the state of the project and the end of each log.
func (s *stack) logState() {
	for _, args := range [][]string{{"ps", "-a"}, {"logs", "--no-color", "--tail=30"}} {
		out, err := s.run("", compose[0], append(slices.Clone(compose[1:]), args...)...)
		s.Logf("docker-compose %s: %v\n%s", args[0], err, out)
	}
}

// run runs a program at the root of the repository and returns its output.
func (s *stack) run(input, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env, cmd.Stdin = "..", s.env, strings.NewReader(input)
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s%s", program, strings.Join(args, " "), err, &out, &errs)
	}
	return strings.TrimSpace(out.String()), nil
}

func (s *stack) must(out string, err error) string {
	s.Helper()
	kit.NoError(s, err)
	return out
}

func (s *stack) compose(args ...string) string {
	s.Helper()
	return s.must(s.run("", compose[0], append(slices.Clone(compose[1:]), args...)...))
}

func (s *stack) docker(args ...string) string {
	s.Helper()
	return s.must(s.run("", "docker", args...))
}

// id returns the container of a service.
func (s *stack) id(service string) string {
	s.Helper()
	id := s.docker("ps", "-aq", "--no-trunc", "--filter=label=com.docker.compose.project="+s.project, "--filter=label=com.docker.compose.service="+service)
	if id == "" || strings.Contains(id, "\n") {
		s.Fatalf("the service %s has the containers %q", service, id)
	}
	return id
}

// tryHub runs the user's kubectl at the hub API.
func (s *stack) tryHub(input string, args ...string) (string, error) {
	return s.run(input, "bin/kubectl", append([]string{"--kubeconfig=" + s.path("hub.kubeconfig")}, args...)...)
}

func (s *stack) hub(args ...string) string {
	s.Helper()
	return s.must(s.tryHub("", args...))
}

// trySpoke runs the kubectl in the container of a control plane, as docker-compose exec does, but
// faster.
func (s *stack) trySpoke(service string, args ...string) (string, error) {
	return s.run("", "docker", append([]string{"exec", s.id(service), "kubectl"}, args...)...)
}

func (s *stack) spoke(args ...string) string {
	s.Helper()
	return s.must(s.trySpoke("spoke", args...))
}

// eventually waits until check returns nil, and returns how long it took.
func (s *stack) eventually(what string, within time.Duration, check func() error) time.Duration {
	s.Helper()
	took := kit.Within(s, within, what, check)
	s.Logf("%s: %.1f s", what, took.Seconds())
	return took
}

// decoded decodes JSON that kubectl printed.
func decoded[T any](out string, err error) (T, error) {
	var object T
	if err == nil {
		err = json.Unmarshal([]byte(out), &object)
	}
	return object, err
}

func (s *stack) path(file string) string { return filepath.Join(s.dir, file) }

func (s *stack) keep(file, text string) {
	s.Helper()
	kit.NoError(s, os.WriteFile(s.path(file), []byte(text), 0o600))
}

// certificates copies a certificate with its key, and the authorities, to dir/to.
func (s *stack) certificates(of, to string) {
	s.Helper()
	s.docker("cp", s.id("certs")+":/certs/"+of+"/.", s.path(to))
}

// freePort returns a port that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	kit.NoError(t, err)
	_, port, splitErr := net.SplitHostPort(l.Addr().String())
	kit.NoError(t, errors.Join(splitErr, l.Close()))
	return port
}
