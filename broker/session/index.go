package session

import (
	"strings"

	"github.com/workwire/workwire/pkg/transport/topicfilter"
)

// Subscription is a subscription of a session.
type Subscription struct {
	Filter  string `json:"filter"` // with its $share/<group>/ prefix, if any
	QoS     byte   `json:"qos"`    // maximum QoS of deliveries: 0 or 1
	NoLocal bool   `json:"noLocal,omitempty"`
}

// index finds the subscriptions that match a topic, in time proportional to the number of levels of
// the topic and the number of matches. The zero index is empty. It is not safe for concurrent use.
type index struct{ root node }

type node struct {
	children map[string]*node
	subs     map[string]map[*session]Subscription // by shareGroup, "" for none, then subscriber
}

// shareGroup returns the key of the group that a shared subscription of s belongs to. Groups of
// different identities are different, so that none can take messages from another.
func shareGroup(s *session, group string) string {
	if group == "" {
		return ""
	}
	return s.owner + "\x00" + group
}

// add adds or replaces the session's subscription to sub.Filter.
func (x *index) add(s *session, sub Subscription) {
	group, filter := topicfilter.SplitShare(sub.Filter)
	n := &x.root
	for _, level := range strings.Split(filter, "/") {
		if n.children == nil {
			n.children = map[string]*node{}
		}
		if n.children[level] == nil {
			n.children[level] = &node{}
		}
		n = n.children[level]
	}
	if n.subs == nil {
		n.subs = map[string]map[*session]Subscription{}
	}
	insert(n.subs, shareGroup(s, group), s, sub)
}

// remove removes the session's subscription to filter, and empty nodes.
func (x *index) remove(s *session, filter string) {
	group, rest := topicfilter.SplitShare(filter)
	x.root.remove(s, shareGroup(s, group), strings.Split(rest, "/"))
}

func (n *node) remove(s *session, group string, levels []string) {
	if len(levels) == 0 {
		erase(n.subs, group, s)
		return
	}
	child := n.children[levels[0]]
	if child == nil {
		return
	}
	child.remove(s, group, levels[1:])
	if len(child.children) == 0 && len(child.subs) == 0 {
		delete(n.children, levels[0])
	}
}

// match calls plain for every matching subscription, and shared for every matching shared
// subscription with its members.
func (x *index) match(topic string, plain func(*session, Subscription), shared func(map[*session]Subscription)) {
	visit := func(n *node) {
		for group, members := range n.subs {
			if group != "" {
				shared(members)
				continue
			}
			for s, sub := range members {
				plain(s, sub)
			}
		}
	}
	x.root.match(strings.Split(topic, "/"), visit)
}

// match visits the nodes that match levels. Package acl admits no "#" and no "$", which are levels like any other here.
func (n *node) match(levels []string, visit func(*node)) {
	if len(levels) == 0 {
		visit(n)
		return
	}
	if child := n.children[levels[0]]; child != nil {
		child.match(levels[1:], visit)
	}
	if child := n.children["+"]; child != nil {
		child.match(levels[1:], visit)
	}
}

// insert sets m[outer][inner] to value.
func insert[V any](m map[string]map[*session]V, outer string, inner *session, value V) {
	if m[outer] == nil {
		m[outer] = map[*session]V{}
	}
	m[outer][inner] = value
}

// erase deletes m[outer][inner], and m[outer] once it is empty.
func erase[V any](m map[string]map[*session]V, outer string, inner *session) {
	delete(m[outer], inner)
	if len(m[outer]) == 0 {
		delete(m, outer)
	}
}
