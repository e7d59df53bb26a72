package sim

import (
	"context"
	"strings"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/pkg/transport"
)

// additions are the extensions that OCM's protocol does not have.
var additions = []string{"accepts", "authoritative", "contenthash", "session", "sourceidentity", "appliedtime", "readytime", "receivedtime"}

// plain returns what a program that knows OCM's protocol alone says, or understands, of e; false: nothing.
func plain(e cloudevents.Event) (cloudevents.Event, bool) {
	if strings.HasPrefix(e.Type(), "dev.workwire.") {
		return e, false
	}
	e = e.Clone()
	for _, name := range additions {
		e.SetExtension(name, nil)
	}
	return e, true
}

// plainTransport is the connection of a program that knows OCM's protocol alone.
type plainTransport struct{ transport.Transport }

// Publish publishes what is OCM's protocol in an event.
func (t plainTransport) Publish(ctx context.Context, topic string, e cloudevents.Event) error {
	said, known := plain(e)
	if !known {
		return nil
	}
	return t.Transport.Publish(ctx, topic, said)
}

// Run receives what is OCM's protocol in messages.
func (t plainTransport) Run(ctx context.Context, h transport.Handler) error {
	received := h.Received
	if will := h.Will; will != nil {
		h.Will = func() (string, cloudevents.Event) { // nobody listens there
			_, e := will()
			return "plain/will", e
		}
	}
	h.Received = func(ctx context.Context, m transport.Message) {
		var known bool
		if m.Event, known = plain(m.Event); !known {
			m.Ack()
			return
		}
		received(ctx, m)
	}
	return t.Transport.Run(ctx, h)
}
