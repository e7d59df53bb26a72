// Package tail shows the events between sources and agents as they pass the broker.
//
//	err := tail.Run(ctx, tail.Config{Broker: broker, Role: tail.Observer, Emit: func(e tail.Event) { … }})
//
// It listens with a clean session and QoS 0, outside of shared subscriptions, so that it takes nothing
// from anybody and leaves nothing behind: what it cannot read fast enough, the broker drops for it
// alone. By default an [Event] has no payload, only its size and digest.
package tail

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
)

// Role is whose credentials the transport configuration has, and so which topics they may read.
type Role string

// Roles. An observer reads everything, a source the events of its agents, an agent those of its
// sources.
const (
	Observer Role = "observer"
	Source   Role = "source"
	Agent    Role = "agent"
)

// Config configures [Run].
type Config struct {
	// Broker is the transport configuration; required.
	Broker config.Config
	// Role is whose credentials Broker has; default Observer.
	Role Role
	// Filter chooses events; the zero Filter all. The role Agent needs its Cluster.
	Filter Filter
	// Payload says how much of the payloads events have.
	Payload Payload
	// Emit is called for each event, not concurrently; required.
	Emit func(Event)
	// Listening is called once the broker has granted the subscriptions. Optional.
	Listening func()
}

// Filter chooses events. Empty fields choose all.
type Filter struct {
	Cluster wire.ClusterName
	Source  wire.SourceID
	// Work is a name or UID.
	Work string
	// Kinds are kinds of events: see [Kinds].
	Kinds []string
}

// Matches reports whether an event is chosen. Events that concern all clusters or sources match any.
func (f Filter) Matches(e Event) bool {
	return (f.Cluster == "" || e.Cluster == "" || e.Cluster == string(f.Cluster)) &&
		(f.Source == "" || e.Source == "" || e.Source == string(f.Source)) &&
		(f.Work == "" || e.Work == f.Work || e.UID == f.Work) &&
		(len(f.Kinds) == 0 || slices.Contains(f.Kinds, e.Kind))
}

// Subscriptions returns the topic filters to listen to, as narrow as f allows. They have no group.
func Subscriptions(topics wire.Topics, role Role, f Filter) ([]string, error) {
	var filters []string
	switch role {
	case Source:
		levels := strings.Split(wire.Unshared(topics.AgentEvents), "/")
		source, err := topics.ForSource(wire.SourceID(levels[1])) // the pattern was validated when the file was read
		if err != nil {
			return nil, err
		}
		filters = source.Subscriptions()
	case Agent:
		agent, err := topics.ForAgent(f.Cluster)
		if err != nil {
			return nil, err
		}
		filters = agent.Subscriptions()
	default:
		if err := topics.Validate(); err != nil {
			return nil, err
		}
		filters = []string{topics.SourceEvents, topics.AgentEvents}
		for _, broadcast := range []string{topics.SourceBroadcast, topics.AgentBroadcast} {
			if broadcast != "" {
				filters = append(filters, broadcast)
			}
		}
	}
	for i, filter := range filters {
		filters[i] = narrow(wire.Unshared(filter), role, f)
	}
	return filters, nil
}

// narrow puts the ids of f into a filter. An observer's has wildcards in place of other ids.
func narrow(filter string, role Role, f Filter) string {
	levels := strings.Split(filter, "/")
	set := func(level int, id string) {
		if role == Observer {
			levels[level] = cmp.Or(id, "+")
		} else if levels[level] == "+" && id != "" {
			levels[level] = id
		}
	}
	switch kind := levels[len(levels)-1]; {
	case len(levels) == 5:
		set(1, string(f.Source))
		set(3, string(f.Cluster))
	case kind == "sourcebroadcast":
		set(1, string(f.Source))
	default:
		set(1, string(f.Cluster))
	}
	return strings.Join(levels, "/")
}

// Run listens until ctx ends. It returns an error if the broker refuses the connection or a
// subscription, or the connection is lost: events would be missing.
func Run(ctx context.Context, c Config) error {
	c.Role = cmp.Or(c.Role, Observer)
	filters, err := Subscriptions(c.Broker.Topics, c.Role, c.Filter)
	if err != nil {
		return err
	}
	conn, err := mqtt.Dial(ctx, c.Broker, "workctl-"+uuid.NewString(), func(m mqtt.Received) {
		if e := Decode(m, time.Now(), c.Payload); c.Filter.Matches(e) {
			c.Emit(e)
		}
	})
	if err != nil {
		return advised(fmt.Errorf("connect to %s: %w", c.Broker.BrokerHost, err))
	}
	defer conn.Close()
	for _, filter := range filters {
		if err := conn.Subscribe(ctx, filter, 0); err != nil {
			return advised(fmt.Errorf("%w\nan observer may read all topics (role observer of the broker), a source and an agent some: use --as", err))
		}
	}
	if c.Listening != nil {
		c.Listening()
	}
	select {
	case <-ctx.Done():
		return nil
	case <-conn.Done():
		return advised(fmt.Errorf("the connection is lost, and events after this are missing: %w", conn.Err()))
	}
}

// advised adds what to do about an error.
func advised(err error) error {
	if advice := mqtt.Advice(err); advice != "" {
		return errors.Join(err, errors.New(advice))
	}
	return err
}
