package packet

import "strings"

// Limits of topic names and topic filters. The longest topic of the protocol has five levels, and a
// shared subscription to it seven.
const (
	MaxTopic  = 512 // bytes
	maxLevels = 16
)

// validName reports whether s is a topic name: not empty, and without wildcards.
func validName(s string) bool { return s != "" && !strings.ContainsAny(s, "+#") }

// ValidFilter reports whether a filter is valid, and within the limits of length and levels.
func ValidFilter(filter string) bool {
	if len(filter) > MaxTopic || strings.Count(filter, "/") >= maxLevels {
		return false
	}
	if rest, shared := strings.CutPrefix(filter, "$share/"); shared {
		group, inner, ok := strings.Cut(rest, "/")
		if !ok || group == "" || strings.ContainsAny(group, "+#") {
			return false
		}
		filter = inner
	} else if filter == "$share" {
		return false
	}
	if filter == "" {
		return false
	}
	for {
		level, rest, more := strings.Cut(filter, "/")
		if len(level) > 1 && strings.ContainsAny(level, "+#") || level == "#" && more {
			return false
		}
		if !more {
			return true
		}
		filter = rest
	}
}

// ValidTopic reports whether a topic name is within the limits of length and levels.
func ValidTopic(topic string) bool {
	return len(topic) <= MaxTopic && strings.Count(topic, "/") < maxLevels
}
