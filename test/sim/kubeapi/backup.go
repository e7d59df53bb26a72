package kubeapi

import (
	"maps"
	"slices"
)

// Backup is all objects of a [Server] at a time.
type Backup struct {
	objects map[key]*Object
	version int64
}

// RestoredBy is the user of the changes that [Server.Restore] makes.
const RestoredBy = "restore"

// Backup returns what the server has now.
func (s *Server) Backup() *Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Backup{maps.Clone(s.store.objects), s.store.version}
}

// Age returns how many changes there were since b.
func (s *Server) Age(b *Backup) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store.version - b.version
}

// Restore makes the server have what it had at b, ends all watches and forgets the history. Resource versions go on from
// those of b, or with bump far above all that there were.
func (s *Server) Restore(b *Backup, bump bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restores++
	before := s.store.objects
	keys := maps.Clone(before)
	maps.Copy(keys, b.objects)
	s.store.objects = maps.Clone(b.objects)
	if bump {
		s.store.version += 1_000_000
	} else {
		s.store.version = b.version
	}
	s.store.compact()
	for _, k := range slices.SortedFunc(maps.Keys(keys), key.compare) {
		if before[k] != b.objects[k] {
			for _, observe := range s.observers {
				observe(Write{Kind: s.kindOf(k), User: RestoredBy, Before: before[k], After: b.objects[k]})
			}
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(b.objects), key.compare) {
		if len(b.objects[k].GetOwnerReferences()) > 0 {
			s.lookAt(k)
		}
	}
	close(s.broken)
	s.broken = make(chan struct{})
}
