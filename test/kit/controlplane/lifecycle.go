package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/workwire/workwire/test/kit/process"
)

// Halt stops a control plane, for [Plane.Continue] or [Plane.Restore].
func (p *Plane) Halt() error { return errors.Join(p.process.Stop(), p.process.Wait()) }

// Kill kills all processes of a control plane, as a crash of the machine does.
func (p *Plane) Kill() error {
	children, err := p.children()
	if err != nil {
		return err
	}
	err = p.process.Kill()
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGKILL) // they end with their parent, or have ended
	}
	return err
}

// Continue starts a control plane again after Halt or Kill, with its data and at its address.
func (p *Plane) Continue() error {
	server := p.config.Host
	if err := p.start(); err != nil {
		return err
	}
	if p.config.Host != server {
		return fmt.Errorf("controlplane: the port of %s was taken meanwhile", server)
	}
	return nil
}

// Freeze stops all processes of a control plane, as a debugger does, until thaw is called.
func (p *Plane) Freeze() (thaw func() error, err error) {
	children, err := p.children()
	if err != nil {
		return nil, err
	}
	signal := func(s syscall.Signal) (err error) {
		for _, pid := range children {
			err = errors.Join(err, syscall.Kill(pid, s))
		}
		return err
	}
	return func() error { return signal(syscall.SIGCONT) }, signal(syscall.SIGSTOP)
}

// Snapshot writes a backup of all data to file.
func (p *Plane) Snapshot(file string) error { return p.run("snapshot", "--output="+file) }

// Restore replaces all data by that of a snapshot, see "controlplane restore --help". It must be
// called between Halt and Continue.
func (p *Plane) Restore(file string, bumpRevision uint64) error {
	return p.run("restore", "--snapshot="+file, "--bump-revision="+strconv.FormatUint(bumpRevision, 10))
}

func (p *Plane) run(command string, args ...string) error {
	if out, err := exec.Command(p.binary, append([]string{command, "--dir=" + p.dir}, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("controlplane %s: %w: %s", command, err, out)
	}
	return nil
}

// start starts the process and returns when the control plane is ready.
func (p *Plane) start() (err error) {
	args := []string{p.binary, "up", "--role=" + string(p.role), "--dir=" + p.dir, "--start-timeout=" + startTimeout.String()}
	if p.datastore != "" {
		file := filepath.Join(p.dir, "datastore")
		if err := os.WriteFile(file, []byte(p.datastore), 0o600); err != nil {
			return fmt.Errorf("controlplane: %w", err)
		}
		args = append(args, "--datastore-endpoint-file="+file)
	}
	if p.process, err = process.Start(p.dir, "controlplane", args...); err != nil {
		return fmt.Errorf("controlplane: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if _, err := p.process.Line(ctx, process.Equal(p.Kubeconfig)); err != nil {
		return fmt.Errorf("controlplane: %w", err)
	}
	return p.connect()
}

// children returns the ids of the processes that the control plane's process has started.
func (p *Plane) children() ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	var children []int
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended meanwhile
		}
		// "pid (name) state parent …", and a name may hold anything.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		if err == nil && len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(p.process.PID()) {
			children = append(children, pid)
		}
	}
	if len(children) == 0 {
		return nil, errors.New("controlplane: no processes found under /proc")
	}
	return children, nil
}
