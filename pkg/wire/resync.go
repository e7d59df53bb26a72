package wire

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// checkVersion returns an error if an id or a hash in an entry of a resync request is too long.
func checkVersion(i int, uid types.UID, hashes ...string) error {
	if len(uid) > MaxUID {
		return tooLong(fmt.Sprintf("entry %d: resourceID", i), string(uid), MaxUID)
	}
	for _, hash := range hashes {
		if len(hash) > maxHash {
			return tooLong(fmt.Sprintf("entry %d: hash", i), hash, maxHash)
		}
	}
	return nil
}

// orEmpty returns an empty list for nil, as the protocol requires.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// splitList splits entries into lists whose JSON is at most limit bytes long. An entry that exceeds
// limit is in its own list.
func splitList[T any](entries []T, limit int) (parts [][]T) {
	start, size := 0, 0
	for i := range entries {
		entry := encodedSize(entries[i : i+1])
		if size+entry > limit && i > start {
			parts = append(parts, entries[start:i])
			start, size = i, 0
		}
		size += entry
	}
	return append(parts, entries[start:])
}

// encodedSize returns the size of the JSON of entries with a comma after each.
func encodedSize[T any](entries []T) (size int) {
	for i := range entries {
		data, _ := json.Marshal(&entries[i]) // texts and numbers: it cannot fail
		size += len(data) + len(",")
	}
	return size
}
