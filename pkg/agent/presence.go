package agent

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

// farewell bounds how long saying good bye may take.
const farewell = time.Second

// presence tells sources that the agent is there, and leaves it to the broker to
// tell that it is not (docs/protocol.md, Presence). It is safe for concurrent use.
type presence struct {
	message wire.Presence // without a session
	topic   string        // empty: there is no topic that all sources listen to
	link    transport.Transport
	logger  *slog.Logger

	session atomic.Pointer[string] // of the connection that was begun last
	wanted  chan struct{}
}

func newPresence(config *Config, topics wire.AgentTopics) (*presence, error) {
	p := &presence{
		message: wire.Presence{Agent: config.ClientID, Cluster: config.Cluster},
		link:    config.Transport, logger: config.Logger, wanted: make(chan struct{}, 1),
	}
	if source, one := topics.Source(); one {
		topic, err := topics.Events(source)
		p.message.Source, p.topic = source, topic
		return p, err
	}
	p.topic, _ = topics.Broadcast()
	return p, nil
}

// will gives what the broker is to publish when the connection about to be made
// is lost; nil if there is no topic for it.
func (p *presence) will() func() (string, cloudevents.Event) {
	if p.topic == "" {
		return nil
	}
	return func() (string, cloudevents.Event) {
		session := uuid.NewString()
		p.session.Store(&session)
		event, err := p.event(session, false)
		if err != nil {
			p.logger.Error("the end of the connection can not be told to sources", "error", err)
		}
		return p.topic, event
	}
}

func (p *presence) event(session string, present bool) (cloudevents.Event, error) {
	message := p.message
	message.Session, message.Present = session, present
	return wire.Encode(&message, time.Now())
}

// announce lets Run tell sources that the agent is there.
func (p *presence) announce() {
	select {
	case p.wanted <- struct{}{}:
	default: // it is about to
	}
}

// run tells sources that the agent is there, whenever that is wanted, until ctx
// ends.
func (p *presence) run(ctx context.Context) {
	for {
		select {
		case <-p.wanted:
			p.tell(ctx, true)
		case <-ctx.Done():
			return
		}
	}
}

// leave tells them that it goes.
func (p *presence) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	p.tell(ctx, false)
}

func (p *presence) tell(ctx context.Context, present bool) {
	session := p.session.Load()
	if session == nil {
		return
	}
	event, err := p.event(*session, present)
	if err == nil {
		err = p.link.Publish(ctx, p.topic, event)
	}
	// Without a connection there is a will, and the next connect.
	if err != nil && ctx.Err() == nil && !errors.Is(err, transport.ErrNotConnected) {
		p.logger.Error("sources were not told whether the agent is there", "topic", p.topic, "present", present, "error", err)
	}
}
