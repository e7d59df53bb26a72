// Package test starts the real binary and uses what it runs.
//
// The binary is the one that CONTROLPLANE_BIN names (then run with -count=1: a change of it is not
// noticed), or is built first. It is built without the race detector even when the tests have it:
// the detector would watch over Kubernetes, at ten times the build time.
package test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// patience bounds waits for what takes seconds at most, on a busy machine.
const patience = 3 * time.Minute

// binary is the path of controlplane; TestMain sets it.
var binary string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	defer func() {
		if shared.server != nil {
			shared.server.remove()
		}
	}()
	if binary = os.Getenv("CONTROLPLANE_BIN"); binary != "" {
		return m.Run()
	}
	if err := watchSources(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "controlplane-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "controlplane")
	build := exec.Command("go", "build", "-trimpath", "-o", binary,
		"-ldflags", "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "building the binary:", err)
		return 1
	}
	return m.Run()
}

// watchSources looks at all sources of the binary. The go command notices, and forgets the cached
// result of these tests when one of them changes.
func watchSources() error {
	for _, sources := range []string{"..", "../../pkg/apis/work/v1", "../../deploy/crds"} {
		err := filepath.WalkDir(sources, func(path string, entry os.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				_, err = os.Stat(path)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// controlPlane is a "controlplane up".
type controlPlane struct {
	t      testing.TB
	cmd    *exec.Cmd
	stderr *buffer
	done   chan struct{}
	// printed takes the first line of stdout, empty when there is none.
	printed    chan string
	kubeconfig string
}

// up starts a control plane and returns when it is ready.
func up(t testing.TB, args ...string) *controlPlane {
	t.Helper()
	p := start(t, args...)
	if p.ready() == "" {
		<-p.done
		t.Fatalf("up %s ended before it was ready: %s", strings.Join(args, " "), p.stderr)
	}
	return p
}

// start starts a control plane and returns at once. When the test ends, it is stopped if it still
// runs.
func start(t testing.TB, args ...string) *controlPlane {
	t.Helper()
	p := &controlPlane{t: t, stderr: &buffer{}, done: make(chan struct{}), printed: make(chan string, 1)}
	p.cmd = exec.Command(binary, append([]string{"up"}, args...)...)
	p.cmd.Stderr = p.stderr
	out, err := p.cmd.StdoutPipe()
	noError(t, err)
	noError(t, p.cmd.Start())
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		p.printed <- strings.TrimSpace(line)
		io.Copy(io.Discard, out) //nolint:errcheck // there is no more
		p.cmd.Wait()             //nolint:errcheck // ProcessState tells
		close(p.done)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
		p.wait()
		if t.Failed() {
			t.Logf("up %s said:\n%s", strings.Join(args, " "), p.stderr)
		}
	})
	return p
}

// ready waits until the control plane is ready, or has ended, and returns the path of the
// kubeconfig, or nothing.
func (p *controlPlane) ready() string {
	p.t.Helper()
	select {
	case p.kubeconfig = <-p.printed:
	case <-time.After(patience):
		p.t.Fatalf("not ready after %s: %s", patience, p.stderr)
	}
	return p.kubeconfig
}

// wait waits for the end of up and returns its exit status, -1 for a signal.
func (p *controlPlane) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.cmd.Process.Kill() //nolint:errcheck // the test has failed anyway
		p.t.Fatalf("up does not end: %s", p.stderr)
	}
	return p.cmd.ProcessState.ExitCode()
}

// stop ends the control plane as a user would and checks that it went well.
func (p *controlPlane) stop() {
	p.t.Helper()
	children := p.children()
	began := time.Now()
	p.cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // wait tells
	if status := p.wait(); status != 0 {
		p.t.Errorf("up ended with status %d: %s", status, p.stderr)
	}
	if took := time.Since(began); took > time.Minute { // what does not go when asked is killed later
		p.t.Errorf("stopping took %s", took)
	}
	for pid, name := range children {
		if alive(pid) {
			p.t.Errorf("%s (%d) is left behind", name, pid)
		}
	}
}

// children returns the names of the control plane's processes by pid.
func (p *controlPlane) children() map[int]string {
	p.t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		p.t.Fatal(err)
	}
	found := map[int]string{}
	for _, stat := range stats {
		data, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended meanwhile
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		if err != nil {
			p.t.Fatal(err)
		}
		// "pid (name) state ppid ...", and a name may hold anything.
		_, rest, _ := strings.Cut(string(data[bytes.LastIndexByte(data, ')'):]), " ")
		if fields := strings.Fields(rest); len(fields) < 2 || fields[1] != strconv.Itoa(p.cmd.Process.Pid) {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join(filepath.Dir(stat), "cmdline"))
		if err != nil {
			continue
		}
		name, _, _ := strings.Cut(string(cmdline), "\x00")
		found[pid] = name
	}
	if len(found) == 0 {
		p.t.Fatal("the control plane has no processes")
	}
	return found
}

func (p *controlPlane) config() *rest.Config {
	p.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	if err != nil {
		p.t.Fatal(err)
	}
	return config
}

func (p *controlPlane) client() kubernetes.Interface {
	p.t.Helper()
	client, err := kubernetes.NewForConfig(p.config())
	if err != nil {
		p.t.Fatal(err)
	}
	return client
}

// alive tells whether a process is there and not just waiting to be reaped.
func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(data[bytes.LastIndexByte(data, ')'):]), " ")
	return !strings.HasPrefix(rest, "Z")
}

// eventually waits until check returns nil.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// buffer is a bytes.Buffer for one writer and one reader at a time.
type buffer struct {
	mu   sync.Mutex
	data bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.String()
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
