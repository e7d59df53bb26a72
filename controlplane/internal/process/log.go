package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

const (
	// maxLog is the size of a log from which on a new one begins: 64 MiB.
	maxLog = 64 << 20
	// logInterval is how often that is checked.
	logInterval = time.Minute
)

// openLog makes the log that is there the previous one, path + ".1", and opens a new one.
func openLog(path string) (*os.File, error) {
	if err := os.Rename(path, path+".1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("renaming the previous log: %w", err)
	}
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening its log: %w", err)
	}
	return log, nil
}

// bound begins a new log at path whenever that is larger than most bytes, until done is closed. The child writes to the file itself, so that
// it needs nobody to read what it writes, and goes on writing to it. What it writes while the log is copied may be lost.
func bound(path string, most int64, interval time.Duration, done <-chan struct{}) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
			if info, err := os.Stat(path); err == nil && info.Size() > most {
				// A full disk is no reason to keep the log.
				_ = keepPrevious(path)
				_ = os.Truncate(path, 0)
			}
		}
	}
}

// keepPrevious copies the log at path to path + ".1".
func keepPrevious(path string) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path+".1", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}
