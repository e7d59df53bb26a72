// Package kubetest gives tests a real Kubernetes API server of their own: the
// project's bin/controlplane, started as a process in a temporary directory.
//
//	var plane *kubetest.Plane
//
//	func TestMain(m *testing.M) {
//		kubetest.Main(m, kubetest.Hub, func(p *kubetest.Plane) error {
//			plane = p
//			return crds.Install(context.Background(), p.REST(), crds.Hub()...)
//		})
//	}
//
// One control plane serves a package; tests keep apart by namespace, see
// [Plane.Namespace].
package kubetest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Role is what the control plane is for.
type Role string

// Roles: an API without pods, and a whole cluster with simulated nodes.
const (
	Hub   Role = "hub"
	Spoke Role = "spoke"
)

// Bounds of a start and of a stop.
const (
	startTimeout = 2 * time.Minute
	stopTimeout  = 30 * time.Second
)

// Plane is a running control plane. Its methods may be called from any
// goroutine.
type Plane struct {
	// Kubeconfig is the path of the administrator's.
	Kubeconfig string

	config     *rest.Config
	dir        string
	command    *exec.Cmd
	exited     chan error
	namespaces atomic.Int64
}

// Main runs the tests of a package with a control plane and ends the process.
// setup is called before the tests and may be nil.
func Main(m *testing.M, role Role, setup func(*Plane) error) {
	os.Exit(run(m, role, setup))
}

func run(m *testing.M, role Role, setup func(*Plane) error) (code int) {
	plane, err := Start(role)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := plane.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	if setup != nil {
		if err := setup(plane); err != nil {
			fmt.Fprintln(os.Stderr, "kubetest: set up:", err)
			return 1
		}
	}
	return m.Run()
}

// Start starts a control plane in a new temporary directory and returns when it
// is ready. Stop must be called.
func Start(role Role) (*Plane, error) {
	binary, err := find()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "workwire-"+string(role)+"-")
	if err != nil {
		return nil, fmt.Errorf("kubetest: %w", err)
	}
	p := &Plane{dir: dir, exited: make(chan error, 1)}
	p.command = exec.Command(binary, "up", "--role="+string(role), "--dir="+dir)
	var progress strings.Builder // read once the process has exited
	p.command.Stderr = &progress
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("kubetest: %w", err), os.RemoveAll(dir))
	}
	started, ready := make(chan error, 1), make(chan string, 1)
	go p.run(out, started, ready)
	if err := <-started; err != nil {
		return nil, errors.Join(fmt.Errorf("kubetest: start %s: %w", binary, err), os.RemoveAll(dir))
	}
	select {
	case p.Kubeconfig = <-ready:
	case <-time.After(startTimeout):
	}
	if p.Kubeconfig == "" {
		err := p.Stop()
		return nil, fmt.Errorf("kubetest: the control plane did not become ready: %w\n%s", err, progress.String())
	}
	if p.config, err = clientcmd.BuildConfigFromFlags("", p.Kubeconfig); err != nil {
		return nil, errors.Join(fmt.Errorf("kubetest: %w", err), p.Stop())
	}
	p.config.QPS = -1
	return p, nil
}

// run starts the process and stays until it has exited. It keeps its thread,
// since the kernel ends the process with the thread that started it, see
// endWithParent.
func (p *Plane) run(out io.Reader, started chan<- error, ready chan<- string) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	endWithParent(p.command)
	err := p.command.Start()
	started <- err
	if err != nil {
		return
	}
	reader := bufio.NewReader(out)
	line, _ := reader.ReadString('\n')
	ready <- strings.TrimSpace(line)
	_, _ = io.Copy(io.Discard, reader)
	p.exited <- p.command.Wait()
}

// Stop ends the control plane and removes what it left. It must be called once.
func (p *Plane) Stop() error {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	var err error
	select {
	case err = <-p.exited:
	case <-time.After(stopTimeout):
		_ = p.command.Process.Kill()
		err = fmt.Errorf("killed after %s: %w", stopTimeout, <-p.exited)
	}
	if err != nil {
		err = fmt.Errorf("kubetest: the control plane in %s did not stop clean: %w", p.dir, err)
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

// REST is a fresh configuration of the administrator, without a limit of
// requests.
func (p *Plane) REST() *rest.Config { return rest.CopyConfig(p.config) }

// Namespace makes a namespace for a test, named by prefix and a number. It goes
// with the control plane.
func (p *Plane) Namespace(t testing.TB, prefix string) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(p.REST())
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("%s-%d", prefix, p.namespaces.Add(1))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create namespace %s: %v", name, err)
	}
	return name
}

// find looks for bin/controlplane in the folders above the test's.
func find() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("kubetest: %w", err)
	}
	for {
		binary := filepath.Join(dir, "bin", "controlplane")
		if _, err := os.Stat(binary); err == nil {
			return binary, nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", errors.New("kubetest: no bin/controlplane in the folders above: run make build")
		}
		dir = above
	}
}
