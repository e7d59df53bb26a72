package session

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/uuid"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// leaveTimeout bounds how long leave may take.
const leaveTimeout = time.Second

// presence tells sources that the agent is present, and has the broker tell them when it is not
// (docs/protocol.md, Presence). It is safe for concurrent use.
type presence struct {
	message   wire.Presence // without a session
	topic     string        // empty: there is no topic that all sources listen to
	transport transport.Transport
	logger    *slog.Logger

	session atomic.Pointer[string]     // of the last connection
	about   atomic.Pointer[wire.About] // nil: not known yet
	due     chan struct{}              // holds a token when the presence is to be published
}

func newPresence(message wire.Presence, topics wire.AgentTopics, t transport.Transport, logger *slog.Logger) (*presence, error) {
	p := &presence{message: message, transport: t, logger: logger, due: make(chan struct{}, 1)}
	if source, one := topics.Source(); one {
		topic, err := topics.Events(source)
		p.message.Source, p.topic = source, topic
		return p, err
	}
	p.topic, _ = topics.Broadcast()
	return p, nil
}

// will returns the function that makes the will of the next connection; nil if there is no topic
// for it.
func (p *presence) will() func() (string, cloudevents.Event) {
	if p.topic == "" {
		return nil
	}
	return func() (string, cloudevents.Event) {
		session := uuid.NewString()
		p.session.Store(&session)
		event, err := p.event(session, false)
		if err != nil {
			p.logger.Error("encoding the will failed; sources will not be told when the connection is lost", "error", err)
		}
		return p.topic, event
	}
}

func (p *presence) event(session string, present bool) (cloudevents.Event, error) {
	message := p.message
	message.Session, message.Present = session, present
	if present {
		message.About = p.about.Load()
	}
	return wire.Encode(&message, time.Now())
}

// connected returns the session of the connection that was made. Without a topic for presence, it
// makes one.
func (p *presence) connected() string {
	if p.topic == "" {
		return uuid.NewString()
	}
	return *p.session.Load()
}

// announce has run tell sources that the agent is present.
func (p *presence) announce() {
	select {
	case p.due <- struct{}{}:
	default: // run has yet to publish the last one
	}
}

// Describe tells sources what the cluster says of itself, now and with each later announcement. The caller must
// not change about afterwards, and limits how often it changes.
func (s *Session) Describe(about *wire.About) {
	s.presence.about.Store(about)
	s.presence.announce()
}

// run publishes announcements until ctx ends.
func (p *presence) run(ctx context.Context) error {
	for {
		select {
		case <-p.due:
			p.publish(ctx, true)
		case <-ctx.Done():
			return nil
		}
	}
}

// leave tells sources that the agent is not present any more.
func (p *presence) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	p.publish(ctx, false)
}

func (p *presence) publish(ctx context.Context, present bool) {
	session := p.session.Load()
	if session == nil {
		return
	}
	event, err := p.event(*session, present)
	if err == nil {
		err = p.transport.Publish(ctx, p.topic, event)
	}
	// Without a connection, the will and the next connection tell sources.
	if err != nil && ctx.Err() == nil && !errors.Is(err, transport.ErrNotConnected) {
		p.logger.Error("publishing the presence failed", "topic", p.topic, "present", present, "error", err)
	}
}
