package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// Bounds of a commit, and of the wait after a failed one.
const (
	maxCommit = 16 << 20 // bytes of values in one transaction
	firstWait = 250 * time.Millisecond
	lastWait  = 30 * time.Second
)

// Run commits what is written until ctx ends, then what is left, and closes the
// file. A commit that fails, on a full disk for instance, is logged and repeated,
// with waits that double from 250ms to 30s. Run must be called once, and end
// after those who write. It fails when the last commit or the closing does.
func (s *Store) Run(ctx context.Context) error {
	if s == nil {
		<-ctx.Done()
		return nil
	}
	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()
	var gathering, failing bool
	pause := firstWait
	for {
		select {
		case <-ctx.Done():
			return s.end()
		case <-s.wake:
			switch waited, written := s.waiting(); {
			case failing: // the timer decides
				continue
			case waited:
			case written && !gathering:
				gathering = true
				timer.Reset(s.wait)
				continue
			default:
				continue
			}
		case <-timer.C:
		}
		timer.Stop()
		gathering = false
		if err := s.commit(); err != nil {
			s.log.Error("state could not be written; it is tried again", "file", s.db.Path(), "in", pause, "error", err)
			failing = true
			timer.Reset(pause)
			pause = min(2*pause, lastWait)
			continue
		}
		failing, pause = false, firstWait
	}
}

// waiting reports whether someone waits at a barrier and whether anything is to
// be written.
func (s *Store) waiting() (waited, written bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.barriers) > 0, len(s.pending) > 0
}

// commit writes all that is pending and lets the barriers pass. When it fails
// all of them stand as before.
func (s *Store) commit() error {
	s.mu.Lock()
	batch, barriers := s.pending, s.barriers
	s.pending, s.barriers = make(map[slot]Encoder), nil
	s.mu.Unlock()

	var err error
	for len(batch) > 0 && err == nil {
		err = s.flush(batch)
	}

	s.mu.Lock()
	s.failed = err
	if err != nil {
		for at, encode := range batch {
			if _, newer := s.pending[at]; !newer {
				s.pending[at] = encode
			}
		}
		s.barriers = append(barriers, s.barriers...)
	}
	s.mu.Unlock()
	if err == nil {
		for _, done := range barriers {
			done(nil)
		}
	}
	return err
}

// flush writes as much of batch as one transaction may hold and removes it from
// batch.
func (s *Store) flush(batch map[slot]Encoder) error {
	var written []slot
	err := guard(func() error {
		return s.update(func(tx *bbolt.Tx) error {
			size := 0
			for at, encode := range batch {
				n, err := s.apply(tx, at, encode)
				if err != nil {
					return err
				}
				written = append(written, at)
				if size += n; size > maxCommit {
					break
				}
			}
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("write state file %s: %w", s.db.Path(), err)
	}
	for _, at := range written {
		delete(batch, at)
	}
	return nil
}

// apply makes one write and gives the bytes of its value.
func (s *Store) apply(tx *bbolt.Tx, at slot, encode Encoder) (int, error) {
	bucket := tx.Bucket([]byte(at.bucket))
	if encode == nil {
		return 0, bucket.Delete([]byte(at.key))
	}
	value, err := encode()
	if err != nil {
		// No repetition mends this. The record that stands is older, and the
		// next resync brings it up to date.
		s.log.Error("state record could not be encoded and is not kept", "bucket", at.bucket, "error", err)
		return 0, nil
	}
	err = bucket.Put([]byte(at.key), value)
	if errors.Is(err, berrors.ErrKeyTooLarge) || errors.Is(err, berrors.ErrValueTooLarge) {
		s.log.Error("state record is too large and is not kept", "bucket", at.bucket, "error", err)
		return 0, nil
	}
	return len(value), err
}

func (s *Store) end() error {
	err := s.commit()
	if err != nil {
		s.log.Error("state of the last moments is lost", "error", err)
	}
	if closing := s.Close(); err == nil {
		err = closing
	}
	return err
}
