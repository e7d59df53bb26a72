package process

import (
	"errors"
	"fmt"
	"os"
)

// maxLog is the size of a log from which on a new one is begun: 64 MiB.
const maxLog = 64 << 20

// logFile is the log of a child. It keeps the previous one beside it, as path + ".1". It is not safe for concurrent use.
type logFile struct {
	path string
	file *os.File // not embedded: it must be written by Write only
	size int
}

// begin makes the log that is there the previous one, and begins a new one.
func (l *logFile) begin() error {
	if err := os.Rename(l.path, l.path+".1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("renaming the previous log: %w", err)
	}
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening its log: %w", err)
	}
	l.file.Close()
	l.file, l.size = file, 0
	return nil
}

// Write writes what a child has written, to a new log if it is too much for this one. It returns no error: nobody would read
// the child's output then, which ends it, and a full disk is no reason for that.
func (l *logFile) Write(data []byte) (int, error) {
	if l.size+len(data) > maxLog {
		l.begin() //nolint:errcheck // this log goes on
	}
	n, _ := l.file.Write(data)
	l.size += n
	return len(data), nil
}
