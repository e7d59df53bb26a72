package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/workwire/workwire/test/kit"
)

// keeping returns a demo whose program work-agent is a script.
func keeping(t *testing.T, script string) *stage {
	t.Helper()
	s := &stage{Options: Options{Dir: t.TempDir(), Bin: t.TempDir(), Out: &kit.Log{}}}
	kit.NoError(t, os.WriteFile(filepath.Join(s.Bin, "work-agent"), []byte("#!/bin/sh\n"+script), 0o700))
	return s
}

// TestAgentIsStartedAgain: what ends is started again with what it was started with, and is stopped at the end.
func TestAgentIsStartedAgain(t *testing.T) {
	t.Parallel()
	s := keeping(t, `echo "run $@"; if [ -e "$0.ran" ]; then exec sleep 1000; fi; touch "$0.ran"; exit 1`)
	agent, err := s.startAgent("agent-cluster2", "cluster2", "cluster2")
	kit.NoError(t, err)
	s.lock, err = os.Create(s.path("lock"))
	kit.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.watchOver(ctx) }()
	kit.Eventually(t, "it is started again", func() error {
		text, err := os.ReadFile(agent.Log)
		if runs := strings.Count(string(text), "run --cluster-name=cluster2 "); err == nil && runs != 2 {
			err = fmt.Errorf("it ran %d times", runs)
		}
		return err
	})
	cancel()
	kit.NoError(t, <-ended)
	last := s.running[0]
	kit.NoError(t, s.end())
	if last == agent || len(s.running) != 1 || last.Died() == nil {
		t.Errorf("%d programs, and the last one of the agent is the first one: %t, runs: %t", len(s.running), last == agent, last.Died() == nil)
	}
	if said := fmt.Sprint(s.Out); strings.Count(said, "agent-cluster2 ended (exit status 1) and is started again") != 1 {
		t.Errorf("it said %s", said)
	}
}

// TestEndOfWhatCannotRun: a program that ends each time ends the demo, with the end of its log, and so does at once one that is not started again.
func TestEndOfWhatCannotRun(t *testing.T) {
	t.Parallel()
	const script = `echo run; echo "it has no $1" >&2; exit 3`
	for name, c := range map[string]struct {
		start func(*stage) error
		runs  int
	}{
		"an agent": {func(s *stage) error { _, err := s.startAgent("agent", "cluster1", "spoke"); return err }, 1 + maxRestarts},
		"another":  {func(s *stage) error { _, err := s.start("agent", "work-agent", "--cluster-name=cluster1"); return err }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := keeping(t, script)
			kit.NoError(t, c.start(s))
			err := s.watchOver(t.Context())
			if err == nil || !strings.Contains(err.Error(), "agent ended: exit status 3") || !strings.Contains(err.Error(), "it has no --cluster-name=cluster1") {
				t.Errorf("the demo ends with %v", err)
			}
			text, err := os.ReadFile(s.path("agent.log"))
			kit.NoError(t, err)
			if runs := strings.Count(string(text), "run\n"); runs != c.runs {
				t.Errorf("it ran %d times, want %d", runs, c.runs)
			}
		})
	}
}
