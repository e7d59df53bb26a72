package store

import "go.etcd.io/bbolt"

// FailCommits makes the commits of s fail as fault says. Call it before Run.
func FailCommits(s *Store, fault func() error) {
	update := s.update
	s.update = func(write func(*bbolt.Tx) error) error {
		return update(func(tx *bbolt.Tx) error {
			if err := fault(); err != nil {
				return err
			}
			return write(tx)
		})
	}
}
