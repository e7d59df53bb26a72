package session

import "strings"

// Subscription is a subscription of a session.
type Subscription struct {
	Filter            string `json:"filter"` // with its $share/<group>/ prefix, if any
	QoS               byte   `json:"qos"`    // maximum QoS of deliveries: 0 or 1
	ID                int    `json:"id,omitempty"`
	NoLocal           bool   `json:"noLocal,omitempty"`
	RetainAsPublished bool   `json:"retainAsPublished,omitempty"`
	RetainHandling    byte   `json:"retainHandling,omitempty"`
}

// index finds the subscriptions that match a topic, in time proportional to the number of
// levels of the topic and the number of matches. The zero index is empty. It is not safe for
// concurrent use.
type index struct{ root node }

type node struct {
	children map[string]*node
	subs     map[*session]Subscription            // by subscriber
	shared   map[string]map[*session]Subscription // by group, then subscriber
}

// splitShare splits "$share/group/filter". Without that prefix group is "".
func splitShare(filter string) (group, rest string) {
	after, ok := strings.CutPrefix(filter, "$share/")
	if !ok {
		return "", filter
	}
	group, rest, _ = strings.Cut(after, "/")
	return group, rest
}

// add adds or replaces the session's subscription to sub.Filter.
func (x *index) add(s *session, sub Subscription) {
	group, filter := splitShare(sub.Filter)
	n := &x.root
	for _, level := range strings.Split(filter, "/") {
		child := n.children[level]
		if child == nil {
			child = &node{}
			if n.children == nil {
				n.children = map[string]*node{}
			}
			n.children[level] = child
		}
		n = child
	}
	if group == "" {
		if n.subs == nil {
			n.subs = map[*session]Subscription{}
		}
		n.subs[s] = sub
		return
	}
	if n.shared == nil {
		n.shared = map[string]map[*session]Subscription{}
	}
	if n.shared[group] == nil {
		n.shared[group] = map[*session]Subscription{}
	}
	n.shared[group][s] = sub
}

// remove removes the session's subscription to filter, and empty nodes.
func (x *index) remove(s *session, filter string) {
	group, rest := splitShare(filter)
	x.root.remove(s, group, strings.Split(rest, "/"))
}

func (n *node) remove(s *session, group string, levels []string) {
	if len(levels) == 0 {
		delete(n.subs, s)
		delete(n.shared[group], s)
		if len(n.shared[group]) == 0 {
			delete(n.shared, group)
		}
		return
	}
	child := n.children[levels[0]]
	if child == nil {
		return
	}
	child.remove(s, group, levels[1:])
	if len(child.children) == 0 && len(child.subs) == 0 && len(child.shared) == 0 {
		delete(n.children, levels[0])
	}
}

// match calls plain for every matching subscription, and shared for every matching shared
// subscription with its members.
func (x *index) match(topic string, plain func(*session, Subscription), shared func(map[*session]Subscription)) {
	visit := func(n *node) {
		for s, sub := range n.subs {
			plain(s, sub)
		}
		for _, group := range n.shared {
			shared(group)
		}
	}
	x.root.match(strings.Split(topic, "/"), strings.HasPrefix(topic, "$"), visit)
}

// match visits the nodes that match levels. If systemTopic is set, wildcards do not match the
// first level: the topic begins with "$".
func (n *node) match(levels []string, systemTopic bool, visit func(*node)) {
	if !systemTopic {
		if rest := n.children["#"]; rest != nil { // "a/#" matches "a" too
			visit(rest)
		}
	}
	if len(levels) == 0 {
		visit(n)
		return
	}
	if child := n.children[levels[0]]; child != nil {
		child.match(levels[1:], false, visit)
	}
	if child := n.children["+"]; child != nil && !systemTopic {
		child.match(levels[1:], false, visit)
	}
}

// matches reports whether filter, without a $share prefix, matches topic.
func matches(filter, topic string) bool {
	f, t := strings.Split(filter, "/"), strings.Split(topic, "/")
	if strings.HasPrefix(topic, "$") && (f[0] == "+" || f[0] == "#") {
		return false
	}
	for i, level := range f {
		if level == "#" {
			return true
		}
		if i >= len(t) || level != "+" && level != t[i] {
			return false
		}
	}
	return len(f) == len(t)
}
