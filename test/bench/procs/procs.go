// Package procs runs the programs that are measured, each as a process of its
// own, and reads what they use from /proc.
package procs

import (
	"bufio"
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

const (
	stopTimeout = 20 * time.Second
	lookEvery   = 10 * time.Millisecond
)

// Process is a running program. One goroutine at a time may use it.
type Process struct {
	name string
	log  string
	from int64 // where this run begins in the log
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // why, once done is closed
}

// Start runs argv; its output goes to the end of dir/name.log. Stop must be
// called.
func Start(dir, name string, argv ...string) (*Process, error) {
	p := &Process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer func() { _ = out.Close() }() // the process has its own
	if info, err := out.Stat(); err == nil {
		p.from = info.Size()
	}
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stop ends the program by SIGTERM and waits for it, and kills it when it takes
// too long. It may be called more than once, and on nil.
func (p *Process) Stop() error {
	if p == nil {
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("%s did not end within %v and was killed", p.name, stopTimeout), p.cmd.Process.Kill())
	}
}

// Died reports, without waiting, that the program has ended, with the end of its
// log.
func (p *Process) Died() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended: %w; its log %s ends with\n%s", p.name, p.err, p.log, p.tail())
	default:
		return nil
	}
}

func (p *Process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-8):], "\n")
}

// Line waits until this run of the program has logged a line of which find gives
// something, and returns that.
func (p *Process) Line(ctx context.Context, find func(line string) string) (string, error) {
	for {
		if found, err := p.look(find); found != "" || err != nil {
			return found, err
		}
		if err := p.Died(); err != nil {
			return "", err
		}
		if err := Pause(ctx, lookEvery); err != nil {
			return "", fmt.Errorf("wait for a line in %s: %w", p.log, err)
		}
	}
}

func (p *Process) look(find func(string) string) (string, error) {
	file, err := os.Open(p.log)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(p.from, 0); err != nil {
		return "", err
	}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if found := find(lines.Text()); found != "" {
			return found, nil
		}
	}
	return "", nil
}

// Pause waits for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Listening gives the address from the line of the log of this project's programs
// that tells it, empty from another.
func Listening(line string) string {
	_, rest, ok := strings.Cut(line, `msg="serving metrics and health" address=`)
	if !ok {
		return ""
	}
	address, _, _ := strings.Cut(rest, " ")
	return address
}
