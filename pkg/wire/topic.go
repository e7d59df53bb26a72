package wire

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Topics are the topic patterns of a configuration, with `+` where an id goes
// (docs/protocol.md, Topics). SourceEvents and AgentEvents are required.
type Topics struct {
	SourceEvents    string `json:"sourceEvents"`
	AgentEvents     string `json:"agentEvents"`
	SourceBroadcast string `json:"sourceBroadcast,omitempty"`
	AgentBroadcast  string `json:"agentBroadcast,omitempty"`
}

const (
	shareShape = `^(\$share/[a-z0-9-]+/)?`
	idShape    = `([a-z0-9-]+|\+)`
)

var (
	sourceEventsShape    = regexp.MustCompile(shareShape + `([a-z]+)/` + idShape + `/([a-z]+)/` + idShape + `/sourceevents$`)
	agentEventsShape     = regexp.MustCompile(shareShape + `([a-z]+)/` + idShape + `/([a-z]+)/` + idShape + `/agentevents$`)
	sourceBroadcastShape = regexp.MustCompile(shareShape + `([a-z]+)/` + idShape + `/sourcebroadcast$`)
	agentBroadcastShape  = regexp.MustCompile(shareShape + `([a-z]+)/` + idShape + `/agentbroadcast$`)
	identityShape        = regexp.MustCompile(`^[a-z0-9-]+$`)
)

// Validate reports every pattern that does not have the shape that the protocol
// asks for, by its key.
func (t Topics) Validate() error {
	var faults []error
	check := func(key, pattern string, shape *regexp.Regexp, example string, required bool) {
		switch {
		case pattern == "" && required:
			faults = append(faults, fmt.Errorf("topics.%s is required, for example %q", key, example))
		case pattern != "" && !shape.MatchString(pattern):
			faults = append(faults, fmt.Errorf("topics.%s: %q does not have the shape of %q", key, pattern, example))
		}
	}
	check("sourceEvents", t.SourceEvents, sourceEventsShape, "sources/<source>/clusters/+/sourceevents", true)
	check("agentEvents", t.AgentEvents, agentEventsShape, "sources/<source>/clusters/+/agentevents", true)
	check("sourceBroadcast", t.SourceBroadcast, sourceBroadcastShape, "sources/+/sourcebroadcast", false)
	check("agentBroadcast", t.AgentBroadcast, agentBroadcastShape, "clusters/+/agentbroadcast", false)
	return errors.Join(faults...)
}

// topic is a pattern taken apart: share is `$share/<group>/` or empty, levels
// are the rest.
type topic struct {
	share  string
	levels []string
}

func parseTopic(pattern string) topic {
	share := ""
	if strings.HasPrefix(pattern, "$share/") {
		if parts := strings.SplitN(pattern, "/", 3); len(parts) == 3 {
			share, pattern = parts[0]+"/"+parts[1]+"/", parts[2]
		}
	}
	return topic{share: share, levels: strings.Split(pattern, "/")}
}

// filter gives the topic filter to subscribe to.
func (t topic) filter() string { return t.share + strings.Join(t.levels, "/") }

// name gives the topic to publish to, which has no share.
func (t topic) name() string { return strings.Join(t.levels, "/") }

// with gives t with id at level, which must hold `+` or that id already.
func (t topic) with(level int, id string) (topic, bool) {
	if t.levels[level] != "+" {
		return t, t.levels[level] == id
	}
	levels := append([]string(nil), t.levels...)
	levels[level] = id
	return topic{share: t.share, levels: levels}, true
}

// Levels at which the ids stand in the events topics, and in the broadcasts.
const (
	sourceLevel    = 1
	clusterLevel   = 3
	broadcastLevel = 1
)

// AgentTopics are the topics of one agent. The zero value is of no use: see
// [Topics.ForAgent].
type AgentTopics struct {
	subscriptions []string
	events        topic
	broadcast     *topic
	source        SourceID
}

// ForAgent derives the topics of the agent of cluster. It fails when a pattern
// has a wrong shape, or names another cluster, or when cluster has characters
// that topics can not hold.
func (t Topics) ForAgent(cluster ClusterName) (AgentTopics, error) {
	if err := t.Validate(); err != nil {
		return AgentTopics{}, err
	}
	if !identityShape.MatchString(string(cluster)) {
		return AgentTopics{}, fmt.Errorf("cluster name %q: only a-z, 0-9 and - can stand in a topic", cluster)
	}
	specs, ok := parseTopic(t.SourceEvents).with(clusterLevel, string(cluster))
	if !ok {
		return AgentTopics{}, fmt.Errorf("topics.sourceEvents: %q names another cluster than %q", t.SourceEvents, cluster)
	}
	events, ok := parseTopic(t.AgentEvents).with(clusterLevel, string(cluster))
	if !ok {
		return AgentTopics{}, fmt.Errorf("topics.agentEvents: %q names another cluster than %q", t.AgentEvents, cluster)
	}
	a := AgentTopics{subscriptions: []string{specs.filter()}, events: events}
	if id := events.levels[sourceLevel]; id != "+" {
		a.source = SourceID(id)
	}
	if from := specs.levels[sourceLevel]; from != events.levels[sourceLevel] {
		return AgentTopics{}, fmt.Errorf("topics.sourceEvents names source %q, topics.agentEvents %q: they must be the same",
			from, events.levels[sourceLevel])
	}
	if t.SourceBroadcast != "" {
		a.subscriptions = append(a.subscriptions, t.SourceBroadcast)
	}
	if t.AgentBroadcast != "" {
		broadcast, ok := parseTopic(t.AgentBroadcast).with(broadcastLevel, string(cluster))
		if !ok {
			return AgentTopics{}, fmt.Errorf("topics.agentBroadcast: %q names another cluster than %q", t.AgentBroadcast, cluster)
		}
		a.broadcast = &broadcast
	}
	return a, nil
}

// Subscriptions are the filters that the agent subscribes to.
func (a AgentTopics) Subscriptions() []string { return a.subscriptions }

// Source is the one source that the topics name, or false when they are a
// wildcard and the agent serves several.
func (a AgentTopics) Source() (SourceID, bool) { return a.source, a.source != "" }

// Events is the topic for what the agent tells source, statuses and spec
// resync requests. It fails when source has characters that topics can not hold
// or is not the source that the topics name.
func (a AgentTopics) Events(source SourceID) (string, error) {
	if !identityShape.MatchString(string(source)) {
		return "", fmt.Errorf("source id %q: only a-z, 0-9 and - can stand in a topic", source)
	}
	t, ok := a.events.with(sourceLevel, string(source))
	if !ok {
		return "", fmt.Errorf("source %q is not the source %q that topics.agentEvents names", source, a.source)
	}
	return t.name(), nil
}

// Broadcast is the topic for what the agent asks all sources, or false when
// none is configured.
func (a AgentTopics) Broadcast() (string, bool) {
	if a.broadcast == nil {
		return "", false
	}
	return a.broadcast.name(), true
}

// SourceTopics are the topics of one source. The zero value is of no use: see
// [Topics.ForSource].
type SourceTopics struct {
	subscriptions []string
	specs         topic
	broadcast     *topic
}

// ForSource derives the topics of source. It fails when a pattern has a wrong
// shape, or names another source, or when source has characters that topics can
// not hold.
func (t Topics) ForSource(source SourceID) (SourceTopics, error) {
	if err := t.Validate(); err != nil {
		return SourceTopics{}, err
	}
	if !identityShape.MatchString(string(source)) {
		return SourceTopics{}, fmt.Errorf("source id %q: only a-z, 0-9 and - can stand in a topic", source)
	}
	specs, ok := parseTopic(t.SourceEvents).with(sourceLevel, string(source))
	if !ok {
		return SourceTopics{}, fmt.Errorf("topics.sourceEvents: %q names another source than %q", t.SourceEvents, source)
	}
	events := parseTopic(t.AgentEvents)
	if events.levels[sourceLevel] != string(source) {
		return SourceTopics{}, fmt.Errorf("topics.agentEvents: %q must name the source %q", t.AgentEvents, source)
	}
	s := SourceTopics{subscriptions: []string{events.filter()}, specs: specs}
	if t.AgentBroadcast != "" {
		s.subscriptions = append(s.subscriptions, t.AgentBroadcast)
	}
	if t.SourceBroadcast != "" {
		broadcast, ok := parseTopic(t.SourceBroadcast).with(broadcastLevel, string(source))
		if !ok {
			return SourceTopics{}, fmt.Errorf("topics.sourceBroadcast: %q names another source than %q", t.SourceBroadcast, source)
		}
		s.broadcast = &broadcast
	}
	return s, nil
}

// Subscriptions are the filters that the source subscribes to.
func (s SourceTopics) Subscriptions() []string { return s.subscriptions }

// Specs is the topic for what the source tells cluster, specs and status resync
// requests. It fails when cluster has characters that topics can not hold or is
// not the cluster that the topics name.
func (s SourceTopics) Specs(cluster ClusterName) (string, error) {
	if !identityShape.MatchString(string(cluster)) {
		return "", fmt.Errorf("cluster name %q: only a-z, 0-9 and - can stand in a topic", cluster)
	}
	t, ok := s.specs.with(clusterLevel, string(cluster))
	if !ok {
		return "", fmt.Errorf("cluster %q is not the cluster that topics.sourceEvents names", cluster)
	}
	return t.name(), nil
}

// Broadcast is the topic for what the source asks all agents, or false when
// none is configured.
func (s SourceTopics) Broadcast() (string, bool) {
	if s.broadcast == nil {
		return "", false
	}
	return s.broadcast.name(), true
}

// TopicSender returns the source and the cluster that name, the topic of a message,
// stands for; what a broadcast does not name is empty. A broker's ACL vouches
// for them, the event itself does not. It reports false for a topic of no known
// shape.
func TopicSender(name string) (SourceID, ClusterName, bool) {
	// The shapes are those of patterns: a name has no wildcards and no share.
	if strings.HasPrefix(name, "$") || strings.Contains(name, "+") {
		return "", "", false
	}
	levels := strings.Split(name, "/")
	switch {
	case sourceEventsShape.MatchString(name), agentEventsShape.MatchString(name):
		return SourceID(levels[sourceLevel]), ClusterName(levels[clusterLevel]), true
	case sourceBroadcastShape.MatchString(name):
		return SourceID(levels[broadcastLevel]), "", true
	case agentBroadcastShape.MatchString(name):
		return "", ClusterName(levels[broadcastLevel]), true
	default:
		return "", "", false
	}
}
