package sim

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/test/sim/kubeapi"
)

// clock is how times are written: a run begins at midnight.
const clock = "15:04:05.000"

// trace is what happened, in order. It is safe for concurrent use.
type trace struct {
	mu        sync.Mutex
	entries   []entry
	decisions []*decision
}

// entry is one thing that happened.
type entry struct {
	at    time.Time
	actor string
	what  string

	event *cloudevents.Event // of a message, else nil
	verb  string             // what the actor does with the message
	write *kubeapi.Write     // to the API server of the actor, else nil

	rewinds bool // the actor, a cluster, is as it was before
}

func (e *entry) String() string {
	return fmt.Sprintf("%s %-9s %s", e.at.UTC().Format(clock), e.actor, e.what)
}

// starts is what a program does that is entered with its name.
const starts = "starts"

func newTrace() *trace { return &trace{} }

func (t *trace) add(e entry) {
	e.at = time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries = append(t.entries, e)
}

func (t *trace) note(actor, what string) { t.add(entry{actor: actor, what: what}) }

// message notes what becomes of a message.
func (t *trace) message(actor, verb string, e cloudevents.Event, rest string) {
	t.add(entry{actor: actor, what: verb + " " + describe(e) + rest, event: &e, verb: verb})
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
	what := fmt.Sprintf("%s %s %s %s/%s generation %d version %s", user, verb, w.Kind.Kind, o.GetNamespace(), o.GetName(), o.GetGeneration(), o.GetResourceVersion())
	t.add(entry{actor: actor, what: what, write: &w})
	if w.User == "people" {
		t.concerns(workOf(actor, w.Kind.Kind, o))
	}
}

// Write notes a line of a program's log.
func (t *trace) Write(line []byte) (int, error) {
	t.note("log", string(bytes.TrimSpace(line)))
	return len(line), nil
}

// hash says in one word what happened, with all that was in the messages.
func (t *trace) hash() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := sha256.New()
	for i := range t.entries {
		e := &t.entries[i]
		fmt.Fprintln(h, e)
		if e.event != nil {
			fmt.Fprintf(h, "%s %q\n", e.event.ID(), e.event.Data())
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}
