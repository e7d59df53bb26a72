package store

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// format is the version of the file's layout. A change that an older agent
// would misread raises it.
const format = 1

const fileName = "state.db"

var (
	metaBucket = []byte("meta")
	formatKey  = []byte("format")
)

// Open opens the state file in c.Dir, and makes both when they are missing. It
// fails with what to do when the directory can not be written, when another
// process holds the file, when the file is damaged, and when a later version of
// the agent has written it. The Store writes nothing before [Store.Run] is
// called; if that never happens, Close it.
func Open(c Config) (*Store, error) {
	if c.Dir == "" {
		return nil, errors.New("open the state store: no directory given")
	}
	if c.Lock <= 0 {
		c.Lock = 5 * time.Second
	}
	if c.Delay <= 0 {
		c.Delay = 50 * time.Millisecond
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w: give a directory that this user (uid %d) can write", err, os.Getuid())
	}
	path := filepath.Join(c.Dir, fileName)
	db, err := openFile(path, c.Lock)
	if err != nil {
		return nil, err
	}
	if err := guard(func() error { return db.Update(prepare) }); err != nil {
		_ = db.Close()
		var newer *newerError
		if errors.As(err, &newer) {
			return nil, fmt.Errorf("open state file %s: %w", path, err)
		}
		return nil, damaged(path, err)
	}
	return &Store{
		db:      db,
		update:  db.Update,
		log:     c.Logger,
		wait:    c.Delay,
		wake:    make(chan struct{}, 1),
		pending: map[slot]Encoder{},
	}, nil
}

func openFile(path string, lock time.Duration) (db *bbolt.DB, err error) {
	// The file holds specs, which may hold Secrets: bbolt sets the mode only on a
	// file that it makes.
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(path, 0o600); err != nil {
			return nil, fmt.Errorf("close state file %s to other users: %w", path, err)
		}
	}
	err = guard(func() error {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lock, FreelistType: bbolt.FreelistMapType})
		return err
	})
	var file *os.PathError
	switch {
	case err == nil:
		return db, nil
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("open state file %s: another process still holds it after %v: "+
			"stop the other agent, or give this one a state directory of its own", path, lock)
	case errors.As(err, &file):
		return nil, fmt.Errorf("open state file: %w: give a directory that this user (uid %d) can write", err, os.Getuid())
	default:
		return nil, damaged(path, err)
	}
}

// newerError says that the file was written by a later version.
type newerError struct{ found int }

func (e *newerError) Error() string {
	return fmt.Sprintf("it has format %d and this agent knows up to %d: a newer agent wrote it; "+
		"run that version again, or move the file away and let this one fetch every work anew", e.found, format)
}

// prepare checks the version and makes what is missing.
func prepare(tx *bbolt.Tx) error {
	meta, err := tx.CreateBucketIfNotExists(metaBucket)
	if err != nil {
		return err
	}
	if text := meta.Get(formatKey); text != nil {
		found, err := strconv.Atoi(string(text))
		if err != nil || found < 1 {
			return fmt.Errorf("format %q is no version number", text)
		}
		if found > format {
			return &newerError{found}
		}
	} else if err := meta.Put(formatKey, []byte(strconv.Itoa(format))); err != nil {
		return err
	}
	for _, name := range []Name{Specs, Statuses, Acked} {
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return err
		}
	}
	return nil
}

func damaged(path string, cause error) error {
	return fmt.Errorf("state file %s is damaged (%w): move it away and start again; "+
		"every work is then fetched anew from its source", path, cause)
}

// guard runs f and turns a panic into an error: on a damaged file bbolt panics,
// or reads beyond the end of the mapped file.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("reading it failed: %v", cause)
		}
	}()
	return f()
}

// Close closes a store that is not run. What was written is lost.
func (s *Store) Close() error {
	if s == nil {
		return nil
	}
	barriers := s.shut()
	err := s.db.Close()
	for _, done := range barriers {
		done(ErrClosed)
	}
	if err != nil {
		return fmt.Errorf("close state file %s: %w", s.db.Path(), err)
	}
	return nil
}

// shut makes further writes pass by and hands over the barriers that stand.
func (s *Store) shut() []func(error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	barriers := s.barriers
	s.barriers, s.pending = nil, nil
	return barriers
}
