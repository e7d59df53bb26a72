package logging_test

import (
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/runtime/logging"
)

func TestRepeated(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var failures logging.Repeated
	if failures.Failing() {
		t.Error("failing before the first failure")
	}
	for _, step := range []struct {
		at        time.Duration
		cause     string
		log       bool
		notLogged int
	}{
		{0, "a", true, 0},
		{time.Second, "a", false, 0},
		{59 * time.Minute, "a", false, 0},
		{time.Hour, "a", true, 2},
		{61 * time.Minute, "a", false, 0},
		{62 * time.Minute, "b", true, 1},
		{63 * time.Minute, "a", true, 0},
		{64 * time.Minute, "a", false, 0},
	} {
		if log, notLogged := failures.Failed(step.cause, start.Add(step.at)); log != step.log || notLogged != step.notLogged {
			t.Errorf("%s at %v: %v, %d, want %v, %d", step.cause, step.at, log, notLogged, step.log, step.notLogged)
		}
	}
	if !failures.Failing() {
		t.Error("not failing after failures")
	}
}
