// Package demo runs all of Workwire on one machine: a hub API server, a hub, a broker, a spoke
// cluster with KWOK nodes, and its agent; for the walk, two clusters more. Each is the real program in
// its own process, on loopback.
//
//	err := demo.Run(ctx, demo.Options{Once: true, Dir: ".demo", Bin: "bin", Out: os.Stdout})
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/test/kit/process"
)

// DefaultTimeout is the default limit for the examples to become available.
const DefaultTimeout = 3 * time.Minute

// Options configure a demo.
type Options struct {
	// Once ends the demo when the examples are available with their feedback.
	Once bool
	// Walk goes on with two clusters more and a rollout to all three; ignored with Once.
	Walk bool
	// Dir is the directory for data, configuration and logs. Run removes the files of an earlier
	// demo in it.
	Dir string
	// Bin is the directory of the binaries.
	Bin string
	// Timeout is the limit for the examples to become available; default [DefaultTimeout].
	Timeout time.Duration
	// Out gets progress and status.
	Out io.Writer
}

// columns is how long a line of progress may be.
const columns = 100

// How a program that has ended is started again: after restartDelay, and not more than maxRestarts times in a row, each before it has run for steady.
const (
	restartDelay = time.Second
	maxRestarts  = 3
	steady       = 10 * time.Second
)

// Names of the hub's source and the cluster, and of the source that docs/sdk.md writes.
const (
	sourceID    = "hub1"
	clusterName = "cluster1"
	programID   = "ops"
)

// stage is a running demo.
type stage struct {
	Options
	started time.Time
	lock    *os.File
	// printing is held while a line is printed.
	printing sync.Mutex
	mu       sync.Mutex
	// running are the programs, in the order of their start; guarded by mu while they start.
	running []*process.Process
	// again is what a program of this name is started with when it has ended by itself; guarded by mu.
	again map[string][]string
	hub   *rest.Config
	// shown are the lines of commands that the walk has printed.
	shown map[string]bool
	// dashboard is the address of the hub's dashboard.
	dashboard string
}

// Run runs the demo until ctx ends, or, with Once, until the examples are available. It stops all
// processes before it returns. The end of ctx is no error.
func Run(ctx context.Context, options Options) (err error) {
	if options.Timeout == 0 {
		options.Timeout = DefaultTimeout
	}
	options.Walk = options.Walk && !options.Once
	s := &stage{Options: options, started: time.Now()}
	if err := s.prepare(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()

	bounded, cancel := context.WithTimeoutCause(ctx, options.Timeout, fmt.Errorf("not done within %v", options.Timeout))
	defer cancel()
	err = s.play(bounded)
	switch {
	case ctx.Err() != nil:
		return nil // Ctrl-C
	case err != nil || options.Once:
		return err
	}
	if s.Walk {
		if err := s.walk(ctx); err != nil || ctx.Err() != nil {
			return ignoreEnd(ctx, err)
		}
	}
	if err := s.goOn(ctx); err != nil {
		return ignoreEnd(ctx, err)
	}
	return s.watchOver(ctx)
}

// ignoreEnd returns err unless ctx has ended.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// play starts everything and waits for the examples.
func (s *stage) play(ctx context.Context) error {
	s.say("starting a hub API and a cluster (real Kubernetes control planes)")
	if err := s.startControlPlanes(ctx); err != nil {
		return err
	}
	s.say("starting the broker, the hub and the agent")
	if err := s.startWorkwire(ctx); err != nil {
		return err
	}
	return s.showExamples(ctx)
}

// prepare creates an empty directory that no other demo uses.
func (s *stage) prepare() error {
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return err
	}
	s.Dir = dir
	if s.Bin, err = filepath.Abs(s.Bin); err != nil {
		return err
	}
	for _, bin := range []string{"controlplane", "work-broker", "work-hub", "work-agent", "workctl", "kubectl"} {
		if _, err := os.Stat(filepath.Join(s.Bin, bin)); err != nil {
			return fmt.Errorf("%w; build the binaries first: make build", err)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if s.lock, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	if err := syscall.Flock(int(s.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("another demo runs in %s: stop it, or set another directory with --dir", dir), s.lock.Close())
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() == "lock" {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// end stops the programs, the last started first.
func (s *stage) end() error {
	var errs []error
	if len(s.running) > 0 {
		s.say("stopping")
	}
	for i := len(s.running) - 1; i >= 0; i-- {
		errs = append(errs, s.running[i].Stop())
	}
	return errors.Join(append(errs, s.lock.Close())...)
}

// watchOver keeps the programs running until ctx ends, or one that cannot be.
func (s *stage) watchOver(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range slices.Clone(s.running) {
		group.Go(func() error { return s.keep(ctx, p) })
	}
	return group.Wait()
}

// keep starts a program again whenever it has ended, if it may be, until ctx ends. It returns an error once the program has ended too often in
// a row.
func (s *stage) keep(ctx context.Context, p *process.Process) error {
	for restarts := 0; ; restarts++ {
		began := time.Now()
		select {
		case <-ctx.Done():
			return nil
		case <-p.Done():
		}
		if time.Since(began) >= steady {
			restarts = 0
		}
		s.mu.Lock()
		argv := s.again[p.Name]
		s.mu.Unlock()
		if argv == nil || restarts == maxRestarts {
			return p.Died()
		}
		how := "exit status 0"
		if err := p.Wait(); err != nil {
			how = err.Error()
		}
		s.say("%s ended (%s) and is started again, as a kubelet does: see its log", p.Name, how)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(restartDelay):
		}
		next, err := process.Start(s.Dir, p.Name, argv...)
		if err != nil {
			return err
		}
		s.replace(p, next)
		p = next
	}
}

// restarts has the program of this name started again with these arguments when it ends by itself, once the demo has shown everything.
func (s *stage) restarts(name, program string, args ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.again == nil {
		s.again = make(map[string][]string)
	}
	s.again[name] = s.command(program, args)
}

func (s *stage) command(program string, args []string) []string {
	return append([]string{filepath.Join(s.Bin, program)}, args...)
}

// replace puts a program in the place of one that has ended.
func (s *stage) replace(ended, next *process.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[slices.Index(s.running, ended)] = next
}

func (s *stage) start(name, program string, args ...string) (*process.Process, error) {
	p, err := process.Start(s.Dir, name, s.command(program, args)...)
	if err != nil {
		return nil, err
	}
	s.add(p)
	return p, nil
}

func (s *stage) add(p *process.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = append(s.running, p)
}

// stop stops one program.
func (s *stage) stop(p *process.Process) error {
	s.mu.Lock()
	s.running = slices.DeleteFunc(s.running, func(other *process.Process) bool { return other == p })
	s.mu.Unlock()
	return p.Stop()
}

// say prints a line of progress with the time since the start. A long one is cut at words, but a command can be copied.
func (s *stage) say(format string, args ...any) {
	s.printing.Lock()
	defer s.printing.Unlock()
	line, text := fmt.Sprintf("%5.1fs ", time.Since(s.started).Seconds()), fmt.Sprintf(format, args...)
	if len(line)+1+len(text) <= columns || strings.HasPrefix(text, "$ ") {
		fmt.Fprintln(s.Out, line, text)
		return
	}
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > columns {
			fmt.Fprintln(s.Out, line)
			line = strings.Repeat(" ", len("  0.0s "))
		}
		line += " " + word
	}
	fmt.Fprintln(s.Out, line)
}

func (s *stage) path(name string) string { return filepath.Join(s.Dir, name) }

// exports returns what sets the variables for commands at the hub.
func (s *stage) exports() string {
	return fmt.Sprintf("export KUBECONFIG=%s PATH=%s:$PATH", s.path("hub/kubeconfig"), s.Bin)
}

func (s *stage) relative(path string) string {
	if wd, err := os.Getwd(); err == nil {
		if short, err := filepath.Rel(wd, path); err == nil {
			return short
		}
	}
	return path
}
