package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	aboutWidgets = `
apiVersion: test.workwire.dev/v1
kind: Widget
metadata: {name: first, namespace: default}
spec: {size: 1}
`
	mayView = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: jane}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:serviceaccount:test:jane"}]
`
)

// TestHubForOthers is a hub as it runs in a container: reachable by another name and on every
// address, with manifests that it applies itself, one of a kind that another defines, and a
// kubeconfig for a user of these.
func TestHubForOthers(t *testing.T) { onStores(t, testHubForOthers) }

func testHubForOthers(t *testing.T, s store) {
	ctx := t.Context()
	dir, manifests := t.TempDir(), t.TempDir()
	for name, content := range map[string]string{
		"kinds/kustomization.yaml": "resources: [a-widget.yaml, crd.yaml]\n", "kinds/a-widget.yaml": aboutWidgets, "kinds/crd.yaml": widgetCRD,
		"rights/jane.yaml": mayView,
	} {
		path := filepath.Join(manifests, name)
		noError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		noError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	access := filepath.Join(manifests, "jane.kubeconfig")
	args := append(s.args,
		"--role=hub", "--dir="+dir, "--bind-address=0.0.0.0", "--hostname=127.0.0.3", "--hostname=hub-api",
		"--apply="+filepath.Join(manifests, "kinds"), "--apply="+filepath.Join(manifests, "rights"),
		"--kubeconfig-for=system:serviceaccount:test:jane="+access,
	)
	health := func() (string, error) {
		out, err := exec.Command(binary, "health", "--dir="+dir).CombinedOutput()
		return string(out), err
	}
	if out, err := health(); err == nil || !strings.Contains(out, "is not ready") {
		t.Errorf("health before the start: %v, %s", err, out)
	}
	p := up(t, args...)
	if out, err := health(); err != nil || out != "" {
		t.Errorf("health: %v, %s", err, out)
	}
	if _, err := p.client().CoreV1().RESTClient().Get().AbsPath("/apis/test.workwire.dev/v1/namespaces/default/widgets/first").DoRaw(ctx); err != nil {
		t.Errorf("the object that was applied: %v", err)
	}

	jane, err := clientcmd.BuildConfigFromFlags("", access)
	noError(t, err)
	if !strings.HasPrefix(jane.Host, "https://127.0.0.3:") {
		t.Errorf("jane's server is %s", jane.Host)
	}
	byName := rest.CopyConfig(jane)
	byName.ServerName = "hub-api" // what the certificate must be valid for
	for name, config := range map[string]*rest.Config{"the first hostname": jane, "another hostname": byName} {
		client, err := kubernetes.NewForConfig(config)
		noError(t, err)
		if _, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{}); err != nil {
			t.Errorf("jane reads, by %s: %v", name, err)
		}
		if _, err := client.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{}); err == nil {
			t.Errorf("jane reads Secrets, by %s, which RBAC does not allow", name)
		}
	}

	// Killed, it leaves the mark of being ready; it must not count.
	p.cmd.Process.Signal(syscall.SIGKILL) //nolint:errcheck // wait tells
	p.wait()
	if out, err := health(); err == nil || !strings.Contains(out, "is not ready") {
		t.Errorf("health of a killed control plane: %v, %s", err, out)
	}
	p = up(t, args...)
	if out, err := health(); err != nil {
		t.Errorf("health after a crash: %v, %s", err, out)
	}
	p.stop()
	if out, err := health(); err == nil || !strings.Contains(out, "does not run") {
		t.Errorf("health after the end: %v, %s", err, out)
	}
}

// TestApplyThatFails: up does not call itself ready without its manifests.
func TestApplyThatFails(t *testing.T) {
	t.Parallel()
	manifest := filepath.Join(t.TempDir(), "manifest.yaml")
	noError(t, os.WriteFile(manifest, []byte("{apiVersion: no.such/v1, kind: Kind, metadata: {name: a}}"), 0o600))
	p := start(t, "--role=hub", "--dir="+t.TempDir(), "--apply="+manifest, "--start-timeout=1m") // a busy machine takes half of it to start
	if printed := p.ready(); printed != "" {
		t.Errorf("up printed %q", printed)
	}
	want := "waiting for --apply=" + manifest + ": kubectl ended by itself"
	if status := p.wait(); status != 1 || !strings.Contains(p.stderr.String(), want) {
		t.Errorf("status %d, %s; want %q", status, p.stderr, want)
	}
}
