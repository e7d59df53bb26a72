package statestore

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

var (
	// ErrIncompatible marks a file that is intact, but belongs to another program or version.
	ErrIncompatible = errors.New("incompatible file")
	// ErrDamaged marks a file that cannot be read.
	ErrDamaged = errors.New("damaged file")
	// ErrInUse marks a file that another process has open.
	ErrInUse = errors.New("another process still holds it")
)

// Open opens the file, or creates it with mode 0600. Its errors name the file and what to do when
// the file cannot be written, is held by another process, is damaged, or fails Config.Check. It
// reads the whole file once; a damaged one is an error that wraps [ErrDamaged], or is replaced, see
// Config.SetAside. Call Close when done. Nothing else is written before Run.
func Open(config Config) (*Store, error) {
	if config.Name == "" || config.Path == "" || config.Meta == "" || config.Check == nil {
		return nil, errors.New("open state store: Name, Path, Meta and Check are required")
	}
	if config.LockTimeout < 0 || config.Delay < 0 {
		return nil, fmt.Errorf("open state store: LockTimeout %v and Delay %v must not be negative", config.LockTimeout, config.Delay)
	}
	config.LockTimeout = cmp.Or(config.LockTimeout, time.Second)
	config.Logger = cmp.Or(config.Logger, slog.Default())
	if config.Commit == nil {
		config.Commit = func(write func() error) error { return write() }
	}
	s := &Store{config: config, wake: make(chan struct{}, 1), pending: map[slot]change{}, batch: 1}
	var err error
	if s.db, s.checksums, err = config.openOrSetAside(); err == nil {
		return s, nil
	}
	if !config.Volatile || !writeFailed(err) {
		return nil, err
	}
	s.failed = err
	s.signal() // Keep tries again
	return s, nil
}

func (c *Config) openOrSetAside() (db *bbolt.DB, checksums bool, err error) {
	db, checksums, err = c.openDatabase()
	if !c.SetAside || !errors.Is(err, ErrDamaged) {
		return db, checksums, err
	}
	if err := c.setAside(err); err != nil {
		return nil, false, err
	}
	return c.openDatabase()
}

// openDatabase opens the file and prepares it. Nothing is written to a file that has all it needs.
func (c *Config) openDatabase() (db *bbolt.DB, checksums bool, err error) {
	if db, err = c.open(); err != nil {
		return nil, false, err
	}
	err = guard(func() error {
		tx, err := db.Begin(true)
		if err != nil {
			return err
		}
		changed, marked, err := c.prepare(tx)
		checksums = marked
		if err != nil || !changed {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	})
	if err == nil {
		return db, checksums, nil
	}
	_ = db.Close()
	if errors.Is(err, ErrIncompatible) || writeFailed(err) {
		return nil, false, fmt.Errorf("open %s %s: %w", c.Name, c.Path, err)
	}
	return nil, false, c.damaged(err)
}

// reopen opens the file of a Volatile store that Open could not open. What the file holds is older
// than what is in memory, so it is removed.
func (s *Store) reopen() error {
	if s.database() != nil {
		return nil
	}
	db, checksums, err := s.config.openOrSetAside()
	if err != nil {
		return err
	}
	err = guard(func() error {
		return db.Update(func(tx *bbolt.Tx) error {
			for _, name := range s.config.Buckets {
				if err := tx.DeleteBucket([]byte(name)); err != nil {
					return err
				}
				if _, err := tx.CreateBucket([]byte(name)); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return errors.Join(s.writeError(err), db.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db, s.checksums = db, checksums
	return nil
}

// writeFailed reports whether err means that the disk takes no changes.
func writeFailed(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EIO)
}

// keptAside is how many damaged files of a name are kept: they need disk, too.
const keptAside = 1

// setAside renames a damaged file and deletes older ones.
func (c *Config) setAside(cause error) error {
	saved := c.Path + ".damaged-" + time.Now().UTC().Format("20060102T150405.000Z")
	if err := os.Rename(c.Path, saved); err != nil {
		return fmt.Errorf("%w; it cannot be set aside: %w", cause, err)
	}
	c.Logger.Error("damaged file set aside, starting with an empty one", "file", c.Path, "savedAs", saved, "reason", cause)
	entries, _ := os.ReadDir(filepath.Dir(c.Path)) // sorted by name, and so by time
	var all []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(c.Path)+".damaged-") {
			all = append(all, filepath.Join(filepath.Dir(c.Path), e.Name()))
		}
	}
	for _, old := range all[:max(0, len(all)-keptAside)] {
		_ = os.Remove(old) // best effort
	}
	return nil
}

// SetAside closes the store and renames its file like Config.SetAside, for a file whose content its
// reader cannot use. Open then makes an empty one.
func (s *Store) SetAside(cause error) error {
	return errors.Join(s.Close(), s.config.setAside(s.config.damaged(cause)))
}

func (c *Config) open() (db *bbolt.DB, err error) {
	err = guard(func() error {
		db, err = bbolt.Open(c.Path, 0o600, &bbolt.Options{
			Timeout: c.LockTimeout, FreelistType: bbolt.FreelistMapType, NoFreelistSync: c.NoFreelistSync, OpenFile: c.openChecked,
		})
		return err
	})
	var file *os.PathError
	switch {
	case err == nil:
		return db, nil
	case errors.Is(err, bbolterrors.ErrTimeout):
		return nil, fmt.Errorf("open %s %s: %w after %v: stop the other process, or configure another path",
			c.Name, c.Path, ErrInUse, c.LockTimeout)
	case errors.As(err, &file), writeFailed(err):
		return nil, fmt.Errorf("open %s: %w: configure a path that this user (uid %d) can write", c.Name, err, os.Getuid())
	default:
		return nil, c.damaged(err)
	}
}

// prepare checks the identity of the file and creates missing buckets. It reports whether it
// changed something, and whether the file has checksums.
func (c *Config) prepare(tx *bbolt.Tx) (changed, checksums bool, err error) {
	changed = tx.Bucket([]byte(c.Meta)) == nil
	meta, err := tx.CreateBucketIfNotExists([]byte(c.Meta))
	if err != nil {
		return changed, false, err
	}
	if err := c.Check(meta); err != nil {
		return changed, false, err
	}
	if changed {
		if err := meta.Put([]byte(checksumKey), []byte("crc32c")); err != nil {
			return changed, false, err
		}
	}
	for _, name := range c.Buckets {
		changed = changed || tx.Bucket([]byte(name)) == nil
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return changed, false, err
		}
	}
	return changed, meta.Get([]byte(checksumKey)) != nil, nil
}

// RequireValue sets key to value if key does not exist. It returns an error that wraps
// [ErrIncompatible] if key has another value. It is for use in Config.Check.
func RequireValue(meta *bbolt.Bucket, key, value string) error {
	switch got := meta.Get([]byte(key)); {
	case got == nil:
		return meta.Put([]byte(key), []byte(value))
	case string(got) != value:
		return fmt.Errorf("%w: its %s is %q, want %q", ErrIncompatible, key, got, value)
	}
	return nil
}

func (c *Config) damaged(cause error) error {
	if errors.Is(cause, ErrDamaged) {
		return cause
	}
	err := fmt.Errorf("%s %s is damaged (%w): move it away and start again", c.Name, c.Path, cause)
	if c.Recovery != "" {
		err = fmt.Errorf("%w; %s", err, c.Recovery)
	}
	return damagedError{err}
}

// damagedError is an [ErrDamaged].
type damagedError struct{ error }

func (e damagedError) Unwrap() error        { return e.error }
func (e damagedError) Is(target error) bool { return target == ErrDamaged }

// guard calls f and returns a panic as an error: with a damaged file, bbolt panics or reads beyond
// the end of the mapped file.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case error:
			err = fmt.Errorf("bbolt: %w", cause)
		default:
			err = fmt.Errorf("bbolt: %v", cause)
		}
	}()
	return f()
}

// Close closes the file. Changes that are not on disk are lost. Close must not be called while Run
// is in progress.
func (s *Store) Close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	s.closed = true
	waiting := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	var err error
	if db := s.database(); db != nil {
		err = db.Close()
	}
	for _, u := range waiting {
		u.done(ErrClosed)
	}
	if err != nil {
		return fmt.Errorf("close %s %s: %w", s.config.Name, s.config.Path, err)
	}
	return nil
}
