package reconcile

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/test/kit"
)

func TestUnlogged(t *testing.T) {
	logged, other, third := loggedError{errors.New("logged")}, errors.New("other"), errors.New("third")
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"logged", logged, ""},
		{"not logged", other, "other"},
		{"joined", errors.Join(logged, other), "other"},
		{"nested", errors.Join(errors.Join(logged, third), other), "third\nother"},
		{"all logged", errors.Join(logged, logged), ""},
		{"wrapped", fmt.Errorf("more: %w", logged), "more: logged"},
	} {
		got := ""
		if err := unlogged(c.err); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestFailuresAreLoggedOnce(t *testing.T) {
	var h history
	log := &kit.Log{}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, cause := range []string{"a", "a", "b", "b", "a"} {
		h.logFailure(log.Logger(), errors.New(cause), now.Add(time.Duration(i)*time.Second))
	}
	if lines := log.Lines("reconcile failed"); len(lines) != 3 {
		t.Errorf("%d lines, want 3: %s", len(lines), log)
	}
	if h.isZero() {
		t.Error("the history of a failure is forgotten")
	}
	h.removals = map[object.Ref]*removal{{Name: "a"}: {}}
	h.logFailure(log.Logger(), nil, now)
	h.logFailure(log.Logger(), errors.New("a"), now)
	if lines := log.Lines("reconcile failed"); len(lines) != 3 {
		t.Errorf("%d lines while the removal waited, want 3: %s", len(lines), log)
	}
	h.removals = nil
	h.logFailure(log.Logger(), loggedError{errors.New("c")}, now)
	if lines := log.Lines("reconcile failed"); len(lines) != 3 || !h.isZero() {
		t.Errorf("%d lines after an error that was logged elsewhere; history %+v", len(lines), h)
	}
}
