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
)

// Run commits changes until ctx ends, and then those that are left. It returns an error if a commit
// fails: the changes stay pending, and the caller may retry by calling Run again. Run must not be
// called concurrently. It does not close the store.
func (s *Store) Run(ctx context.Context) error {
	if s == nil {
		<-ctx.Done()
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return s.commit()
		case <-s.wake:
			s.collect(ctx)
			if err := s.commit(); err != nil {
				s.signal()
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

// commit writes all pending changes, then runs updates and barriers. If a change cannot be
// written, everything that is not on disk stays pending.
func (s *Store) commit() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return s.writeError(ErrClosed)
	}
	changes, waiting, batch := s.pending, s.waiting, s.batch
	s.pending, s.waiting, s.batch = map[slot]change{}, nil, batch+1
	s.mu.Unlock()

	left, err := s.writeAll(changes)

	s.mu.Lock()
	s.failed = err
	if err != nil {
		for _, at := range left {
			if _, newer := s.pending[at]; !newer {
				s.pending[at] = changes[at]
			}
		}
		s.waiting = append(waiting, s.waiting...)
		s.mu.Unlock()
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

// writeAll writes changes and returns the slots that it could not write.
func (s *Store) writeAll(changes map[slot]change) (left []slot, err error) {
	left = sortedSlots(changes)
	for len(left) > 0 {
		n, err := s.write(left, changes, maxTransaction)
		if err != nil {
			return left, err
		}
		left = left[n:]
	}
	return nil, nil
}

// sortedSlots returns the slots in the order of the file, which is the fastest for bbolt.
func sortedSlots(changes map[slot]change) []slot {
	return slices.SortedFunc(maps.Keys(changes), func(a, b slot) int {
		return cmp.Or(cmp.Compare(a.bucket, b.bucket), cmp.Compare(a.key, b.key))
	})
}

// write writes the first slots in one transaction, until their values have limit bytes, and
// returns their number.
func (s *Store) write(slots []slot, changes map[slot]change, limit int) (n int, err error) {
	err = guard(func() error {
		return s.db.Update(func(tx *bbolt.Tx) error {
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
			_, err = s.write(sortedSlots(w), w, math.MaxInt)
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
