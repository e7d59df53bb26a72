package sim

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/workwire/workwire/test/sim/kubeapi"
)

// clock is how times are written: a run begins at midnight.
const clock = "15:04:05.000"

// trace is what happened, in order. It is safe for concurrent use.
type trace struct {
	mu    sync.Mutex
	lines []string
}

func newTrace() *trace { return &trace{} }

func (t *trace) note(actor, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, fmt.Sprintf("%s %-9s %s", time.Now().UTC().Format(clock), actor, what))
}

// write notes a write to the API server of an actor.
func (t *trace) write(actor string, w kubeapi.Write) {
	if w.Kind.Kind == "Event" || w.Kind.Kind == "Lease" {
		return
	}
	verb, o := "changes", w.After
	switch {
	case w.After == nil:
		verb, o = "removes", w.Before
	case w.Before == nil:
		verb = "creates"
	}
	user := w.User
	if user == "" {
		user = "garbage collector"
	}
	t.note(actor, fmt.Sprintf("%s %s %s %s/%s generation %d version %s", user, verb, w.Kind.Kind, o.GetNamespace(), o.GetName(), o.GetGeneration(), o.GetResourceVersion()))
}

// Write notes a line of a program's log.
func (t *trace) Write(line []byte) (int, error) {
	t.note("log", string(bytes.TrimSpace(line)))
	return len(line), nil
}

func (t *trace) hash() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(t.lines, "\n"))))
}
