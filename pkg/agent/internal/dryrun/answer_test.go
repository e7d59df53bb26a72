package dryrun

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// line is a connection that is there from a moment on.
type line struct {
	transport.Transport
	from time.Time
	sent int
}

func (l *line) Publish(context.Context, string, cloudevents.Event) error {
	if time.Now().Before(l.from) {
		return transport.ErrNotConnected
	}
	l.sent++
	return nil
}

// TestAnswerWaitsForConnection: a question that the broker delivers before the connection can take its answer is
// answered all the same, unless nobody waits any more.
func TestAnswerWaitsForConnection(t *testing.T) {
	for name, test := range map[string]struct {
		connected time.Duration
		want      error
	}{
		"at once":           {0, nil},
		"soon":              {time.Second, nil},
		"after the expiry":  {time.Minute, transport.ErrNotConnected},
		"just before it is": {9 * time.Second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &line{from: time.Now().Add(test.connected)}
				r := &Runner{config: Config{
					Transport: l, Topic: func(wire.SourceID) (string, error) { return "events", nil },
				}}
				question := &wire.DryRun{ID: "1", Source: "hub1", Cluster: "cluster1", Expires: time.Now().Add(10 * time.Second)}
				answer := &wire.DryRunAnswer{ID: "1", Source: "hub1", Cluster: "cluster1", Agent: "agent"}
				if err := r.send(t.Context(), question, answer); !errors.Is(err, test.want) || (err == nil) != (l.sent == 1) {
					t.Errorf("%v, sent %d times", err, l.sent)
				}
			})
		})
	}
}
