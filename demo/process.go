package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// process is one program of the demo. Its output goes to a log file.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // why, once done is closed
}

// stopTimeout is how long a program may take to end before it is killed.
const stopTimeout = 15 * time.Second

// start runs bin with args. Its output goes to dir/name.log.
func start(dir, name, bin string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p.cmd = exec.Command(bin, args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// A process group of its own: Ctrl-C at the terminal signals the demo only, which stops its programs in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), log.Close())
	}
	go func() {
		p.err = errors.Join(p.cmd.Wait(), log.Close())
		close(p.done)
	}()
	return p, nil
}

// stop sends SIGTERM, waits, and kills the program after stopTimeout.
func (p *process) stop() error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("stop %s: it did not end within %v and was killed", p.name, stopTimeout), p.cmd.Process.Kill())
	}
}

// died returns an error with the reason why the program ended, and the end of its log.
func (p *process) died() error {
	return fmt.Errorf("%s ended: %w; the end of %s:\n%s", p.name, p.err, p.log, tail(p.log, 10))
}

// line waits until the log has a line for which accepts returns true, and returns it.
func (p *process) line(ctx context.Context, accepts func(string) bool) (string, error) {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		data, err := os.ReadFile(p.log)
		if err != nil {
			return "", err
		}
		for scanner := bufio.NewScanner(bytes.NewReader(data)); scanner.Scan(); {
			if accepts(scanner.Text()) {
				return scanner.Text(), nil
			}
		}
		select {
		case <-p.done:
			return "", p.died()
		case <-ctx.Done():
			return "", fmt.Errorf("wait for %s: %w; see %s", p.name, context.Cause(ctx), p.log)
		case <-ticker.C:
		}
	}
}

func tail(path string, lines int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return "  " + strings.Join(all[max(0, len(all)-lines):], "\n  ")
}
