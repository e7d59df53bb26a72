package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/pkg/workstate/condition"
	"github.com/workwire/workwire/test/kit"
)

// terminal is a terminal of a size that changes.
type terminal struct {
	mu            sync.Mutex
	written       bytes.Buffer
	width, height int // 0: it is a pipe
}

func (w *terminal) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.written.Write(p)
}

func (w *terminal) size() (width, height int, isTerminal bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.width, w.height, w.width > 0
}

func (w *terminal) resize(width, height int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.width, w.height = width, height
}

// frame returns what was drawn last.
func (w *terminal) frame() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := w.written.String()
	return text[max(0, strings.LastIndex(text, screenStart)):]
}

func (w *terminal) shows(t *testing.T, wants ...string) {
	t.Helper()
	kit.Eventually(t, fmt.Sprintf("it shows %q", wants), func() error {
		for _, want := range wants {
			if frame := w.frame(); !strings.Contains(frame, want) {
				return fmt.Errorf("it shows %q", frame)
			}
		}
		return nil
	})
}

// TestWatch follows a real API server on a terminal that is resized, and on a pipe.
func TestWatch(t *testing.T) {
	f := newFixture(t)
	reader, err := fleet.NewReader(plane.REST())
	kit.NoError(t, err)
	start := func(w *terminal) (stop func()) {
		followed, warnings, err := reader.Follow(t.Context(), f.cluster)
		if err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		s := &screen{out: w, size: w.size, format: cli.Table, interval: time.Millisecond}
		return kit.Run(t, "the screen", func(ctx context.Context) error {
			return s.run(ctx, followed.Changed(), func() *fleet.Snapshot { return followed.Snapshot(ctx) })
		})
	}
	big, pipe := &terminal{width: 200, height: 50}, &terminal{}
	stopBig, stopPipe := start(big), start(pipe)
	big.shows(t, "WORKS     0: 0 delivered", clearBelow)
	pipe.shows(t, "works 0: 0 delivered")
	f.work("web", nil)
	big.shows(t, "WORKS     1: 0 delivered", "NotAnswered")
	pipe.shows(t, "works 1: 0 delivered")
	f.answer("web", condition.Manifest{})
	big.shows(t, "WORKS     1: 1 delivered, 1 applied, 1 ready")
	kit.NoError(t, f.clients.WorkV1().ManifestWorks(f.cluster).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	big.shows(t, "WORKS     0: 0 delivered")
	pipe.shows(t, "works 1: 1 delivered, 1 applied, 1 ready")
	big.resize(40, 3)
	kit.True(t, "it fits", func() bool { return strings.Count(big.frame(), "\n") == 2 })
	stopBig()
	stopPipe()
	if text := big.written.String(); !strings.HasPrefix(text, enterScreen) || !strings.HasSuffix(text, leaveScreen) {
		t.Errorf("it does not leave the terminal as it was: %q", text[max(0, len(text)-200):])
	}
	if text := pipe.written.String(); strings.Contains(text, "\x1b") || strings.Count(text, "works 0: 0 delivered") > 2 {
		t.Errorf("a pipe gets\n%s", text)
	}
}

// TestDue checks when the screen is redrawn.
func TestDue(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		age            time.Duration
		dirty, resized bool
		want           bool
	}{
		"nothing":          {5 * time.Second, false, false, false},
		"ages":             {redrawEvery, false, false, true},
		"changed":          {2 * time.Second, true, false, true},
		"changed too soon": {time.Second, true, false, false},
		"resized":          {0, false, true, true},
	} {
		s := screen{interval: 2 * time.Second, drawn: now.Add(-c.age)}
		if got := s.due(now, c.dirty, c.resized); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !(&screen{}).due(now, false, false) {
		t.Error("the first time")
	}
}
