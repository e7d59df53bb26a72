// Package acltest holds what a broker must let through and what not, as data: every broker,
// and every file of rules for one, is put through the same attempts.
//
//	for _, a := range acltest.Attempts() {
//		if got := try(a); got != a.Allowed { … }
//	}
package acltest

import (
	"fmt"
	"strings"

	"github.com/workwire/workwire/broker/acl"
)

// The identities of the attempts. There is a cluster with the name of a source on purpose.
var (
	A         = acl.Identity{Role: acl.Agent, ID: "c1"}
	B         = acl.Identity{Role: acl.Agent, ID: "c2"}
	Namesake  = acl.Identity{Role: acl.Agent, ID: "hub1"}
	Hub       = acl.Identity{Role: acl.Source, ID: "hub1"}
	OtherHub  = acl.Identity{Role: acl.Source, ID: "hub2"}
	Watcher   = acl.Identity{Role: acl.Monitor, ID: "watch"}
	agents    = []acl.Identity{A, B, Namesake}
	sources   = []acl.Identity{Hub, OtherHub}
	publish   = acl.Publish
	subscribe = acl.Subscribe
)

// Attempt is what one client does, and whether a broker may let it.
type Attempt struct {
	Who     acl.Identity
	Action  acl.Action
	Topic   string // a name to publish to, a filter to subscribe to
	Allowed bool
}

// String says who does what.
func (a Attempt) String() string { return fmt.Sprintf("%v %v %s", a.Who, a.Action, a.Topic) }

// Identities are those of the attempts, but for the monitor: the agents and sources of a fleet.
func Identities() []acl.Identity { return append(append([]acl.Identity(nil), agents...), sources...) }

// Topic is one topic of the fleet, with the only one that may publish to it and the only ones
// that may read it.
type Topic struct {
	Name      string
	Publisher acl.Identity
	Readers   []acl.Identity
}

// ReadBy reports whether id is one of the readers.
func (t Topic) ReadBy(id acl.Identity) bool {
	for _, r := range t.Readers {
		if r == id {
			return true
		}
	}
	return false
}

// Topics are all topics between the identities.
func Topics() []Topic {
	var all []Topic
	for _, s := range sources {
		for _, a := range agents {
			between := "sources/" + s.ID + "/clusters/" + a.ID + "/"
			all = append(all,
				Topic{between + "sourceevents", s, []acl.Identity{a}},
				Topic{between + "agentevents", a, []acl.Identity{s}})
		}
		all = append(all, Topic{"sources/" + s.ID + "/sourcebroadcast", s, agents})
	}
	for _, a := range agents {
		all = append(all, Topic{"clusters/" + a.ID + "/agentbroadcast", a, sources})
	}
	return all
}

// Attempts are all attempts. Those that may not succeed are against what the topics of the
// protocol say (docs/protocol.md, Topics), in every way that a topic filter offers.
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
		for _, name := range nobodys {
			all = append(all, Attempt{id, publish, name, false})
		}
	}
	return append(all, refused...)
}

// allowed are the subscriptions of the usual configuration.
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
	return append(all, Attempt{Watcher, subscribe, "$SYS/#", true}, Attempt{Watcher, subscribe, "$SYS/broker/+/connected", true})
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

// nobodys are names that nobody may publish to.
var nobodys = []string{
	"other", "sources", "sources/hub1/clusters/c1/other", "sources/hub1/clusters/c1/sourceevents/more",
	"sources/hub3/clusters/c1/sourceevents", "sources/hub1/clusters/c3/agentevents", "$SYS/broker/version",
}

// refused are attempts on others' topics by filters that their owners may use.
var refused = []Attempt{
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
	{Watcher, subscribe, "$share/g/$SYS/#", false},
	{Watcher, subscribe, "sources/+/sourcebroadcast", false},
	{Watcher, publish, "$SYS/broker/version", false},
	{Watcher, publish, "clusters/watch/agentbroadcast", false},
}

// Matches reports whether an MQTT topic filter matches a topic name: "+" stands for one level,
// "#" for the rest. Topics that begin with "$" are not among those of a fleet.
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

// Unshared takes "$share/<group>/" off a filter and reports whether it was there.
func Unshared(filter string) (string, bool) {
	if rest, ok := strings.CutPrefix(filter, "$share/"); ok {
		if _, inner, ok := strings.Cut(rest, "/"); ok {
			return inner, true
		}
	}
	return filter, false
}
