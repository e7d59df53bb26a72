package wire

import (
	"errors"
	"fmt"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
)

// Presence tells sources that an agent has connected or disconnected (docs/protocol.md, Presence).
type Presence struct {
	// Agent is the client id of the agent: the event's `source`; required.
	Agent string
	// Cluster is the cluster of the agent; required.
	Cluster ClusterName
	// Source is the addressed source; empty for all.
	Source SourceID
	// Session identifies the connection of the agent, so that the end of an earlier connection is
	// not taken for the end of a later one; required.
	Session string
	// Present reports whether the agent is connected; otherwise the connection has ended.
	Present bool
	// About is what the cluster says of itself; nil if the agent does not know, or does not say.
	About *About
}

type presenceData struct {
	Present bool   `json:"present"`
	Session string `json:"session"`
	About   *About `json:"about,omitempty"`
}

func (p *Presence) eventType() (EventType, error) {
	if p.Agent == "" || p.Cluster == "" || p.Session == "" {
		return EventType{}, fmt.Errorf("presence: agent, cluster and session are required")
	}
	if err := p.About.check(); err != nil {
		return EventType{}, fmt.Errorf("presence: %w", err)
	}
	return EventType{Data: Agents, Subresource: SubresourceStatus, Action: Update}, nil
}

func (p *Presence) encode(e *cloudevents.Event) error {
	setSender(e, p.Agent, p.Cluster, p.Source)
	return setData(e, presenceData{Present: p.Present, Session: p.Session, About: p.About})
}

func decodePresence(e cloudevents.Event, x extensions, _ Action) (Message, error) {
	var data presenceData
	if err := decodeData(e, &data, "presence"); err != nil {
		return nil, err
	}
	p := &Presence{
		Agent: e.Source(), Cluster: ClusterName(x.text(extClusterName)), Source: SourceID(x.text(extOriginalSource)),
		Session: data.Session, Present: data.Present, About: data.About,
	}
	if p.Cluster == "" || p.Session == "" {
		return nil, errors.New("clustername and session are required")
	}
	if !sessionShape.MatchString(p.Session) {
		return nil, fmt.Errorf("session %.80q: want %s", p.Session, sessionShape)
	}
	if err := p.About.check(); err != nil {
		return nil, err
	}
	return p, nil
}
