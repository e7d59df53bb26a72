package wire

import (
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
	// MaxUID is the maximum length of a work's UID in bytes: sources without a Kubernetes API choose their own.
	MaxUID = 64
	// maxName is that of a name, a namespace, a cluster or a source, as in Kubernetes.
	maxName = 253
	// maxSender is that of the id of an agent, which is made of the name of its cluster.
	maxSender = 512
	// maxHash is that of a hash. Only their sender knows how they are made.
	maxHash = 128
	// maxTrace is that of the extension logtracing; a longer one is ignored.
	maxTrace = 8 << 10
	// maxMetadataItems is the maximum number of owners of a work, and of its field managers.
	maxMetadataItems = 1_000
	// Those of a condition are the API's, in characters.
	maxConditionType    = 316
	maxConditionReason  = 1_024
	maxConditionMessage = 32_768
)

// textLimits are the limits of extensions in bytes. All of them are part of what is remembered of a message.
var textLimits = [...]struct {
	extension string
	max       int
}{
	{extResourceID, MaxUID}, {extClusterName, maxName}, {extOriginalSource, maxName}, {extStatusHash, maxHash},
}

// checkTexts returns an error if the ids in an event are too long.
func checkTexts(sender string, x extensions) error {
	if len(sender) > maxSender {
		return tooLong("source", sender, maxSender)
	}
	for _, limit := range textLimits {
		if text := x.text(limit.extension); len(text) > limit.max {
			return tooLong("extension "+limit.extension, text, limit.max)
		}
	}
	return nil
}

func tooLong[T string | []byte](what string, text T, limit int) error {
	return fmt.Errorf("%s %.40q… has %d bytes: want at most %d", what, string(text[:min(len(text), 160)]), len(text), limit)
}

// TooDeep reports whether a manifest is nested deeper than [MaxManifestDepth]. It costs one pass
// over the text and no memory, and is true for no text that is not JSON unless its brackets are.
func TooDeep(manifest []byte) bool {
	_, deep := nesting(manifest, MaxManifestDepth)
	return deep
}

// nesting returns the length of the first object or list of a JSON text, or of all of it if that does not end,
// and whether more than limit objects and lists are within one another in it.
func nesting(text []byte, limit int) (length int, deep bool) {
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
				return i, true
			}
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1, false
			}
		}
	}
	return len(text), false
}
