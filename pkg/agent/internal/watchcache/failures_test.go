package watchcache

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/test/kit"
)

func TestFailures(t *testing.T) {
	log := &kit.Log{}
	f := &failures{name: "v1, Resource=secrets", logger: log.Logger()}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", errors.New("no rule"))
	stopped, stop := context.WithCancel(t.Context())
	stop()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, step := range []struct {
		verb  string
		err   error
		lines int // so far
	}{
		{"list", nil, 0},
		{"watch", io.EOF, 0},
		{"watch", apierrors.NewResourceExpired("too old"), 0},
		{"watch", forbidden, 1},
		{"list", nil, 1},
		{"watch", forbidden, 1},
		{"list", forbidden, 2},
		{"watch", errors.New("read tcp 127.0.0.1:4000: reset"), 3},
		{"watch", errors.New("read tcp 127.0.0.1:4001: reset"), 3},
		{"watch", nil, 3},
		{"watch", forbidden, 4},
	} {
		f.note(t.Context(), step.verb, step.err, now.Add(time.Duration(i)*time.Second))
		f.note(stopped, step.verb, errors.New("canceled"), now)
		if lines := log.Lines("watch failed"); len(lines) != step.lines {
			t.Fatalf("step %d: %d lines, want %d: %s", i, len(lines), step.lines, log)
		}
	}
	if first := log.Lines("watch failed")[0]; !strings.Contains(first, `resource="v1, Resource=secrets" missingVerb=watch`) {
		t.Errorf("it does not name resource and verb: %s", first)
	}
	f.note(t.Context(), "watch", forbidden, now.Add(2*time.Hour))
	if lines := log.Lines("watch failed"); len(lines) != 5 {
		t.Errorf("no reminder: %s", log)
	}
}

// TestQuiet: what a reflector logs of failures is logged for debugging only.
func TestQuiet(t *testing.T) {
	for level, lines := range map[slog.Level]int{slog.LevelInfo: 0, slog.LevelDebug: 1} {
		log := &kit.Log{}
		logger := logr.FromSlogHandler(quiet{slog.NewTextHandler(log, &slog.HandlerOptions{Level: level})})
		logger.WithName("UnhandledError").Error(errors.New("no"), "Failed to watch")
		if got := log.Lines("level=DEBUG", "Failed to watch"); len(got) != lines {
			t.Errorf("at level %v: %d lines, want %d: %s", level, len(got), lines, log)
		}
	}
}
