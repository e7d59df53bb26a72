package demo

import (
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/test/kit"
)

// TestCommands: a step ends with its commands, or the first one that does not end as it should, or with the end of a program.
func TestCommands(t *testing.T) {
	t.Parallel()
	const forever = "echo one; echo two; (sleep 1000); true"
	for name, c := range map[string]struct {
		commands []string
		program  string // a script
		want     string // part of the error
	}{
		"all is well":     {commands: []string{"true", forever + "  # until one", "exit 4  # exit status 4"}, program: "exec sleep 1000"},
		"it fails":        {commands: []string{"echo why >&2; exit 3", "echo next"}, program: "exec sleep 1000", want: "exit status 3: why"},
		"it does not":     {commands: []string{"true  # exit status 4"}, program: "exec sleep 1000", want: "exit status 0"},
		"no such line":    {commands: []string{"echo one  # until two"}, program: "exec sleep 1000", want: "exit status 0: one"},
		"a program ended": {commands: []string{forever}, program: "echo gone; exit 1", want: "agent ended: exit status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := keeping(t, c.program)
			s.Timeout, s.shown = time.Minute, map[string]bool{}
			agent, err := s.start("agent", "work-agent")
			kit.NoError(t, err)
			defer agent.Stop() //nolint:errcheck // it may have ended
			err = s.perform(t.Context(), step{commands: c.commands})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
