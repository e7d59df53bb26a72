package statestore

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// ErrIncompatible marks a file that is intact, but belongs to another program or version.
var ErrIncompatible = errors.New("incompatible file")

// Open opens the file, or creates it with mode 0600. Its errors name the file and what to do when
// the file cannot be written, is held by another process, is damaged, or fails Config.Check. Call
// Close when done. Nothing is written before Run.
func Open(config Config) (*Store, error) {
	if config.Name == "" || config.Path == "" || config.Meta == "" || config.Check == nil {
		return nil, errors.New("open state store: Name, Path, Meta and Check are required")
	}
	if config.LockTimeout < 0 || config.Delay < 0 {
		return nil, fmt.Errorf("open state store: LockTimeout %v and Delay %v must not be negative", config.LockTimeout, config.Delay)
	}
	config.LockTimeout = cmp.Or(config.LockTimeout, time.Second)
	config.Logger = cmp.Or(config.Logger, slog.Default())
	db, err := config.open()
	if err != nil {
		return nil, err
	}
	if err := guard(func() error { return db.Update(config.prepare) }); err != nil {
		_ = db.Close()
		if errors.Is(err, ErrIncompatible) {
			return nil, fmt.Errorf("open %s %s: %w", config.Name, config.Path, err)
		}
		return nil, config.damaged(err)
	}
	return &Store{config: config, db: db, wake: make(chan struct{}, 1), pending: map[slot]change{}, batch: 1}, nil
}

func (c *Config) open() (db *bbolt.DB, err error) {
	err = guard(func() error {
		db, err = bbolt.Open(c.Path, 0o600, &bbolt.Options{
			Timeout: c.LockTimeout, FreelistType: bbolt.FreelistMapType, NoFreelistSync: c.NoFreelistSync,
		})
		return err
	})
	var file *os.PathError
	switch {
	case err == nil:
		return db, nil
	case errors.Is(err, bbolterrors.ErrTimeout):
		return nil, fmt.Errorf("open %s %s: another process still holds it after %v: stop the other process, or configure another path",
			c.Name, c.Path, c.LockTimeout)
	case errors.As(err, &file):
		return nil, fmt.Errorf("open %s: %w: configure a path that this user (uid %d) can write", c.Name, err, os.Getuid())
	default:
		return nil, c.damaged(err)
	}
}

// prepare checks the identity of the file and creates missing buckets.
func (c *Config) prepare(tx *bbolt.Tx) error {
	meta, err := tx.CreateBucketIfNotExists([]byte(c.Meta))
	if err != nil {
		return err
	}
	if err := c.Check(meta); err != nil {
		return err
	}
	for _, name := range c.Buckets {
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return err
		}
	}
	return nil
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
	err := fmt.Errorf("%s %s is damaged (%w): move it away and start again", c.Name, c.Path, cause)
	if c.Recovery != "" {
		err = fmt.Errorf("%w; %s", err, c.Recovery)
	}
	return err
}

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
	err := s.db.Close()
	for _, u := range waiting {
		u.done(ErrClosed)
	}
	if err != nil {
		return fmt.Errorf("close %s %s: %w", s.config.Name, s.config.Path, err)
	}
	return nil
}
