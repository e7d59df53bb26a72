// Package acl decides which MQTT topics a client of the broker may use.
//
// A client has one [Identity]: it is the agent of one cluster, one source, a monitor, an observer or a joiner. The topics
// of the protocol (docs/protocol.md, Topics) name the source and the cluster they belong to, so the
// identity alone decides, without a table:
//
//	              publishes                            subscribes
//	agent of C    sources/<any>/clusters/C/agentevents sources/{+,<any>}/clusters/C/sourceevents
//	              clusters/C/agentbroadcast            sources/{+,<any>}/sourcebroadcast
//	source S      sources/S/clusters/<any>/sourceevents sources/S/clusters/{+,<any>}/agentevents
//	              sources/S/sourcebroadcast            clusters/{+,<any>}/agentbroadcast
//	                                                   sources/S/clusters/-/sourceevents
//	              sources/S/joinanswers/<id>           sources/S/joinrequests
//	joiner, agent sources/<any>/joinrequests           sources/<any>/joinanswers/<id>, without "$share/"
//	monitor       nothing                              nothing
//	observer      nothing                              the events and broadcasts above, without a "$share/" prefix
//
// A join answer is read by whoever knows its id, which is random: no filter has a "+" in the place of it. With the id "-" it is for the
// broker, and read by nobody: a revocation list, see [Revocations].
//
// The words "sources" and "clusters" are configuration of the clients: any word of lower-case
// letters is allowed in their place. A subscription may have a "$share/<group>/" prefix. Everything
// else is refused.
//
//	acl.Allow(acl.Identity{Role: acl.Agent, ID: "c1"}, acl.Subscribe, "sources/+/clusters/c1/sourceevents") // true
package acl

import (
	"fmt"
	"strings"
)

// Role is the role of a client.
type Role string

// The roles. The zero Role has no access.
const (
	Agent   Role = "agent"   // the agent of the cluster that Identity.ID names
	Source  Role = "source"  // the source (hub) that Identity.ID names
	Monitor Role = "monitor" // has no topic; the certificate of what reads metrics
	// Observer reads the events of all sources and agents, Secrets in them too: for workctl tail.
	Observer Role = "observer"
	// Joiner asks a source to accept a new cluster, and may do nothing else. All joiners share one
	// password, and count as one identity; see [Identity.Account].
	Joiner Role = "joiner"
)

// Identity is a role, and the id of a cluster or a source. For a monitor, observer or joiner the ID is used
// in logs only.
type Identity struct {
	Role Role
	ID   string
}

// String returns "role:id", which is unique.
func (i Identity) String() string { return string(i.Role) + ":" + i.ID }

// Account returns the identity that connections, rates and queues are counted for: i, and of every
// joiner the same, because whoever has a token is one of them.
func (i Identity) Account() Identity {
	if i.Role == Joiner {
		return Identity{Role: Joiner, ID: "all"}
	}
	return i
}

// IsSource reports whether name is the String of a source.
func IsSource(name string) bool { return strings.HasPrefix(name, string(Source)+":") }

// Bounds of topics and filters, so that a client cannot make the broker walk or keep large ones.
const (
	maxID    = 63  // bytes of an id, a word or a group, as of a name in Kubernetes
	maxTopic = 512 // bytes of a topic or filter
)

// Validate returns an error if the role is unknown, or the id is not of the form [a-z0-9-]{1,63}
// (docs/protocol.md, Topics).
func (i Identity) Validate() error {
	switch i.Role {
	case Agent, Source, Monitor, Observer, Joiner:
	default:
		return fmt.Errorf("role %q is unknown; use agent, source, monitor, observer or joiner", i.Role)
	}
	if !isID(i.ID) {
		return fmt.Errorf("id %q of role %s must consist of 1 to %d lower-case letters, digits and dashes", i.ID, i.Role, maxID)
	}
	return nil
}

// Action is an access of a client to a topic.
type Action string

// The actions. The zero Action is always refused.
const (
	Publish   Action = "publish"   // send to a topic name, as a message or as a will
	Subscribe Action = "subscribe" // receive from a topic filter
)

// Allow reports whether id may publish to a topic name or subscribe to a topic filter. It refuses
// every filter that could match a topic that id may not read. It is safe for concurrent use.
func Allow(id Identity, action Action, topic string) bool {
	if len(topic) > maxTopic || id.Validate() != nil {
		return false
	}
	t, ok := parse(topic)
	if !ok {
		return false
	}
	if id.Role == Observer {
		return action == Subscribe && !t.shared && !t.joining() // a group would take messages from their reader
	}
	switch action {
	case Publish:
		return !t.shared && t.cluster != wildcard && t.source != wildcard && mayPublish(id, t)
	case Subscribe:
		return maySubscribe(id, t)
	}
	return false
}

func mayPublish(id Identity, t topicFilter) bool {
	switch id.Role {
	case Joiner:
		return t.kind == joinRequests
	case Agent:
		return t.kind == joinRequests || (t.kind == agentEvents || t.kind == agentBroadcast) && t.cluster == id.ID
	case Source:
		return (t.kind == sourceEvents || t.kind == sourceBroadcast || t.kind == joinAnswers) && t.source == id.ID
	}
	return false
}

func maySubscribe(id Identity, t topicFilter) bool {
	switch id.Role {
	case Joiner:
		return t.kind == joinAnswers && !t.shared
	case Agent:
		return t.kind == joinAnswers && !t.shared || t.kind == sourceEvents && t.cluster == id.ID || t.kind == sourceBroadcast
	case Source:
		return (t.kind == agentEvents || t.kind == joinRequests) && t.source == id.ID || t.kind == agentBroadcast ||
			t.kind == sourceEvents && t.source == id.ID && t.cluster == instances
	}
	return false
}

const (
	wildcard = "+"
	// instances stands for the cluster where the programs of a source find each other
	// (docs/protocol.md, Instances), and for the id of what is not the answer to a request (Revocation).
	instances = "-"
	letters   = "abcdefghijklmnopqrstuvwxyz"

	sourceEvents    = "sourceevents"
	agentEvents     = "agentevents"
	sourceBroadcast = "sourcebroadcast"
	agentBroadcast  = "agentbroadcast"
	joinRequests    = "joinrequests"
	joinAnswers     = "joinanswers"
)

// topicFilter is a parsed topic of the protocol. source and cluster are an id, "+", or empty if the
// kind of topic has none.
type topicFilter struct {
	shared          bool
	source, cluster string
	kind            string
}

// joining reports whether clusters join by the topic.
func (t topicFilter) joining() bool { return t.kind == joinRequests || t.kind == joinAnswers }

// Revocations reports whether a topic that a source may publish to is that of its revocation list.
func Revocations(topic string) bool { return strings.HasSuffix(topic, "/"+joinAnswers+"/"+instances) }

func parse(topic string) (topicFilter, bool) {
	var t topicFilter
	if rest, ok := strings.CutPrefix(topic, "$share/"); ok {
		group, filter, _ := strings.Cut(rest, "/")
		if !isID(group) {
			return t, false
		}
		t.shared, topic = true, filter
	}
	levels := strings.Split(topic, "/")
	t.kind = levels[len(levels)-1]
	switch {
	case len(levels) == 5 && (t.kind == sourceEvents || t.kind == agentEvents):
		t.source, t.cluster = levels[1], levels[3]
		return t, isWord(levels[0]) && isWord(levels[2]) && isIDOrWildcard(t.source) && isIDOrWildcard(t.cluster)
	case len(levels) == 3 && t.kind == sourceBroadcast:
		t.source = levels[1]
		return t, isWord(levels[0]) && isIDOrWildcard(t.source)
	case len(levels) == 3 && t.kind == joinRequests:
		t.source = levels[1]
		return t, isWord(levels[0]) && isID(t.source)
	case len(levels) == 4 && levels[2] == joinAnswers:
		t.kind, t.source = joinAnswers, levels[1]
		return t, isWord(levels[0]) && isID(t.source) && isID(levels[3])
	case len(levels) == 3 && t.kind == agentBroadcast:
		t.cluster = levels[1]
		return t, isWord(levels[0]) && isIDOrWildcard(t.cluster)
	}
	return t, false
}

func isIDOrWildcard(s string) bool { return s == wildcard || isID(s) }

func isID(s string) bool {
	return s != "" && len(s) <= maxID && strings.Trim(s, letters+"0123456789-") == ""
}

func isWord(s string) bool { return s != "" && len(s) <= maxID && strings.Trim(s, letters) == "" }
