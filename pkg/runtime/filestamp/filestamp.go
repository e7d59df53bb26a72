// Package filestamp tells whether a file has changed without reading it.
//
//	stamp, err := filestamp.Of(path)
//	if err == nil && stamp != former {
//		// read the file again
//	}
package filestamp

import "os"

// Stamp changes when the content of a file changes: it is the size and the modification time. Stamps
// are comparable. The zero value is that of no file.
type Stamp struct {
	// Size is the size of the file in bytes.
	Size int64

	unixNano int64
}

// Of returns the stamp of a file. The error is that of [os.Stat].
func Of(path string) (Stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Stamp{}, err
	}
	return Stamp{info.Size(), info.ModTime().UnixNano()}, nil
}
