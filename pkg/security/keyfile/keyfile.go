// Package keyfile reads files of keys again when they change, so that keys can be replaced without
// a restart:
//
//	key, err := keyfile.Open(path, "signing key", signing.ParseKey, logger)
//	...
//	sign(key.Get(time.Now()))
package keyfile

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/workwire/workwire/pkg/runtime/filestamp"
)

const (
	// MaxSize bounds key files in bytes, MaxListSize files with the keys of many clusters.
	MaxSize     = 256 << 10
	MaxListSize = 8 << 20
	// checkInterval is the time between looks at a file.
	checkInterval = time.Second
)

// File is a parsed file that is parsed again when its size or modification time changes. If that
// fails, the last valid content stays in use. It is safe for concurrent use.
type File[T any] struct {
	path, what string
	parse      func([]byte) (T, error)
	maxSize    int64
	logger     *slog.Logger

	mu      sync.Mutex
	stamp   filestamp.Stamp // of the content that was read last; zero if the file could not be read since
	checked time.Time
	value   T
	changes int
	err     error // why the file cannot be used now
}

// Stamp returns the stamp of a file that is not too large. The zero stamp is that of a file that
// cannot be used.
func Stamp(path string) (filestamp.Stamp, error) { return stampOf(path, MaxSize) }

func stampOf(path string, maxSize int64) (filestamp.Stamp, error) {
	stamp, err := filestamp.Of(path)
	if err == nil && stamp.Size > maxSize {
		return filestamp.Stamp{}, fmt.Errorf("%d bytes are more than it may have, %d", stamp.Size, maxSize)
	}
	return stamp, err
}

// Open reads a file of at most MaxSize bytes for the first time; what says in errors and logs which
// it is.
func Open[T any](path, what string, parse func([]byte) (T, error), logger *slog.Logger) (*File[T], error) {
	return open(path, what, MaxSize, parse, logger)
}

// OpenList is Open for a file of at most MaxListSize bytes.
func OpenList[T any](path, what string, parse func([]byte) (T, error), logger *slog.Logger) (*File[T], error) {
	return open(path, what, MaxListSize, parse, logger)
}

func open[T any](path, what string, maxSize int64, parse func([]byte) (T, error), logger *slog.Logger) (*File[T], error) {
	f := &File[T]{path: path, what: what, parse: parse, maxSize: maxSize, logger: logger}
	stamp, err := stampOf(path, maxSize)
	if err == nil {
		err = f.read(stamp)
	}
	if err != nil {
		return nil, fmt.Errorf("read the %s %s: %w", what, path, err)
	}
	f.checked = time.Now()
	return f, nil
}

// read reads the file, whose stamp was this one.
func (f *File[T]) read(stamp filestamp.Stamp) error {
	data, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	f.stamp = stamp
	value, err := f.parse(data)
	if err == nil {
		f.value = value
		f.changes++
	}
	return err
}

// Get returns the content. It looks at the file if it has not done so for a second.
func (f *File[T]) Get(now time.Time) T {
	value, _ := f.GetChanges(now)
	return value
}

// GetChanges returns the content as Get does, and how often it was read.
func (f *File[T]) GetChanges(now time.Time) (T, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if since := now.Sub(f.checked); since < 0 || since >= checkInterval {
		f.checked = now
		f.refresh()
	}
	return f.value, f.changes
}

// Err returns why the file cannot be used, so that its last valid content stays in use; nil if it can. It looks at the
// file as Get does.
func (f *File[T]) Err(now time.Time) error {
	f.Get(now)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// refresh reads the file again if it has changed. f.mu must be held.
func (f *File[T]) refresh() {
	stamp, err := stampOf(f.path, f.maxSize)
	if err == nil && stamp == f.stamp {
		return
	}
	f.stamp = filestamp.Stamp{} // a file that becomes readable may have the same stamp
	if err == nil {
		err = f.read(stamp)
	}
	switch {
	case err == nil:
		f.logger.Info("file read again", "file", f.path, "content", f.what)
	case f.err == nil || f.err.Error() != err.Error():
		f.logger.Error("file cannot be read, its last valid content stays in use", "file", f.path, "content", f.what, "error", err)
	}
	f.err = err
}
