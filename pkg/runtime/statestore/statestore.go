// Package statestore keeps program state in one bbolt file. The agent, the broker and the source
// use it.
//
// A durable write takes milliseconds, because it waits for the disk. A Store therefore collects
// changes in memory while it writes the previous batch, and commits all of them in the next
// transaction (group commit). Put and Delete return at once; a caller that must not continue before
// its changes are on disk uses Barrier or Batch. Update runs a function between two batches and
// reports the result of its commit to the caller.
//
//	store, err := statestore.Open(statestore.Config{Name: "state file", Path: path, ...})
//	go store.Run(ctx)
//	store.Put(bucket, key, encode)
//	store.Barrier(func(err error) { ... everything put so far is on disk ... })
//
// bbolt's own DB.Batch delays every call by a fixed time, calls a function again after the failure
// of another one, and does not order the results, so it cannot replace this package.
//
// A nil *Store is valid: it stores nothing, and its barriers succeed at once.
package statestore

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

// ErrClosed is the error of barriers and updates whose changes were not on disk when the store was
// closed.
var ErrClosed = errors.New("the state store is closed")

// Bucket is the name of a bucket.
type Bucket string

// Encoder returns the value to write. The Store calls it from Run when it writes the batch, and
// does not call it if a later change replaced this one. It must not use the Store, and the data
// that it reads must not change.
type Encoder func() ([]byte, error)

// Config configures [Open].
type Config struct {
	// Name of the file in error messages, such as "state file". Required.
	Name string
	// Path of the file. Its directory must exist. Required.
	Path string
	// Meta is the bucket that identifies the file. Open calls Check with it, which verifies the
	// format and writes it to a new file. An error that wraps [ErrIncompatible] is reported as it
	// is, any other one as damage. Required.
	Meta  Bucket
	Check func(meta *bbolt.Bucket) error
	// Buckets are created if they do not exist. A batch is written in their order, Meta last. A large one, or one on a full
	// disk, takes several transactions: each beginning of it must be a state that the reader of the file can use.
	Buckets []Bucket
	// SetAside renames a damaged file to PATH.damaged-TIME, logs it, and starts with an empty one.
	// Only the newest damaged file is kept.
	SetAside bool
	// Volatile lets callers go on in memory while the disk is full or read-only: barriers pass
	// although a commit has failed, and Open succeeds with an empty store, whose first commit
	// replaces what the file holds. Run it with Keep.
	Volatile bool
	// Recovery completes error messages about a damaged file: what happens after the file is moved
	// away.
	Recovery string

	// LockTimeout is how long Open waits while another process holds the file. Default 1s.
	LockTimeout time.Duration
	// Delay is how long changes collect while no caller waits for them. Default 0.
	Delay time.Duration
	// NoFreelistSync makes commits cheaper and Open slower, see [bbolt.Options].
	NoFreelistSync bool
	// OnCommit, if not nil, is called from Run with the number of each batch that is on disk.
	// Numbers grow from 1.
	OnCommit func(batch uint64)
	// Commit, if not nil, is called from Run to carry out each commit, which write does. Simulations of disks delay, refuse and
	// cut it.
	Commit func(write func() error) error
	// Logger; default slog.Default().
	Logger *slog.Logger
}

// Store is an open state file. Its methods are safe for concurrent use.
type Store struct {
	config Config
	wake   chan struct{} // signals changes; capacity 1

	mu        sync.Mutex
	db        *bbolt.DB // nil while the file of a Volatile store cannot be opened
	checksums bool      // the values of Config.Buckets end with a checksum; constant with db
	pending   map[slot]change
	batch     uint64 // the number of the batch that will contain pending
	waiting   []update
	failed    error // of the last commit
	closed    bool
}

// slot is the place of a value.
type slot struct {
	bucket Bucket
	key    string
}

// change is a pending write.
type change struct {
	encode Encoder // nil deletes
	added  bool    // the key is not on disk
	update bool    // part of an update
}

// Put writes the value of encode under key with the next batch.
func (s *Store) Put(b Bucket, key string, encode Encoder) {
	s.change(slot{b, key}, change{encode: encode})
}

// Delete deletes key with the next batch, if it exists.
func (s *Store) Delete(b Bucket, key string) { s.change(slot{b, key}, change{}) }

// Add is like Put, for a key that does not exist. Remove can cancel it before it is written.
func (s *Store) Add(b Bucket, key string, encode Encoder) {
	s.change(slot{b, key}, change{encode: encode, added: true})
}

// Remove is like Delete, but cancels an Add that is still pending.
func (s *Store) Remove(b Bucket, key string) {
	if s == nil {
		return
	}
	at := slot{b, key}
	s.mu.Lock()
	added := s.pending[at].added
	if added {
		delete(s.pending, at)
	}
	s.mu.Unlock()
	if !added {
		s.change(at, change{})
	}
}

func (s *Store) change(at slot, c change) {
	if s == nil {
		return
	}
	s.mu.Lock()
	if !s.closed {
		s.pending[at] = c
	}
	s.mu.Unlock()
	s.signal()
}

// Barrier calls done once all previous changes are on disk, or with [ErrClosed] if the store is
// closed first. Run calls done once; done must return at once. A nil or closed Store calls it
// before Barrier returns.
func (s *Store) Barrier(done func(error)) {
	if s == nil {
		done(nil)
		return
	}
	s.wait(update{done: done})
}

// Update calls write from Run between two batches, commits the changes that write collects, and
// then calls done with the result. Updates share transactions: Run calls write for several of them
// in the order of the calls to Update, commits, and calls done in the same order. A failed commit
// is not retried and fails all updates of the transaction. A transaction without changes does not
// access the disk. done must return at once.
func (s *Store) Update(write func(Writes), done func(error)) { s.wait(update{write, done}) }

type update struct {
	write func(Writes) // nil: a barrier
	done  func(error)
}

func (s *Store) wait(u update) {
	s.mu.Lock()
	closed, inMemory := s.closed, s.config.Volatile && s.failed != nil
	if !closed && !inMemory {
		s.waiting = append(s.waiting, u)
	}
	s.mu.Unlock()
	switch {
	case closed:
		u.done(ErrClosed)
	case inMemory:
		u.done(nil)
	default:
		s.signal()
	}
}

// database returns the open file, or nil.
func (s *Store) database() *bbolt.DB {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.db
}

// Batch returns the number of the batch that makes all previous changes durable. Compare it with
// the numbers that Config.OnCommit receives.
func (s *Store) Batch() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		return s.batch - 1
	}
	return s.batch
}

// Err returns the error of the last commit, or nil if it succeeded.
func (s *Store) Err() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (s *Store) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Get returns a copy of the value of key as it is on disk, and whether it exists. Pending changes
// are not visible.
func (s *Store) Get(b Bucket, key string) (value []byte, ok bool, err error) {
	db := s.database()
	if db == nil {
		return nil, false, nil
	}
	err = guard(func() error {
		return db.View(func(tx *bbolt.Tx) error {
			value, err = s.unsealed(b, key, tx.Bucket([]byte(b)).Get([]byte(key)))
			value = bytes.Clone(value)
			return err
		})
	})
	if err != nil {
		return nil, false, fmt.Errorf("read %s %s: %w", s.config.Name, s.config.Path, err)
	}
	return value, value != nil, nil
}

// Each calls read for every key of a bucket that is on disk, in the order of the keys, until read
// returns an error, and returns that error. value is valid during the call only. Pending changes
// are not visible.
func (s *Store) Each(b Bucket, read func(key string, value []byte) error) error {
	if s == nil || s.database() == nil {
		return nil
	}
	db := s.database()
	var failed error
	err := guard(func() error {
		return db.View(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(b)).ForEach(func(k, v []byte) error {
				value, err := s.unsealed(b, string(k), v)
				if err != nil {
					return err
				}
				failed = read(string(k), value)
				return failed
			})
		})
	})
	if err != nil && failed == nil {
		return s.config.damaged(err)
	}
	return failed
}

// hasChecksums reports whether the values of a bucket end with a checksum.
func (s *Store) hasChecksums(b Bucket) bool { return s.checksums && b != s.config.Meta }

// unsealed returns a stored value without its checksum, which it verifies.
func (s *Store) unsealed(b Bucket, key string, stored []byte) ([]byte, error) {
	if stored == nil || !s.hasChecksums(b) {
		return stored, nil
	}
	value, ok := withoutChecksum(key, stored)
	if !ok {
		return nil, fmt.Errorf("a value in bucket %s has a wrong checksum", b)
	}
	return value, nil
}
