// Package store keeps the broker's state on disk, in one bbolt file.
//
// Writing to a disk so that it holds takes milliseconds; a broker handles a message in
// microseconds. Changes therefore collect in memory while the former batch is being written,
// and one transaction then makes all of them durable. Whoever must not go on before a
// change is durable takes its batch number from [Store.Barrier] and compares it with what
// [Config].OnCommit reports. A message that is acknowledged before its batch is written
// never touches the disk.
//
//	s, err := store.Open(store.Config{Path: path, OnCommit: func(batch uint64) { … }})
//	go s.Run(ctx)
//	s.Add(store.Messages, key, encode)
//	wait for OnCommit(n) with n >= s.Barrier()
package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Bucket is a kind of record.
type Bucket string

// The buckets. What their keys and values are is the business of package session.
const (
	Sessions Bucket = "sessions"
	Queue    Bucket = "queue"
	Messages Bucket = "messages"
	Retained Bucket = "retained"
)

// format is the version of the file's content; another one is refused.
const format = "workwire broker 1"

var (
	metaBucket = []byte("meta")
	formatKey  = []byte("format")
)

// Config says where the state lies.
type Config struct {
	// Path of the database file. Its directory is made when missing.
	Path string
	// OnCommit is called from Run's goroutine after every batch with its number. Batches
	// have consecutive numbers from 1.
	OnCommit func(batch uint64)
}

// Store is an open database. Its methods are safe for concurrent use.
type Store struct {
	db       *bbolt.DB
	onCommit func(uint64)
	wake     chan struct{} // has room for one: there is something to commit

	mu      sync.Mutex
	pending map[recordKey]change
	batch   uint64 // number that the pending changes will be committed under
}

type recordKey struct {
	bucket Bucket
	key    string
}

// change is what is to become of a record. encode is called when the batch is written, so
// that what never gets that far costs nothing.
type change struct {
	encode func() []byte // nil: delete
	once   bool          // the key is not on disk
}

// Open opens or makes the database. Only one process may have it open. Close it in the end.
func Open(cfg Config) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o700); err != nil {
		return nil, fmt.Errorf("open the broker's database: %w", err)
	}
	db, err := bbolt.Open(cfg.Path, 0o600, &bbolt.Options{
		Timeout:        time.Second,
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("open the broker's database %s: another process has it open; stop that broker or configure another dataDir", cfg.Path)
	}
	if err != nil {
		return nil, fmt.Errorf("open the broker's database %s: %w", cfg.Path, err)
	}
	if err := db.Update(prepare); err != nil {
		return nil, errors.Join(fmt.Errorf("open the broker's database %s: %w", cfg.Path, err), db.Close())
	}
	return &Store{
		db: db, onCommit: cfg.OnCommit, wake: make(chan struct{}, 1),
		pending: map[recordKey]change{}, batch: 1,
	}, nil
}

func prepare(tx *bbolt.Tx) error {
	meta, err := tx.CreateBucketIfNotExists(metaBucket)
	if err != nil {
		return err
	}
	if have := meta.Get(formatKey); have != nil && string(have) != format {
		return fmt.Errorf("its format is %q, this program knows %q", have, format)
	}
	if err := meta.Put(formatKey, []byte(format)); err != nil {
		return err
	}
	for _, b := range []Bucket{Sessions, Queue, Messages, Retained} {
		if _, err := tx.CreateBucketIfNotExists([]byte(b)); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the file. Changes that Run has not committed are lost.
func (s *Store) Close() error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close the broker's database: %w", err)
	}
	return nil
}

// Put writes or overwrites a record with the next batch. encode runs later, in Run's
// goroutine, and must not need a lock that is held while calling this store.
func (s *Store) Put(b Bucket, key string, encode func() []byte) {
	s.change(recordKey{b, key}, change{encode: encode})
}

// Delete deletes a record with the next batch, if it exists.
func (s *Store) Delete(b Bucket, key string) { s.change(recordKey{b, key}, change{}) }

// Add is Put for a key that is not on disk, so that Remove can take it back for nothing.
func (s *Store) Add(b Bucket, key string, encode func() []byte) {
	s.change(recordKey{b, key}, change{encode: encode, once: true})
}

// Remove undoes Add.
func (s *Store) Remove(b Bucket, key string) {
	k := recordKey{b, key}
	s.mu.Lock()
	if c, ok := s.pending[k]; ok && c.once {
		delete(s.pending, k)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.change(k, change{})
}

func (s *Store) change(k recordKey, c change) {
	s.mu.Lock()
	s.pending[k] = c
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Barrier returns the number of the batch with which every change made so far is durable.
func (s *Store) Barrier() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		return s.batch - 1
	}
	return s.batch
}

// Run commits batches until ctx ends, and then a last one. An error means that a batch could
// not be written, for instance because the disk is full: nothing after it is durable, and
// the broker must end so that no one takes it for granted.
func (s *Store) Run(ctx context.Context) error {
	for {
		select {
		case <-s.wake:
			if err := s.commit(); err != nil {
				return err
			}
		case <-ctx.Done():
			return s.commit()
		}
	}
}

func (s *Store) commit() error {
	s.mu.Lock()
	changes, batch := s.pending, s.batch
	s.pending, s.batch = map[recordKey]change{}, batch+1
	s.mu.Unlock()
	if len(changes) > 0 {
		if err := s.db.Update(func(tx *bbolt.Tx) error { return write(tx, changes) }); err != nil {
			return fmt.Errorf("write to the broker's database %s: %w", s.db.Path(), err)
		}
	}
	s.onCommit(batch)
	return nil
}

// write applies changes in the order of their keys, which is how bbolt is fastest.
func write(tx *bbolt.Tx, changes map[recordKey]change) error {
	keys := make([]recordKey, 0, len(changes))
	for k := range changes {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b recordKey) int {
		return cmp.Or(cmp.Compare(a.bucket, b.bucket), cmp.Compare(a.key, b.key))
	})
	for _, k := range keys {
		bucket := tx.Bucket([]byte(k.bucket))
		var err error
		if encode := changes[k].encode; encode != nil {
			err = bucket.Put([]byte(k.key), encode())
		} else {
			err = bucket.Delete([]byte(k.key))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Get returns a copy of a record's value. It sees committed changes only; false means that
// there is no such record.
func (s *Store) Get(b Bucket, key string) ([]byte, bool, error) {
	var value []byte
	err := s.db.View(func(tx *bbolt.Tx) error {
		value = bytes.Clone(tx.Bucket([]byte(b)).Get([]byte(key)))
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("read from the broker's database: %w", err)
	}
	return value, value != nil, nil
}

// Each calls f for every committed record of a bucket in the order of the keys. value is
// valid during the call only. It stops at f's first error and returns it.
func (s *Store) Each(b Bucket, f func(key string, value []byte) error) error {
	return s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(b)).ForEach(func(k, v []byte) error { return f(string(k), v) })
	})
}
