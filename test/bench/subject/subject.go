// Package subject is the program that a benchmark measures, an agent or a hub in a process of its
// own, between a real broker and a real API server. What it asks of the API server, uses of CPU and
// takes of memory is read from outside.
package subject

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/bench/plane"
	"github.com/workwire/workwire/test/bench/report"
	"github.com/workwire/workwire/test/kit/brokerkit"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/process"
	"github.com/workwire/workwire/test/kit/procs"
)

// Config is what all benchmarks are given. All fields are required but Profile.
type Config struct {
	Broker   string // program, "mosquitto" or "rabbitmq"
	Control  string // the controlplane program
	Dir      string // for data and logs
	Profile  string // folder for profiles of the program; empty: none
	Runs     int
	Progress func(format string, args ...any)
}

// Subject is the measured program with its surroundings.
type Subject struct {
	Config
	Board  *report.Board
	Plane  *plane.Plane
	Broker *brokerkit.Broker

	// Datastore is the URL of a PostgreSQL database for the control plane; empty: etcd.
	Datastore string

	Program *process.Process // nil: not running
	Listen  string           // its address for metrics and profiles; empty: none
}

// Start starts the surroundings. Close must be called, also after an error.
func (s *Subject) Start(ctx context.Context, role controlplane.Role, source wire.SourceID, clusters ...wire.ClusterName) (err error) {
	if s.Plane, err = plane.Start(ctx, s.Dir, s.Control, role, s.Datastore); err != nil {
		return err
	}
	dir := filepath.Join(s.Dir, "broker-"+string(source))
	// What an earlier benchmark left there are sessions.
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return err
	}
	s.Broker, err = brokerkit.Start(ctx, brokerkit.Config{Dir: dir, Program: s.Config.Broker, Source: source, Clusters: clusters})
	return err
}

// Close stops the surroundings.
func (s *Subject) Close() error {
	err := s.Broker.Stop()
	if s.Plane != nil {
		err = errors.Join(err, s.Plane.Stop())
	}
	return err
}

// Stop stops the program.
func (s *Subject) Stop() error {
	err := s.Program.Stop()
	s.Program = nil
	return err
}

// Cost is what a part of a run has cost those that take part.
type Cost struct {
	Program, Plane, Broker, Bench time.Duration // of CPU
	Requests                      plane.Requests
	Served                        map[string]int // to everybody
}

// Cost returns the cost so far. The program may not run.
func (s *Subject) Cost(ctx context.Context) (c Cost, err error) {
	if c.Requests, err = s.Plane.Requests(ctx); err != nil {
		return c, err
	}
	if c.Served, err = s.Plane.Served(ctx); err != nil {
		return c, err
	}
	c.Plane = s.Plane.Usage().CPU
	processes := map[int]*time.Duration{s.Broker.PID(): &c.Broker, os.Getpid(): &c.Bench}
	if s.Program != nil {
		processes[s.Program.PID()] = &c.Program
	}
	for pid, cpu := range processes {
		used, err := procs.Of(pid)
		if err != nil {
			return c, errors.Join(err, s.Program.Died())
		}
		*cpu = used.CPU
	}
	return c, nil
}

// Since returns the cost after before.
func (c Cost) Since(before Cost) Cost {
	return Cost{
		Program: c.Program - before.Program, Plane: c.Plane - before.Plane, Broker: c.Broker - before.Broker, Bench: c.Bench - before.Bench,
		Requests: c.Requests.Since(before.Requests), Served: plane.Grown(before.Served, c.Served),
	}
}

// Detail returns c for the record of a program called name.
func (c Cost) Detail(name string) map[string]any {
	return map[string]any{
		name + "CPUSeconds": c.Program.Seconds(), "controlPlaneCPUSeconds": c.Plane.Seconds(),
		"brokerCPUSeconds": c.Broker.Seconds(), "benchCPUSeconds": c.Bench.Seconds(), "requests": c.Requests.Others,
	}
}

// ProfileCPU takes a CPU profile of the program for about d, in the first run, when profiles are
// wanted. The function it returns waits for the profile.
func (s *Subject) ProfileCPU(ctx context.Context, run int, name string, d time.Duration) (wait func()) {
	if !s.profiled(run) {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.fetch(ctx, fmt.Sprintf("profile?seconds=%d", max(1, int(d.Seconds()))), name+"-cpu")
	}()
	return func() { <-done }
}

// ProfileMemory takes profiles of the program's memory, in the first run, when profiles are wanted.
func (s *Subject) ProfileMemory(ctx context.Context, run int, name string) {
	if s.profiled(run) {
		for _, kind := range []string{"heap", "allocs"} {
			s.fetch(ctx, kind, name+"-"+kind)
		}
	}
}

func (s *Subject) profiled(run int) bool { return s.Profile != "" && run == 0 && s.Listen != "" }

// fetch saves a profile. A failure is only told: the figures do not depend on it.
func (s *Subject) fetch(ctx context.Context, kind, name string) {
	body, err := procs.Get(ctx, "http://"+s.Listen+"/debug/pprof/"+kind)
	if err == nil {
		err = errors.Join(os.MkdirAll(s.Profile, 0o755), os.WriteFile(filepath.Join(s.Profile, name+".pprof"), body, 0o600))
	}
	if err != nil {
		s.Progress("no profile: %v", err)
	}
}
