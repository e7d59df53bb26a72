// Package store keeps an agent's state in one file, so that an agent that
// starts while the broker is away still knows its works and what it has yet to
// report.
//
// It stores bytes under keys in a few buckets and knows nothing of what they
// mean. Writes return at once and are committed together: one flush to disk
// carries all that was written since the last one began. Who needs to know that
// a write is on disk asks for a Barrier:
//
//	s, err := store.Open(store.Config{Dir: dir})
//	go s.Run(ctx)
//	s.Bucket(store.Specs).Put(key, encode)
//	s.Barrier(func(err error) { ... everything put so far is on disk ... })
//
// A nil *Store and a nil *Bucket are valid: they keep nothing, and their
// barriers pass at once. That is an agent without a state directory.
//
// # Format
//
// The file is state.db in the state directory, a bbolt database. Bucket "meta"
// holds "format", the version of the layout in decimal; an agent refuses a file
// of a later version. Buckets "specs", "statuses" and "acked" hold one JSON
// record a work, described at the packages that write them (inbox, outbox),
// under the key <source> NUL <uid>.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

// Name is the name of a bucket.
type Name string

// The buckets that exist.
const (
	// Specs holds the specs received (package inbox).
	Specs Name = "specs"
	// Statuses holds the newest status of each work (package outbox).
	Statuses Name = "statuses"
	// Acked holds which status of each work the broker took last (package outbox).
	Acked Name = "acked"
)

// ErrClosed is what a barrier gets when the store ended before its writes were
// on disk.
var ErrClosed = errors.New("the state store is closed")

// Config says where and how to store.
type Config struct {
	// Dir is the state directory, made with mode 0700 when it is missing. Required.
	Dir string
	// Lock is how long Open waits for another process to let go of the file.
	// Default 5s.
	Lock time.Duration
	// Delay is how long writes may gather while nobody waits for them at a
	// barrier. Default 50ms.
	Delay time.Duration
	// Logger receives failed commits. Default slog.Default().
	Logger *slog.Logger
}

// Store is a state file. All methods may be called from any goroutine.
type Store struct {
	db     *bbolt.DB
	update func(func(*bbolt.Tx) error) error // db.Update
	log    *slog.Logger
	wait   time.Duration
	wake   chan struct{}

	mu       sync.Mutex
	pending  map[slot]Encoder // the newest write of each key; nil deletes
	barriers []func(error)
	failed   error // of the last commit
	closed   bool
}

// Encoder gives the value to write. It is called by the store's goroutine when
// the write is committed, and not at all when a later write of the same key
// comes first. What it reads must not change.
type Encoder func() ([]byte, error)

// slot is where a write goes.
type slot struct {
	bucket Name
	key    string
}

// Bucket is one bucket of a Store.
type Bucket struct {
	store *Store
	name  Name
}

// Bucket gives the bucket of that name; nil for a nil Store.
func (s *Store) Bucket(name Name) *Bucket {
	if s == nil {
		return nil
	}
	return &Bucket{store: s, name: name}
}

// Put writes what encode gives under key. It does not wait.
func (b *Bucket) Put(key string, encode Encoder) {
	if b != nil {
		b.store.write(slot{b.name, key}, encode)
	}
}

// Delete removes key. It does not wait.
func (b *Bucket) Delete(key string) {
	if b != nil {
		b.store.write(slot{b.name, key}, nil)
	}
}

// Each calls read for every key that is on disk, in the order of the keys, until
// read fails. value is valid during the call only. Writes still pending are not
// seen: it is for use at the start.
func (b *Bucket) Each(read func(key string, value []byte) error) error {
	if b == nil {
		return nil
	}
	var failed error
	err := guard(func() error {
		return b.store.db.View(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(b.name)).ForEach(func(k, v []byte) error {
				failed = read(string(k), v)
				return failed
			})
		})
	})
	if err != nil && failed == nil {
		return damaged(b.store.db.Path(), err)
	}
	return failed
}

func (s *Store) write(at slot, encode Encoder) {
	s.mu.Lock()
	if !s.closed {
		s.pending[at] = encode
	}
	s.mu.Unlock()
	s.poke()
}

// Barrier calls done once everything that was written before is on disk, or with
// [ErrClosed] when the store ends first. done is called once, by the store's
// goroutine, and must return at once; a nil Store calls it before Barrier
// returns.
func (s *Store) Barrier(done func(error)) {
	if s == nil {
		done(nil)
		return
	}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.barriers = append(s.barriers, done)
	}
	s.mu.Unlock()
	if closed {
		done(ErrClosed)
		return
	}
	s.poke()
}

// Err is why the last commit failed, nil when it did not. A failed commit is
// repeated until it succeeds; meanwhile no barrier passes.
func (s *Store) Err() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// Sync returns once everything that was written before is on disk, with
// [ErrClosed] when the store ended first, or with the error of ctx.
func (s *Store) Sync(ctx context.Context) error {
	done := make(chan error, 1)
	s.Barrier(func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for the state to be on disk: %w", ctx.Err())
	}
}

func (s *Store) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
