package controlplane_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/test/kit/controlplane"
)

// child makes this binary start a control plane and wait for its end.
const child = "WORKWIRE_CONTROLPLANE_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) == "" {
		os.Exit(m.Run())
	}
	plane, err := controlplane.Start(controlplane.Hub)
	if err != nil {
		fmt.Println("none", err)
		os.Exit(1)
	}
	fmt.Println(plane.Kubeconfig, err)
	select {}
}

func TestStartAndStop(t *testing.T) {
	plane, err := controlplane.Start(controlplane.Hub)
	if err != nil {
		t.Fatal(err)
	}
	one, two := plane.Namespace(t, "ns"), plane.Namespace(t, "ns")
	client, err := kubernetes.NewForConfig(plane.REST())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{one, two} {
		if _, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	if err := plane.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Dir(plane.Kubeconfig)); !os.IsNotExist(err) {
		t.Errorf("left behind: %v", err)
	}
}

// A test process that is killed leaves no control plane behind.
func TestControlPlaneEndsWithItsParent(t *testing.T) {
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), child+"=1", "TMPDIR="+t.TempDir())
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	kubeconfig, failure, _ := strings.Cut(strings.TrimSpace(line), " ")
	if err != nil || failure != "<nil>" {
		t.Fatalf("the child said %q, %v", line, err)
	}
	if err := command.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait()
	dir := filepath.Dir(kubeconfig)
	for deadline := time.Now().Add(3 * time.Minute); len(using(t, dir)) > 0; <-time.After(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still running: %v", using(t, dir))
		}
	}
}

// using gives the command lines of the processes that name dir.
func using(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(files) == 0 {
		t.Skip("this system does not list processes under /proc")
	}
	var found []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if line := strings.ReplaceAll(string(data), "\x00", " "); err == nil && strings.Contains(line, dir) {
			found = append(found, line)
		}
	}
	return found
}
