package statestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

const (
	// maxTransaction is how many bytes of values one transaction holds, except for its last value.
	maxTransaction = 16 << 20
	// maxUpdates is how many updates share one transaction.
	maxUpdates = 256
	// maxDeletions is how many deletions share a transaction while the disk is full: they need free
	// pages for the pages that they change.
	maxDeletions = 32
	// minRetry and maxRetry bound the time between a failed commit and the next one.
	minRetry = 250 * time.Millisecond
	maxRetry = 30 * time.Second
)

// Run commits changes until ctx ends, and then those that are left. It returns an error if a commit
// fails: the changes stay pending, and the caller may retry by calling Run again. Run must not be
// called concurrently. It does not close the store.
func (s *Store) Run(ctx context.Context) error {
	if s == nil {
		<-ctx.Done()
		return nil
	}
	return s.run(ctx, func(err error) error { return err })
}

// Keep is like Run, but goes on after a failed commit: it logs the first failure, retries after
// 250ms to 30s until one succeeds, and logs that. It returns the error of the last commit.
func (s *Store) Keep(ctx context.Context) error {
	if s == nil {
		<-ctx.Done()
		return nil
	}
	pause := time.Duration(0) // 0 unless the last commit failed
	return s.run(ctx, func(err error) error {
		switch {
		case err != nil && pause == 0:
			s.config.Logger.Error("state cannot be written, retrying", "error", err, "inMemoryOnly", s.config.Volatile)
			pause = minRetry
		case err != nil:
			pause = min(2*pause, maxRetry)
		case pause > 0:
			s.config.Logger.Info("state is written again", "file", s.config.Path)
			pause = 0
		}
		if pause > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
		return nil
	})
}

// run commits changes until ctx ends or committed, which gets the result of each commit, returns an
// error.
func (s *Store) run(ctx context.Context, committed func(error) error) error {
	for {
		select {
		case <-ctx.Done():
			return s.commit()
		case <-s.wake:
			s.collect(ctx)
			err := s.commit()
			if err != nil {
				s.signal()
			}
			if err := committed(err); err != nil {
				return err
			}
		}
	}
}

// collect waits for Config.Delay, or until a caller waits for a commit.
func (s *Store) collect(ctx context.Context) {
	if s.config.Delay == 0 {
		return
	}
	timer := time.NewTimer(s.config.Delay)
	defer timer.Stop()
	for !s.hasWaiting() {
		select {
		case <-s.wake:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (s *Store) hasWaiting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) > 0
}

// commit writes all pending changes, then runs updates and barriers. If a change cannot be written,
// everything that is not on disk stays pending.
func (s *Store) commit() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return s.writeError(ErrClosed)
	}
	changes, waiting, batch := s.pending, s.waiting, s.batch
	s.pending, s.waiting, s.batch = map[slot]change{}, nil, batch+1
	s.mu.Unlock()

	left, err := s.sortedSlots(changes), s.reopen()
	if err == nil {
		left, err = s.writeAll(left, changes)
	}

	s.mu.Lock()
	s.failed = err
	if err != nil {
		for _, at := range left {
			if _, newer := s.pending[at]; !newer {
				s.pending[at] = changes[at]
			}
		}
		waiting = append(waiting, s.waiting...)
		s.waiting = nil
		if !s.config.Volatile {
			waiting, s.waiting = nil, waiting
		}
		s.mu.Unlock()
		for _, u := range waiting {
			u.done(nil)
		}
		return err
	}
	s.mu.Unlock()
	if s.config.OnCommit != nil {
		s.config.OnCommit(batch)
	}
	s.runUpdates(waiting)
	return nil
}

func (s *Store) writeError(err error) error {
	return fmt.Errorf("write %s %s: %w", s.config.Name, s.config.Path, err)
}

// writeAll writes the changes of slots and returns those that it could not write. On a full disk it
// writes deletions all the same: they need few pages, and make room for the rest.
func (s *Store) writeAll(left []slot, changes map[slot]change) ([]slot, error) {
	for len(left) > 0 {
		n, err := s.write(left, changes, maxTransaction)
		if err == nil {
			left = left[n:]
			continue
		}
		if !writeFailed(err) {
			return left, err
		}
		var deletions, rest []slot
		for _, at := range left {
			if changes[at].encode == nil {
				deletions = append(deletions, at)
			} else {
				rest = append(rest, at)
			}
		}
		for len(deletions) > 0 {
			n := min(len(deletions), maxDeletions)
			if _, failed := s.write(deletions[:n], changes, maxTransaction); failed != nil {
				break
			}
			deletions = deletions[n:]
		}
		return append(rest, deletions...), err
	}
	return nil, nil
}

// sortedSlots returns the slots in the order of Config.Buckets, with Meta last, and of their keys. A crash
// between two transactions leaves a prefix of it; the order of the keys is the fastest for bbolt.
func (s *Store) sortedSlots(changes map[slot]change) []slot {
	rank := func(b Bucket) int {
		if b == s.config.Meta {
			return len(s.config.Buckets)
		}
		return slices.Index(s.config.Buckets, b)
	}
	return slices.SortedFunc(maps.Keys(changes), func(a, b slot) int {
		if a.bucket != b.bucket {
			return cmp.Compare(rank(a.bucket), rank(b.bucket))
		}
		return cmp.Compare(a.key, b.key)
	})
}

// write writes the first slots in one transaction, until their values have limit bytes, and returns
// their number.
func (s *Store) write(slots []slot, changes map[slot]change, limit int) (n int, err error) {
	err = s.config.Commit(func() error {
		return guard(func() error {
			return s.database().Update(func(tx *bbolt.Tx) error {
				size := 0
				for n = 0; n < len(slots) && size <= limit; n++ {
					written, err := s.writeOne(tx.Bucket([]byte(slots[n].bucket)), slots[n], changes[slots[n]])
					if err != nil {
						return err
					}
					size += written
				}
				return nil
			})
		})
	})
	if err != nil {
		return 0, s.writeError(err)
	}
	return n, nil
}

// writeOne writes one value and returns its size. A value that can never be written is logged and
// skipped, because a retry would fail, too. Updates are not retried and return the error.
func (s *Store) writeOne(bucket *bbolt.Bucket, at slot, c change) (int, error) {
	if c.encode == nil {
		return 0, bucket.Delete([]byte(at.key))
	}
	value, err := c.encode()
	permanent := err != nil
	if err == nil {
		if s.hasChecksums(at.bucket) {
			value = withChecksum(at.key, value)
		}
		err = bucket.Put([]byte(at.key), value)
		permanent = errors.Is(err, bbolterrors.ErrKeyTooLarge) || errors.Is(err, bbolterrors.ErrValueTooLarge)
	}
	if err != nil && permanent && !c.update {
		s.config.Logger.Error("state entry cannot be stored, skipping it", "file", s.config.Path, "bucket", at.bucket, "error", err)
		return 0, nil
	}
	return len(value), err
}

// Writes collects the changes of the updates that share a transaction.
type Writes map[slot]change

// Put writes the value of encode under key. An error of encode fails the transaction.
func (w Writes) Put(b Bucket, key string, encode Encoder) {
	w[slot{b, key}] = change{encode: encode, update: true}
}

// Delete deletes key if it exists.
func (w Writes) Delete(b Bucket, key string) { w[slot{b, key}] = change{update: true} }

// runUpdates runs updates and barriers, up to maxUpdates of them in one transaction.
func (s *Store) runUpdates(updates []update) {
	for len(updates) > 0 {
		n := min(len(updates), maxUpdates)
		w := Writes{}
		for _, u := range updates[:n] {
			if u.write != nil {
				u.write(w)
			}
		}
		var err error
		if len(w) > 0 {
			_, err = s.write(s.sortedSlots(w), w, math.MaxInt)
		}
		for _, u := range updates[:n] {
			if u.write == nil { // a barrier: what it waits for is on disk
				u.done(nil)
			} else {
				u.done(err)
			}
		}
		updates = updates[n:]
	}
}
