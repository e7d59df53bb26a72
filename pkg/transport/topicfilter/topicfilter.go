// Package topicfilter matches MQTT topics with topic filters.
package topicfilter

import "strings"

// SplitShare splits "$share/group/filter". Without that prefix group is "".
func SplitShare(filter string) (group, rest string) {
	after, ok := strings.CutPrefix(filter, "$share/")
	if !ok {
		return "", filter
	}
	group, rest, _ = strings.Cut(after, "/")
	return group, rest
}

// Match reports whether filter, without a $share prefix, matches topic.
func Match(filter, topic string) bool {
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
