package signing

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/workwire/workwire/pkg/filestamp"
)

const (
	// maxFileSize bounds key files in bytes.
	maxFileSize = 256 << 10
	// checkInterval is the time between looks at a file.
	checkInterval = time.Second
)

// watchedFile is a parsed file that is parsed again when its size or modification time changes. If
// that fails, the last valid content stays in use. It is safe for concurrent use.
type watchedFile[T any] struct {
	path, what string
	parse      func([]byte) (T, error)
	logger     *slog.Logger

	mu      sync.Mutex
	stamp   filestamp.Stamp
	checked time.Time
	value   T
}

// stampOf returns the stamp of a file that is not too large. The zero stamp is that of a file that
// cannot be used.
func stampOf(path string) (filestamp.Stamp, error) {
	stamp, err := filestamp.Of(path)
	if err == nil && stamp.Size > maxFileSize {
		return filestamp.Stamp{}, fmt.Errorf("%d bytes are more than a file of keys may have, %d", stamp.Size, maxFileSize)
	}
	return stamp, err
}

// openWatched reads the file for the first time.
func openWatched[T any](path, what string, parse func([]byte) (T, error), logger *slog.Logger) (*watchedFile[T], error) {
	f := &watchedFile[T]{path: path, what: what, parse: parse, logger: logger}
	stamp, err := stampOf(path)
	if err == nil {
		err = f.read()
	}
	if err != nil {
		return nil, fmt.Errorf("read the %s %s: %w", what, path, err)
	}
	f.stamp, f.checked = stamp, time.Now()
	return f, nil
}

func (f *watchedFile[T]) read() error {
	data, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	value, err := f.parse(data)
	if err == nil {
		f.value = value
	}
	return err
}

// get returns the content. It looks at the file if it has not done so for a second.
func (f *watchedFile[T]) get(now time.Time) T {
	f.mu.Lock()
	defer f.mu.Unlock()
	if since := now.Sub(f.checked); since >= 0 && since < checkInterval {
		return f.value
	}
	f.checked = now
	stamp, err := stampOf(f.path)
	if err == nil && stamp == f.stamp {
		return f.value
	}
	if err == nil {
		err = f.read()
	}
	switch {
	case err == nil:
		f.logger.Info("file read again", "file", f.path, "content", f.what)
	case stamp != f.stamp:
		f.logger.Error("file cannot be read, its last valid content stays in use", "file", f.path, "content", f.what, "error", err)
	}
	f.stamp = stamp
	return f.value
}
