package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Spec describes a child process: this program again, under another name.
type Spec struct {
	// Name is argv[0], which selects the component that the program runs.
	Name string
	// Args are the arguments after the name.
	Args []string
	// Input is the child's standard input, which no list of processes shows.
	Input string
	// Dir is the working directory.
	Dir string
	// Log is the file that takes stdout and stderr. A new one begins at each start, and when it has more than 64 MiB, which is
	// looked at once a minute. One earlier log is kept beside it as Log + ".1".
	Log string
	// Lifeline ends the child with its parent; required.
	Lifeline *Lifeline
	// Keep are open files that the child keeps open and does not use, for example a lock.
	Keep []*os.File
}

// Child is a running child process. Its methods are safe for concurrent use.
type Child struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // written before done is closed
}

// Start starts the child in its own process group, so that Ctrl-C in the terminal reaches only the
// parent, which then stops its children in order.
func Start(spec Spec) (*Child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting %s: finding this program: %w", spec.Name, err)
	}
	log, err := openLog(spec.Log)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	defer log.Close()

	cmd := exec.Command(program)
	cmd.Args = append([]string{spec.Name}, spec.Args...)
	cmd.Dir = spec.Dir
	cmd.Stdout, cmd.Stderr = log, log
	if spec.Input != "" {
		cmd.Stdin = strings.NewReader(spec.Input)
	}
	cmd.ExtraFiles = append([]*os.File{spec.Lifeline.child}, spec.Keep...)
	cmd.Env = append(childEnv(os.Environ()), lifelineEnv+"=3")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	c := &Child{name: spec.Name, log: spec.Log, cmd: cmd, done: make(chan struct{})}
	go func() {
		c.err = cmd.Wait()
		close(c.done)
	}()
	go bound(spec.Log, maxLog, logInterval, c.done)
	return c, nil
}

// Name returns the child's name.
func (c *Child) Name() string { return c.name }

// Done is closed when the child has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Err waits for the end of the child, and returns an error with its exit status and the last line
// of its log.
func (c *Child) Err() error {
	<-c.done
	how := "exit status 0"
	if c.err != nil {
		how = c.err.Error()
	}
	if line := lastLine(c.log); line != "" {
		return fmt.Errorf("%s ended by itself (%s), saying: %s (more in %s)", c.name, how, line, c.log)
	}
	return fmt.Errorf("%s ended by itself (%s); its log %s is empty", c.name, how, c.log)
}

// Finish waits for the end of a child that does one task. It returns nil if the exit status is 0,
// else Err. If ctx ends first, it kills the child.
func (c *Child) Finish(ctx context.Context) error {
	select {
	case <-c.done:
	case <-ctx.Done():
		c.Stop(0)
		return context.Cause(ctx)
	}
	if c.err == nil {
		return nil
	}
	return c.Err()
}

// Stop sends SIGTERM and waits for the end of the child. It kills the child after grace. It reports
// whether the child ended without being killed.
func (c *Child) Stop(grace time.Duration) bool {
	c.cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // fails if it has ended, which the select handles
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-c.done:
		return true
	case <-timer.C:
		c.cmd.Process.Kill() //nolint:errcheck // likewise
		<-c.done
		return false
	}
}

// childEnv returns the environment variables that a child may need, and no others: etcd, for
// example, reads its configuration from ETCD_ variables.
func childEnv(env []string) []string {
	var kept []string
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		switch name {
		case "HOME", "PATH", "TMPDIR", "TZ", "GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GODEBUG", "GOTRACEBACK":
			kept = append(kept, entry)
		}
	}
	return kept
}

// lastLine returns the last line of a log that is not blank, truncated to a readable length.
func lastLine(path string) string {
	const tail, maxLength = 4096, 400
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > tail {
		f.Seek(-tail, 2) //nolint:errcheck // on an error, it reads the beginning of the log
	}
	data := make([]byte, tail)
	n, _ := f.Read(data)
	lines := strings.Split(strings.TrimSpace(string(data[:n])), "\n")
	line := strings.TrimSpace(lines[len(lines)-1])
	if len(line) > maxLength {
		line = line[:maxLength] + "…"
	}
	return line
}
