package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/pkg/transport"
)

// Additions are what OCM's protocol does not have: extensions that signatures sign and that they do not, and data types. What a program
// accepts has the names of the data types of deltas, and more.
var (
	signedAdditions   = []string{"authoritative", "contenthash", "session", "sourceidentity", "appliedtime", "readytime", "receivedtime"}
	unsignedAdditions = []string{"accepts", "zstd", "deltas", "digests", "agents", "sources", "dryruns"}
)

// release is a version of a program: the additions that it does not know. nil: it knows all.
type release []string

// anyVersion returns a version: a quarter of the times OCM's protocol alone. Of what is signed, it knows all: without, nobody would believe it.
func (w *World) anyVersion() release {
	known := slices.Clone(unsignedAdditions)
	if w.o.Keys == "" {
		known = slices.Concat(known, signedAdditions)
	}
	most := 50
	if w.random.chance(25) {
		most = 100
	}
	return slices.DeleteFunc(known, func(string) bool { return !w.random.chance(most) })
}

func (v release) lacks(name string) bool { return slices.Contains(v, name) }

// plain returns what a program of this version says, or understands, of e; false: nothing.
func (v release) plain(e cloudevents.Event) (cloudevents.Event, bool) {
	if kind, addition := strings.CutPrefix(e.Type(), "dev.workwire.v1alpha1."); addition {
		kind, _, _ = strings.Cut(kind, ".")
		if v.lacks(kind) {
			return e, false
		}
	}
	e = e.Clone()
	if accepts, says := e.Extensions()["accepts"]; says {
		names := slices.DeleteFunc(strings.Split(fmt.Sprint(accepts), ","), v.lacks)
		e.SetExtension("accepts", strings.Join(names, ","))
		if len(names) == 0 {
			e.SetExtension("accepts", nil)
		}
	}
	for _, name := range v {
		if !slices.Contains(unsignedAdditions[1:], name) {
			e.SetExtension(name, nil)
		}
	}
	return e, true
}

// plainTransport is the connection of a program of another version.
type plainTransport struct {
	transport.Transport
	version release
}

// Publish publishes what the version knows of an event.
func (t plainTransport) Publish(ctx context.Context, topic string, e cloudevents.Event) error {
	said, known := t.version.plain(e)
	if !known {
		return nil
	}
	return t.Transport.Publish(ctx, topic, said)
}

// Run receives what the version knows of messages.
func (t plainTransport) Run(ctx context.Context, h transport.Handler) error {
	received := h.Received
	if will := h.Will; will != nil && t.version.lacks("agents") {
		h.Will = func() (string, cloudevents.Event) { // nobody listens there
			_, e := will()
			return "plain/will", e
		}
	}
	h.Received = func(ctx context.Context, m transport.Message) {
		var known bool
		if m.Event, known = t.version.plain(m.Event); !known {
			m.Ack()
			return
		}
		received(ctx, m)
	}
	return t.Transport.Run(ctx, h)
}

// downgrade replaces a program by another version for a while.
func (w *World) downgrade() {
	p := slices.Concat(w.agents(), w.hubs, w.sources.programs)[w.random.intN(len(w.clusters)+len(w.hubs)+len(w.sources.programs))]
	if p.running == nil {
		return
	}
	w.replace(p, w.anyVersion())
	w.later(2*maxOutage, func() { w.replace(p, nil) })
}

func (w *World) replace(p *program, v release) {
	w.trace.note(p.name, fmt.Sprintf("is of a version that does not know %v", []string(v)))
	p.version = v
	if p.running != nil { // else a timer starts it
		p.kill()
		p.run()
	}
}
