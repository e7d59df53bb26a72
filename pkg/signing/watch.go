package signing

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
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
	stamp   fileStamp
	checked time.Time
	value   T
}

// fileStamp changes when the content of a file changes. The zero value is that of an unreadable
// file.
type fileStamp struct{ size, unixNano int64 }

func stampOf(path string) (fileStamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return fileStamp{}, err
	}
	if info.Size() > maxFileSize {
		return fileStamp{}, fmt.Errorf("%d bytes are more than a file of keys may have, %d", info.Size(), maxFileSize)
	}
	return fileStamp{info.Size(), info.ModTime().UnixNano()}, nil
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
