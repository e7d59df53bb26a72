// Package acltest is a table of attempts to publish and subscribe, with the decision that a broker
// must make. Every broker, and every file of access rules, is tested with this table.
//
//	for _, a := range acltest.Attempts() {
//		if got := try(a); got != a.Allowed { … }
//	}
package acltest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/workwire/workwire/broker/acl"
)

// The identities of the attempts. Namesake is a cluster with the name of a source.
var (
	A         = acl.Identity{Role: acl.Agent, ID: "c1"}
	B         = acl.Identity{Role: acl.Agent, ID: "c2"}
	Namesake  = acl.Identity{Role: acl.Agent, ID: "hub1"}
	Hub       = acl.Identity{Role: acl.Source, ID: "hub1"}
	OtherHub  = acl.Identity{Role: acl.Source, ID: "hub2"}
	Watcher   = acl.Identity{Role: acl.Monitor, ID: "watch"}
	Joiner    = acl.Identity{Role: acl.Joiner, ID: "any"}
	Observer  = acl.Identity{Role: acl.Observer, ID: "ops"}
	agents    = []acl.Identity{A, B, Namesake}
	sources   = []acl.Identity{Hub, OtherHub}
	publish   = acl.Publish
	subscribe = acl.Subscribe
)

// Attempt is an attempt of a client, and whether a broker must allow it.
type Attempt struct {
	Who     acl.Identity
	Action  acl.Action
	Topic   string // a topic name to publish to, or a topic filter to subscribe to
	Allowed bool
}

// String returns identity, action and topic.
func (a Attempt) String() string { return fmt.Sprintf("%v %v %s", a.Who, a.Action, a.Topic) }

// Identities returns the agents and sources of the attempts, without the monitor, the joiner and the observer.
func Identities() []acl.Identity { return slices.Concat(agents, sources) }

// Topic is a topic with the only identity that may publish to it, and the only identities that may
// read it.
type Topic struct {
	Name      string
	Publisher acl.Identity
	Readers   []acl.Identity
}

// ReadBy reports whether id is one of the readers.
func (t Topic) ReadBy(id acl.Identity) bool { return slices.Contains(t.Readers, id) }

// Topics returns all topics between the identities.
func Topics() []Topic {
	var all []Topic
	for _, s := range sources {
		for _, a := range agents {
			between := "sources/" + s.ID + "/clusters/" + a.ID + "/"
			all = append(all,
				Topic{between + "sourceevents", s, []acl.Identity{a}},
				Topic{between + "agentevents", a, []acl.Identity{s}})
		}
		all = append(all, Topic{"sources/" + s.ID + "/sourcebroadcast", s, agents},
			Topic{"sources/" + s.ID + "/clusters/-/sourceevents", s, []acl.Identity{s}})
	}
	for _, a := range agents {
		all = append(all, Topic{"clusters/" + a.ID + "/agentbroadcast", a, sources})
	}
	return all
}

// Attempts returns all attempts. The forbidden ones violate the topics of the protocol
// (docs/protocol.md, Topics) in every way that topic filters offer.
func Attempts() []Attempt {
	all := allowed()
	for _, t := range Topics() {
		for _, id := range Identities() {
			all = append(all, Attempt{id, publish, t.Name, id == t.Publisher})
			all = append(all, Attempt{id, subscribe, t.Name, t.ReadBy(id)})
		}
	}
	for _, id := range Identities() {
		for _, filter := range tooWide {
			all = append(all, Attempt{id, subscribe, filter, false})
		}
		for _, name := range unknownTopics {
			all = append(all, Attempt{id, publish, name, false})
		}
	}
	return slices.Concat(all, foreign, joining(), observing())
}

// allowed returns the subscriptions of the usual configuration.
func allowed() []Attempt {
	var all []Attempt
	for _, a := range agents {
		specs := "sources/+/clusters/" + a.ID + "/sourceevents"
		all = append(all, Attempt{a, subscribe, specs, true}, Attempt{a, subscribe, "sources/+/sourcebroadcast", true},
			Attempt{a, subscribe, "$share/own-" + a.ID + "/" + specs, true})
	}
	for _, s := range sources {
		statuses := "sources/" + s.ID + "/clusters/+/agentevents"
		all = append(all, Attempt{s, subscribe, statuses, true}, Attempt{s, subscribe, "clusters/+/agentbroadcast", true},
			Attempt{s, subscribe, "$share/own-" + s.ID + "/" + statuses, true})
	}
	return all
}

// tooWide are filters that nobody may subscribe to.
var tooWide = []string{
	"#", "+", "+/#", "+/+", "+/+/+", "+/+/+/+/+", "/#", "sources/#", "clusters/#",
	"sources/+/clusters/#", "sources/+/clusters/+/#", "sources/+/clusters/+/+",
	"sources/+/clusters/+/sourceevents", "sources/+/clusters/+/agentevents", "+/+/sourcebroadcast", "+/+/agentbroadcast",
	"sources/hub1/#", "sources/hub1/+/+/+", "sources/hub1/clusters/+/sourceevents", "sources/+/clusters/c1/+", "sources/+/clusters/c1/#",
	"$share/everything/#", "$share/all/sources/#", "$share/specs/sources/+/clusters/+/sourceevents",
	"$SYS/#", "$SYS/broker/version", "$SYS/broker/clients/+",
}

// unknownTopics are names that nobody may publish to.
var unknownTopics = []string{
	"other", "sources", "sources/hub1/clusters/c1/other", "sources/hub1/clusters/c1/sourceevents/more",
	"sources/hub3/clusters/c1/sourceevents", "sources/hub1/clusters/c3/agentevents", "$SYS/broker/version",
}

// foreign are attempts with filters that only other identities may use.
var foreign = []Attempt{
	{B, subscribe, "sources/+/clusters/c1/sourceevents", false},
	{B, subscribe, "$share/stolen/sources/+/clusters/c1/sourceevents", false},
	{B, subscribe, "$share/stolen-exact/sources/hub1/clusters/c1/sourceevents", false},
	{A, subscribe, "sources/+/clusters/c11/sourceevents", false},
	{A, subscribe, "sources/+/clusters/c1/agentevents", false},
	{A, subscribe, "clusters/+/agentbroadcast", false},
	{A, subscribe, "$share/statuses/sources/hub1/clusters/+/agentevents", false},
	{OtherHub, subscribe, "sources/hub1/clusters/+/agentevents", false},
	{OtherHub, subscribe, "$share/stolen-statuses/sources/hub1/clusters/+/agentevents", false},
	{OtherHub, subscribe, "sources/+/sourcebroadcast", false},
	{Hub, subscribe, "sources/+/clusters/hub1/sourceevents", false},
	{Namesake, subscribe, "sources/hub1/clusters/+/agentevents", false},

	{Watcher, subscribe, "#", false},
	{Watcher, subscribe, "+/broker/version", false},
	{Watcher, subscribe, "$SYS/#", false},
	{Watcher, subscribe, "sources/+/sourcebroadcast", false},
	{Watcher, publish, "$SYS/broker/version", false},
	{Watcher, publish, "clusters/watch/agentbroadcast", false},
}

// Joining reports whether clusters join by a topic or filter. EMQX has no rules that allow it
// (docs/brokers.md).
func Joining(topic string) bool {
	levels := strings.Split(topic, "/")
	n := len(levels)
	return n >= 3 && (levels[n-1] == "joinrequests" || levels[n-2] == "joinanswers")
}

// joining returns the attempts with the topics by which clusters join.
func joining() []Attempt {
	const requests, answer = "sources/hub1/joinrequests", "sources/hub1/joinanswers/a1"
	all := []Attempt{{Hub, subscribe, "$share/own-hub1/" + requests, true}}
	for _, id := range append(Identities(), Joiner) {
		asks := id.Role == acl.Agent || id.Role == acl.Joiner
		all = append(all,
			Attempt{id, publish, requests, asks}, Attempt{id, subscribe, requests, id == Hub},
			Attempt{id, publish, answer, id == Hub}, Attempt{id, subscribe, answer, asks},
			Attempt{id, subscribe, "$share/stolen-answers/" + answer, false})
		for _, filter := range []string{
			"sources/+/joinrequests", "sources/hub1/joinanswers/+", "sources/+/joinanswers/a1", "sources/+/joinanswers/+",
			"sources/hub1/joinanswers/#", "sources/hub1/+/a1", "sources/hub1/+", "+/hub1/joinanswers/a1",
		} {
			all = append(all, Attempt{id, subscribe, filter, false})
		}
	}
	for _, t := range Topics() {
		all = append(all, Attempt{Joiner, publish, t.Name, false}, Attempt{Joiner, subscribe, t.Name, false})
	}
	for _, filter := range tooWide {
		all = append(all, Attempt{Joiner, subscribe, filter, false})
	}
	return append(all, Attempt{Watcher, publish, requests, false}, Attempt{Watcher, subscribe, answer, false})
}

// observing returns the attempts of an observer, who reads everything and publishes nothing, as the agent of a cluster with its name neither.
func observing() []Attempt {
	var all []Attempt
	for _, filter := range []string{"sources/+/clusters/+/sourceevents", "sources/+/clusters/+/agentevents", "sources/+/sourcebroadcast", "clusters/+/agentbroadcast"} {
		all = append(all, Attempt{Observer, subscribe, filter, true}, Attempt{Observer, subscribe, "$share/stolen-events/" + filter, false})
	}
	for _, t := range Topics() {
		all = append(all, Attempt{Observer, publish, t.Name, false})
	}
	for _, name := range []string{"clusters/ops/agentbroadcast", "sources/hub1/clusters/ops/agentevents", "sources/hub1/joinrequests"} {
		all = append(all, Attempt{Observer, publish, name, false})
	}
	return append(all, Attempt{Observer, subscribe, "#", false}, Attempt{Observer, subscribe, "sources/hub1/joinanswers/a1", false})
}

// Matches reports whether an MQTT topic filter matches a topic name. It does not implement topics
// that begin with "$", which the attempts do not need.
func Matches(filter, name string) bool {
	f, n := strings.Split(filter, "/"), strings.Split(name, "/")
	for i, level := range f {
		if level == "#" {
			return true
		}
		if i == len(n) || level != "+" && level != n[i] {
			return false
		}
	}
	return len(f) == len(n)
}

// TrimShare removes the prefix "$share/<group>/" from a filter and reports whether it was there.
func TrimShare(filter string) (string, bool) {
	if rest, ok := strings.CutPrefix(filter, "$share/"); ok {
		if _, inner, ok := strings.Cut(rest, "/"); ok {
			return inner, true
		}
	}
	return filter, false
}
