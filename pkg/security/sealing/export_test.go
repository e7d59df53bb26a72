package sealing

import "github.com/workwire/workwire/pkg/wire"

// Fault returns why the file of a cluster, as it is now, cannot be used.
func (s *Sealer) Fault(cluster wire.ClusterName) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[cluster].err
}

// Removed reports whether the file of a cluster with a key is gone.
func (s *Sealer) Removed(cluster wire.ClusterName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[cluster].gone
}
