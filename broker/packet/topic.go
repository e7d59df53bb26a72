package packet

import "strings"

// Limits of topic filters. The longest topic of the protocol has five levels, and a
// shared subscription to it seven. Package acl limits topic names.
const (
	maxFilter = 512 // bytes
	maxLevels = 16
)

// validName reports whether s is a topic name: not empty, and without wildcards.
func validName(s string) bool { return s != "" && !strings.ContainsAny(s, "+#") }

// ValidFilter reports whether a filter is valid, and within the limits of length and levels.
func ValidFilter(filter string) bool {
	if len(filter) > maxFilter || strings.Count(filter, "/") >= maxLevels {
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
