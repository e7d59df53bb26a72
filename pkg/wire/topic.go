package wire

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Topics are the topic patterns of a configuration, with `+` in place of an id (docs/protocol.md,
// Topics). SourceEvents and AgentEvents are required.
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

// Validate returns an error that names the key of every pattern without the shape that the protocol
// requires.
func (t Topics) Validate() error {
	var errs []error
	check := func(key, pattern string, shape *regexp.Regexp, example string, required bool) {
		switch {
		case pattern == "" && required:
			errs = append(errs, fmt.Errorf("topics.%s is required, for example %q", key, example))
		case pattern != "" && !shape.MatchString(pattern):
			errs = append(errs, fmt.Errorf("topics.%s: %q does not have the shape of %q", key, pattern, example))
		}
	}
	check("sourceEvents", t.SourceEvents, sourceEventsShape, "sources/<source>/clusters/+/sourceevents", true)
	check("agentEvents", t.AgentEvents, agentEventsShape, "sources/<source>/clusters/+/agentevents", true)
	check("sourceBroadcast", t.SourceBroadcast, sourceBroadcastShape, "sources/+/sourcebroadcast", false)
	check("agentBroadcast", t.AgentBroadcast, agentBroadcastShape, "clusters/+/agentbroadcast", false)
	return errors.Join(errs...)
}

func validID(what, id string) error {
	if !identityShape.MatchString(id) {
		return fmt.Errorf("%s %q: only a-z, 0-9 and - are valid in a topic", what, id)
	}
	return nil
}

// topic is a parsed pattern: share is `$share/<group>/` or empty, levels is the rest.
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

// Unshared returns a topic filter without the "$share/<group>/" that it may begin with: to listen
// besides the members of the group, whose messages it would take otherwise.
func Unshared(filter string) string { return parseTopic(filter).name() }

// filter returns the topic filter to subscribe to.
func (t topic) filter() string { return t.share + strings.Join(t.levels, "/") }

// name returns the topic to publish to, which has no share.
func (t topic) name() string { return strings.Join(t.levels, "/") }

// with returns t with id at level. It returns false if level contains another id.
func (t topic) with(level int, id string) (topic, bool) {
	if t.levels[level] != "+" {
		return t, t.levels[level] == id
	}
	levels := append([]string(nil), t.levels...)
	levels[level] = id
	return topic{share: t.share, levels: levels}, true
}

// The levels of the ids in event topics and in broadcast topics.
const (
	sourceLevel    = 1
	clusterLevel   = 3
	broadcastLevel = 1
)

// EverySource returns the topics of agents that serve every source, where t are those of one. It returns an error if a
// pattern of t has an invalid shape.
func (t Topics) EverySource() (Topics, error) {
	if err := t.Validate(); err != nil {
		return Topics{}, err
	}
	for _, pattern := range []*string{&t.SourceEvents, &t.AgentEvents, &t.SourceBroadcast} {
		if *pattern != "" {
			every := parseTopic(*pattern)
			every.levels[sourceLevel] = "+"
			*pattern = every.name()
		}
	}
	return t, nil
}

// shared are the topics that an agent or a source subscribes to, and the one on which it reaches all of the others.
type shared struct {
	subscriptions []string
	broadcast     string // empty: none
}

// Subscriptions returns the filters to subscribe to.
func (s shared) Subscriptions() []string { return s.subscriptions }

// Broadcast returns the topic of requests to all sources, or to all agents, and false if none is configured.
func (s shared) Broadcast() (string, bool) { return s.broadcast, s.broadcast != "" }

// AgentTopics are the topics of one agent, see [Topics.ForAgent].
type AgentTopics struct {
	shared
	events topic
	source SourceID
}

// ForAgent returns the topics of the agent of cluster. It returns an error if a pattern has an
// invalid shape or names another cluster, or if cluster contains characters that are invalid in a
// topic.
func (t Topics) ForAgent(cluster ClusterName) (AgentTopics, error) {
	if err := cmp.Or(t.Validate(), validID("cluster name", string(cluster))); err != nil {
		return AgentTopics{}, err
	}
	specs, ok := parseTopic(t.SourceEvents).with(clusterLevel, string(cluster))
	if !ok {
		return AgentTopics{}, fmt.Errorf("topics.sourceEvents: %q names another cluster than %q", t.SourceEvents, cluster)
	}
	events, ok := parseTopic(t.AgentEvents).with(clusterLevel, string(cluster))
	if !ok {
		return AgentTopics{}, fmt.Errorf("topics.agentEvents: %q names another cluster than %q", t.AgentEvents, cluster)
	}
	a := AgentTopics{shared: shared{subscriptions: []string{specs.filter()}}, events: events}
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
		a.broadcast = broadcast.name()
	}
	return a, nil
}

// Source returns the source that the topics name, and false if they contain a wildcard and the
// agent serves several sources.
func (a AgentTopics) Source() (SourceID, bool) { return a.source, a.source != "" }

// Events returns the topic of statuses and spec resync requests for source. It returns an error if
// source contains characters that are invalid in a topic or is not the source that the topics name.
func (a AgentTopics) Events(source SourceID) (string, error) {
	if err := validID("source id", string(source)); err != nil {
		return "", err
	}
	t, ok := a.events.with(sourceLevel, string(source))
	if !ok {
		return "", fmt.Errorf("source %q is not the source %q that topics.agentEvents names", source, a.source)
	}
	return t.name(), nil
}

// SourceTopics are the topics of one source, see [Topics.ForSource].
type SourceTopics struct {
	shared
	specs topic
}

// ForSource returns the topics of source. It returns an error if a pattern has an invalid shape or
// names another source, or if source contains characters that are invalid in a topic.
func (t Topics) ForSource(source SourceID) (SourceTopics, error) {
	if err := cmp.Or(t.Validate(), validID("source id", string(source))); err != nil {
		return SourceTopics{}, err
	}
	specs, ok := parseTopic(t.SourceEvents).with(sourceLevel, string(source))
	if !ok {
		return SourceTopics{}, fmt.Errorf("topics.sourceEvents: %q names another source than %q", t.SourceEvents, source)
	}
	events := parseTopic(t.AgentEvents)
	if events.levels[sourceLevel] != string(source) {
		return SourceTopics{}, fmt.Errorf("topics.agentEvents: %q must name the source %q", t.AgentEvents, source)
	}
	s := SourceTopics{shared: shared{subscriptions: []string{events.filter()}}, specs: specs}
	if t.AgentBroadcast != "" {
		s.subscriptions = append(s.subscriptions, t.AgentBroadcast)
	}
	if t.SourceBroadcast != "" {
		broadcast, ok := parseTopic(t.SourceBroadcast).with(broadcastLevel, string(source))
		if !ok {
			return SourceTopics{}, fmt.Errorf("topics.sourceBroadcast: %q names another source than %q", t.SourceBroadcast, source)
		}
		s.broadcast = broadcast.name()
	}
	return s, nil
}

// Specs returns the topic of specs and status resync requests for cluster. It returns an error if
// cluster contains characters that are invalid in a topic or is not the cluster that the topics
// name.
func (s SourceTopics) Specs(cluster ClusterName) (string, error) {
	if err := validID("cluster name", string(cluster)); err != nil {
		return "", err
	}
	t, ok := s.specs.with(clusterLevel, string(cluster))
	if !ok {
		return "", fmt.Errorf("cluster %q is not the cluster that topics.sourceEvents names", cluster)
	}
	return t.name(), nil
}

// TopicSender returns the source and the cluster in the topic of a message; one that a broadcast
// topic does not name is empty. The broker's ACL guarantees that they are genuine, unlike the ids
// in the event. It returns false for a topic with an unknown shape.
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
