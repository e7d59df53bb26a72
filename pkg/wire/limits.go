package wire

import (
	"bytes"
	"fmt"
)

// Limits of messages beside the size of a packet (docs/protocol.md, Limits).
const (
	// MaxResyncEntries is the maximum number of works that a resync request lists.
	MaxResyncEntries = 100_000
	// MaxManifests is the maximum number of manifests of a work.
	MaxManifests = 5_000
	// MaxManifestDepth is the maximum number of objects and lists of a manifest that are within one
	// another.
	MaxManifestDepth = 256
	// maxDepth is that of the data of a message.
	maxDepth = 1_000
)

// checkEntries returns an error if the data of a resync request has too many entries. It takes no
// memory, so that a request which is too long is refused before it costs any.
func checkEntries(data []byte) error {
	// Each entry is an object. Ids have no braces.
	if n := bytes.Count(data, []byte("{")); n > MaxResyncEntries+2 {
		return fmt.Errorf("the list has more than %d entries", MaxResyncEntries)
	}
	return nil
}

// TooDeep reports whether a manifest is nested deeper than [MaxManifestDepth]. It costs one pass
// over the text and no memory, and is true for no text that is not JSON unless its brackets are.
func TooDeep(manifest []byte) bool { return tooDeep(manifest, MaxManifestDepth) }

// tooDeep reports whether more than limit objects and lists are within one another in a JSON text.
func tooDeep(text []byte, limit int) bool {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > limit {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}
