package test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const workload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: nginx}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: once, image: busybox}]}
`

func TestSpokeRunsWorkloads(t *testing.T) { onStores(t, testSpokeRunsWorkloads) }

func testSpokeRunsWorkloads(t *testing.T, s store) {
	p := up(t, append(s.args, "--role=spoke", "--dir="+t.TempDir(), "--nodes=2", "--name=west")...)
	kubectl := kubectl(t, p.kubeconfig)

	if context := kubectl("", "config", "current-context"); strings.TrimSpace(context) != "west" {
		t.Errorf("the context is %q", context)
	}
	if version := kubectl("", "version"); !strings.Contains(version, "Server Version: v1.36.3") {
		t.Errorf("kubectl version says %s", version)
	}
	if nodes := kubectl("", "get", "nodes", "-o=name"); nodes != "node/node-1\nnode/node-2\n" {
		t.Errorf("the nodes are %q", nodes)
	}
	kubectl(workload, "apply", "-f-")
	kubectl("", "wait", "--for=condition=Available", "deployment/web", "--timeout=180s")
	kubectl("", "wait", "--for=condition=Complete", "job/once", "--timeout=180s")
	if ready := kubectl("", "get", "deployment/web", "-o=jsonpath={.status.readyReplicas}"); ready != "3" {
		t.Errorf("%s replicas are ready, want 3", ready)
	}
	kubectl("", "delete", "deployment/web", "--cascade=foreground")
	if pods := kubectl("", "get", "pods", "-lapp=web", "-o=name"); pods != "" {
		t.Errorf("pods outlive their Deployment: %s", pods)
	}

	t.Run("listens on loopback only", func(t *testing.T) { checkListeners(t, p) })
	t.Run("asks for credentials", func(t *testing.T) { checkAuthentication(t, p) })
	t.Run("keeps secrets to the user", func(t *testing.T) { checkModes(t, filepath.Dir(p.kubeconfig), s) })
	p.stop()
}

// kubectl returns a function that runs kubectl, a link to the binary, with input, and returns what
// it prints.
func kubectl(t *testing.T, kubeconfig string) func(input string, args ...string) string {
	t.Helper()
	link := filepath.Join(t.TempDir(), "kubectl")
	noError(t, os.Symlink(binary, link))
	return func(input string, args ...string) string {
		t.Helper()
		cmd := exec.Command(link, append([]string{"--kubeconfig=" + kubeconfig}, args...)...)
		cmd.Stdin = strings.NewReader(input)
		var stderr buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, stderr.String())
		}
		return string(out)
	}
}

// checkListeners looks up the control plane's TCP sockets in /proc.
func checkListeners(t *testing.T, p *controlPlane) {
	owner := map[string]string{} // socket inode: process
	pids := p.children()
	pids[p.cmd.Process.Pid] = "controlplane"
	for pid, name := range pids {
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		noError(t, err)
		for _, fd := range fds {
			target, _ := os.Readlink(fd) // a file closed meanwhile is no listener
			if inode, ok := strings.CutPrefix(target, "socket:["); ok {
				owner[strings.TrimSuffix(inode, "]")] = name
			}
		}
	}
	const listening, loopback4, loopback6 = "0A", "0100007F", "00000000000000000000000001000000"
	found := 0
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		noError(t, err)
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			if len(fields) < 10 || fields[3] != listening || owner[fields[9]] == "" {
				continue
			}
			found++
			address, _, _ := strings.Cut(fields[1], ":")
			if address != loopback4 && address != loopback6 {
				t.Errorf("%s listens on %s", owner[fields[9]], fields[1])
			}
		}
	}
	if found != 1 {
		t.Errorf("the control plane has %d listening TCP sockets, want the API server's alone", found)
	}
}

// checkAuthentication asks as nobody, and as a user without rights.
func checkAuthentication(t *testing.T, p *controlPlane) {
	nobody := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer nobody.CloseIdleConnections()
	for _, path := range []string{"/version", "/api/v1/namespaces"} {
		response, err := nobody.Get(p.config().Host + path)
		noError(t, err)
		response.Body.Close()
		if response.StatusCode != http.StatusUnauthorized {
			t.Errorf("GET %s without credentials: %s", path, response.Status)
		}
	}
	dir := filepath.Dir(p.kubeconfig)
	jane := *p
	jane.kubeconfig = filepath.Join(t.TempDir(), "jane")
	out, err := exec.Command(binary, "kubeconfig", "--dir="+dir, "--user=jane", "--group=viewers", "-o", jane.kubeconfig).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, err = jane.client().CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("jane may list namespaces: error %v", err)
	}
	kubectl(t, p.kubeconfig)("", "create", "clusterrolebinding", "viewers", "--clusterrole=view", "--group=viewers")
	eventually(t, "jane is let in by her group", func() error {
		_, err := jane.client().CoreV1().ConfigMaps(corev1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		return err
	})
}

// checkModes looks for files of the control plane that others could use.
func checkModes(t *testing.T, dir string, s store) {
	names := []string{
		"kubeconfig", "pki", "pki/ca.key", "pki/service-account.key", "pki/apiserver.key", "pki/kwok.kubeconfig",
		"etcd.sock:0", "logs", "logs/kube-apiserver.log",
	}
	if s.program == "etcd" {
		names = append(names, "etcd")
	}
	for _, name := range names {
		info, err := os.Stat(filepath.Join(dir, name))
		noError(t, err)
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %o", name, info.Mode().Perm())
		}
	}
}
