// Package process runs programs for tests, benchmarks and the demo, each with its output in a file.
//
//	p, err := process.Start(dir, "agent", "bin/work-agent", "--cluster-name=cluster1")
//	address, err := p.Line(ctx, process.Listening)
//	err = p.Stop()
package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	buildTimeout = 10 * time.Minute
	stopTimeout  = 2 * time.Minute
	lineInterval = 10 * time.Millisecond
)

// Process is a running program. It ends with the process that started it, where the system can do
// that. Its methods may be called from any goroutine; Stop and Died also on nil.
type Process struct {
	// Name is the name of the program in errors.
	Name string
	// Log is the path of the file with its output.
	Log string

	offset int64 // of the output of this run in the log
	cmd    *exec.Cmd
	done   chan struct{} // closed when the program has ended
	err    error         // its exit status; written before done is closed
}

// Build builds programs of cmd, such as work-hub, into dir, as make build does, so that the go command has them in its
// cache. root is the path of the repository.
func Build(ctx context.Context, root, dir string, programs ...string) error {
	args := []string{"build", "-o", dir}
	for _, name := range programs {
		args = append(args, "./cmd/"+name)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w: %s", err, out)
	}
	return nil
}

// BuildTemporary is [Build] of work-hub, work-broker and work-agent into a new directory. remove deletes it.
func BuildTemporary(root string) (dir string, remove func() error, err error) {
	if dir, err = os.MkdirTemp("", "workwire-programs-"); err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	return dir, func() error { return os.RemoveAll(dir) }, Build(ctx, root, dir, "work-hub", "work-broker", "work-agent")
}

// Start runs argv. Its output goes to the end of dir/name.log. Stop must be called.
func Start(dir, name string, argv ...string) (*Process, error) {
	return start(dir, name, exec.Command(argv[0], argv[1:]...))
}

// StartIn is [Start] with dir as the working directory.
func StartIn(dir, name string, argv ...string) (*Process, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	return start(dir, name, cmd)
}

func start(dir, name string, cmd *exec.Cmd) (*Process, error) {
	p := &Process{Name: name, Log: filepath.Join(dir, name+".log"), cmd: cmd, done: make(chan struct{})}
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer func() { _ = log.Close() }() // the process has its own
	if info, err := log.Stat(); err == nil {
		p.offset = info.Size()
	}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// A process group of its own: Ctrl-C at the terminal signals this process only, which stops the
	// others in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(p.cmd.SysProcAttr)
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// run starts the program and waits for its end. It keeps its thread, since the kernel ends the
// program with the thread that started it, see endWithParent.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err == nil {
		p.err = p.cmd.Wait()
		close(p.done)
	}
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the program and returns an error if its exit status is not 0.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Stop sends SIGTERM and waits for the end of the program, whatever its exit status. It kills the
// program after 30 seconds and returns an error then. It may be called more than once.
func (p *Process) Stop() error {
	if p == nil {
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTimeout):
	}
	return errors.Join(fmt.Errorf("stop %s: it did not end within %v and was killed", p.Name, stopTimeout), p.Kill())
}

// Kill kills the program, as a crash does, and waits for its end.
func (p *Process) Kill() error {
	err := p.cmd.Process.Kill()
	<-p.done
	return err
}

// Signal sends a signal to the program.
func (p *Process) Signal(signal os.Signal) error { return p.cmd.Process.Signal(signal) }

// Died returns nil while the program runs, then an error with its exit status and the end of its
// log.
func (p *Process) Died() error {
	if p == nil {
		return nil
	}
	select {
	case <-p.done:
	default:
		return nil
	}
	text, err := os.ReadFile(p.Log)
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	end := "  " + strings.Join(lines[max(0, len(lines)-10):], "\n  ")
	return errors.Join(fmt.Errorf("%s ended: %v; the end of %s:\n%s", p.Name, p.cmd.ProcessState, p.Log, end), err)
}

// Line waits until this run of the program has logged a line for which find returns a text, and
// returns that text. It returns an error when the program or ctx ends.
func (p *Process) Line(ctx context.Context, find func(line string) string) (string, error) {
	var found string
	err := wait.PollUntilContextCancel(ctx, lineInterval, true, func(context.Context) (done bool, err error) {
		ended := p.Died() // before reading, so that the last lines are read
		if found, err = p.find(find); found != "" || err != nil {
			return true, err
		}
		return false, ended
	})
	if ctx.Err() != nil && found == "" {
		return "", fmt.Errorf("wait for %s: %w; see %s", p.Name, context.Cause(ctx), p.Log)
	}
	return found, err
}

func (p *Process) find(find func(string) string) (string, error) {
	file, err := os.Open(p.Log)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(p.offset, 0); err != nil {
		return "", err
	}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if found := find(lines.Text()); found != "" {
			return found, nil
		}
	}
	return "", nil
}

// Equal returns a function for [Process.Line] that finds the line text.
func Equal(text string) func(line string) string {
	return func(line string) string {
		if line != text {
			return ""
		}
		return line
	}
}

// Listening returns the address in the log line of work-hub and work-agent that has it, "" for
// other lines.
func Listening(line string) string {
	_, rest, _ := strings.Cut(line, `msg="serving metrics and health" address=`)
	address, _, _ := strings.Cut(rest, " ")
	return address
}

var brokerReady = regexp.MustCompile(`msg="broker ready".* addresses=\[(127\.0\.0\.1:\d+)\]`)

// BrokerReady returns the address in the log line of work-broker, with one listener on loopback, that has it, "" for other lines.
func BrokerReady(line string) string {
	if match := brokerReady.FindStringSubmatch(line); match != nil {
		return match[1]
	}
	return ""
}
