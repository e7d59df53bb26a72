// Package store opens the agent's state file, from which an agent that starts while the broker is
// unreachable knows its works and the statuses that it still has to report.
//
// # Format
//
// The file is state.db in the state directory, a bbolt database. Bucket "meta" holds key "format",
// the version of the layout in decimal; an agent refuses a file of a later version. Its key "term" holds
// the last [Term] as JSON; it is missing without leader election. Buckets
// "specs", "statuses" and "acked" hold one JSON object per work under the key <source> NUL <uid>;
// the packages that write them, inbox and outbox, describe the JSON.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"go.etcd.io/bbolt"

	"github.com/workwire/workwire/pkg/runtime/statestore"
)

// The buckets.
const (
	// Specs holds the received specs (package inbox).
	Specs statestore.Bucket = "specs"
	// Statuses holds the newest status of each work (package outbox).
	Statuses statestore.Bucket = "statuses"
	// Acked holds the version of each work's status that the broker acknowledged last (package
	// outbox).
	Acked statestore.Bucket = "acked"

	meta statestore.Bucket = "meta"
)

const (
	// format is the version of the file's layout. Raise it with a change that an older agent would
	// misread.
	format   = 1
	fileName = "state.db"
	// lockTimeout gives an agent that is being replaced time to end.
	lockTimeout = 5 * time.Second
	// delay is how long changes collect while no event waits to be acknowledged.
	delay = 50 * time.Millisecond
)

// Config configures [Open].
type Config struct {
	// Dir is the state directory, created with mode 0700 if it does not exist. Required.
	Dir string
	// Commit is that of [statestore.Config]. Optional.
	Commit func(write func() error) error
	// Logger; default slog.Default().
	Logger *slog.Logger
}

// Open opens the state file in the state directory, and creates both if they do not exist. Its
// errors say what to do when the directory cannot be written, another process holds the file, or a
// later version of the agent wrote it. A damaged file is set aside as state.db.damaged-TIME, and
// the agent fetches every work again. A full or read-only disk is no error: the store then holds
// nothing, and keeps what is written to it in memory until it can write to the file.
func Open(config Config) (*statestore.Store, error) {
	if config.Dir == "" {
		return nil, errors.New("open state store: no directory given")
	}
	if err := os.MkdirAll(config.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create state directory: %w: configure a directory that this user (uid %d) can write", err, os.Getuid())
	}
	path := filepath.Join(config.Dir, fileName)
	// The specs may contain Secrets. bbolt sets the mode of new files only.
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(path, 0o600); err != nil {
			return nil, fmt.Errorf("restrict access to state file %s: %w", path, err)
		}
	}
	return statestore.Open(statestore.Config{
		Name: "state file", Path: path,
		Meta: meta, Check: checkFormat, Buckets: []statestore.Bucket{Specs, Statuses, Acked},
		SetAside: true, Volatile: true, Recovery: "every work is then fetched again from its source",
		LockTimeout: lockTimeout, Delay: delay, Commit: config.Commit, Logger: config.Logger,
	})
}

// checkFormat verifies the version of the layout, and sets it in a new file.
func checkFormat(bucket *bbolt.Bucket) error {
	text := bucket.Get([]byte("format"))
	if text == nil {
		return bucket.Put([]byte("format"), []byte(strconv.Itoa(format)))
	}
	found, err := strconv.Atoi(string(text))
	if err != nil || found < 1 {
		return fmt.Errorf("format %q is not a version number", text)
	}
	if found > format {
		return fmt.Errorf("%w: it has format %d and this agent knows up to %d: a newer agent wrote it; "+
			"run that version again, or move the file away and let this agent fetch every work again", statestore.ErrIncompatible, found, format)
	}
	return nil
}

// Run commits what is written to s until ctx ends, then what is left, and closes s. While commits
// fail, for instance because the disk is full, the agent goes on in memory. Run returns the error
// of the last commit. Run must be called once, and its context must end after those of the writers.
func Run(ctx context.Context, s *statestore.Store) error { return errors.Join(s.Keep(ctx), s.Close()) }
